// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/protection"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

const (
	mutate   = "/mutate-apps-kruise-io-statefulset"
	validate = "/validate-apps-kruise-io-statefulset"
)

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }

// review is a request about a StatefulSet.
func review(version string, op admissionv1.Operation, old, obj string) admittest.Review {
	return admittest.Review{Kind: schema.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "StatefulSet"}, Operation: op, Old: old, New: obj}
}

// noClasses is a server that does not answer.
type noClasses struct{ client.Reader }

func (noClasses) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("no answer")
}

func handlers(t *testing.T, gates string, log *bytes.Buffer, live client.Reader) admit.Handlers {
	t.Helper()
	set, err := features.Parse(gates)
	require.NoError(t, err)
	hs := admit.Handlers{}
	Register(hs, Options{Features: set, Live: live, Denials: protection.New(nopCloser{log})})
	return hs
}

func classes(t *testing.T, objs ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, storagev1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
}

const (
	selector = `"selector":{"matchLabels":{"app":"db"}}`
	// settled are the defaults of the kind in both versions, without those of templates.
	settled = `"replicas":1,"revisionHistoryLimit":10,"podManagementPolicy":"OrderedReady","updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0,"maxUnavailable":1,"podUpdatePolicy":"ReCreate","minReadySeconds":0}}`
	retain  = `"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"}`
)

func spec(parts ...string) string {
	return `{"metadata":{"name":"web","namespace":"shop"},"spec":{` + strings.Join(append([]string{selector}, parts...), ",") + `}}`
}

func tmpl(image string) string {
	return `"template":{"metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"name":"main","image":"` + image + `"}]}}`
}

func data(class, size string) string {
	return `"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"storageClassName":"` + class + `","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"` + size + `"}}}}]`
}

func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		gates, version string
		op             admissionv1.Operation
		old, obj       string
		has, lacks     []string // in the object afterwards
		none           bool     // no patch
	}{
		"what is absent": {
			version: "v1beta1", op: "CREATE", obj: spec(tmpl("a"), data("x", "1Gi")),
			has: []string{`"replicas":1`, `"podManagementPolicy":"OrderedReady"`, `"maxUnavailable":1`, `"partition":0`, `"minReadySeconds":0`, `"podUpdatePolicy":"ReCreate"`,
				retain, `"imagePullPolicy":"Always"`, `"restartPolicy":"Always"`, `"volumeMode":"Filesystem"`, `"phase":"Pending"`},
			lacks: []string{"volumeClaimUpdateStrategy"},
		},
		"what is absent in v1alpha1, and no field or annotation of the hub": {
			version: "v1alpha1", op: "CREATE", obj: spec(tmpl("a")),
			has:   []string{`"replicas":1`, `"podManagementPolicy":"OrderedReady"`, `"maxUnavailable":1`, `"imagePullPolicy":"Always"`},
			lacks: []string{"persistentVolumeClaimRetentionPolicy", "annotations"},
		},
		"half a retention policy": {
			version: "v1beta1", op: "CREATE", obj: spec(tmpl("a"), `"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}`),
			has: []string{`"whenScaled":"Delete"`, `"whenDeleted":"Retain"`},
		},
		"no retention policy without its gate": {
			gates: "StatefulSetAutoDeletePVC=false", version: "v1beta1", op: "CREATE", obj: spec(tmpl("a")), lacks: []string{"persistentVolumeClaimRetentionPolicy"},
			has: []string{`"replicas":1`},
		},
		"the strategy for claims with its gate": {
			gates: "StatefulSetAutoResizePVCGate=true", version: "v1beta1", op: "CREATE", obj: spec(tmpl("a")),
			has: []string{`"volumeClaimUpdateStrategy":{"type":"OnDelete"}`},
		},
		"nothing under OnDelete": {
			version: "v1beta1", op: "CREATE", obj: spec(tmpl("a"), `"updateStrategy":{"type":"OnDelete"}`),
			has: []string{`"updateStrategy":{"type":"OnDelete"}`},
		},
		"limits that an update leaves out": {
			version: "v1beta1", op: "UPDATE", old: spec(tmpl("a"), settled, retain),
			obj: spec(tmpl("a"), retain, `"replicas":2,"revisionHistoryLimit":10,"podManagementPolicy":"OrderedReady","updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":2}}`),
			has: []string{`"partition":2`, `"maxUnavailable":1`}, lacks: []string{"imagePullPolicy"},
		},
		"no defaults of templates with TemplateNoDefaults": {
			gates: "TemplateNoDefaults=true", version: "v1beta1", op: "CREATE", obj: spec(tmpl("a"), data("x", "1Gi")),
			has: []string{`"maxUnavailable":1`}, lacks: []string{"imagePullPolicy", "volumeMode"},
		},
		"an unchanged template stays as it is, and so do claims": {
			version: "v1beta1", op: "UPDATE", none: true,
			old: spec(tmpl("a"), settled, retain), obj: spec(tmpl("a"), strings.Replace(settled, `"replicas":1`, `"replicas":2`, 1), retain, data("x", "1Gi")),
		},
		"an unchanged template stays as it is in v1alpha1": {
			version: "v1alpha1", op: "UPDATE", none: true,
			old: spec(tmpl("a"), settled), obj: spec(tmpl("a"), strings.Replace(settled, `"replicas":1`, `"replicas":2`, 1)),
		},
		"a changed template gets the defaults, and so do claims": {
			version: "v1beta1", op: "UPDATE", old: spec(tmpl("a"), settled, retain), obj: spec(tmpl("b"), settled, retain, data("x", "1Gi")),
			has: []string{`"imagePullPolicy":"Always"`, `"volumeMode":"Filesystem"`},
		},
		"a label of the set is not worth a patch": {
			version: "v1beta1", op: "UPDATE", none: true, old: spec(tmpl("a")), obj: strings.Replace(spec(tmpl("a")), `"name"`, `"labels":{"a":"b"},"name"`, 1),
		},
		"the status of the request": {
			version: "v1beta1", op: "CREATE", obj: strings.TrimSuffix(spec(tmpl("a")), "}") + `,"status":{"replicas":7,"readyReplicas":7,"availableReplicas":7,"currentReplicas":7,"updatedReplicas":7,"currentRevision":"web-1"}}`,
			has: []string{`"replicas":0`}, lacks: []string{"7", "currentRevision"},
		},
		"the status of the request in v1alpha1": {
			version: "v1alpha1", op: "CREATE", obj: strings.TrimSuffix(spec(tmpl("a")), "}") + `,"status":{"replicas":7,"readyReplicas":7,"availableReplicas":7,"currentReplicas":7,"updatedReplicas":7,"currentRevision":"web-1"}}`,
			has: []string{`"replicas":0`}, lacks: []string{"7", "currentRevision"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			hs := handlers(t, c.gates, &bytes.Buffer{}, nil)
			r := review(c.version, c.op, c.old, c.obj)
			answer := admittest.Ask(t, hs, mutate, r)
			got := admittest.Patched(t, r, answer)
			require.Equal(t, c.none, len(answer.Patch) == 0, "patch %s", answer.Patch)
			for _, want := range c.has {
				require.Contains(t, got, want)
			}
			for _, not := range c.lacks {
				require.NotContains(t, got, not)
			}
			for _, again := range []admittest.Review{review(c.version, c.op, c.old, got), review(c.version, "UPDATE", got, got)} {
				twice := admittest.Ask(t, hs, mutate, again)
				require.Empty(t, twice.Patch, "defaulting twice changes the object: %s", twice.Patch)
			}
			valid := admittest.Ask(t, hs, validate, review(c.version, c.op, c.old, got))
			require.True(t, valid.Allowed, "%v", valid.Result)
		})
	}
}

func TestRulesSeeDefaults(t *testing.T) {
	for _, gates := range []string{"", "TemplateNoDefaults=true", "StatefulSetAutoDeletePVC=false", "StatefulSetAutoResizePVCGate=true"} {
		hs := handlers(t, gates, &bytes.Buffer{}, nil)
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			require.True(t, admittest.Ask(t, hs, validate, review(version, "CREATE", "", spec(tmpl("a")))).Allowed, "%s %s", version, gates)
			require.True(t, admittest.Ask(t, hs, validate, review(version, "UPDATE", spec(tmpl("a")), spec(tmpl("b")))).Allowed, "%s %s", version, gates)
		}
	}
}

func TestRefusals(t *testing.T) {
	const resize = "StatefulSetAutoResizePVCGate=true"
	along := `"volumeClaimUpdateStrategy":{"type":"OnPodRollingUpdate"}`
	live := classes(t,
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, AllowVolumeExpansion: new(true)},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}})
	for name, c := range map[string]struct {
		gates, version string
		live           client.Reader
		old, obj       string
		field          string // empty: allowed
		code           int32
	}{
		"a fault at CREATE":                      {version: "v1beta1", obj: spec(tmpl("a"), `"replicas":-1`), field: "spec.replicas", code: 422},
		"a fault at CREATE in v1alpha1":          {version: "v1alpha1", obj: spec(tmpl("a"), `"replicas":-1`), field: "spec.replicas", code: 422},
		"half a retention policy, gate off":      {gates: "StatefulSetAutoDeletePVC=false", version: "v1beta1", obj: spec(tmpl("a"), `"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}`), field: "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", code: 422},
		"another Service":                        {version: "v1beta1", old: spec(tmpl("a")), obj: spec(tmpl("a"), `"serviceName":"x"`), field: "spec.serviceName", code: 422},
		"claims that grow":                       {gates: resize, version: "v1beta1", live: live, old: spec(tmpl("a"), along, data("grows", "1Gi")), obj: spec(tmpl("a"), along, data("grows", "2Gi"))},
		"claims that cannot grow":                {gates: resize, version: "v1beta1", live: live, old: spec(tmpl("a"), along, data("fixed", "1Gi")), obj: spec(tmpl("a"), along, data("fixed", "2Gi")), field: "spec.volumeClaimTemplates[0].spec.resources", code: 422},
		"claims that need not grow yet":          {gates: resize, version: "v1beta1", live: noClasses{}, old: spec(tmpl("a"), data("fixed", "1Gi")), obj: spec(tmpl("a"), data("fixed", "2Gi"))},
		"claims that may grow, but nobody knows": {gates: resize, version: "v1beta1", live: noClasses{}, old: spec(tmpl("a"), along, data("grows", "1Gi")), obj: spec(tmpl("a"), along, data("grows", "2Gi")), code: 500},
		"claims without the gate":                {version: "v1beta1", live: noClasses{}, old: spec(tmpl("a"), along, data("fixed", "1Gi")), obj: spec(tmpl("a"), along, data("fixed", "2Gi"))},
		"resources in place only":                {version: "v1beta1", old: onlyInPlace(tmpl("a")), obj: onlyInPlace(strings.Replace(tmpl("a"), `"name":"main"`, `"name":"main","resources":{"limits":{"cpu":"1"}}`, 1)), field: "spec.template.spec", code: 422},
		"resources in place only, with the gate": {gates: "InPlaceWorkloadVerticalScaling=true", version: "v1alpha1", old: onlyInPlace(tmpl("a")), obj: onlyInPlace(strings.Replace(tmpl("a"), `"name":"main"`, `"name":"main","resources":{"limits":{"cpu":"1"}}`, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			op := admissionv1.Create
			if c.old != "" {
				op = admissionv1.Update
			}
			answer := admittest.Ask(t, handlers(t, c.gates, &bytes.Buffer{}, c.live), validate, review(c.version, op, c.old, c.obj))
			require.Equal(t, c.code == 0, answer.Allowed, "%v", answer.Result)
			if c.code == 0 {
				return
			}
			require.Equal(t, c.code, answer.Result.Code)
			if c.field != "" {
				require.Len(t, answer.Result.Details.Causes, 1, "%v", answer.Result)
				require.Equal(t, c.field, answer.Result.Details.Causes[0].Field)
			}
		})
	}
}

// onlyInPlace is a set with policy InPlaceOnly and the readiness gate that it needs.
func onlyInPlace(template string) string {
	template = strings.Replace(template, `"containers"`, `"readinessGates":[{"conditionType":"InPlaceUpdateReady"}],"containers"`, 1)
	return spec(template, `"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceOnly"}}`)
}

func TestDeleteProtection(t *testing.T) {
	protected := func(value, replicas string) string {
		return `{"metadata":{"name":"web","namespace":"shop","labels":{"policy.kruise.io/delete-protection":"` + value + `"}},"spec":{"replicas":` + replicas + `}}`
	}
	const on = "ResourcesDeletionProtection=true"
	for name, c := range map[string]struct{ gates, old, message string }{
		"always means always":                     {on, protected("Always", "0"), "forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection=Always"},
		"cascading means while it has Pods":       {on, protected("Cascading", "2"), "forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection=Cascading and replicas 2>0"},
		"cascading without Pods is deletable":     {on, protected("Cascading", "0"), ""},
		"replicas that nobody set protect nobody": {on, strings.Replace(protected("Cascading", "0"), `"replicas":0`, "", 1), ""},
		"nor does anything while the gate is off": {"", protected("Always", "2"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{"v1alpha1", "v1beta1"} {
				log := &bytes.Buffer{}
				answer := admittest.Ask(t, handlers(t, c.gates, log, nil), validate, review(version, "DELETE", c.old, ""))
				require.Equal(t, c.message == "", answer.Allowed, "%v", answer.Result)
				if answer.Allowed {
					require.Zero(t, log.Len(), "%s", log)
					continue
				}
				require.EqualValues(t, 403, answer.Result.Code)
				require.Equal(t, c.message, answer.Result.Message)
				require.Contains(t, log.String(), `"Event":"DeletionProtection","Kind":"StatefulSet","Namespace":"shop","Name":"web"`)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	hs := handlers(t, "", &bytes.Buffer{}, nil)
	for _, path := range []string{mutate, validate, "/mutate-apps-kruise-io-v1alpha1-statefulset", "/validate-apps-kruise-io-v1alpha1-statefulset"} {
		require.NotNil(t, hs[path], path)
	}
	hub, spoke := Converter()
	require.NotNil(t, hub)
	require.NotNil(t, spoke)
}

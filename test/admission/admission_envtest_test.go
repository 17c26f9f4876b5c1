// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package admission

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/apitest"
)

// mode is one way to guard the API.
type mode struct {
	webhooks bool // the webhooks of the manifests answer
	schema   bool // the CRDs have our rules
}

// refused says at which field, and with which status, r is refused; not at all when code is 0.
func (m mode) refused(r row, k kind) (path string, code int32) {
	switch {
	case m.webhooks && k.resolved: // the API server asks mutating webhooks before it checks the schema
		return r.Path, k.code
	case m.schema && (r.CEL || m.webhooks && r.Defaulted), r.Required: // and the schema before it asks validating ones
		return r.celPath(), http.StatusUnprocessableEntity
	case m.webhooks:
		return r.Path, k.code
	}
	return "", 0
}

func TestTables(t *testing.T) {
	for name, m := range map[string]mode{
		"with webhooks":                              {webhooks: true, schema: true},
		"while the manager is down":                  {schema: true},
		"with webhooks under the CRDs of OpenKruise": {webhooks: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, m)
			if m == (mode{schema: true}) {
				t.Run("the schema is never stricter than the webhooks", func(t *testing.T) { neverStricter(t, c) })
			}
			if m.webhooks {
				t.Run("lists have limits", func(t *testing.T) { limits(t, c) })
			}
			for file, kind := range kinds {
				tab := read(t, file)
				t.Run(kind.name+" leaves nothing behind when it is tried", func(t *testing.T) { tries(t, c, tab, kind) })
				for _, version := range kind.versions {
					t.Run(kind.name+" "+version, func(t *testing.T) {
						for name, r := range tab.Invalid {
							if r, ok := r.in(version); ok {
								t.Run("refuses "+name, func(t *testing.T) { refuses(t, c, m, r, tab.Base, kind, version) })
							}
						}
						for name, r := range tab.Valid {
							if r, ok := r.in(version); ok {
								t.Run("accepts "+name, func(t *testing.T) { accepts(t, c, m, r, tab.Base, kind, version) })
							}
						}
					})
				}
			}
		})
	}
}

// tries makes a dry run of an object, which must not exist afterwards.
func tries(t *testing.T, c api, tab table, kind kind) {
	_, obj := row{Metadata: map[string]any{"name": "tried"}}.objects(t, tab.Base, kind, kind.stored())
	require.NoError(t, c.Create(t.Context(), obj.DeepCopy(), client.DryRunAll))
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)))
}

// limits says that lists are refused when they have one image more than they may, and when not.
func limits(t *testing.T, c api) {
	images, list := map[string]any{}, []any{}
	for i := range 255 {
		images[fmt.Sprintf("image-%03d", i)], list = map[string]any{"tags": []any{}}, append(list, fmt.Sprintf("image-%03d", i))
	}
	images["last"] = map[string]any{"tags": []any{}}
	try := func(file string, spec map[string]any) error {
		_, obj := row{Spec: spec}.objects(t, map[string]any{"completionPolicy": map[string]any{}}, kinds[file], "v1beta1")
		return c.Create(t.Context(), obj, client.DryRunAll)
	}
	require.NoError(t, try("nodeimage", map[string]any{"images": images}))
	require.NoError(t, try("imagelistpulljob", map[string]any{"images": list}))
	images["one-too-many"] = images["last"]
	require.ErrorContains(t, try("nodeimage", map[string]any{"images": images}), "spec.images: Too many: 257: must have at most 256 items")
	require.ErrorContains(t, try("imagelistpulljob", map[string]any{"images": append(list, "last")}), "spec.images: Too many: 256: must have at most 255 items")
}

// refuses sends the request of r and looks at the answer; nothing is left behind.
func refuses(t *testing.T, c api, m mode, r row, base map[string]any, kind kind, version string) {
	old, obj := r.objects(t, base, kind, version)
	var err error
	switch {
	case old == nil:
		err = c.Create(t.Context(), obj, client.DryRunAll)
	case r.Delete:
		create(t, c, old)
		err = c.Delete(t.Context(), old, client.DryRunAll)
		unlabel(t, c, old)
	default:
		create(t, c, old)
		adopt(obj, old)
		err = c.Update(t.Context(), obj, client.DryRunAll)
	}
	if m.webhooks && (r.Delete || r.Denied) {
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, r.Message)
		return
	}
	path, code := m.refused(r, kind)
	if code == 0 || r.Delete {
		require.NoError(t, err, "the schema is said not to know this rule: set cel in the table")
		return
	}
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.Equal(t, code, status.Status().Code, "%v", err)
	if code == kind.code && m.webhooks {
		require.ErrorContains(t, err, r.Message) // which the schema says in other words
	}
	fields := blamed(err)
	require.Contains(t, fields, path, "%v", err)
	if !r.Also {
		require.Len(t, fields, 1, "%v", err)
	}
}

// blamed lists the fields that err names, each once, without the remark that not all rules could
// be checked. The scale subresource writes its field with a dot in front.
func blamed(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []string
	for _, cause := range status.Status().Details.Causes {
		if name := strings.TrimPrefix(cause.Field, "."); name != "<nil>" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// accepts stores the object, and stores it again: as it was read, and as it was written first.
// Neither is a change, or clients would never come to rest.
func accepts(t *testing.T, c api, m mode, r row, base map[string]any, kind kind, version string) {
	old, obj := r.objects(t, base, kind, version)
	stored := obj.DeepCopy()
	c.told.take()
	if old != nil {
		create(t, c, old)
		adopt(stored, old)
		c.told.take()
		require.NoError(t, c.Update(t.Context(), stored))
	} else {
		create(t, c, stored)
	}
	if !m.webhooks {
		return // without defaults it is another matter
	}
	if r.Warning != "" {
		require.Contains(t, strings.Join(c.told.take(), "\n"), r.Warning)
	} else if kind.code == http.StatusBadRequest {
		require.Empty(t, c.told.take())
	}
	generation := stored.GetGeneration()
	require.NoError(t, c.Update(t.Context(), stored))
	require.Equal(t, generation, stored.GetGeneration(), "an object that is put as it was read")
	again := obj.DeepCopy()
	adopt(again, stored)
	require.NoError(t, c.Update(t.Context(), again))
	require.Equal(t, generation, again.GetGeneration(), "a manifest that is put twice")
}

// adopt makes obj one that replaces stored. The labels of a request to recreate containers are
// there to stay, and no part of its manifest.
func adopt(obj, stored *unstructured.Unstructured) {
	obj.SetName(stored.GetName())
	obj.SetResourceVersion(stored.GetResourceVersion())
	labels := obj.GetLabels()
	for key, value := range stored.GetLabels() {
		if strings.HasPrefix(key, "crr.apps.kruise.io/") {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	obj.SetLabels(labels)
}

// neverStricter says that what the webhooks accept, the schema of c accepts: no rule is stricter
// in CEL. CloneSets of type OnDelete are left out: of their limits, which have no effect, the
// schema still checks the form. So are rows without a field that the schema of OpenKruise asks for.
func neverStricter(t *testing.T, c api) {
	everything, hs := all(t), served(t, "")
	for file, rows := range everything.rows {
		everything.rows[file] = slices.DeleteFunc(rows, func(r row) bool { return r.Required })
	}
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		obj := everything.draw(rt)
		if kind, _, _ := unstructured.NestedString(obj.Object, "spec", "updateStrategy", "type"); obj.GetKind() == "CloneSet" && kind == "OnDelete" {
			return
		}
		ask := asker(t, hs, obj)
		defaulted, answer := ask(mutate, admissionapi.Create, "", encode(t, obj))
		if !answer.Allowed {
			return
		}
		if _, answer := ask(validate, admissionapi.Create, "", defaulted); !answer.Allowed {
			return
		}
		accepted++
		full := &unstructured.Unstructured{}
		require.NoError(t, full.UnmarshalJSON([]byte(defaulted)))
		for _, u := range []*unstructured.Unstructured{obj.DeepCopy(), full} {
			if err := c.Create(t.Context(), u, client.DryRunAll); err != nil {
				rt.Fatalf("the webhooks accept %s, and the schema says %v", encode(t, u), err)
			}
		}
	})
	require.NotZero(t, accepted)
}

// fault is what OpenKruise may have stored and our schema refuses.
type fault struct {
	spec map[string]any
	// change is a patch of the spec that leaves the fault alone; nil when nothing of the spec may
	// change, or when the fault is in a list, which the API server sees as a whole.
	change map[string]any
	status map[string]any
}

func faults() map[string]fault {
	note := func() map[string]any {
		return map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}}}
	}
	counts := func(names ...string) map[string]any {
		status := map[string]any{"observedGeneration": int64(1)}
		for _, name := range names {
			status[name] = int64(1)
		}
		return status
	}
	tcp := map[string]any{"tcpSocket": map[string]any{"port": int64(80)}}
	return map[string]fault{
		"cloneset": {
			spec: map[string]any{"minReadySeconds": -1, "revisionHistoryLimit": -1, "scaleStrategy": map[string]any{"maxUnavailable": "some"},
				"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": -2, "maxSurge": 1}}},
			change: note(), status: counts("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "updatedReadyReplicas"),
		},
		"statefulset": {
			spec:   map[string]any{"revisionHistoryLimit": -1, "ordinals": map[string]any{"start": -1}, "volumeClaimUpdateStrategy": map[string]any{"type": "Odd"}},
			change: note(), status: counts("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"),
		},
		"daemonset": {
			spec:   map[string]any{"burstReplicas": -1, "revisionHistoryLimit": -1, "lifecycle": map[string]any{"preNormal": map[string]any{}}},
			change: note(), status: counts("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady", "updatedNumberScheduled"),
		},
		"imagepulljob": {
			spec:   map[string]any{"parallelism": "10%", "completionPolicy": map[string]any{"type": "Once"}},
			change: map[string]any{"image": "nginx:1.28"}, status: map[string]any{"desired": int64(1), "message": "a"},
		},
		"imagelistpulljob": {
			spec:   map[string]any{"parallelism": -1, "completionPolicy": map[string]any{"type": "Never", "activeDeadlineSeconds": 1}},
			change: map[string]any{"images": []any{"alpine"}}, status: map[string]any{"desired": int64(1), "completed": int64(1)},
		},
		"containerrecreaterequest": {
			spec:   map[string]any{"activeDeadlineSeconds": 1, "strategy": map[string]any{"failurePolicy": "Retry", "terminationGracePeriodSeconds": -1}},
			status: map[string]any{"phase": "Recreating", "message": "a"},
		},
		"podprobemarker": {
			spec:   map[string]any{"probes": []any{map[string]any{"name": "a#b", "containerName": "", "probe": tcp}}},
			status: map[string]any{"observedGeneration": int64(1), "matchedPods": int64(2)},
		},
	}
}

// What OpenKruise let by and stored stays writable under our schema, as long as nobody touches
// the fault itself: nothing is stuck after a take-over.
func TestWhatIsStoredStaysWritable(t *testing.T) {
	c := start(t, mode{})
	stored := map[string]*unstructured.Unstructured{}
	for file, f := range faults() {
		_, obj := row{Spec: f.spec}.objects(t, read(t, file).Base, kinds[file], kinds[file].stored())
		create(t, c, obj)
		stored[file] = obj
	}
	crds, err := apitest.CRDs()
	require.NoError(t, err)
	for _, crd := range crds {
		live := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(crd), live))
		live.Spec.Versions = crd.Spec.Versions
		require.NoError(t, c.Update(t.Context(), live))
	}
	for file, f := range faults() {
		base, kind := read(t, file).Base, kinds[file]
		require.Eventually(t, func() bool {
			_, obj := row{Spec: f.spec}.objects(t, base, kind, kind.stored())
			return apierrors.IsInvalid(c.Create(t.Context(), obj, client.DryRunAll))
		}, 2*time.Minute, 100*time.Millisecond, "the new schema of %s holds", kind.name)

		obj := stored[file]
		for _, version := range slices.Backward(kind.versions) {
			obj.SetAPIVersion("apps.kruise.io/" + version)
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
			obj.SetLabels(map[string]string{"written-as": version})
			obj.Object["spec"] = merged(t, obj.Object["spec"].(map[string]any), f.change)
			require.NoError(t, c.Update(t.Context(), obj), "%s as %s", kind.name, version)
			obj.Object["status"] = f.status
			require.NoError(t, c.Status().Update(t.Context(), obj), "the status of %s as %s", kind.name, version)
		}
	}
}

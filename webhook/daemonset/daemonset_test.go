// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

const (
	mutate   = "/mutate-apps-kruise-io-daemonset"
	validate = "/validate-apps-kruise-io-daemonset"
)

// review is a request about a DaemonSet.
func review(version string, op admissionv1.Operation, old, obj string) admittest.Review {
	return admittest.Review{Kind: schema.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "DaemonSet"}, Operation: op, Old: old, New: obj}
}

func handlers(t *testing.T, gates string) admit.Handlers {
	t.Helper()
	set, err := features.Parse(gates)
	require.NoError(t, err)
	hs := admit.Handlers{}
	Register(hs, set)
	return hs
}

const (
	selector = `"selector":{"matchLabels":{"app":"agent"}}`
	template = `"template":{"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"main","image":"a"}]}}`
)

func spec(parts ...string) string {
	return `{"metadata":{"name":"web","namespace":"shop"},"spec":{` + strings.Join(append([]string{selector, template}, parts...), ",") + `}}`
}

func rolling(fields string) string {
	return spec(`"updateStrategy":{"rollingUpdate":{` + fields + `}}`)
}

func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		version    string
		obj        string
		has, lacks []string // in the object afterwards
	}{
		"what is absent, and nothing in the template": {"v1beta1", spec(),
			[]string{`"burstReplicas":250`, `"revisionHistoryLimit":10`, `"type":"RollingUpdate"`, `"rollingUpdateType":"Standard"`, `"maxUnavailable":1`, `"maxSurge":0`},
			[]string{"imagePullPolicy", "restartPolicy"}},
		"what is absent in v1alpha1": {"v1alpha1", spec(),
			[]string{`"burstReplicas":250`, `"type":"RollingUpdate"`, `"rollingUpdateType":"Standard"`, `"maxUnavailable":1`, `"maxSurge":0`}, []string{"imagePullPolicy", "scaleStrategy"}},
		"a surge alone means no unavailable node": {"v1beta1", rolling(`"maxSurge":"10%"`), []string{`"maxSurge":"10%"`}, []string{"maxUnavailable"}},
		"maxUnavailable alone means no surge":     {"v1beta1", rolling(`"maxUnavailable":3`), []string{`"maxUnavailable":3`}, []string{"maxSurge"}},
		"nothing under OnDelete":                  {"v1beta1", spec(`"updateStrategy":{"type":"OnDelete"}`), []string{`"updateStrategy":{"type":"OnDelete"}`}, nil},
		"Surging is Standard with a surge":        {"v1alpha1", rolling(`"rollingUpdateType":"Surging"`), []string{`"rollingUpdateType":"Standard"`, `"maxSurge":1`, `"maxUnavailable":0`}, []string{"Surging"}},
		"Surging keeps its surge":                 {"v1alpha1", rolling(`"rollingUpdateType":"Surging","maxSurge":"50%"`), []string{`"rollingUpdateType":"Standard"`, `"maxSurge":"50%"`, `"maxUnavailable":0`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			hs := handlers(t, "")
			r := review(c.version, "CREATE", "", c.obj)
			got := admittest.Patched(t, r, admittest.Ask(t, hs, mutate, r))
			for _, want := range c.has {
				require.Contains(t, got, want)
			}
			for _, not := range c.lacks {
				require.NotContains(t, got, not)
			}
			require.Empty(t, admittest.Ask(t, hs, mutate, review(c.version, "CREATE", "", got)).Patch, "defaulting twice changes the object")
			answer := admittest.Ask(t, hs, validate, review(c.version, "CREATE", "", got))
			require.True(t, answer.Allowed, "%v", answer.Result)
			changed := strings.Replace(got, `"image":"a"`, `"image":"b"`, 1)
			require.Empty(t, admittest.Ask(t, hs, mutate, review(c.version, "UPDATE", got, changed)).Patch, "an update needs no default")
			answer = admittest.Ask(t, hs, validate, review(c.version, "UPDATE", got, changed))
			require.True(t, answer.Allowed, "%v", answer.Result)
		})
	}
}

func TestRefusals(t *testing.T) {
	const ru = "spec.updateStrategy.rollingUpdate."
	for name, c := range map[string]struct {
		version, old, obj string
		field             string
	}{
		"a burst of none":                                 {"v1beta1", "", spec(`"burstReplicas":0`), "spec.burstReplicas"},
		"a burst below zero in v1alpha1":                  {"v1alpha1", "", spec(`"burstReplicas":-5`), "spec.burstReplicas"},
		"the type Surging":                                {"v1beta1", "", rolling(`"rollingUpdateType":"Surging"`), ru + "rollingUpdateType"},
		"Surging with maxUnavailable":                     {"v1alpha1", "", rolling(`"rollingUpdateType":"Surging","maxUnavailable":1`), ru + "maxSurge"},
		"an unknown type in v1alpha1":                     {"v1alpha1", "", rolling(`"rollingUpdateType":"Fast"`), ru + "rollingUpdateType"},
		"a surge in place":                                {"v1alpha1", "", rolling(`"rollingUpdateType":"InPlaceIfPossible","maxSurge":1`), ru + "maxSurge"},
		"a template that no node could run":               {"v1beta1", "", strings.Replace(spec(), `"image":"a"`, `"image":""`, 1), "spec.template.spec.containers[0].image"},
		"another selector":                                {"v1beta1", spec(), strings.Replace(spec(), selector, `"selector":{"matchExpressions":[{"key":"app","operator":"Exists"}]}`, 1), "spec.selector"},
		"a fault at UPDATE is refused as at CREATE (422)": {"v1beta1", spec(), spec(`"minReadySeconds":-1`), "spec.minReadySeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			op := admissionv1.Create
			if c.old != "" {
				op = admissionv1.Update
			}
			hs := handlers(t, "")
			r := review(c.version, op, c.old, c.obj)
			r.New = admittest.Patched(t, r, admittest.Ask(t, hs, mutate, r))
			answer := admittest.Ask(t, hs, validate, r)
			require.False(t, answer.Allowed)
			require.EqualValues(t, 422, answer.Result.Code)
			require.Len(t, answer.Result.Details.Causes, 1, "%v", answer.Result)
			require.Equal(t, c.field, answer.Result.Details.Causes[0].Field)
		})
	}
}

// There is no protection of this kind, so that a labelled one can be deleted.
func TestDeletionIsFree(t *testing.T) {
	old := strings.Replace(spec(), `"name":"web"`, `"name":"web","labels":{"policy.kruise.io/delete-protection":"Always"}`, 1)
	require.True(t, admittest.Ask(t, handlers(t, "ResourcesDeletionProtection=true"), validate, review("v1beta1", "DELETE", old, "")).Allowed)
}

func TestPaths(t *testing.T) {
	hs := handlers(t, "")
	for _, path := range []string{mutate, validate, "/mutate-apps-kruise-io-v1alpha1-daemonset", "/validate-apps-kruise-io-v1alpha1-daemonset"} {
		require.NotNil(t, hs[path], path)
	}
	hub, spoke := Converter()
	require.NotNil(t, hub)
	require.NotNil(t, spoke)
}

// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
	"github.com/kruisectl/kruisectl/webhook/cloneset"
	"github.com/kruisectl/kruisectl/webhook/daemonset"
	"github.com/kruisectl/kruisectl/webhook/statefulset"
)

// Objects put together from rows of the tables, good and bad ones, keep what admission promises
// of every object: to default it once, to blame fields by name, and to let go what is stored.
func TestPromisesOfAdmission(t *testing.T) {
	everything := all(t)
	servers := map[string]admit.Handlers{}
	gates := []string{"", "TemplateNoDefaults=true", "StatefulSetAutoDeletePVC=false,StatefulSetAutoResizePVCGate=true", "InPlaceWorkloadVerticalScaling=true"}
	for _, g := range gates {
		servers[g] = served(t, g)
	}
	rapid.Check(t, func(rt *rapid.T) {
		obj := everything.draw(rt)
		ask := asker(t, servers[rapid.SampledFrom(gates).Draw(rt, "gates")], obj)

		stored, _ := ask(mutate, admissionv1.Create, "", encode(t, obj))
		if _, again := ask(mutate, admissionv1.Create, "", stored); len(again.Patch) > 0 {
			rt.Fatalf("defaulting %s twice: %s", stored, again.Patch)
		}
		if _, answer := ask(validate, admissionv1.Create, "", stored); !answer.Allowed {
			if answer.Result.Code != 422 {
				rt.Fatalf("%s is refused with code %d: %s", stored, answer.Result.Code, answer.Result.Message)
			}
			for _, cause := range answer.Result.Details.Causes {
				if !strings.HasPrefix(cause.Field, "spec.") && !strings.HasPrefix(cause.Field, "metadata.") || cause.Message == "" {
					rt.Fatalf("a fault of %s without a field: %v", stored, cause)
				}
			}
		}
		labelled := &unstructured.Unstructured{}
		require.NoError(t, labelled.UnmarshalJSON([]byte(stored)))
		labelled.SetLabels(map[string]string{"a": "b"})
		if _, answer := ask(mutate, admissionv1.Update, stored, encode(t, labelled)); len(answer.Patch) > 0 {
			rt.Fatalf("a label changes the spec of %s: %s", stored, answer.Patch)
		}
		if _, answer := ask(validate, admissionv1.Update, stored, encode(t, labelled)); !answer.Allowed {
			rt.Fatalf("%s cannot be labelled: %v", stored, answer.Result)
		}
	})
}

// pool is what objects are put together from.
type pool struct {
	t      *testing.T
	tables map[string]table
	rows   map[string][]row
}

// all is every row of every table that is no DELETE.
func all(t *testing.T) pool {
	p := pool{t: t, tables: map[string]table{}, rows: map[string][]row{}}
	for file := range kinds {
		tab := read(t, file)
		p.tables[file] = tab
		for _, list := range []map[string]row{tab.Invalid, tab.Valid} {
			for _, name := range slices.Sorted(maps.Keys(list)) {
				if !list[name].Delete {
					p.rows[file] = append(p.rows[file], list[name])
				}
			}
		}
	}
	return p
}

// draw puts an object together from at most four rows.
func (p pool) draw(rt *rapid.T) *unstructured.Unstructured {
	file := rapid.SampledFrom(slices.Sorted(maps.Keys(kinds))).Draw(rt, "kind")
	version := rapid.SampledFrom(versions).Draw(rt, "version")
	spec := p.tables[file].Base
	var metadata map[string]any
	for range rapid.IntRange(0, 4).Draw(rt, "rows") {
		r, ok := rapid.SampledFrom(p.rows[file]).Draw(rt, "row").in(version)
		if !ok {
			continue
		}
		spec = merged(p.t, merged(p.t, spec, r.Old), r.Spec)
		if r.Metadata != nil {
			metadata = r.Metadata
		}
	}
	obj := object(metadata, spec, kinds[file], version)
	obj.SetGenerateName("")
	if obj.GetName() == "" {
		obj.SetName("web")
	}
	return obj
}

// asker sends reviews of objects of the kind of obj, and returns the object as the answer leaves it.
func asker(t *testing.T, hs admit.Handlers, obj *unstructured.Unstructured) func(path string, op admissionv1.Operation, old, obj string) (string, *admissionv1.AdmissionResponse) {
	kind := obj.GroupVersionKind()
	return func(path string, op admissionv1.Operation, old, obj string) (string, *admissionv1.AdmissionResponse) {
		r := admittest.Review{Kind: kind, Operation: op, Old: old, New: obj}
		answer := admittest.Ask(t, hs, path+strings.ToLower(kind.Kind), r)
		if path == mutate {
			return admittest.Patched(t, r, answer), answer
		}
		return obj, answer
	}
}

const (
	mutate   = "/mutate-apps-kruise-io-"
	validate = "/validate-apps-kruise-io-"
)

func encode(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(u)
	require.NoError(t, err)
	return string(text)
}

// served are the webhooks of the three kinds over an empty cluster.
func served(t *testing.T, gates string) admit.Handlers {
	t.Helper()
	set, err := features.Parse(gates)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, storagev1.AddToScheme(scheme))
	reader := fake.NewClientBuilder().WithScheme(scheme).Build()
	hs := admit.Handlers{}
	cloneset.Register(hs, cloneset.Options{Features: set, Cached: reader, Live: reader})
	statefulset.Register(hs, statefulset.Options{Features: set, Live: reader})
	daemonset.Register(hs, set)
	return hs
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package admission

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/manifests"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/cloneset"
	"github.com/kruisectl/kruisectl/webhook/daemonset"
	"github.com/kruisectl/kruisectl/webhook/statefulset"
)

// mode is one way to guard the API.
type mode struct {
	webhooks bool // the webhooks of the manifests answer
	schema   bool // the CRDs have our rules
}

// refused says at which field r is refused; not at all when ok is false.
func (m mode) refused(r row) (path string, ok bool) {
	switch {
	case m.schema && r.CEL: // the API server checks the schema before it asks validating webhooks
		return r.celPath(), true
	case m.webhooks:
		return r.Path, true
	case r.Path == "spec.selector" && r.Old == nil && r.Spec["selector"] == nil:
		return r.Path, true // it is required, in the schema of OpenKruise as well
	}
	return "", false
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
			for file, kind := range kinds {
				tab := read(t, file)
				for _, version := range versions {
					t.Run(kind+" "+version, func(t *testing.T) {
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

// refuses sends the request of r and looks at the answer; nothing is left behind.
func refuses(t *testing.T, c client.Client, m mode, r row, base map[string]any, kind, version string) {
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
		obj.SetName(old.GetName())
		obj.SetResourceVersion(old.GetResourceVersion())
		err = c.Update(t.Context(), obj, client.DryRunAll)
	}
	if r.Delete {
		if !m.webhooks {
			require.NoError(t, err)
			return
		}
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, r.Message)
		return
	}
	path, ok := m.refused(r)
	if !ok {
		require.NoError(t, err, "the schema is said not to know this rule: set cel in the table")
		return
	}
	require.True(t, apierrors.IsInvalid(err), "%v", err)
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
func accepts(t *testing.T, c client.Client, m mode, r row, base map[string]any, kind, version string) {
	old, obj := r.objects(t, base, kind, version)
	stored := obj.DeepCopy()
	if old != nil {
		create(t, c, old)
		stored.SetName(old.GetName())
		stored.SetResourceVersion(old.GetResourceVersion())
		require.NoError(t, c.Update(t.Context(), stored))
	} else {
		create(t, c, stored)
	}
	if !m.webhooks {
		return // without defaults it is another matter
	}
	generation := stored.GetGeneration()
	require.NoError(t, c.Update(t.Context(), stored))
	require.Equal(t, generation, stored.GetGeneration(), "an object that is put as it was read")
	again := obj.DeepCopy()
	again.SetName(stored.GetName())
	again.SetResourceVersion(stored.GetResourceVersion())
	require.NoError(t, c.Update(t.Context(), again))
	require.Equal(t, generation, again.GetGeneration(), "a manifest that is put twice")
}

// neverStricter says that what the webhooks accept, the schema of c accepts: no rule is stricter
// in CEL. CloneSets of type OnDelete are left out: of their limits, which have no effect, the
// schema still checks the form.
func neverStricter(t *testing.T, c client.Client) {
	everything, hs := all(t), served(t, "")
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		obj := everything.draw(rt)
		if kind, _, _ := unstructured.NestedString(obj.Object, "spec", "updateStrategy", "type"); obj.GetKind() == "CloneSet" && kind == "OnDelete" {
			return
		}
		ask := asker(t, hs, obj)
		defaulted, _ := ask(mutate, admissionapi.Create, "", encode(t, obj))
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

// What OpenKruise let by and stored stays writable under our schema, as long as nobody touches
// the fault itself: nothing is stuck after a take-over.
func TestWhatIsStoredStaysWritable(t *testing.T) {
	c := start(t, mode{})
	faults := map[string]map[string]any{
		"cloneset": {"minReadySeconds": -1, "revisionHistoryLimit": -1, "scaleStrategy": map[string]any{"maxUnavailable": "some"},
			"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": -2, "maxSurge": 1}}},
		"statefulset": {"revisionHistoryLimit": -1, "ordinals": map[string]any{"start": -1}, "volumeClaimUpdateStrategy": map[string]any{"type": "Odd"}},
		"daemonset":   {"burstReplicas": -1, "revisionHistoryLimit": -1, "lifecycle": map[string]any{"preNormal": map[string]any{}}},
	}
	required := map[string][]string{ // in the status
		"cloneset":    {"replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "updatedReadyReplicas"},
		"statefulset": {"replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"},
		"daemonset":   {"currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady", "updatedNumberScheduled"},
	}
	stored := map[string]*unstructured.Unstructured{}
	for file, kind := range kinds {
		_, obj := row{Spec: faults[file]}.objects(t, read(t, file).Base, kind, "v1beta1")
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
	for file, kind := range kinds {
		base := read(t, file).Base
		require.Eventually(t, func() bool {
			_, obj := row{Spec: faults[file]}.objects(t, base, kind, "v1beta1")
			return apierrors.IsInvalid(c.Create(t.Context(), obj, client.DryRunAll))
		}, 2*time.Minute, 100*time.Millisecond, "the new schema of %s holds", kind)

		obj := stored[file]
		for _, version := range []string{"v1beta1", "v1alpha1"} {
			obj.SetAPIVersion("apps.kruise.io/" + version)
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
			require.NoError(t, unstructured.SetNestedField(obj.Object, "busybox:"+version, "spec", "template", "metadata", "annotations", "image"))
			require.NoError(t, c.Update(t.Context(), obj), "%s as %s", kind, version)
			status := map[string]any{"observedGeneration": int64(1)}
			for _, name := range required[file] {
				status[name] = int64(1)
			}
			obj.Object["status"] = status
			require.NoError(t, c.Status().Update(t.Context(), obj), "the status of %s as %s", kind, version)
		}
	}
}

// create stores obj until the row is through.
func create(t *testing.T, c client.Client, obj *unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), obj))
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), obj); err != nil {
			t.Errorf("deleting %s: %v", obj.GetName(), err)
		}
	})
}

// unlabel takes the protection off obj.
func unlabel(t *testing.T, c client.Client, obj *unstructured.Unstructured) {
	t.Helper()
	obj.SetLabels(nil)
	require.NoError(t, c.Update(t.Context(), obj))
}

// live becomes a reader of the API server when there is one.
type live struct{ client.Reader }

// start starts an API server with what the rows speak of: StorageClasses and a Pod.
func start(t *testing.T, m mode) client.Client {
	t.Helper()
	reader := &live{}
	opts := []apitest.Option{apitest.WithConversion(converter(t))}
	if !m.schema {
		opts = append(opts, apitest.WithCRDs(withoutRules))
	}
	if m.webhooks {
		opts = append(opts, webhooks(t, reader)...)
	}
	c := apitest.NewClient(t, apitest.Start(t, opts...))
	reader.Reader = c
	for _, obj := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "example.com/x", AllowVolumeExpansion: new(true)},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Provisioner: "example.com/x"},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "present"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}}},
	} {
		require.NoError(t, c.Create(t.Context(), obj))
	}
	return c
}

// webhooks serves the webhooks of the three kinds, as the manifests register them.
func webhooks(t *testing.T, reader client.Reader) []apitest.Option {
	t.Helper()
	set, err := features.Parse("ResourcesDeletionProtection=true,StatefulSetAutoResizePVCGate=true")
	require.NoError(t, err)
	hs := admit.Handlers{}
	cloneset.Register(hs, cloneset.Options{Features: set, Cached: reader, Live: reader})
	statefulset.Register(hs, statefulset.Options{Features: set, Live: reader})
	daemonset.Register(hs, set)
	var opts []apitest.Option
	for path, h := range hs {
		opts = append(opts, apitest.WithHandler(path, h))
	}
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	manifest(t, "base/webhook/mutating.yaml", mutating)
	manifest(t, "base/webhook/validating.yaml", validating)
	mutating.Webhooks = slices.DeleteFunc(mutating.Webhooks, func(w admissionv1.MutatingWebhook) bool { return hs[*w.ClientConfig.Service.Path] == nil })
	validating.Webhooks = slices.DeleteFunc(validating.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return hs[*w.ClientConfig.Service.Path] == nil })
	require.Len(t, mutating.Webhooks, len(kinds))
	require.Len(t, validating.Webhooks, len(kinds))
	return append(opts, apitest.WithMutating(mutating), apitest.WithValidating(validating))
}

func manifest(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := fs.ReadFile(manifests.Files, path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, into))
}

// converter answers ConversionReviews of the three kinds.
func converter(t *testing.T) http.Handler {
	t.Helper()
	scheme, registry := apitest.Scheme(), conversion.NewRegistry()
	add(t, scheme, registry, "CloneSet", cloneset.Converter)
	add(t, scheme, registry, "StatefulSet", statefulset.Converter)
	add(t, scheme, registry, "DaemonSet", daemonset.Converter)
	return conversion.NewWebhookHandler(scheme, registry)
}

func add[T client.Object](t *testing.T, scheme *runtime.Scheme, registry conversion.Registry, kind string, of func() (T, conversion.SpokeConverter[T])) {
	t.Helper()
	hub, spoke := of()
	c, err := conversion.NewHubSpokeConverter(hub, spoke)(scheme)
	require.NoError(t, err)
	require.NoError(t, registry.RegisterConverter(v1beta1.GroupVersion.WithKind(kind).GroupKind(), c))
}

// withoutRules makes a CRD what that of OpenKruise is: types and required fields.
func withoutRules(crd *apiextensionsv1.CustomResourceDefinition) {
	if !slices.Contains(slices.Collect(maps.Values(kinds)), crd.Spec.Names.Kind) {
		return
	}
	for i := range crd.Spec.Versions {
		strip(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
}

func strip(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations, s.Minimum, s.Maximum, s.MinLength, s.Pattern = nil, nil, nil, nil, ""
	for name, p := range s.Properties {
		strip(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		strip(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		strip(s.AdditionalProperties.Schema)
	}
}

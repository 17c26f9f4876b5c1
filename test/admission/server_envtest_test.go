// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package admission

import (
	"context"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/manifests"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/cloneset"
	"github.com/kruisectl/kruisectl/webhook/containerrecreaterequest"
	"github.com/kruisectl/kruisectl/webhook/daemonset"
	"github.com/kruisectl/kruisectl/webhook/imagelistpulljob"
	"github.com/kruisectl/kruisectl/webhook/imagepulljob"
	"github.com/kruisectl/kruisectl/webhook/nodeimage"
	"github.com/kruisectl/kruisectl/webhook/statefulset"
)

// create stores obj until the row is through.
func create(t *testing.T, c api, obj *unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), obj))
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), obj); err != nil {
			t.Errorf("deleting %s: %v", obj.GetName(), err)
		}
	})
}

// unlabel takes the protection off obj.
func unlabel(t *testing.T, c api, obj *unstructured.Unstructured) {
	t.Helper()
	obj.SetLabels(nil)
	require.NoError(t, c.Update(t.Context(), obj))
}

// live becomes a reader of the API server when there is one.
type live struct{ client.Reader }

// api is a client that remembers the warnings it gets.
type api struct {
	client.Client
	told *warnings
}

type warnings struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// start starts an API server with what the rows speak of: StorageClasses, Pods and a Node.
func start(t *testing.T, m mode) api {
	t.Helper()
	reader := &live{}
	opts := []apitest.Option{apitest.WithConversion(converter(t))}
	if !m.schema {
		opts = append(opts, apitest.WithCRDs(withoutRules))
	}
	if m.webhooks {
		opts = append(opts, webhooks(t, reader)...)
	}
	cfg := apitest.Start(t, opts...)
	told := &warnings{}
	cfg.WarningHandlerWithContext = told
	c := api{apitest.NewClient(t, cfg), told}
	reader.Reader = c
	target, node := recreated()
	status := target.Status
	for _, obj := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "example.com/x", AllowVolumeExpansion: new(true)},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Provisioner: "example.com/x"},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "present"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}}},
		node, target,
	} {
		require.NoError(t, c.Create(t.Context(), obj))
	}
	target.Status = status
	require.NoError(t, c.Status().Update(t.Context(), target))
	return c
}

// webhooks serves the webhooks of all kinds, as the manifests register them.
func webhooks(t *testing.T, reader client.Reader) []apitest.Option {
	t.Helper()
	hs := register(t, "ResourcesDeletionProtection=true,StatefulSetAutoResizePVCGate=true", reader)
	opts := installed(t, hs)
	for path, h := range hs {
		opts = append(opts, apitest.WithHandler(path, h))
	}
	return opts
}

// installed are the configurations of the manifests, with the entries that hs serves.
func installed(t *testing.T, hs admit.Handlers) []apitest.Option {
	t.Helper()
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	manifest(t, "base/webhook/mutating.yaml", mutating)
	manifest(t, "base/webhook/validating.yaml", validating)
	mutating.Webhooks = slices.DeleteFunc(mutating.Webhooks, func(w admissionv1.MutatingWebhook) bool { return hs[*w.ClientConfig.Service.Path] == nil })
	validating.Webhooks = slices.DeleteFunc(validating.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return hs[*w.ClientConfig.Service.Path] == nil })
	require.GreaterOrEqual(t, len(mutating.Webhooks), len(kinds)-1) // none for PodProbeMarkers
	require.Len(t, validating.Webhooks, len(kinds)-1)               // none for ContainerRecreateRequests
	return []apitest.Option{apitest.WithMutating(mutating), apitest.WithValidating(validating)}
}

func manifest(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := fs.ReadFile(manifests.Files, path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, into))
}

// converter answers ConversionReviews of all kinds that have two versions.
func converter(t *testing.T) http.Handler {
	t.Helper()
	scheme, registry := apitest.Scheme(), conversion.NewRegistry()
	add(t, scheme, registry, "CloneSet", cloneset.Converter)
	add(t, scheme, registry, "StatefulSet", statefulset.Converter)
	add(t, scheme, registry, "DaemonSet", daemonset.Converter)
	add(t, scheme, registry, "ImagePullJob", imagepulljob.Converter)
	add(t, scheme, registry, "ImageListPullJob", imagelistpulljob.Converter)
	add(t, scheme, registry, "NodeImage", nodeimage.Converter)
	add(t, scheme, registry, "ContainerRecreateRequest", containerrecreaterequest.Converter)
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
	if _, ok := kinds[strings.ToLower(crd.Spec.Names.Kind)]; !ok {
		return
	}
	for i := range crd.Spec.Versions {
		strip(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
}

func strip(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations, s.Minimum, s.Maximum, s.MinLength, s.MaxLength, s.Pattern = nil, nil, nil, nil, nil, ""
	s.Enum, s.MinItems, s.MaxItems, s.MaxProperties = nil, nil, nil, nil
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

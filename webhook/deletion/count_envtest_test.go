// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package deletion

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kruisectl/kruisectl/internal/apitest"
)

func TestLiveCounts(t *testing.T) {
	cfg := apitest.Start(t, apitest.WithoutCRDs())
	c := apitest.NewClient(t, cfg)
	m, err := metadata.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	live := Live{Reader: c, Metadata: m}
	expect := func(what string, want int, count func() (int, error)) {
		t.Helper()
		if got, err := count(); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", what, got, err, want)
		}
	}
	create := func(obj client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	pods := func() (int, error) { return live.ActivePods(t.Context(), "default") }
	claims := func() (int, error) { return live.BoundClaims(t.Context(), "default") }

	expect("no Pods", 0, pods)
	for name, phase := range map[string]corev1.PodPhase{"a": corev1.PodRunning, "b": corev1.PodSucceeded, "c": corev1.PodFailed, "d": corev1.PodPending} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}}}
		create(pod)
		pod.Status.Phase = phase
		if err := c.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	expect("Pods that run or will", 2, pods)

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	create(claim)
	expect("a pending claim", 0, claims)
	claim.Status.Phase = corev1.ClaimBound
	if err := c.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	expect("a bound claim", 1, claims)

	crd := thing()
	raw, err := json.Marshal(crd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	where, err := parseCRD(raw)
	if err != nil {
		t.Fatal(err)
	}
	things := func() (int, error) { return live.CustomResources(context.Background(), where) }
	expect("a kind that is not served", 0, things)
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}); err != nil {
		t.Fatal(err)
	}
	expect("no objects", 0, things)
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "e2e.example.com/v1beta1", "kind": "Thing", "metadata": map[string]any{"namespace": "default", "name": "one"}}}
	create(obj)
	expect("one object", 1, things)
	if err := c.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	expect("none left, seen at once", 0, things)
}

func thing() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.e2e.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "e2e.example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

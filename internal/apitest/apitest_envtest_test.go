// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package apitest

import (
	"context"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func cloneSet(name string) *v1beta1.CloneSet {
	return &v1beta1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1beta1.CloneSetSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}},
			},
		},
	}
}

func TestStartServesKruiseTypes(t *testing.T) {
	c := NewClient(t, Start(t))
	if err := c.Create(t.Context(), cloneSet("web")); err != nil {
		t.Fatalf("creating a CloneSet: %v", err)
	}
	var list v1beta1.CloneSetList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("listing CloneSets: %d items, %v", len(list.Items), err)
	}
}

func TestStartServesWebhooksOfTheTest(t *testing.T) {
	registry := conversion.NewRegistry()
	converter, err := conversion.NewHubSpokeConverter(&v1beta1.CloneSet{},
		conversion.NewSpokeConverter(&v1alpha1.CloneSet{}, v1alpha1.CloneSetFromHub, v1alpha1.CloneSetToHub))(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	if err := registry.RegisterConverter(v1beta1.GroupVersion.WithKind("CloneSet").GroupKind(), converter); err != nil {
		t.Fatal(err)
	}
	deny := &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
		if req.Name == "evil" {
			return admission.Denied("no evil here")
		}
		return admission.Allowed("")
	})}
	none := admissionv1.SideEffectClassNone
	cfg := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:         "deny.kb.io",
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "x", Name: "y", Path: new("/deny")}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"apps.kruise.io"}, APIVersions: []string{"*"}, Resources: []string{"clonesets"}},
			}},
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	c := NewClient(t, Start(t, WithConversion(conversion.NewWebhookHandler(Scheme(), registry)), WithHandler("/deny", http.Handler(deny)), WithValidating(cfg)))
	if err := c.Create(t.Context(), cloneSet("web")); err != nil {
		t.Fatal(err)
	}
	old := &v1alpha1.CloneSet{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, old); err != nil || *old.Spec.Replicas != 1 {
		t.Errorf("as v1alpha1: %+v, %v", old.Spec, err)
	}
	if err := c.Create(t.Context(), cloneSet("evil")); err == nil || !strings.Contains(err.Error(), "no evil here") {
		t.Errorf("creating what the webhook denies: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

func create(raw string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "shop",
		Kind:   metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Object: runtime.RawExtension{Raw: []byte(raw)},
	}}
}

func owned(apiVersion string, controller bool) string {
	c := "false"
	if controller {
		c = "true"
	}
	return `{"metadata":{"ownerReferences":[{"apiVersion":"` + apiVersion + `","kind":"CloneSet","name":"web","uid":"1","controller":` + c + `}]},"spec":{"future":[1]}}`
}

func TestReadinessGate(t *testing.T) {
	gated := func(raw string) string {
		out, err := jsonpatch.MergePatch([]byte(raw), []byte(`{"spec":{"readinessGates":[{"conditionType":"KruisePodReady"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	sub := create(owned("apps.kruise.io/v1beta1", true))
	sub.SubResource = "eviction"
	update := create(owned("apps.kruise.io/v1beta1", true))
	update.Operation = admissionv1.Update
	twice := `{"metadata":{"ownerReferences":[{"apiVersion":"apps.kruise.io/v1beta1","kind":"CloneSet","name":"web","uid":"1","controller":true}]},` +
		`"spec":{"readinessGates":[{"conditionType":"a"},{"conditionType":"KruisePodReady"}]}}`
	cases := map[string]struct {
		everyPod bool
		req      admission.Request
		want     string // empty: no patch
	}{
		"a Pod of a CloneSet gets the gate":                 {req: create(owned("apps.kruise.io/v1beta1", true)), want: gated(owned("apps.kruise.io/v1beta1", true))},
		"whatever version its owner is written in":          {req: create(owned("apps.kruise.io/v1alpha1", true)), want: gated(owned("apps.kruise.io/v1alpha1", true))},
		"a Pod of a Deployment does not":                    {req: create(owned("apps/v1", true))},
		"nor does a Pod whose owner does not control it":    {req: create(owned("apps.kruise.io/v1beta1", false))},
		"nor does one of a group that only looks like it":   {req: create(owned("apps.kruise.io.example.com/v1", true))},
		"a bare Pod does not":                               {req: create(`{"spec":{}}`)},
		"a bare Pod does when the feature gate widens it":   {everyPod: true, req: create(`{"spec":{}}`), want: gated(`{"spec":{}}`)},
		"a Pod that has the gate is left alone":             {req: create(twice)},
		"updates and subresources are left alone":           {everyPod: true, req: update},
		"a request for a subresource is left alone as well": {everyPod: true, req: sub},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			resp := chain{readinessGate(tc.everyPod)}.Handle(t.Context(), tc.req)
			if !resp.Allowed {
				t.Fatalf("denied: %v", resp.Result)
			}
			if tc.want == "" {
				if len(resp.Patches) > 0 {
					t.Fatalf("patches = %v", resp.Patches)
				}
				return
			}
			ops, err := json.Marshal(resp.Patches)
			if err != nil {
				t.Fatal(err)
			}
			patch, err := jsonpatch.DecodePatch(ops)
			if err != nil {
				t.Fatal(err)
			}
			got, err := patch.Apply(tc.req.Object.Raw)
			if err != nil {
				t.Fatal(err)
			}
			if !jsonpatch.Equal(got, []byte(tc.want)) {
				t.Errorf("Pod = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestChainStopsAtTheFirstError(t *testing.T) {
	ran := 0
	c := chain{
		{name: "spread", apply: func(_ context.Context, r *request) error {
			if r.Pod.Namespace != "shop" {
				t.Errorf("namespace %q", r.Pod.Namespace)
			}
			return errors.New("no subset is free")
		}},
		{name: "later", apply: func(context.Context, *request) error { ran++; return nil }},
	}
	resp := c.Handle(t.Context(), create(`{"spec":{}}`))
	if resp.Allowed || resp.Result.Code != 500 || resp.Result.Message != "spread: no subset is free" {
		t.Errorf("response = %v", resp)
	}
	if ran > 0 {
		t.Error("a later step ran")
	}
	if resp := c.Handle(t.Context(), create(`{"spec":3}`)); resp.Allowed || resp.Result.Code != 400 {
		t.Errorf("response to an undecodable Pod = %v", resp)
	}
}

func TestRegisterObeysTheGate(t *testing.T) {
	off, err := features.Parse("PodWebhook=false")
	if err != nil {
		t.Fatal(err)
	}
	hs := admit.Handlers{}
	Register(hs, off, nil)
	if len(hs) > 0 {
		t.Errorf("handlers = %v", hs)
	}
	Register(hs, features.New(), nil)
	if len(hs) != 1 || hs["/mutate-pod"] == nil {
		t.Errorf("handlers = %v", hs)
	}
}

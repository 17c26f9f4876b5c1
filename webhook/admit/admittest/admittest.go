// SPDX-License-Identifier: Apache-2.0

// Package admittest asks handlers of admission reviews the way the API server does, over
// HTTP. It is imported by tests only.
package admittest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kruisectl/kruisectl/webhook/admit"
)

// Review is what the API server asks: Old and New are JSON, empty when there is none.
type Review struct {
	Kind      schema.GroupVersionKind
	Operation admissionv1.Operation
	Old, New  string
}

// Ask sends r to path and returns the answer; namespace and name of the request are shop
// and web.
func Ask(t testing.TB, hs admit.Handlers, path string, r Review) *admissionv1.AdmissionResponse {
	t.Helper()
	req := &admissionv1.AdmissionRequest{
		UID: "1", Operation: r.Operation, Namespace: "shop", Name: "web",
		Kind: metav1.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind},
	}
	if r.Old != "" {
		req.OldObject = runtime.RawExtension{Raw: []byte(r.Old)}
	}
	if r.New != "" {
		req.Object = runtime.RawExtension{Raw: []byte(r.New)}
	}
	review := admissionv1.AdmissionReview{Request: req}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	raw, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	h := hs[path]
	if h == nil {
		t.Fatalf("%s is not served", path)
	}
	w := httptest.NewRecorder()
	call := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(raw))
	call.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, call)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		t.Fatalf("answer %s: %v", w.Body, err)
	}
	return answer.Response
}

// Patched returns the object of r as the answer changes it.
func Patched(t testing.TB, r Review, answer *admissionv1.AdmissionResponse) string {
	t.Helper()
	if !answer.Allowed {
		t.Fatalf("denied: %v", answer.Result)
	}
	if len(answer.Patch) == 0 {
		return r.New
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		t.Fatal(err)
	}
	got, err := patch.Apply([]byte(r.New))
	if err != nil {
		t.Fatalf("patch %s: %v", answer.Patch, err)
	}
	return string(got)
}

// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

func review(version string, op admissionv1.Operation, old, obj string) admittest.Review {
	return admittest.Review{Kind: schema.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "ImagePullJob"}, Operation: op, Old: old, New: obj}
}

func handlers(t *testing.T, gates string) admit.Handlers {
	t.Helper()
	set, err := features.Parse(gates)
	if err != nil {
		t.Fatal(err)
	}
	hs := admit.Handlers{}
	Register(hs, set)
	return hs
}

const on = "ImagePullJobGate=true"

func TestDefaults(t *testing.T) {
	const finalizer = `"finalizers":["apps.kruise.io/deletion-protection"]`
	for name, tc := range map[string]struct {
		review    admittest.Review
		finalizer bool
	}{
		"a job written as v1alpha1 gets the finalizer":       {review("v1alpha1", "CREATE", "", `{"metadata":{"name":"web"},"spec":{"image":"busybox"}}`), true},
		"one written as v1beta1 leaves it to the controller": {review("v1beta1", "CREATE", "", `{"metadata":{"name":"web"},"spec":{"image":"busybox"}}`), false},
		"an update does not bring it back":                   {review("v1alpha1", "UPDATE", `{"spec":{"image":"a"}}`, `{"spec":{"image":"b"}}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := admittest.Patched(t, tc.review, admittest.Ask(t, handlers(t, on), "/mutate-apps-kruise-io-imagepulljob", tc.review))
			for _, want := range []string{`"timeoutSeconds":600`, `"backoffLimit":3`, `"type":"Always"`, `"imagePullPolicy":"IfNotPresent"`} {
				if !strings.Contains(got, want) {
					t.Errorf("%s lacks %s", got, want)
				}
			}
			if strings.Contains(got, finalizer) != tc.finalizer {
				t.Errorf("finalizer in %s: want %t", got, tc.finalizer)
			}
		})
	}
}

func TestValidation(t *testing.T) {
	job := func(image, secrets string) string {
		return `{"metadata":{"name":"web","namespace":"shop"},"spec":{"image":"` + image + `","pullSecrets":[` + secrets + `],"pullPolicy":{"timeoutSeconds":600,"backoffLimit":3},"completionPolicy":{"type":"Always"},"imagePullPolicy":"IfNotPresent"}}`
	}
	for name, tc := range map[string]struct {
		gates   string
		review  admittest.Review
		code    int32 // 0: allowed
		message string
	}{
		"a good job":                    {on, review("v1beta1", "CREATE", "", job("busybox", "")), 0, ""},
		"a bad image is a 400":          {on, review("v1alpha1", "CREATE", "", job("::", "")), 400, "spec.image"},
		"the image may be edited":       {on, review("v1beta1", "UPDATE", job("a", ""), job("b", "")), 0, ""},
		"pull secrets may not be":       {on, review("v1beta1", "UPDATE", job("a", ""), job("a", `"s"`)), 403, "spec.pullSecrets is immutable"},
		"the gate is named":             {"", review("v1beta1", "CREATE", "", job("busybox", "")), 403, "feature-gate ImagePullJobGate is not enabled"},
		"the first gate is named first": {"KruiseDaemon=false", review("v1beta1", "CREATE", "", job("busybox", "")), 403, "feature-gate KruiseDaemon is not enabled"},
		"a finalizer goes also while the gate is off": {"", review("v1beta1", "UPDATE",
			strings.Replace(job("::", ""), `"name"`, `"finalizers":["a"],"name"`, 1), job("::", "")), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/validate-apps-kruise-io-imagepulljob", "/validate-apps-kruise-io-v1alpha1-imagepulljob"} {
				got := admittest.Ask(t, handlers(t, tc.gates), path, tc.review)
				if got.Allowed != (tc.code == 0) {
					t.Fatalf("response = %v", got)
				}
				if tc.code != 0 && (got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.message)) {
					t.Errorf("result = %v, want %d %s", got.Result, tc.code, tc.message)
				}
			}
		})
	}
}

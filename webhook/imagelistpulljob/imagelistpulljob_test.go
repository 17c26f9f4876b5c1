// SPDX-License-Identifier: Apache-2.0

package imagelistpulljob

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
	return admittest.Review{Kind: schema.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "ImageListPullJob"}, Operation: op, Old: old, New: obj}
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
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		r := review(version, "CREATE", "", `{"metadata":{"name":"web"},"spec":{"images":["a","b"]}}`)
		got := admittest.Patched(t, r, admittest.Ask(t, handlers(t, on), "/mutate-apps-kruise-io-imagelistpulljob", r))
		for _, want := range []string{`"timeoutSeconds":600`, `"backoffLimit":3`, `"type":"Always"`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s lacks %s", version, got, want)
			}
		}
		for _, none := range []string{"imagePullPolicy", "finalizers", "status"} {
			if strings.Contains(got, none) {
				t.Errorf("%s: %s has %s, which is not for the list", version, got, none)
			}
		}
	}
}

func TestValidation(t *testing.T) {
	job := func(images, more string) string {
		return `{"metadata":{"name":"web","namespace":"shop"},"spec":{"images":[` + images + `]` + more + `,"pullPolicy":{"timeoutSeconds":600,"backoffLimit":3},"completionPolicy":{"type":"Always","activeDeadlineSeconds":300}}}`
	}
	for name, tc := range map[string]struct {
		gates   string
		review  admittest.Review
		code    int32  // 0: allowed
		message string // of the rejection, or the warning
	}{
		"a deadline below the timeout is a warning": {on, review("v1beta1", "CREATE", "", job(`"a"`, "")), 0,
			"spec.completionPolicy.activeDeadlineSeconds: 300 is less than pullPolicy.timeoutSeconds (600)"},
		"a bad image is a 400":       {on, review("v1alpha1", "CREATE", "", job(`"::"`, "")), 400, "spec.images[0]: Invalid value"},
		"the images may be edited":   {on, review("v1beta1", "UPDATE", job(`"a"`, ""), job(`"b"`, "")), 0, ""},
		"the secrets, too":           {on, review("v1beta1", "UPDATE", job(`"a"`, ""), job(`"a"`, `,"pullSecrets":["s"]`)), 0, ""},
		"no image is left":           {on, review("v1beta1", "UPDATE", job(`"a"`, ""), job(``, "")), 400, "spec.images: Required value"},
		"the gate is named":          {"", review("v1beta1", "CREATE", "", job(`"a"`, "")), 403, "feature-gate ImagePullJobGate is not enabled"},
		"the first gate comes first": {"KruiseDaemon=false", review("v1alpha1", "CREATE", "", job(`"a"`, "")), 403, "feature-gate KruiseDaemon is not enabled"},
		"a finalizer goes also while the gate is off": {"", review("v1beta1", "UPDATE",
			strings.Replace(job("", ""), `"name"`, `"finalizers":["a"],"name"`, 1), job("", "")), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/validate-apps-kruise-io-imagelistpulljob", "/validate-apps-kruise-io-v1alpha1-imagelistpulljob"} {
				got := admittest.Ask(t, handlers(t, tc.gates), path, tc.review)
				if got.Allowed != (tc.code == 0) {
					t.Fatalf("response = %v", got)
				}
				switch {
				case tc.code != 0 && (got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.message)):
					t.Errorf("result = %v, want %d %s", got.Result, tc.code, tc.message)
				case tc.code == 0 && !strings.Contains(strings.Join(got.Warnings, "\n"), tc.message):
					t.Errorf("warnings = %q, want %s", got.Warnings, tc.message)
				}
			}
		})
	}
}

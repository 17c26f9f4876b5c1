// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

func review(version string, op admissionv1.Operation, old, obj string) admittest.Review {
	return admittest.Review{Kind: schema.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "NodeImage"}, Operation: op, Old: old, New: obj}
}

func handlers(t *testing.T, gates string) admit.Handlers {
	t.Helper()
	set, err := features.Parse(gates)
	if err != nil {
		t.Fatal(err)
	}
	hs := admit.Handlers{}
	Register(hs, set, testclock.NewFakePassiveClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)))
	return hs
}

func TestDefaults(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		r := review(version, "CREATE", "", `{"metadata":{"name":"n1"},"spec":{"images":{"nginx":{"tags":[{"tag":"b"},{"tag":"a"}]}}}}`)
		got := admittest.Patched(t, r, admittest.Ask(t, handlers(t, ""), "/mutate-apps-kruise-io-nodeimage", r))
		for _, want := range []string{`"createdAt":"2026-06-01T12:00:00Z"`, `"timeoutSeconds":600`, `"backoffLimit":3`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s lacks %s", version, got, want)
			}
		}
		if strings.Index(got, `"tag":"a"`) > strings.Index(got, `"tag":"b"`) {
			t.Errorf("%s: tags of %s are not sorted", version, got)
		}
		again := r
		again.New = got
		if resp := admittest.Ask(t, handlers(t, ""), "/mutate-apps-kruise-io-nodeimage", again); len(resp.Patch) > 0 {
			t.Errorf("%s: defaulting twice changes %s", version, resp.Patch)
		}
	}
}

func TestValidation(t *testing.T) {
	r := review("v1beta1", "CREATE", "", `{"metadata":{"name":"n1"},"spec":{"images":{"nginx":{"tags":[{"tag":""}]}}}}`)
	for _, path := range []string{"/validate-apps-kruise-io-nodeimage", "/validate-apps-kruise-io-v1alpha1-nodeimage"} {
		if got := admittest.Ask(t, handlers(t, ""), path, r); got.Allowed || got.Result.Code != 400 || !strings.Contains(got.Result.Message, "tag") {
			t.Errorf("an empty tag: %v", got)
		}
		if got := admittest.Ask(t, handlers(t, "KruiseDaemon=false"), path, r); got.Allowed || got.Result.Code != 403 || got.Result.Message != "feature-gate KruiseDaemon is not enabled" {
			t.Errorf("without the daemon: %v", got)
		}
	}
}

func TestUpdatesKeepTheTimeOfATask(t *testing.T) {
	image := func(tags string) string {
		return `{"metadata":{"name":"n1"},"spec":{"images":{"nginx":{"tags":[` + tags + `]}}}}`
	}
	const stored = `{"tag":"a","version":1,"createdAt":"2026-01-01T00:00:00Z","pullPolicy":{"timeoutSeconds":600,"backoffLimit":3}}`
	for name, tc := range map[string]struct{ tags, want string }{
		"the manifest again":         {`{"tag":"a","version":1}`, "2026-01-01T00:00:00Z"},
		"a new version":              {`{"tag":"a","version":2}`, "2026-06-01T12:00:00Z"},
		"a time of the client's own": {`{"tag":"a","version":1,"createdAt":"2026-02-02T00:00:00Z"}`, "2026-02-02T00:00:00Z"},
		"another tag":                {`{"tag":"b","version":1}`, "2026-06-01T12:00:00Z"},
	} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			r := review(version, "UPDATE", image(stored), image(tc.tags))
			got := admittest.Patched(t, r, admittest.Ask(t, handlers(t, ""), "/mutate-apps-kruise-io-nodeimage", r))
			if !strings.Contains(got, `"createdAt":"`+tc.want+`"`) {
				t.Errorf("%s in %s: %s, want %s", name, version, got, tc.want)
			}
		}
	}
}

// A patch below an empty key would be a 500 of the API server in place of our refusal.
func TestAnImageWithoutNameGetsNoDefaults(t *testing.T) {
	r := review("v1beta1", "CREATE", "", `{"metadata":{"name":"n1"},"spec":{"images":{"":{"tags":[{"tag":"a"}]}}}}`)
	if got := admittest.Ask(t, handlers(t, ""), "/mutate-apps-kruise-io-nodeimage", r); !got.Allowed || len(got.Patch) > 0 {
		t.Errorf("response = %v", got)
	}
	if got := admittest.Ask(t, handlers(t, ""), "/validate-apps-kruise-io-nodeimage", r); got.Allowed || !strings.Contains(got.Result.Message, "an image needs a name") {
		t.Errorf("response = %v", got)
	}
}

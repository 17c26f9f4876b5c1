// SPDX-License-Identifier: Apache-2.0

package podprobemarker

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

func review(op admissionv1.Operation, old, obj string) admittest.Review {
	return admittest.Review{Kind: schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "PodProbeMarker"}, Operation: op, Old: old, New: obj}
}

func TestValidation(t *testing.T) {
	marker := func(app, probe string) string {
		return `{"metadata":{"name":"web","namespace":"shop"},"spec":{"selector":{"matchLabels":{"app":"` + app + `"}},` +
			`"probes":[{"name":"a","containerName":"main","podConditionType":"example.com/a","probe":{` + probe + `}}]}}`
	}
	const exec = `"exec":{"command":["ls"]}`
	for name, tc := range map[string]struct {
		gates   string
		review  admittest.Review
		code    int32  // 0: allowed
		message string // of the rejection, or the warning
	}{
		"a good marker":            {"", review("CREATE", "", marker("web", exec)), 0, ""},
		"a bad probe is a 400":     {"", review("CREATE", "", marker("web", `"grpc":{"port":1}`)), 400, "spec.probes[0].probe: Required value: must specify a handler type"},
		"a doubtful one is warned": {"", review("CREATE", "", marker("web", exec+`,"terminationGracePeriodSeconds":1`)), 0, "has no effect"},
		"the probe may be edited":  {"", review("UPDATE", marker("web", exec), marker("web", `"tcpSocket":{"port":80}`)), 0, ""},
		"the selector may not be":  {"", review("UPDATE", marker("web", exec), marker("db", exec)), 400, "selector must be immutable"},
		"the gate is named":        {"PodProbeMarkerGate=false", review("CREATE", "", marker("web", exec)), 403, "feature-gate PodProbeMarkerGate is not enabled"},
		"the first gate comes first": {"KruiseDaemon=false", review("CREATE", "", marker("web", exec)), 403,
			"feature-gate KruiseDaemon is not enabled"},
		"a finalizer goes also while the gate is off": {"PodProbeMarkerGate=false", review("UPDATE",
			strings.Replace(marker("web", ""), `"name"`, `"finalizers":["a"],"name"`, 1), marker("web", "")), 0, ""},
		"nobody is kept from deleting": {"PodProbeMarkerGate=false", review("DELETE", marker("web", exec), ""), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := features.Parse(tc.gates)
			if err != nil {
				t.Fatal(err)
			}
			hs := admit.Handlers{}
			Register(hs, set)
			got := admittest.Ask(t, hs, "/validate-apps-kruise-io-podprobemarker", tc.review)
			switch {
			case got.Allowed != (tc.code == 0):
				t.Fatalf("response = %v", got)
			case tc.code != 0 && (got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.message)):
				t.Errorf("result = %v, want %d %s", got.Result, tc.code, tc.message)
			case tc.code == 0 && !strings.Contains(strings.Join(got.Warnings, "\n"), tc.message):
				t.Errorf("warnings = %q, want %s", got.Warnings, tc.message)
			}
		})
	}
}

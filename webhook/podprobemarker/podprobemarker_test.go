// SPDX-License-Identifier: Apache-2.0

package podprobemarker

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
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
			Register(hs, Options{Features: set, Markers: reader(t, "other", "a.b/c")})
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

func reader(t *testing.T, name, condition string) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	other := &v1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.PodProbeMarkerSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Probes:   []v1alpha1.PodContainerProbe{{Name: "a", ContainerName: "main", PodConditionType: condition}},
	}}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(other).Build()
}

// Two markers of one condition are no fault, as their Pods may be others; their author is told.
func TestOtherMarkers(t *testing.T) {
	marker := `{"metadata":{"name":"web","namespace":"shop"},"spec":{"selector":{"matchLabels":{"app":"web"}},` +
		`"probes":[{"name":"a","containerName":"main","podConditionType":"example.com/a","probe":{"exec":{"command":["ls"]}}}]}}`
	for name, tc := range map[string]struct {
		markers client.Reader
		want    int
	}{
		"another one of the same condition": {reader(t, "other", "example.com/a"), 1},
		"one of another condition":          {reader(t, "other", "example.com/b"), 0},
		"the marker itself":                 {reader(t, "web", "example.com/a"), 0},
		"no answer":                         {broken{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			hs := admit.Handlers{}
			Register(hs, Options{Features: features.New(), Markers: tc.markers})
			got := admittest.Ask(t, hs, "/validate-apps-kruise-io-podprobemarker", review("CREATE", "", marker))
			if !got.Allowed || len(got.Warnings) != tc.want {
				t.Errorf("response = %v", got)
			}
		})
	}
}

type broken struct{ client.Reader }

func (broken) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("no answer")
}

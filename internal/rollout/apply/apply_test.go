// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

func workload(t *testing.T, b fixture.CloneSetBuilder) adapter.Workload {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b.Obj())
	if err != nil {
		t.Fatal(err)
	}
	w, err := adapter.Wrap(target.Object{Kind: target.CloneSet, GVK: v1beta1.GroupVersion.WithKind("CloneSet"), Live: &unstructured.Unstructured{Object: m}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestParsePartition(t *testing.T) {
	for text, want := range map[string]string{"3": "3", "0": "0", "70%": "70%", "12.5%": "12.5%", "100%": "100%"} {
		if v, err := ParsePartition(text); err != nil || v.String() != want {
			t.Errorf("ParsePartition(%q) = %s, %v", text, v.String(), err)
		}
	}
	for text, want := range map[string]string{
		"130%": "over 100%", "-1": "negative", "half": "neither a number", "5 %": "neither a number", "": "neither a number", "101%": "over 100%",
	} {
		if v, err := ParsePartition(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePartition(%q) = %s, %v, want an error with %q", text, v.String(), err, want)
		}
	}
}

func TestFixedTakesAShareOfThePresentPods(t *testing.T) {
	for _, tc := range []struct {
		text     string
		replicas int
		want     string
	}{{"3", 6, "3"}, {"50%", 6, "3"}, {"50%", 5, "3"}, {"99%", 4, "3"}, {"100%", 4, "4"}, {"0%", 4, "0"}, {"50%", 0, "0"}, {"99%", 1, "0"}} {
		v, err := ParsePartition(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Fixed(v, tc.replicas); err != nil || got.String() != tc.want {
			t.Errorf("Fixed(%s, %d) = %s, %v, want %s", tc.text, tc.replicas, got.String(), err, tc.want)
		}
	}
}

func TestUpdated(t *testing.T) {
	for text, want := range map[string]string{"3": "7", "12": "0", "30%": "70%", "12.5%": "87.5%", "100%": "0%"} {
		if v, err := Updated(text, 10); err != nil || v.String() != want {
			t.Errorf("Updated(%q) = %s, %v, want %s", text, v.String(), err, want)
		}
	}
	if _, err := Updated("x", 10); err == nil || !strings.HasPrefix(err.Error(), "--updated") {
		t.Errorf("Updated(x): %v", err)
	}
}

func ops(t *testing.T, list []Op) string {
	t.Helper()
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestChangesAreSmall(t *testing.T) {
	bare := fixture.CloneSet("web").With(func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy = v1beta1.CloneSetUpdateStrategy{} })
	inPlace := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ru := "/spec/updateStrategy/rollingUpdate"
	cases := map[string]struct {
		set    fixture.CloneSetBuilder
		change Change
		want   string
	}{
		"pause":                    {fixture.CloneSet("web"), Pause(true), `[{"op":"add","path":"` + ru + `/paused","value":true}]`},
		"pause a paused one":       {fixture.CloneSet("web").Paused(), Pause(true), `null`},
		"resume":                   {fixture.CloneSet("web").Paused(), Pause(false), `[{"op":"remove","path":"` + ru + `/paused"}]`},
		"pause makes room":         {bare, Pause(true), `[{"op":"add","path":"` + ru + `","value":{}},{"op":"add","path":"` + ru + `/paused","value":true}]`},
		"partition":                {fixture.CloneSet("web"), Partition(intstr.FromString("70%")), `[{"op":"add","path":"` + ru + `/partition","value":"70%"}]`},
		"the same partition":       {fixture.CloneSet("web").Partition("70%"), Partition(intstr.FromString("70%")), `null`},
		"an absent partition is 0": {bare, Partition(intstr.FromInt32(0)), `null`},
		"an image": {fixture.CloneSet("web").Image("a:1"), SetImages([]Image{{"app", "a:2"}}, ""),
			`[{"op":"test","path":"/spec/template/spec/containers/0/name","value":"app"},{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"a:2"}]`},
		"every image": {fixture.CloneSet("web").Image("a:1"), SetImages([]Image{{"*", "a:1"}}, "why"), `null`},
		"a restart that recreates": {fixture.CloneSet("web"), RestartTemplate(now, "X"),
			`[{"op":"add","path":"/spec/template/metadata/annotations","value":{}},{"op":"add","path":"/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt","value":"2026-11-30T12:00:00Z"}]`},
		"a restart under an in-place policy": {inPlace, RestartTemplate(now, "X"),
			`[{"op":"test","path":"/spec/template/spec/containers/0/name","value":"app"},{"op":"add","path":"/spec/template/spec/containers/0/env","value":[{"name":"X","value":"2026-11-30T12:00:00Z"}]}]`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			list, err := tc.change(workload(t, tc.set))
			if err != nil {
				t.Fatal(err)
			}
			if got := ops(t, list); got != tc.want {
				t.Errorf("operations are\n%s, want\n%s", got, tc.want)
			}
		})
	}
	if _, err := RestartTemplate(now, "X")(workload(t, fixture.CloneSet("web").Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType))); err == nil {
		t.Error("InPlaceOnly can be restarted by template")
	}
}

// What the server answers is compared with what was asked.
func TestAnswerIsCompared(t *testing.T) {
	w := workload(t, fixture.CloneSet("web").Partition("3"))
	asked := Set(w, w.At.Partition, int64(5))
	if err := holds(w.Live, asked); err == nil || !strings.Contains(err.Error(), "rollingUpdate.partition is 3, asked was 5") {
		t.Errorf("a reverted change is not noticed: %v", err)
	}
	if err := holds(w.Live, Set(workload(t, fixture.CloneSet("web")), w.At.Partition, int64(3))); err != nil {
		t.Errorf("a stored change is not recognised: %v", err)
	}
	if err := holds(w.Live, []Op{{Op: "remove", Path: w.At.Partition.Pointer()}}); err == nil {
		t.Error("a field that is still there is not noticed")
	}
}

func TestJoinMakesRoomOnce(t *testing.T) {
	w := workload(t, fixture.CloneSet("web"))
	list := Join(SetTemplateMetadata(w, "annotations", "a", "1"), SetTemplateMetadata(w, "annotations", "b", "2"))
	if len(list) != 3 {
		t.Errorf("operations are %s", ops(t, list))
	}
}

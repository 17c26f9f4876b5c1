// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

// markers is a reader of PodProbeMarkers of namespace shop, in a fixed order.
type markers struct {
	list []v1alpha1.PodProbeMarker
	err  error
}

func (m markers) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("nobody gets")
}

func (m markers) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if o.Namespace == "shop" {
		into.(*v1alpha1.PodProbeMarkerList).Items = slices.Clone(m.list)
	}
	return m.err
}

func marker(name, app string, probes ...v1alpha1.PodContainerProbe) v1alpha1.PodProbeMarker {
	m := v1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.PodProbeMarkerSpec{Selector: &metav1.LabelSelector{}, Probes: probes}}
	if app != "" {
		m.Spec.Selector.MatchLabels = map[string]string{"app": app}
	}
	return m
}

func probe(name, container, condition string) v1alpha1.PodContainerProbe {
	p := v1alpha1.PodContainerProbe{Name: name, ContainerName: container, PodConditionType: condition}
	p.Probe.Exec = &corev1.ExecAction{Command: []string{name}}
	p.MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{{State: "Succeeded", Labels: map[string]string{"a": "b"}}}
	return p
}

const web = `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"initContainers":[{"name":"setup"},{"name":"proxy","restartPolicy":"Always"}],"containers":[{"name":"main"}]}}`

func TestPodProbes(t *testing.T) {
	going := marker("a", "web", probe("x", "main", "e.com/x"))
	going.DeletionTimestamp = new(metav1.Now())
	x := `{"name":"x","containerName":"main","probe":{"exec":{"command":["x"]}},"podConditionType":"e.com/x"}`
	for name, tc := range map[string]struct {
		list          []v1alpha1.PodProbeMarker
		probes, names string // no annotations when both are empty
	}{
		"a probe goes to the Pod without what marks it": {[]v1alpha1.PodProbeMarker{marker("a", "web", probe("x", "main", "e.com/x"))}, x, "a"},
		"no marker, no annotation":                      {nil, "", ""},
		"a marker of other Pods":                        {[]v1alpha1.PodProbeMarker{marker("a", "db", probe("x", "main", "e.com/x"))}, "", ""},
		"a marker without selector":                     {[]v1alpha1.PodProbeMarker{marker("a", "", probe("x", "main", "e.com/x"))}, "", ""},
		"a marker that goes":                            {[]v1alpha1.PodProbeMarker{going}, "", ""},
		"a probe without condition":                     {[]v1alpha1.PodProbeMarker{marker("a", "web", probe("x", "main", ""))}, "", ""},
		"a probe of a container that is not there":      {[]v1alpha1.PodProbeMarker{marker("a", "web", probe("x", "other", "e.com/x"))}, "", ""},
		"a probe of an init container":                  {[]v1alpha1.PodProbeMarker{marker("a", "web", probe("x", "setup", "e.com/x"))}, "", ""},
		"a probe of a native sidecar": {[]v1alpha1.PodProbeMarker{marker("a", "web", probe("x", "proxy", "e.com/x"))},
			strings.Replace(x, "main", "proxy", 1), "a"},
		"of one condition the first by name of the marker stays": {[]v1alpha1.PodProbeMarker{
			marker("b", "web", probe("y", "main", "e.com/x")), marker("a", "web", probe("x", "main", "e.com/x")),
		}, x, "a"},
		"of one name in a container as well": {[]v1alpha1.PodProbeMarker{
			marker("b", "web", probe("x", "main", "e.com/y"), probe("x", "proxy", "e.com/z")), marker("a", "web", probe("x", "main", "e.com/x")),
		}, x + "," + `{"name":"x","containerName":"proxy","probe":{"exec":{"command":["x"]}},"podConditionType":"e.com/z"}`, "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			c := chain{podProbes(markers{list: tc.list})}
			req := create(web)
			resp := c.Handle(t.Context(), req)
			if !resp.Allowed {
				t.Fatal(resp.Result)
			}
			want := map[string]string{}
			if tc.names != "" {
				want = map[string]string{"kruise.io/podprobe": "[" + tc.probes + "]", "kruise.io/podprobemarker-list": tc.names}
			}
			got := map[string]string{}
			for _, p := range resp.Patches {
				if p.Path != "/metadata/annotations" {
					t.Fatalf("patches = %v", resp.Patches)
				}
				for key, value := range p.Value.(map[string]any) {
					got[key] = value.(string)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodProbesWithoutMarkers(t *testing.T) {
	none := markers{err: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "PodProbeMarker"}}}
	if resp := (chain{podProbes(none)}).Handle(t.Context(), create(web)); !resp.Allowed || len(resp.Patches) > 0 {
		t.Errorf("a cluster without the kind: %v", resp)
	}
	resp := chain{podProbes(markers{err: errors.New("no answer")})}.Handle(t.Context(), create(web))
	if resp.Allowed || resp.Result.Code != 500 || resp.Result.Message != "PodProbeMarker: listing PodProbeMarkers of namespace shop: no answer" {
		t.Errorf("a cluster that does not answer: %v", resp)
	}
}

func TestPodProbesNeedTheirGate(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	for gates, asked := range map[string]bool{"": false, "EnablePodProbeMarkerOnServerless=true": true, "EnablePodProbeMarkerOnServerless=true,KruiseDaemon=false": true} {
		set, err := features.Parse(gates)
		if err != nil {
			t.Fatal(err)
		}
		hs := admit.Handlers{}
		Register(hs, set, markers{err: errors.New("asked")})
		answer := admittest.Ask(t, hs, MutatePath, admittest.Review{Kind: kind, Operation: "CREATE", New: web})
		if answer.Allowed == asked {
			t.Errorf("with %q: %v", gates, answer)
		}
	}
}

// Whatever markers there are and in whatever order a cache lists them, a Pod gets the same probes;
// a Pod that has been here before is not changed again; and no two probes fight over a condition.
func TestPodProbesAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []v1alpha1.PodProbeMarker
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4, rapid.ID).Draw(t, "markers") {
			var probes []v1alpha1.PodContainerProbe
			for range rapid.IntRange(0, 3).Draw(t, "probes") {
				probes = append(probes, probe(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "probe"),
					rapid.SampledFrom([]string{"main", "proxy", "setup", "none"}).Draw(t, "container"),
					rapid.SampledFrom([]string{"", "e.com/1", "e.com/2"}).Draw(t, "condition")))
			}
			list = append(list, marker(name, rapid.SampledFrom([]string{"web", "db", ""}).Draw(t, "app"), probes...))
		}
		pod := &corev1.Pod{}
		if err := json.Unmarshal([]byte(web), pod); err != nil {
			t.Fatal(err)
		}
		pod.Namespace = "shop"
		run := func(pod *corev1.Pod, list []v1alpha1.PodProbeMarker) *corev1.Pod {
			pod = pod.DeepCopy()
			if err := podProbes(markers{list: list}).apply(context.Background(), &request{Pod: pod}); err != nil {
				t.Fatal(err)
			}
			return pod
		}
		once := run(pod, list)
		if diff := cmp.Diff(once, run(once, list)); diff != "" {
			t.Fatalf("twice (-once +twice):\n%s", diff)
		}
		shuffled := slices.Clone(list)
		seed := rapid.Uint64().Draw(t, "seed")
		rand.New(rand.NewPCG(seed, seed)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] }) //nolint:gosec // a test
		if diff := cmp.Diff(once, run(pod, shuffled)); diff != "" {
			t.Fatalf("in another order (-one +other):\n%s", diff)
		}
		var probes []v1alpha1.PodContainerProbe
		if text := once.Annotations["kruise.io/podprobe"]; text != "" {
			if err := json.Unmarshal([]byte(text), &probes); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		for _, p := range probes {
			if seen[p.PodConditionType] || p.PodConditionType == "" || p.MarkerPolicy != nil {
				t.Fatalf("probes = %v", probes)
			}
			seen[p.PodConditionType] = true
		}
	})
}

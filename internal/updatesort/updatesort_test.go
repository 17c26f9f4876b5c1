// SPDX-License-Identifier: Apache-2.0

package updatesort_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/updatesort"
)

func pods(builders ...fixture.PodBuilder) (out []*corev1.Pod) {
	for _, b := range builders {
		out = append(out, b.Obj())
	}
	return out
}

func names(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func ready(name string) fixture.PodBuilder {
	return fixture.Pod(name).Node("n-" + name).Ready(fixture.Created)
}

func restarts(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = n }
}

func TestForUpdate(t *testing.T) {
	later := fixture.Created.Add(time.Minute)
	weight := func(terms ...v1beta1.UpdatePriorityWeightTerm) *v1beta1.RollingUpdateCloneSetStrategy {
		return &v1beta1.RollingUpdateCloneSetStrategy{PriorityStrategy: &v1beta1.UpdatePriorityStrategy{WeightPriority: terms}}
	}
	term := func(w int32, key, value string) v1beta1.UpdatePriorityWeightTerm {
		return v1beta1.UpdatePriorityWeightTerm{Weight: w, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
	}
	order := func(keys ...string) *v1beta1.RollingUpdateCloneSetStrategy {
		s := &v1beta1.UpdatePriorityStrategy{}
		for _, k := range keys {
			s.OrderPriority = append(s.OrderPriority, v1beta1.UpdatePriorityOrderTerm{OrderedKey: k})
		}
		return &v1beta1.RollingUpdateCloneSetStrategy{PriorityStrategy: s}
	}
	cases := map[string]struct {
		pods     []*corev1.Pod
		strategy *v1beta1.RollingUpdateCloneSetStrategy
		want     string
	}{
		"Pods that serve least go first": {
			pods: pods(
				ready("ready"),
				ready("younger").Ready(later),
				fixture.Pod("notready").Node("n").NotReady(fixture.Created),
				fixture.Pod("unknown").Node("n").Phase(corev1.PodUnknown),
				fixture.Pod("pending").Node("n"),
				fixture.Pod("unscheduled"),
			),
			want: "unscheduled pending unknown notready younger ready",
		},
		"more restarts, then newer Pods, go first among equals": {
			pods: pods(ready("calm"), ready("newer").Created(later), ready("restarted").With(restarts(3))),
			want: "restarted newer calm",
		},
		"equal Pods keep their order": {
			pods: pods(ready("b"), ready("a"), ready("c")),
			want: "b a c",
		},
		"weights add up and the heavier goes first": {
			pods:     pods(ready("none"), ready("one").Label("a", "1"), ready("both").Label("a", "1").Label("b", "1")),
			strategy: weight(term(40, "a", "1"), term(30, "b", "1")),
			want:     "both one none",
		},
		"order takes the larger trailing number inside one key, and keyless Pods first": {
			pods:     pods(ready("k2").Label("second", "x-9"), ready("b2").Label("first", "bucket-2"), ready("b12").Label("first", "bucket-12"), ready("bare"), ready("nodigits").Label("first", "bucket")),
			strategy: order("first", "second"),
			want:     "bare b12 b2 nodigits k2",
		},
		"a started update is finished before everything else": {
			pods:     pods(ready("heavy").Label("a", "1"), ready("started").State(v1beta1.LifecyclePreparingUpdate)),
			strategy: weight(term(100, "a", "1")),
			want:     "started heavy",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, names(updatesort.ForUpdate(tc.pods, tc.pods, tc.strategy)))
		})
	}
}

func TestScatter(t *testing.T) {
	// numbered makes Pods 0 … n-1; those listed carry the label.
	numbered := func(n int, labelled ...int) (out []*corev1.Pod) {
		for i := range n {
			b := ready(fmt.Sprint(i))
			for _, l := range labelled {
				if l == i {
					b = b.Label("zone", "a")
				}
			}
			out = append(out, b.Obj())
		}
		return out
	}
	strategy := func(values ...string) *v1beta1.RollingUpdateCloneSetStrategy {
		s := &v1beta1.RollingUpdateCloneSetStrategy{}
		for _, v := range values {
			s.ScatterStrategy = append(s.ScatterStrategy, v1beta1.CloneSetUpdateScatterTerm{Key: "zone", Value: v})
		}
		return s
	}
	part := numbered(8, 0, 1, 2, 3)
	cases := map[string]struct {
		candidates, all []*corev1.Pod
		values          []string
		want            string
	}{
		"four and two":                               {candidates: numbered(6, 4, 5), want: "4 0 1 2 3 5"},
		"three and three":                            {candidates: numbered(6, 3, 4, 5), want: "3 0 1 4 2 5"},
		"six and three":                              {candidates: numbered(9, 6, 7, 8), want: "6 0 1 2 7 3 4 5 8"},
		"more matched than unmatched":                {candidates: numbered(9, 0, 1, 2, 3, 4, 5), want: "0 1 6 2 3 7 4 8 5"},
		"a surplus of unmatched candidates":          {candidates: append(append([]*corev1.Pod{}, part[:3]...), part[4:]...), all: part, want: "4 5 0 6 1 7 2"},
		"one matched Pod is left where it is":        {candidates: numbered(4, 2), want: "0 1 2 3"},
		"one unmatched Pod is left where it is":      {candidates: numbered(4, 0, 1, 2), want: "0 1 2 3"},
		"terms that match nobody change nothing":     {candidates: numbered(6, 3, 4, 5), values: []string{"b", "a", "c"}, want: "3 0 1 4 2 5"},
		"all terms matching nobody leaves the order": {candidates: numbered(3), values: []string{"b", "c"}, want: "0 1 2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.all == nil {
				tc.all = tc.candidates
			}
			if tc.values == nil {
				tc.values = []string{"a"}
			}
			assert.Equal(t, tc.want, names(updatesort.ForUpdate(tc.candidates, tc.all, strategy(tc.values...))))
		})
	}
}

func TestForDeletion(t *testing.T) {
	cost := func(name, value string) fixture.PodBuilder {
		return ready(name).Annotation("controller.kubernetes.io/pod-deletion-cost", value)
	}
	later := fixture.Created.Add(time.Minute)
	cases := map[string]struct {
		pods     []*corev1.Pod
		deletion updatesort.Deletion
		want     string
	}{
		"unscheduled, pending, unavailable, not ready, ready": {
			pods:     pods(ready("ready"), ready("unavailable"), fixture.Pod("notready").Node("n").NotReady(fixture.Created), fixture.Pod("pending").Node("m"), fixture.Pod("unscheduled")),
			deletion: updatesort.Deletion{Available: func(p *corev1.Pod) bool { return p.Name == "ready" }},
			want:     "unscheduled pending notready unavailable ready",
		},
		"lower cost first, invalid costs are zero": {
			pods: pods(cost("five", "5"), cost("plus", "+10"), cost("octal", "008"), cost("negative", "-3"), cost("huge", "99999999999")),
			want: "negative plus octal huge five",
		},
		"the surplus of a node goes first": {
			pods: pods(ready("alone"), ready("x1").Node("x"), ready("x2").Node("x"), ready("x3").Node("x")),
			want: "x1 x2 alone x3",
		},
		"a cost weighs more than the node": {
			pods: pods(cost("cheap", "-1"), ready("x1").Node("x"), ready("x2").Node("x")),
			want: "cheap x1 x2",
		},
		"shorter ready time, then restarts, then age": {
			pods: pods(ready("old"), ready("newer").Created(later), ready("restarted").With(restarts(2)), ready("fresh").Ready(later)),
			want: "fresh restarted newer old",
		},
		"zones are evened out": {
			pods: pods(ready("a1").Node("na1"), ready("b1").Node("nb1"), ready("a2").Node("na2"), ready("a3").Node("na3")),
			deletion: updatesort.Deletion{
				Constraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}},
				NodeLabels:  map[string]map[string]string{"na1": {"zone": "a"}, "na2": {"zone": "a"}, "na3": {"zone": "a"}, "nb1": {"zone": "b"}},
			},
			want: "a1 a2 b1 a3",
		},
		"hostname needs no node objects": {
			pods:     pods(ready("alone"), ready("x1").Node("x"), ready("x2").Node("x")),
			deletion: updatesort.Deletion{Constraints: []corev1.TopologySpreadConstraint{{TopologyKey: "kubernetes.io/hostname"}}},
			want:     "x1 alone x2",
		},
		"a node that is not known counts for nothing": {
			pods:     pods(ready("a"), ready("b")),
			deletion: updatesort.Deletion{Constraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}},
			want:     "a b",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, names(updatesort.ForDeletion(tc.pods, tc.deletion)))
		})
	}
}

// Scaling in during an update takes the Pods of one revision; the others count for the
// zones all the same.
func TestZonesAreEvenedOutOverAllPods(t *testing.T) {
	zone := map[string]map[string]string{"na": {"zone": "a"}, "nb": {"zone": "b"}}
	in := func(name, node string) *corev1.Pod { return ready(name).Node(node).Obj() }
	candidates := []*corev1.Pod{in("a1", "na"), in("b1", "nb")}
	others := []*corev1.Pod{in("b2", "nb"), in("b3", "nb")}
	d := updatesort.Deletion{Constraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}, NodeLabels: zone}
	assert.Equal(t, "a1 b1", names(updatesort.ForDeletion(candidates, d)))
	d.Among = append(others, candidates...)
	assert.Equal(t, "b1 a1", names(updatesort.ForDeletion(candidates, d)))
}

// No order may lose, add or repeat a Pod, nor change what it was given.
func TestOrdersArePermutations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []*corev1.Pod
		for i := range rapid.IntRange(0, 20).Draw(t, "pods") {
			b := fixture.Pod(fmt.Sprint(i)).Label("zone", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone"))
			if rapid.Bool().Draw(t, "scheduled") {
				b = b.Node(rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node"))
			}
			if rapid.Bool().Draw(t, "ready") {
				b = b.Ready(fixture.Created.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "since")) * time.Second))
			}
			list = append(list, b.Obj())
		}
		candidates := list[rapid.IntRange(0, len(list)).Draw(t, "from"):]
		before := names(candidates)
		strategy := &v1beta1.RollingUpdateCloneSetStrategy{ScatterStrategy: v1beta1.CloneSetUpdateScatterStrategy{{Key: "zone", Value: "a"}, {Key: "zone", Value: "b"}}}
		for _, sorted := range [][]*corev1.Pod{
			updatesort.ForUpdate(candidates, list, strategy),
			updatesort.ForDeletion(candidates, updatesort.Deletion{Constraints: []corev1.TopologySpreadConstraint{{TopologyKey: "kubernetes.io/hostname"}}}),
		} {
			if len(sorted) != len(candidates) {
				t.Fatalf("%d Pods went in, %d came out", len(candidates), len(sorted))
			}
			seen := map[string]bool{}
			for _, p := range sorted {
				if seen[p.Name] {
					t.Fatalf("Pod %s twice in %s", p.Name, names(sorted))
				}
				seen[p.Name] = true
			}
		}
		if after := names(candidates); after != before {
			t.Fatalf("the input changed from %q to %q", before, after)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

var t0 = metav1.NewTime(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))

var port80 = intstr.FromInt32(80)

func policy(state v1alpha1.ProbeState, labels map[string]string, annotations map[string]string) v1alpha1.ProbeMarkerPolicy {
	return v1alpha1.ProbeMarkerPolicy{State: state, Labels: labels, Annotations: annotations}
}

func with(p v1alpha1.PodContainerProbe, policies ...v1alpha1.ProbeMarkerPolicy) v1alpha1.PodContainerProbe {
	p.MarkerPolicy = policies
	return p
}

func result(key string, state v1alpha1.ProbeState, message string) v1alpha1.ContainerProbeState {
	return v1alpha1.ContainerProbeState{Name: key, State: state, Message: message, LastProbeTime: t0, LastTransitionTime: t0}
}

// applied is the Pod after the marks, as the API server merges them.
func applied(t *testing.T, p *corev1.Pod, m Marks) *corev1.Pod {
	t.Helper()
	patch, err := m.Patch(p)
	require.NoError(t, err)
	original, err := json.Marshal(p)
	require.NoError(t, err)
	merged, err := strategicpatch.StrategicMergePatch(original, patch, &corev1.Pod{})
	require.NoError(t, err)
	out := &corev1.Pod{}
	require.NoError(t, json.Unmarshal(merged, out))
	return out
}

func find(markers ...*v1alpha1.PodProbeMarker) func(string) *v1alpha1.PodProbeMarker {
	return func(name string) *v1alpha1.PodProbeMarker {
		for _, m := range markers {
			if m.Name == name {
				return m
			}
		}
		return nil
	}
}

func TestResultsOnPods(t *testing.T) {
	up := policy(v1alpha1.ProbeSucceeded, map[string]string{"up": "yes", "state": "good"}, map[string]string{"cost": "10"})
	down := policy(v1alpha1.ProbeFailed, map[string]string{"down": "yes", "state": "bad"}, map[string]string{"cost": "-10"})
	type states = []v1alpha1.ContainerProbeState
	cases := map[string]struct {
		markers     []*v1alpha1.PodProbeMarker
		states      states
		labels      map[string]string // before; nil is none
		annotations map[string]string
		wantLabels  map[string]string
		wantNotes   map[string]string
		conditions  map[string]string // type: status and message
	}{
		"success sets the condition, with its message": {
			markers: []*v1alpha1.PodProbeMarker{marker("m", exec("a"))}, states: states{result("m#a", "Succeeded", "data")},
			conditions: map[string]string{"example.com/a": "True data"},
		},
		"failure and not knowing are False": {
			markers:    []*v1alpha1.PodProbeMarker{marker("m", exec("a"), exec("b"))},
			states:     states{result("m#a", "Failed", "no"), result("m#b", "Unknown", "")},
			conditions: map[string]string{"example.com/a": "False no", "example.com/b": "False "},
		},
		"a Pod without labels gets some": {
			markers: []*v1alpha1.PodProbeMarker{marker("m", with(tcp(port80), up))}, states: states{result("m#t", "Succeeded", "")},
			wantLabels: map[string]string{"up": "yes", "state": "good"}, wantNotes: map[string]string{"cost": "10"},
		},
		"of one policy, failure removes the keys": {
			markers: []*v1alpha1.PodProbeMarker{marker("m", with(tcp(port80), up))}, states: states{result("m#t", "Failed", "")},
			labels: map[string]string{"up": "yes", "state": "good", "app": "web"}, annotations: map[string]string{"cost": "10"},
			wantLabels: map[string]string{"app": "web"},
		},
		"of one policy, not knowing removes the keys": {
			markers: []*v1alpha1.PodProbeMarker{marker("m", with(tcp(port80), up))}, states: states{result("m#t", "Unknown", "")},
			labels: map[string]string{"up": "yes"}, wantLabels: map[string]string{},
		},
		"of two policies one replaces the other": {
			markers: []*v1alpha1.PodProbeMarker{marker("m", with(tcp(port80), up, down))}, states: states{result("m#t", "Failed", "")},
			labels: map[string]string{"up": "yes", "state": "good"}, annotations: map[string]string{"cost": "10"},
			wantLabels: map[string]string{"down": "yes", "state": "bad"}, wantNotes: map[string]string{"cost": "-10"},
		},
		"of two policies in the other order too": {
			markers: []*v1alpha1.PodProbeMarker{marker("m", with(tcp(port80), down, up))}, states: states{result("m#t", "Failed", "")},
			labels: map[string]string{"up": "yes", "state": "good"}, annotations: map[string]string{"cost": "10"},
			wantLabels: map[string]string{"down": "yes", "state": "bad"}, wantNotes: map[string]string{"cost": "-10"},
		},
		"of two policies, not knowing sets neither": {
			markers: []*v1alpha1.PodProbeMarker{marker("m", with(tcp(port80), up, down))}, states: states{result("m#t", "Unknown", "")},
			labels: map[string]string{"up": "yes", "app": "web"}, wantLabels: map[string]string{"app": "web"},
		},
		"of two markers with one condition the first result counts": {
			markers:    []*v1alpha1.PodProbeMarker{marker("m", exec("a")), marker("n", exec("a"))},
			states:     states{result("n#a", "Failed", "n"), result("m#a", "Succeeded", "m")},
			conditions: map[string]string{"example.com/a": "False n"},
		},
		"of two markers with one label the last result counts": {
			markers:    []*v1alpha1.PodProbeMarker{marker("m", with(tcp(port80), up)), marker("n", with(tcp(port80), down))},
			states:     states{result("m#t", "Succeeded", ""), result("n#t", "Failed", "")},
			wantLabels: map[string]string{"up": "yes", "down": "yes", "state": "bad"}, wantNotes: map[string]string{"cost": "-10"},
		},
		"results that belong to nothing are skipped": {
			markers: []*v1alpha1.PodProbeMarker{marker("m", exec("a"))},
			states:  states{result("no-separator", "Succeeded", ""), result("gone#a", "Succeeded", ""), result("m#gone", "Succeeded", ""), result("m#a", "", "")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := pod("web-0", "u0")
			p.Labels, p.Annotations = tc.labels, tc.annotations
			marks := Results(tc.states, find(tc.markers...)).Missing(p)
			got := applied(t, p, marks)
			conditions := map[string]string{}
			for _, c := range got.Status.Conditions {
				if c.Type != corev1.PodInitialized {
					conditions[string(c.Type)] = string(c.Status) + " " + c.Message
				}
			}
			for what, diff := range map[string]string{
				"labels":      cmp.Diff(tc.wantLabels, got.Labels, cmpopts.EquateEmpty()),
				"annotations": cmp.Diff(tc.wantNotes, got.Annotations, cmpopts.EquateEmpty()),
				"conditions":  cmp.Diff(tc.conditions, conditions, cmpopts.EquateEmpty()),
			} {
				if diff != "" {
					t.Errorf("%s differ (-want +got):\n%s", what, diff)
				}
			}
			require.True(t, Results(tc.states, find(tc.markers...)).Missing(got).Empty(), "twice is once")
		})
	}
}

func TestTimesAloneAreNoDifferenceAndMessagesAre(t *testing.T) {
	m := marker("m", exec("a"))
	p := applied(t, pod("web-0", "u0"), Results([]v1alpha1.ContainerProbeState{result("m#a", "Succeeded", "data")}, find(m)))
	later := result("m#a", "Succeeded", "data")
	later.LastProbeTime = metav1.NewTime(t0.Add(time.Hour))
	require.True(t, Results([]v1alpha1.ContainerProbeState{later}, find(m)).Missing(p).Empty())
	later.Message = "gate"
	p = applied(t, p, Results([]v1alpha1.ContainerProbeState{later}, find(m)).Missing(p))
	require.Equal(t, "gate", condition(p, "example.com/a").Message)
	later.Message = ""
	p = applied(t, p, Results([]v1alpha1.ContainerProbeState{later}, find(m)).Missing(p))
	require.Empty(t, condition(p, "example.com/a").Message, "an empty message replaces one")
	require.Len(t, p.Status.Conditions, 2)
}

func TestServerlessMarks(t *testing.T) {
	m := marker("m", with(exec("a"), policy("Succeeded", map[string]string{"up": "yes"}, nil), policy("Failed", map[string]string{"down": "yes"}, nil)), exec("b"))
	p := pod("web-0", "u0")
	require.True(t, FromConditions(m, p).Empty(), "without a condition nothing is known")
	for status, want := range map[corev1.ConditionStatus]map[string]string{
		corev1.ConditionTrue:    {"app": "web", "up": "yes"},
		corev1.ConditionFalse:   {"app": "web", "down": "yes"},
		corev1.ConditionUnknown: {"app": "web"},
	} {
		p.Labels = map[string]string{"app": "web", "up": "yes"}
		p.Status.Conditions = []corev1.PodCondition{{Type: "example.com/a", Status: status}}
		require.Equal(t, want, applied(t, p, FromConditions(m, p).Missing(p)).Labels, status)
	}
}

func TestUnmark(t *testing.T) {
	m := marker("m", with(exec("a"), policy("Succeeded", map[string]string{"up": "yes"}, map[string]string{"cost": "10"}), policy("Failed", nil, map[string]string{"cost": "-10"})))
	m.Spec.Probes = append(m.Spec.Probes, exec("b"), exec("b"))
	native := exec("c")
	native.PodConditionType = "Ready"
	m.Spec.Probes = append(m.Spec.Probes, native)
	marked := func() *corev1.Pod {
		p := pod("web-0", "u0")
		p.Labels = map[string]string{"app": "web", "up": "yes"}
		p.Annotations = map[string]string{"cost": "-10"}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/a"}, corev1.PodCondition{Type: "example.com/b"}, corev1.PodCondition{Type: "Ready"})
		return p
	}
	types := func(p *corev1.Pod) (out []string) {
		for _, c := range p.Status.Conditions {
			out = append(out, string(c.Type))
		}
		return out
	}
	t.Run("nothing of the marker remains, and all else does", func(t *testing.T) {
		got := applied(t, marked(), Unmark(marked(), m, nil, true))
		require.Equal(t, map[string]string{"app": "web"}, got.Labels)
		require.Empty(t, got.Annotations)
		require.Equal(t, []string{"Initialized", "Ready"}, types(got))
		require.True(t, Unmark(got, m, nil, true).Empty())
	})
	t.Run("what another marker of the Pod is in charge of stays", func(t *testing.T) {
		other := marker("other", with(exec("b"), policy("Succeeded", map[string]string{"up": "no"}, nil)))
		got := applied(t, marked(), Unmark(marked(), m, []*v1alpha1.PodProbeMarker{other}, true))
		require.Equal(t, map[string]string{"app": "web", "up": "yes"}, got.Labels)
		require.Equal(t, []string{"Initialized", "example.com/b", "Ready"}, types(got))
		other.Spec.Selector.MatchLabels["app"] = "else"
		require.Equal(t, Unmark(marked(), m, nil, true), Unmark(marked(), m, []*v1alpha1.PodProbeMarker{other}, true), "not one of other Pods")
	})
	t.Run("keys go whatever their value is", func(t *testing.T) {
		p := marked()
		p.Labels["up"], p.Annotations["cost"] = "maybe", "7"
		got := applied(t, p, Unmark(p, m, nil, true))
		require.NotContains(t, got.Labels, "up")
		require.NotContains(t, got.Annotations, "cost")
	})
	t.Run("conditions of serverless nodes stay", func(t *testing.T) {
		require.Len(t, applied(t, marked(), Unmark(marked(), m, nil, false)).Status.Conditions, 4)
	})
}

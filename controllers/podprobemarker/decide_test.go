// SPDX-License-Identifier: Apache-2.0

package podprobemarker

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// way is a marker of app=web with one probe, for which a Pod is up or down.
func way() *v1alpha1.PodProbeMarker {
	p := v1alpha1.PodContainerProbe{Name: "a", ContainerName: "main", PodConditionType: "x.io/a"}
	p.Probe.Exec = &corev1.ExecAction{Command: []string{"check"}}
	p.MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{
		{State: "Succeeded", Labels: map[string]string{"up": "yes"}}, {State: "Failed", Labels: map[string]string{"down": "yes"}},
	}
	return &v1alpha1.PodProbeMarker{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "way", Generation: 7},
		Spec: v1alpha1.PodProbeMarkerSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Probes: []v1alpha1.PodContainerProbe{p},
		},
	}
}

// pod is an initialized Pod of app=web.
func pod(name, node string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: "Initialized", Status: "True"}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func has(status corev1.ConditionStatus, labels ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "x.io/a", Status: status})
		for _, l := range labels {
			p.Labels[l] = "yes"
		}
	}
}

func nodes(names ...string) map[string]*corev1.Node {
	out := map[string]*corev1.Node{}
	for _, n := range names {
		out[n] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}
		if n == "virtual" {
			out[n].Labels = map[string]string{"type": "virtual-kubelet"}
		}
	}
	return out
}

func nodeProbe(node string, pods ...*corev1.Pod) *v1alpha1.NodePodProbe {
	npp := &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: node}}
	npp.Spec, _ = podprobe.Assign(npp.Spec, way(), pods)
	return npp
}

// told is a plan in short.
func told(p Plan) (out []string) {
	for _, a := range p.Assign {
		line := "assign " + a.Node + ":"
		for _, pod := range a.Pods {
			line += " " + pod.Name
		}
		out = append(out, line)
	}
	for _, m := range p.Mark {
		line := "mark " + m.Pod.Name + ":"
		for _, k := range []string{"up", "down"} {
			if v, ok := m.Marks.Labels[k]; ok && v == nil {
				line += " -" + k
			} else if ok {
				line += " +" + k
			}
		}
		for _, c := range m.Marks.DropConditions {
			line += " -" + string(c)
		}
		out = append(out, line)
	}
	return append(out, fmt.Sprintf("matched %d of generation %d", p.Status.MatchedPods, p.Status.ObservedGeneration))
}

func TestDecide(t *testing.T) {
	a, b := pod("a", "n1", nil), pod("b", "n1", nil)
	lost := pod("lost", "n1", has("True", "up"))
	lost.Labels["app"] = "isolated"
	cases := map[string]struct {
		snap Snapshot
		want []string
	}{
		"Pods are assigned to their nodes": {
			Snapshot{Pods: []*corev1.Pod{b, pod("c", "n2", nil), a}, Nodes: nodes("n1", "n2"), NodeProbes: []*v1alpha1.NodePodProbe{nodeProbe("n2"), nodeProbe("n1")}},
			[]string{"assign n1: a b", "assign n2: c", "matched 3 of generation 7"},
		},
		"what is right is left alone": {
			Snapshot{Pods: []*corev1.Pod{a, b}, Nodes: nodes("n1"), NodeProbes: []*v1alpha1.NodePodProbe{nodeProbe("n1", a, b)}},
			[]string{"matched 2 of generation 7"},
		},
		"a node without NodePodProbe is waited for, and its Pods count": {
			Snapshot{Pods: []*corev1.Pod{a}, Nodes: nodes("n1")}, []string{"matched 1 of generation 7"},
		},
		"Pods without node, or whose node does not exist, do not count": {
			Snapshot{Pods: []*corev1.Pod{a, pod("c", "", nil)}, NodeProbes: []*v1alpha1.NodePodProbe{nodeProbe("n1")}}, []string{"matched 0 of generation 7"},
		},
		"Pods that end are taken back": {
			Snapshot{
				Pods:  []*corev1.Pod{pod("a", "n1", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }), b},
				Nodes: nodes("n1"), NodeProbes: []*v1alpha1.NodePodProbe{nodeProbe("n1", a, b)},
			},
			[]string{"assign n1: b", "matched 1 of generation 7"},
		},
		"what is found on a node without Pods goes": {
			Snapshot{Nodes: nodes(), NodeProbes: []*v1alpha1.NodePodProbe{nodeProbe("n9", a)}}, []string{"assign n9:", "matched 0 of generation 7"},
		},
		"a Pod that leaves the selection loses its marks": {
			Snapshot{Lost: []*corev1.Pod{lost}, Nodes: nodes("n1"), NodeProbes: []*v1alpha1.NodePodProbe{nodeProbe("n1", lost)}},
			[]string{"assign n1:", "mark lost: -up -x.io/a", "matched 0 of generation 7"},
		},
		"conditions of a serverless node become labels": {
			Snapshot{
				Pods:  []*corev1.Pod{pod("s", "virtual", has("True", "down")), pod("t", "virtual", has("Unknown", "up")), pod("u", "virtual", nil)},
				Nodes: nodes("virtual"), Serverless: true,
			},
			[]string{"mark s: +up -down", "mark t: -up", "matched 3 of generation 7"},
		},
		"without the gate they do not, and count": {
			Snapshot{Pods: []*corev1.Pod{pod("s", "virtual", has("True"))}, Nodes: nodes("virtual")}, []string{"matched 1 of generation 7"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.snap.Marker = way()
			if diff := cmp.Diff(tc.want, told(Decide(tc.snap)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFarewellTakesEverythingBack(t *testing.T) {
	a := pod("a", "n1", has("True", "up"))
	virtual := pod("v", "virtual", has("False", "down"))
	ended := pod("e", "n1", func(p *corev1.Pod) { has("True", "up")(p); p.Status.Phase = corev1.PodFailed })
	snap := Snapshot{Marker: way(), Pods: []*corev1.Pod{a, virtual, ended}, Nodes: nodes("n1", "virtual"), NodeProbes: []*v1alpha1.NodePodProbe{nodeProbe("n1", a)}}
	plan := Farewell(snap)
	plan.Mark = Unmark(snap, nil)
	if diff := cmp.Diff([]string{"assign n1:", "mark a: -up -x.io/a", "mark v: -down", "matched 0 of generation 0"}, told(plan)); diff != "" {
		t.Errorf("it differs (-want +got):\n%s", diff)
	}
}

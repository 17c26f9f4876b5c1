// SPDX-License-Identifier: Apache-2.0

package nodepodprobe

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

func node(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if change != nil {
		change(n)
	}
	return n
}

func pod(name, uid string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Labels: map[string]string{"app": "web"}}}
	if change != nil {
		change(p)
	}
	return p
}

func marker(change func(*v1alpha1.PodProbeMarker)) *v1alpha1.PodProbeMarker {
	m := &v1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m"}}
	m.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	m.Spec.Probes = []v1alpha1.PodContainerProbe{{Name: "a", ContainerName: "main", PodConditionType: "x.io/a"}}
	if change != nil {
		change(m)
	}
	return m
}

// nodeProbe lists m#a for each Pod, with a result.
func nodeProbe(state v1alpha1.ProbeState, pods ...*corev1.Pod) *v1alpha1.NodePodProbe {
	npp := &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, p := range pods {
		npp.Spec.PodProbes = append(npp.Spec.PodProbes, v1alpha1.PodProbe{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Probes: []v1alpha1.ContainerProbe{{Name: "m#a"}}})
		npp.Status.PodProbeStatuses = append(npp.Status.PodProbeStatuses, v1alpha1.PodProbeStatus{Namespace: p.Namespace, Name: p.Name, UID: p.UID,
			ProbeStates: []v1alpha1.ContainerProbeState{{Name: "m#a", State: state}}})
	}
	return npp
}

func told(p Plan) (out []string) {
	if p.Create != nil {
		out = append(out, "create "+p.Create.Name)
	}
	if p.Delete {
		out = append(out, "delete")
	}
	if p.Prune {
		out = append(out, "prune")
	}
	for _, m := range p.Mark {
		for _, c := range m.Marks.Conditions {
			out = append(out, fmt.Sprintf("%s is %s on %s", c.Type, c.Status, m.Pod.Name))
		}
	}
	return out
}

func TestDecide(t *testing.T) {
	web := pod("web-0", "u0", nil)
	cases := map[string]struct {
		node   *corev1.Node
		probes *v1alpha1.NodePodProbe
		pods   []*corev1.Pod
		marker *v1alpha1.PodProbeMarker
		want   []string
	}{
		"a ready node gets a NodePodProbe": {node: node(nil), want: []string{"create n1"}},
		"a node that is not ready waits": {
			node: node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }),
		},
		"a node without conditions waits": {node: node(func(n *corev1.Node) { n.Status.Conditions = nil })},
		"a serverless node gets none":     {node: node(func(n *corev1.Node) { n.Labels = map[string]string{"type": "virtual-kubelet"} })},
		"a node that goes gets none":      {node: node(func(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Now()) })},
		"no node, no NodePodProbe":        {},
		"a NodePodProbe goes with its node": {
			probes: nodeProbe("Succeeded", web), pods: []*corev1.Pod{web}, marker: marker(nil), want: []string{"delete"},
		},
		"a NodePodProbe goes when its node begins to": {
			node: node(func(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Now()) }), probes: nodeProbe("Succeeded"), want: []string{"delete"},
		},
		"a NodePodProbe outlives the readiness of its node, and results still count": {
			node:   node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }),
			probes: nodeProbe("Succeeded", web), pods: []*corev1.Pod{web}, marker: marker(nil), want: []string{"x.io/a is True on web-0"},
		},
		"a NodePodProbe that is being deleted is left alone": {
			node: node(nil), probes: func() *v1alpha1.NodePodProbe {
				npp := nodeProbe("Succeeded", web)
				npp.DeletionTimestamp = new(metav1.Now())
				return npp
			}(), pods: []*corev1.Pod{web}, marker: marker(nil),
		},
		"Pods that are gone are pruned": {
			node: node(nil), probes: nodeProbe("Succeeded", web, pod("gone", "u1", nil)), pods: []*corev1.Pod{web}, marker: marker(nil),
			want: []string{"prune", "x.io/a is True on web-0"},
		},
		"a Pod that is another by now is pruned, and not marked": {
			node: node(nil), probes: nodeProbe("Succeeded", pod("web-0", "old", nil)), pods: []*corev1.Pod{web}, marker: marker(nil), want: []string{"prune"},
		},
		"a Pod that is being deleted is pruned, and not marked": {
			node: node(nil), probes: nodeProbe("Succeeded", web), marker: marker(nil),
			pods: []*corev1.Pod{pod("web-0", "u0", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })}, want: []string{"prune"},
		},
		"failure is False, and so is not to know": {
			node: node(nil), probes: nodeProbe("Unknown", web), pods: []*corev1.Pod{web}, marker: marker(nil), want: []string{"x.io/a is False on web-0"},
		},
		"a marker that goes marks nothing": {
			node: node(nil), probes: nodeProbe("Succeeded", web), pods: []*corev1.Pod{web},
			marker: marker(func(m *v1alpha1.PodProbeMarker) { m.DeletionTimestamp = new(metav1.Now()) }),
		},
		"a marker that does not select the Pod any more marks nothing": {
			node: node(nil), probes: nodeProbe("Succeeded", web), pods: []*corev1.Pod{pod("web-0", "u0", func(p *corev1.Pod) { p.Labels = nil })}, marker: marker(nil),
		},
		"a result that is not asked for any more marks nothing": {
			node: node(nil), pods: []*corev1.Pod{web}, marker: marker(nil),
			probes: func() *v1alpha1.NodePodProbe {
				npp := nodeProbe("Succeeded", web)
				npp.Spec.PodProbes[0].Probes[0].Name = "m#b"
				return npp
			}(),
		},
		"results without a marker mark nothing": {node: node(nil), probes: nodeProbe("Succeeded", web), pods: []*corev1.Pod{web}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			snap := Snapshot{Name: "n1", Node: tc.node, NodeProbe: tc.probes, Pods: map[types.NamespacedName]*corev1.Pod{}, Markers: map[types.NamespacedName]*v1alpha1.PodProbeMarker{}}
			for _, p := range tc.pods {
				snap.Pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
			}
			if tc.marker != nil {
				snap.Markers[types.NamespacedName{Namespace: "shop", Name: "m"}] = tc.marker
			}
			if diff := cmp.Diff(tc.want, told(Decide(snap)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

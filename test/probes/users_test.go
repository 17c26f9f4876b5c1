// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/probe"
)

// drawProbes draws what a marker has; everything that it marks bears its name.
func (w *world) drawProbes(marker string) []v1alpha1.PodContainerProbe {
	var probes []v1alpha1.PodContainerProbe
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(probeNames), 1, 2, rapid.ID).Draw(w.T, "probes") {
		p := v1alpha1.PodContainerProbe{Name: name, ContainerName: "main"}
		p.Probe.Exec = &corev1.ExecAction{Command: []string{rapid.SampledFrom([]string{"x", "y"}).Draw(w.T, "command")}}
		kind := rapid.IntRange(0, 3).Draw(w.T, "policies")
		if kind != 1 {
			p.PodConditionType = conditionOf(marker, name) + rapid.SampledFrom([]string{"", "-2"}).Draw(w.T, "condition")
		}
		if kind >= 1 {
			p.MarkerPolicy = append(p.MarkerPolicy, v1alpha1.ProbeMarkerPolicy{
				State:  v1alpha1.ProbeSucceeded,
				Labels: map[string]string{"mark-" + marker + "-" + name: rapid.SampledFrom([]string{"up", "good"}).Draw(w.T, "label")},
			})
		}
		if kind == 3 {
			p.MarkerPolicy = append(p.MarkerPolicy, v1alpha1.ProbeMarkerPolicy{
				State:       v1alpha1.ProbeFailed,
				Labels:      map[string]string{"mark-" + marker + "-" + name: "down"},
				Annotations: map[string]string{"mark-" + marker + "-" + name: "-10"},
			})
		}
		probes = append(probes, p)
	}
	return probes
}

// repaint changes the values of labels alone, which no node needs to know of.
func repaint(m *v1alpha1.PodProbeMarker) {
	for _, p := range m.Spec.Probes {
		for _, policy := range p.MarkerPolicy {
			for k, v := range policy.Labels {
				policy.Labels[k] = map[string]string{"up": "good", "good": "up", "down": "bad", "bad": "down"}[v]
			}
		}
	}
}

func conditionOf(marker, probe string) string { return "mark.io/" + marker + "-" + probe }

// step does something at random.
func (w *world) step() {
	ctx := context.Background()
	markerID := id{"PodProbeMarker", namespace, rapid.SampledFrom(markerNames).Draw(w.T, "marker")}
	podID := id{"Pod", namespace, rapid.SampledFrom(podNames).Draw(w.T, "pod")}
	nodeID := id{"Node", "", rapid.SampledFrom(nodeNames).Draw(w.T, "node")}
	marker, _ := w.server.objects[markerID].(*v1alpha1.PodProbeMarker)
	pod, _ := w.server.objects[podID].(*corev1.Pod)
	node, _ := w.server.objects[nodeID].(*corev1.Node)
	what := rapid.SampledFrom([]string{
		"marker", "pod", "settle", "truth", "deliver", "work", "agent", "marker", "pod", "truth", "deliver", "deliver", "work", "work",
		"settle", "provider", "relist", "node", "restart", "fail", "garbage", "break",
	}).Draw(w.T, "what")
	switch what {
	case "deliver":
		w.deliver(rapid.SampledFrom(kinds).Draw(w.T, "kind"))
	case "settle":
		w.settle(rapid.IntRange(1, 6).Draw(w.T, "rounds"))
	case "relist":
		w.relist(rapid.SampledFrom(kinds).Draw(w.T, "kind"))
	case "work":
		i := rapid.IntRange(0, 1).Draw(w.T, "controller")
		if items := w.queues[i].sorted(); len(items) > 0 {
			w.work(i, rapid.SampledFrom(items).Draw(w.T, "request"))
		}
	case "restart":
		w.restart()
	case "fail":
		w.server.failing = rapid.IntRange(1, 3).Draw(w.T, "failures")
	case "agent":
		w.agent(nodeID.name)
	case "marker":
		w.changeMarker(markerID, marker)
	case "pod":
		w.changePod(podID, pod, nodeID.name)
	case "node":
		w.changeNode(nodeID, node)
	case "truth":
		if pod != nil {
			key := probe.Key{UID: pod.UID, Name: markerID.name + "#" + rapid.SampledFrom(probeNames).Draw(w.T, "probe")}
			w.truth[key] = probe.Result{
				State:   rapid.SampledFrom([]v1alpha1.ProbeState{"Succeeded", "Failed", "Unknown"}).Draw(w.T, "state"),
				Message: rapid.SampledFrom([]string{"", "data", "gate"}).Draw(w.T, "message"),
			}
		}
	case "provider":
		if pod != nil && pod.Spec.NodeName == "virtual" {
			next := clone(pod)
			setCondition(next, conditionOf(markerID.name, rapid.SampledFrom(probeNames).Draw(w.T, "probe")),
				rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(w.T, "status"))
			w.server.put(next)
		}
	case "garbage": // somebody edits a NodePodProbe, or deletes it
		npp, _ := w.server.objects[id{"NodePodProbe", "", nodeID.name}].(*v1alpha1.NodePodProbe)
		if npp == nil {
			return
		}
		w.tampered = true
		maps.Copy(w.strays, w.moved)
		if rapid.Bool().Draw(w.T, "delete") {
			w.server.drop(idOf(npp))
			return
		}
		next := clone(npp)
		next.Spec.PodProbes = nil
		if pod != nil && rapid.Bool().Draw(w.T, "entry") {
			next.Spec.PodProbes = []v1alpha1.PodProbe{{Namespace: namespace, Name: pod.Name, UID: pod.UID, IP: "0.0.0.0",
				Probes: []v1alpha1.ContainerProbe{{Name: "w#odd"}, {Name: "nobody#a"}}}}
		}
		if err := w.live().Update(ctx, next); err != nil {
			w.Fatalf("garbage: %v", err)
		}
	case "break": // somebody removes a marker by force
		if marker != nil && len(marker.Finalizers) > 0 {
			w.forgiven[marker.Name] = true
			w.server.drop(markerID)
		}
	}
}

func (w *world) changeMarker(i id, m *v1alpha1.PodProbeMarker) {
	switch {
	case m == nil:
		m = &v1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: i.name}}
		m.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{rapid.SampledFrom([]string{"app", "tier"}).Draw(w.T, "selector"): "yes"}}
		m.Spec.Probes = w.drawProbes(i.name)
		if err := w.live().Create(context.Background(), m); err != nil {
			w.Fatalf("creating a marker: %v", err)
		}
	case rapid.IntRange(0, 2).Draw(w.T, "delete") == 2:
		w.server.remove(m)
	case m.DeletionTimestamp == nil:
		next := clone(m)
		if rapid.Bool().Draw(w.T, "policies only") {
			repaint(next)
		} else {
			next.Spec.Probes = w.drawProbes(i.name)
		}
		if err := w.live().Update(context.Background(), next); err != nil {
			w.Fatalf("changing a marker: %v", err)
		}
	}
}

func (w *world) changePod(i id, p *corev1.Pod, node string) {
	if p == nil {
		w.count++
		p = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: i.name, UID: types.UID(fmt.Sprint("pod-", w.count))}}
		p.Spec.NodeName = node
		if rapid.IntRange(0, 3).Draw(w.T, "late") != 3 {
			setCondition(p, "Initialized", corev1.ConditionTrue)
			p.Status.PodIP = "10.0.0.1"
		}
		if rapid.IntRange(0, 3).Draw(w.T, "bare") != 3 {
			p.Labels = map[string]string{"app": "yes", "tier": "yes"}
		}
		w.server.put(p)
		return
	}
	next := clone(p)
	switch rapid.SampledFrom([]string{"initialize", "initialize", "ip", "label", "end", "terminate", "gone", "replace"}).Draw(w.T, "change") {
	case "initialize":
		setCondition(next, "Initialized", corev1.ConditionTrue)
	case "ip":
		next.Status.PodIP = rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2"}).Draw(w.T, "ip")
	case "label":
		w.moved[p.UID] = true
		if w.tampered || w.server.objects[id{"Node", "", p.Spec.NodeName}] == nil {
			w.strays[p.UID] = true
		}
		if next.Labels == nil {
			next.Labels = map[string]string{}
		}
		next.Labels[rapid.SampledFrom([]string{"app", "tier"}).Draw(w.T, "label")] = rapid.SampledFrom([]string{"yes", "no"}).Draw(w.T, "value")
	case "end":
		next.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded}).Draw(w.T, "phase")
	case "terminate":
		next.DeletionTimestamp = new(metav1.NewTime(t0))
	case "gone":
		w.server.drop(i)
		return
	case "replace":
		w.server.drop(i)
		w.changePod(i, nil, node)
		return
	}
	w.server.put(next)
}

func setCondition(p *corev1.Pod, kind string, status corev1.ConditionStatus) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return string(c.Type) == kind })
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(kind), Status: status})
}

func (w *world) changeNode(i id, n *corev1.Node) {
	switch {
	case n == nil:
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: i.name}}
		if i.name == "virtual" {
			n.Labels = map[string]string{"type": "virtual-kubelet"}
		}
	case rapid.IntRange(0, 3).Draw(w.T, "delete") == 0:
		w.server.drop(i)
		return
	}
	next := clone(n)
	next.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "True", "False"}).Draw(w.T, "ready")}}
	w.server.put(next)
}

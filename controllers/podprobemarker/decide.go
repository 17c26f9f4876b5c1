// SPDX-License-Identifier: Apache-2.0

package podprobemarker

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/nodestate"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// Snapshot is all that Decide may look at. Nobody writes to it.
type Snapshot struct {
	Marker *v1alpha1.PodProbeMarker
	// Pods are those that the marker selects, in any state and order.
	Pods []*corev1.Pod
	// Lost are Pods that have been probed for the marker and that it does not select any more.
	Lost []*corev1.Pod
	// Others are the other markers of the namespace that are not being deleted.
	Others []*v1alpha1.PodProbeMarker
	// Nodes are the existing nodes of Pods and Lost, by name.
	Nodes map[string]*corev1.Node
	// NodeProbes are the existing NodePodProbes of Nodes, and all that have a probe of the
	// marker.
	NodeProbes []*v1alpha1.NodePodProbe
	// Serverless is the gate EnablePodProbeMarkerOnServerless.
	Serverless bool
}

// Plan is what act must do, as data. The zero Plan means "nothing to do".
type Plan struct {
	// Assign are the nodes whose NodePodProbe is not as it is to be, by name.
	Assign []Assignment
	// Mark are the Pods of serverless nodes that lack labels or annotations, and those that
	// are lost.
	Mark []podprobe.Marking
	// Status is the marker's.
	Status v1alpha1.PodProbeMarkerStatus
}

// Assignment is one node with all its Pods that are to be probed.
type Assignment struct {
	Node string
	Pods []*corev1.Pod
}

// Decide returns what the marker needs on each node (podprobe.md 3.2 to 3.4). A node without
// NodePodProbe has no agent yet; its creation is the reason to look again.
func Decide(s Snapshot) Plan {
	plan := Plan{Status: v1alpha1.PodProbeMarkerStatus{ObservedGeneration: s.Marker.Generation}}
	byNode := map[string][]*corev1.Pod{}
	for _, pod := range slices.SortedFunc(slices.Values(s.Pods), byName) {
		node := s.Nodes[pod.Spec.NodeName]
		if node == nil || !podprobe.Probeable(pod) {
			continue
		}
		plan.Status.MatchedPods++
		switch {
		case !nodestate.IsVirtual(node):
			byNode[node.Name] = append(byNode[node.Name], pod)
		case s.Serverless:
			if marks := podprobe.FromConditions(s.Marker, pod).Missing(pod); !marks.Empty() {
				plan.Mark = append(plan.Mark, podprobe.Marking{Pod: pod, Marks: marks})
			}
		}
	}
	for _, npp := range s.NodeProbes {
		if _, differs := podprobe.Assign(npp.Spec, s.Marker, byNode[npp.Name]); differs {
			plan.Assign = append(plan.Assign, Assignment{Node: npp.Name, Pods: byNode[npp.Name]})
		}
	}
	slices.SortFunc(plan.Assign, func(a, b Assignment) int { return strings.Compare(a.Node, b.Node) })
	s.Pods = s.Lost
	plan.Mark = append(plan.Mark, Unmark(s, s.Others)...)
	return plan
}

func byName(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }

// Farewell returns what a marker that goes has to take back from the nodes: the same as one
// that matches no Pod (podprobe.md 3.5).
func Farewell(s Snapshot) Plan {
	s.Pods, s.Lost = nil, nil
	return Plan{Assign: Decide(s).Assign}
}

// Unmark returns the marks to remove from the Pods of s so that nothing of its marker stays
// that is not also one of the markers that do (podprobe.md 4.5).
func Unmark(s Snapshot, staying []*v1alpha1.PodProbeMarker) []podprobe.Marking {
	var list []podprobe.Marking
	for _, pod := range slices.SortedFunc(slices.Values(s.Pods), byName) {
		if !podprobe.Active(pod) {
			continue
		}
		// Conditions on serverless nodes are the provider's. A node that is gone may come back.
		node := s.Nodes[pod.Spec.NodeName]
		if marks := podprobe.Unmark(pod, s.Marker, staying, node == nil || !nodestate.IsVirtual(node)); !marks.Empty() {
			list = append(list, podprobe.Marking{Pod: pod, Marks: marks})
		}
	}
	return list
}

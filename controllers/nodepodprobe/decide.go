// SPDX-License-Identifier: Apache-2.0

package nodepodprobe

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/nodestate"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// Snapshot is all that Decide may look at. Nobody writes to it.
type Snapshot struct {
	// Name is that of the node and of its NodePodProbe.
	Name string
	// Node and NodeProbe are nil if they do not exist.
	Node      *corev1.Node
	NodeProbe *v1alpha1.NodePodProbe
	// Pods are those that NodeProbe lists, as far as they exist.
	Pods map[types.NamespacedName]*corev1.Pod
	// Markers are those whose probes NodeProbe lists, as far as they exist.
	Markers map[types.NamespacedName]*v1alpha1.PodProbeMarker
}

// Plan is what act must do, as data. The zero Plan means "nothing to do". Create and Delete
// exclude all else.
type Plan struct {
	Create *v1alpha1.NodePodProbe
	Delete bool
	// Prune says that the spec lists Pods that are not there any more; see Listed.
	Prune bool
	// Mark are the Pods that their results ask to change, in the order of the status.
	Mark []podprobe.Marking
}

// Decide keeps one NodePodProbe per real node, without Pods that are gone, and carries its
// results to the Pods (podprobe.md 4.2 and 4.3).
func Decide(s Snapshot) Plan {
	switch {
	case s.NodeProbe == nil:
		if !Wants(s.Node) {
			return Plan{}
		}
		return Plan{Create: &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}}
	case s.NodeProbe.DeletionTimestamp != nil:
		return Plan{}
	case s.Node == nil || s.Node.DeletionTimestamp != nil:
		return Plan{Delete: true}
	}
	plan := Plan{}
	_, plan.Prune = podprobe.Prune(s.NodeProbe.Spec, s.Listed)
	listed := map[types.UID]*v1alpha1.PodProbe{}
	for i := range s.NodeProbe.Spec.PodProbes {
		listed[s.NodeProbe.Spec.PodProbes[i].UID] = &s.NodeProbe.Spec.PodProbes[i]
	}
	for i := range s.NodeProbe.Status.PodProbeStatuses {
		status := &s.NodeProbe.Status.PodProbeStatuses[i]
		entry := listed[status.UID]
		if entry == nil || !s.Listed(*entry) {
			continue
		}
		pod := s.Pods[keyOf(*entry)]
		if marks := s.marks(status, entry, pod).Missing(pod); !marks.Empty() || len(marks.Ignored) > 0 {
			plan.Mark = append(plan.Mark, podprobe.Marking{Pod: pod, Marks: marks})
		}
	}
	return plan
}

// Wants reports whether a node that has no NodePodProbe gets one: it is ready, and has a
// node agent.
func Wants(node *corev1.Node) bool {
	return node != nil && node.DeletionTimestamp == nil && !nodestate.IsVirtual(node) && nodestate.Ready(node)
}

func keyOf(entry v1alpha1.PodProbe) types.NamespacedName {
	return types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}
}

// Listed reports whether an entry of the spec stays: its very Pod is active.
func (s Snapshot) Listed(entry v1alpha1.PodProbe) bool {
	pod := s.Pods[keyOf(entry)]
	return pod != nil && pod.UID == entry.UID && podprobe.Active(pod)
}

// marks are those of the results that are still asked for.
func (s Snapshot) marks(status *v1alpha1.PodProbeStatus, entry *v1alpha1.PodProbe, pod *corev1.Pod) podprobe.Marks {
	asked := map[string]bool{}
	for i := range entry.Probes {
		asked[entry.Probes[i].Name] = true
	}
	states := make([]v1alpha1.ContainerProbeState, 0, len(status.ProbeStates))
	for _, state := range status.ProbeStates {
		if asked[state.Name] {
			states = append(states, state)
		}
	}
	return podprobe.Results(states, func(name string) *v1alpha1.PodProbeMarker {
		m := s.Markers[types.NamespacedName{Namespace: entry.Namespace, Name: name}]
		if m == nil || m.DeletionTimestamp != nil || !podprobe.Selects(m, pod) {
			return nil
		}
		return m
	})
}

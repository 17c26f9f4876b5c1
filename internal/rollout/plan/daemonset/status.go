// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// Status computes the status of s.Set from the nodes and Pods of the snapshot (daemonset.md
// 3). Of each node the first Pod counts, also a terminating one. Its observedGeneration is
// that of a full pass; one that had to give nodes their Pods first keeps the old value.
func Status(s Snapshot, now time.Time) v1beta1.DaemonSetStatus {
	status := v1beta1.DaemonSetStatus{
		ObservedGeneration: s.Set.Generation,
		UpdateRevision:     s.Hash(),
		CollisionCount:     s.Set.Status.CollisionCount,
		Conditions:         slices.Clone(s.Set.Status.Conditions),
	}
	for _, p := range s.places(now) {
		switch {
		case p.node == nil:
		case !p.run && len(p.pods) > 0:
			status.NumberMisscheduled++
		case p.run:
			status.DesiredNumberScheduled++
			if len(p.pods) == 0 {
				continue
			}
			status.CurrentNumberScheduled++
			first := p.pods[0]
			if first.isNew {
				status.UpdatedNumberScheduled++
			}
			if first.ready {
				status.NumberReady++
			}
			if first.available && !heldInPlace(first.pod) {
				status.NumberAvailable++
			}
		}
	}
	status.NumberUnavailable = status.DesiredNumberScheduled - status.NumberAvailable
	return status
}

// heldInPlace tells whether the Pod is being updated in place, by its readiness gate.
func heldInPlace(pod *corev1.Pod) bool {
	c := podready.Condition(pod, v1beta1.InPlaceUpdateReady)
	return c != nil && c.Status != corev1.ConditionTrue && podready.HasGate(pod, v1beta1.InPlaceUpdateReady)
}

// StatusDiffers tells whether next must be written over old.
func StatusDiffers(old, next *v1beta1.DaemonSetStatus) bool {
	return !equality.Semantic.DeepEqual(old, next)
}

// LiveHashes are the short hashes of revisions that must be kept: that of the template, and
// those that Pods are at.
func LiveHashes(s Snapshot) map[string]bool {
	live := map[string]bool{revision.ShortHash(s.Hash()): true}
	for _, p := range s.Pods {
		live[revision.ShortHash(p.Labels[appsv1.ControllerRevisionHashLabelKey])] = true
	}
	return live
}

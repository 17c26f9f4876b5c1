// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// Status computes the status of s.Set from the Pods and claims of the snapshot
// (statefulset.md 3). Conditions are carried over; see SetFailure.
func Status(s Snapshot, now time.Time) v1beta1.StatefulSetStatus {
	set := s.Set
	status := v1beta1.StatefulSetStatus{
		ObservedGeneration: set.Generation,
		CurrentRevision:    s.Current.Name,
		UpdateRevision:     s.Update.Name,
		CollisionCount:     new(int32(0)),
		Conditions:         slices.Clone(set.Status.Conditions),
		LabelSelector:      metav1.FormatLabelSelector(set.Spec.Selector),
	}
	if set.Status.CollisionCount != nil {
		*status.CollisionCount = *set.Status.CollisionCount
	}
	views := s.views(Ordinals(set, s.Gates), now)
	for _, v := range views {
		status.Replicas++
		current := v.at(s.Current)
		add(&status.ReadyReplicas, v.ready)
		add(&status.AvailableReplicas, v.available)
		add(&status.UpdatedReadyReplicas, v.updated && v.ready)
		add(&status.UpdatedAvailableReplicas, v.updated && v.available)
		add(&status.CurrentReplicas, current && !v.terminating)
		add(&status.UpdatedReplicas, v.updated && !v.terminating)
	}
	status.VolumeClaims = s.claimStatus(views)
	complete(set, &status)
	return status
}

func add(n *int32, one bool) {
	if one {
		*n++
	}
}

// complete moves the current revision to the update revision when all Pods are there
// (statefulset.md 7.3). As long as Pods are missing it stays, also if all that exist are
// updated: those below the partition are yet to be made, at the current revision.
func complete(set *v1beta1.StatefulSet, status *v1beta1.StatefulSetStatus) {
	if OnDelete(set) || int(status.Replicas) < Replicas(set) ||
		status.UpdatedReplicas != status.Replicas || status.ReadyReplicas != status.Replicas {
		return
	}
	status.CurrentReplicas, status.CurrentRevision = status.UpdatedReplicas, status.UpdateRevision
}

// claimStatus counts the claims of Pods in range, per template (statefulset.md 10.4).
func (s *Snapshot) claimStatus(views []*view) []v1beta1.VolumeClaimStatus {
	templates := s.Set.Spec.VolumeClaimTemplates
	if len(templates) == 0 {
		return nil
	}
	claims := indexClaims(s.Claims)
	list := make([]v1beta1.VolumeClaimStatus, len(templates))
	for i := range templates {
		list[i].VolumeClaimName = templates[i].Name
		for _, v := range views {
			claim := claims[ClaimName(templates[i].Name, s.Set.Name, v.ordinal)]
			if !v.inRange || claim == nil || claim.DeletionTimestamp != nil {
				continue
			}
			f := fitOf(claim, &templates[i])
			add(&list[i].CompatibleReplicas, f.compatible())
			add(&list[i].CompatibleReadyReplicas, f.compatible() && f.ready)
		}
	}
	return list
}

// SetFailure sets the condition t, FailedCreatePod or FailedUpdatePod, to the failure of
// the pass that just ran, or removes it when failure is empty.
func SetFailure(status *v1beta1.StatefulSetStatus, t v1beta1.StatefulSetConditionType, failure string, now time.Time) {
	i := slices.IndexFunc(status.Conditions, func(c v1beta1.StatefulSetCondition) bool { return c.Type == t })
	next := v1beta1.StatefulSetCondition{
		Type: t, Status: corev1.ConditionTrue, Message: failure, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	switch {
	case failure == "" && i >= 0:
		status.Conditions = slices.Delete(slices.Clone(status.Conditions), i, i+1)
	case failure == "":
	case i < 0:
		status.Conditions = append(slices.Clone(status.Conditions), next)
	default:
		if status.Conditions[i].Status == corev1.ConditionTrue {
			next.LastTransitionTime = status.Conditions[i].LastTransitionTime
		}
		status.Conditions = slices.Clone(status.Conditions)
		status.Conditions[i] = next
	}
}

// StatusDiffers tells whether next must be written over old; all of it is compared.
func StatusDiffers(old, next *v1beta1.StatefulSetStatus) bool {
	return !equality.Semantic.DeepEqual(old, next)
}

// LiveHashes are the short hashes of revisions that must be kept: current, update, and
// every one that a Pod is at.
func LiveHashes(s Snapshot, status *v1beta1.StatefulSetStatus) map[string]bool {
	live := map[string]bool{}
	for _, name := range []string{s.Update.Name, s.Current.Name, status.CurrentRevision} {
		live[revision.ShortHash(name)] = true
	}
	for _, p := range s.Pods {
		live[revision.ShortHash(RevisionOf(p))] = true
	}
	return live
}

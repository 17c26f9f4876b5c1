// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// noDeadline is the progressDeadlineSeconds that means none.
const noDeadline = math.MaxInt32

// Status computes the status of s.Set from the Pods of the snapshot (cloneset.md 3 and
// 11.2). Conditions FailedScale and FailedUpdate are carried over; see SetFailure.
func Status(s Snapshot, now time.Time) v1beta1.CloneSetStatus {
	set := s.Set
	replicas, partition := Replicas(set), Partition(set)
	status := v1beta1.CloneSetStatus{
		ObservedGeneration:      set.Generation,
		ExpectedUpdatedReplicas: int32(replicas - partition),
		UpdateRevision:          s.Update.Name,
		CurrentRevision:         s.Current.Name,
		CollisionCount:          new(int32(0)),
		Conditions:              slices.Clone(set.Status.Conditions),
		LabelSelector:           metav1.FormatLabelSelector(set.Spec.Selector),
	}
	if set.Status.CollisionCount != nil {
		*status.CollisionCount = *set.Status.CollisionCount
	}
	for _, v := range s.views(now) {
		one := func(is bool, all, updated *int32) {
			if is {
				*all++
				if v.updated {
					*updated++
				}
			}
		}
		one(true, &status.Replicas, &status.UpdatedReplicas)
		one(v.ready, &status.ReadyReplicas, &status.UpdatedReadyReplicas)
		one(v.available, &status.AvailableReplicas, &status.UpdatedAvailableReplicas)
	}
	// Both equalities are needed: while Pods are missing, all of those that exist may be
	// updated, and moving the current revision then breaks the partition.
	if status.UpdatedReplicas == status.Replicas && int(status.Replicas) == replicas {
		status.CurrentRevision = status.UpdateRevision
	}
	setProgressing(set, &status, now)
	return status
}

// setProgressing keeps, changes or removes the condition Progressing.
func setProgressing(set *v1beta1.CloneSet, status *v1beta1.CloneSetStatus, now time.Time) {
	deadline, ok := deadlineOf(set)
	i := slices.IndexFunc(status.Conditions, func(c v1beta1.CloneSetCondition) bool {
		return c.Type == v1beta1.CloneSetConditionProgressing
	})
	if !ok {
		if i >= 0 {
			status.Conditions = slices.Delete(status.Conditions, i, i+1)
		}
		return
	}
	var existing v1beta1.CloneSetCondition
	if i >= 0 {
		existing = status.Conditions[i]
	}
	// A new template starts anew: OpenKruise lets an exceeded deadline stick to it.
	newRevision := set.Status.UpdateRevision != "" && set.Status.UpdateRevision != status.UpdateRevision
	next := progress(set, status, existing, deadline, newRevision, now)
	next.Type = v1beta1.CloneSetConditionProgressing
	next.LastUpdateTime, next.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second)), metav1.NewTime(now.Truncate(time.Second))
	if i < 0 {
		status.Conditions = append(status.Conditions, next)
		return
	}
	restarted := newRevision && next.Reason == v1beta1.CloneSetReasonUpdated
	if existing.Status == next.Status && existing.Reason == next.Reason && !restarted {
		return
	}
	if existing.Status == next.Status {
		next.LastTransitionTime = existing.LastTransitionTime
	}
	status.Conditions[i] = next
}

// progress is the table of cloneset.md 11.2; the first row that fits wins.
func progress(set *v1beta1.CloneSet, status *v1beta1.CloneSetStatus, existing v1beta1.CloneSetCondition, deadline time.Duration, newRevision bool, now time.Time) v1beta1.CloneSetCondition {
	replicas := int32(Replicas(set))
	condition := func(s corev1.ConditionStatus, reason, message string) v1beta1.CloneSetCondition {
		return v1beta1.CloneSetCondition{Status: s, Reason: reason, Message: message}
	}
	exceeded := existing.Reason == v1beta1.CloneSetReasonProgressDeadlineExceed ||
		!existing.LastUpdateTime.IsZero() && existing.LastUpdateTime.Add(deadline).Before(now)
	switch {
	case status.CurrentRevision == status.UpdateRevision && status.Replicas == replicas &&
		status.UpdatedReplicas == replicas && status.UpdatedAvailableReplicas == replicas:
		return condition(corev1.ConditionTrue, v1beta1.CloneSetReasonAvailable, "CloneSet is available")
	case Paused(set):
		return condition(corev1.ConditionTrue, v1beta1.CloneSetReasonPaused, "CloneSet is paused")
	case status.ExpectedUpdatedReplicas < replicas && status.ExpectedUpdatedReplicas <= status.UpdatedAvailableReplicas:
		return condition(corev1.ConditionTrue, v1beta1.CloneSetReasonPartitionAvailable, "CloneSet has been paused due to partition ready")
	case exceeded && !newRevision && (existing.Reason == v1beta1.CloneSetReasonProgressDeadlineExceed || existing.Reason == v1beta1.CloneSetReasonUpdated):
		return condition(corev1.ConditionFalse, v1beta1.CloneSetReasonProgressDeadlineExceed,
			fmt.Sprintf("CloneSet revision %s has timed out progressing", status.UpdateRevision))
	}
	return condition(corev1.ConditionTrue, v1beta1.CloneSetReasonUpdated, "CloneSet is progressing")
}

func deadlineOf(set *v1beta1.CloneSet) (time.Duration, bool) {
	seconds := set.Spec.ProgressDeadlineSeconds
	if seconds == nil || *seconds == noDeadline {
		return 0, false
	}
	return time.Duration(*seconds) * time.Second, true
}

// Deadline is how long to wait until the progress deadline of status may have passed; 0
// when none runs.
func Deadline(set *v1beta1.CloneSet, status *v1beta1.CloneSetStatus, now time.Time) time.Duration {
	deadline, ok := deadlineOf(set)
	if !ok {
		return 0
	}
	for _, c := range status.Conditions {
		if c.Type == v1beta1.CloneSetConditionProgressing && c.Reason == v1beta1.CloneSetReasonUpdated {
			left := c.LastUpdateTime.Add(deadline).Sub(now)
			if left >= time.Second {
				left += time.Second
			}
			return max(left, 100*time.Millisecond)
		}
	}
	return 0
}

// SetFailure sets the condition t, FailedScale or FailedUpdate, to the failure of the pass
// that just ran, or removes it when failure is empty (OpenKruise keeps it for ever, issue
// 1351).
func SetFailure(status *v1beta1.CloneSetStatus, t v1beta1.CloneSetConditionType, failure string, now time.Time) {
	i := slices.IndexFunc(status.Conditions, func(c v1beta1.CloneSetCondition) bool { return c.Type == t })
	at := metav1.NewTime(now.Truncate(time.Second))
	switch {
	case failure == "" && i >= 0:
		status.Conditions = slices.Delete(slices.Clone(status.Conditions), i, i+1)
	case failure == "":
	case i < 0:
		status.Conditions = append(status.Conditions, v1beta1.CloneSetCondition{
			Type: t, Status: corev1.ConditionTrue, Message: failure, LastUpdateTime: at, LastTransitionTime: at,
		})
	case status.Conditions[i].Message != failure || status.Conditions[i].Status != corev1.ConditionTrue:
		status.Conditions = slices.Clone(status.Conditions)
		c := &status.Conditions[i]
		c.Status, c.Message, c.LastUpdateTime = corev1.ConditionTrue, failure, at
	}
}

// StatusDiffers tells whether next must be written over old: a status is not written for
// the sake of a time or an order (cloneset.md 3).
func StatusDiffers(old, next *v1beta1.CloneSetStatus) bool {
	return !equality.Semantic.DeepEqual(old, next)
}

// LiveHashes are the short hashes of revisions that must be kept: current, update, and
// every one that a Pod is at.
func LiveHashes(s Snapshot, status *v1beta1.CloneSetStatus) map[string]bool {
	live := map[string]bool{}
	for _, name := range []string{s.Update.Name, s.Current.Name, status.CurrentRevision} {
		live[shortHash(name)] = true
	}
	for _, list := range [][]*corev1.Pod{s.Pods, s.Inactive} {
		for _, p := range list {
			live[shortHash(p.Labels["controller-revision-hash"])] = true
		}
	}
	return live
}

// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Active reports a Pod that counts: neither terminating nor in a terminal phase.
func Active(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
}

// PodReady is the kubelet's Ready condition.
func PodReady(p *corev1.Pod) bool { return conditionTrue(p, corev1.PodReady) }

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func conditionTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	c := condition(p, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Available means ready for minReady, lifecycle state Normal, and not held by
// InPlaceUpdateReady (cloneset.md 3).
func Available(p *corev1.Pod, minReady time.Duration, now time.Time) bool {
	c := condition(p, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue || p.Status.Phase != corev1.PodRunning {
		return false
	}
	if ip := condition(p, v1beta1.InPlaceUpdateReady); ip != nil && ip.Status != corev1.ConditionTrue {
		return false
	}
	if s := p.Labels[v1beta1.LifecycleStateLabel]; s != "" && s != string(v1beta1.LifecycleNormal) {
		return false
	}
	// Without a minimum there is nothing to compare, also when the clocks differ.
	return minReady <= 0 || now.Sub(c.LastTransitionTime.Time) >= minReady
}

// State is the one word for what a Pod is doing, and when that began.
func State(p *corev1.Pod) (word string, since time.Time) {
	if p.DeletionTimestamp != nil {
		return "Terminating", p.DeletionTimestamp.Time
	}
	switch s := p.Labels[v1beta1.LifecycleStateLabel]; v1beta1.LifecycleState(s) {
	case v1beta1.LifecyclePreparingDelete, v1beta1.LifecyclePreparingUpdate, v1beta1.LifecycleUpdated:
		return s, stateTime(p)
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return string(p.Status.Phase), time.Time{}
	}
	if c := condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return "Unscheduled", c.LastTransitionTime.Time
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, cs := range list {
			if w := cs.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
				return w.Reason, notReadySince(p)
			}
		}
	}
	if c := condition(p, v1beta1.InPlaceUpdateReady); c != nil && c.Status == corev1.ConditionFalse {
		return "Updating", c.LastTransitionTime.Time
	}
	if c := condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return "Ready", c.LastTransitionTime.Time
	}
	if p.Status.Phase == corev1.PodPending {
		return "Pending", p.CreationTimestamp.Time
	}
	return "NotReady", notReadySince(p)
}

func notReadySince(p *corev1.Pod) time.Time {
	if c := condition(p, corev1.PodReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return p.CreationTimestamp.Time
}

// stateTime is when the lifecycle state changed last.
func stateTime(p *corev1.Pod) time.Time {
	t, err := time.Parse(time.RFC3339, p.Annotations[v1beta1.LifecycleTimestampAnnotation])
	if err != nil {
		return time.Time{}
	}
	return t
}

// Restarts is the number of restarts of all containers.
func Restarts(p *corev1.Pod) int {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

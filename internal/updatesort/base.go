// SPDX-License-Identifier: Apache-2.0

// Package updatesort orders Pods: which is updated first (cloneset.md 12.2) and which is
// deleted first (cloneset.md 10.5). It is pure, stable, and never changes its input; Pods
// that no rule tells apart keep the order they came in, so callers pass them sorted by
// something fixed, such as the name.
package updatesort

import (
	"cmp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// facts are what the base rules look at, taken once per Pod.
type facts struct {
	scheduled    bool
	phase        int
	ready        bool
	readySince   time.Time // zero when unknown
	restarts     int32
	created      time.Time
	available    bool
	deletionCost int32
}

// phaseRank orders Pending < Unknown < Running; other phases count as Pending, as in
// Kubernetes, where they are not active anyway.
func phaseRank(p corev1.PodPhase) int {
	switch p {
	case corev1.PodUnknown:
		return 1
	case corev1.PodRunning:
		return 2
	}
	return 0
}

func factsOf(pod *corev1.Pod) facts {
	f := facts{
		scheduled: pod.Spec.NodeName != "",
		phase:     phaseRank(pod.Status.Phase),
		created:   pod.CreationTimestamp.Time,
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			f.ready, f.readySince = true, c.LastTransitionTime.Time
		}
	}
	for i := range pod.Status.ContainerStatuses {
		f.restarts = max(f.restarts, pod.Status.ContainerStatuses[i].RestartCount)
	}
	return f
}

// falseFirst orders false before true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// youngerFirst orders later times first, and a zero time before all others.
func youngerFirst(a, b time.Time) int {
	if a.Equal(b) {
		return 0
	}
	return cmp.Or(falseFirst(!a.IsZero(), !b.IsZero()), b.Compare(a))
}

// compareActive is Kubernetes' order of active Pods: the one that does least comes first.
func compareActive(a, b facts) int {
	if c := cmp.Or(falseFirst(a.scheduled, b.scheduled), cmp.Compare(a.phase, b.phase), falseFirst(a.ready, b.ready)); c != 0 {
		return c
	}
	if a.ready && b.ready {
		if c := youngerFirst(a.readySince, b.readySince); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(b.restarts, a.restarts), youngerFirst(a.created, b.created))
}

// deletionCost reads annotation controller.kubernetes.io/pod-deletion-cost; what
// Kubernetes rejects, such as "+10" and "008", is 0.
func deletionCost(pod *corev1.Pod) int32 {
	text, ok := pod.Annotations[corev1.PodDeletionCost]
	if !ok || text == "" {
		return 0
	}
	first, digits := text[0], text
	if first == '-' {
		digits = text[1:]
	}
	if first == '+' || digits == "" || (digits[0] == '0' && text != "0") {
		return 0
	}
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// state is the lifecycle state, empty when the Pod has none.
func state(pod *corev1.Pod) v1beta1.LifecycleState {
	return v1beta1.LifecycleState(pod.Labels[v1beta1.LifecycleStateLabel])
}

// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setConditions computes the conditions that a kubelet owns; it keeps all others.
func (s *step) setConditions() {
	finished := s.status.Phase == corev1.PodSucceeded
	var notReady []string
	for _, cs := range s.status.ContainerStatuses {
		if !cs.Ready {
			notReady = append(notReady, cs.Name)
		}
	}
	for i, cs := range s.status.InitContainerStatuses {
		if i < len(s.pod.Spec.InitContainers) && restartable(s.pod.Spec.InitContainers[i]) && !cs.Ready {
			notReady = append(notReady, cs.Name)
		}
	}
	containers := condition(corev1.ContainersReady, "", "")
	switch {
	case finished:
		containers = condition(corev1.ContainersReady, "PodCompleted", "")
	case len(notReady) > 0:
		containers = condition(corev1.ContainersReady, "ContainersNotReady", "containers with unready status: ["+strings.Join(notReady, " ")+"]")
	}
	ready := containers
	ready.Type = corev1.PodReady
	if missing := s.closedGates(); ready.Status == corev1.ConditionTrue && len(missing) > 0 {
		ready = condition(corev1.PodReady, "ReadinessGatesNotReady", strings.Join(missing, ", "))
	}
	started := condition(corev1.PodReadyToStartContainers, "", "")
	if finished {
		started.Status = corev1.ConditionFalse
	}
	for _, c := range []corev1.PodCondition{started, condition(corev1.PodInitialized, "", ""), containers, ready} {
		s.setCondition(c)
	}
}

// condition is True without a reason and False with one.
func condition(kind corev1.PodConditionType, reason, message string) corev1.PodCondition {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	if reason != "" {
		c.Status = corev1.ConditionFalse
	}
	return c
}

// closedGates says which readiness gates keep the Pod from being Ready.
func (s *step) closedGates() []string {
	var missing []string
	for _, g := range s.pod.Spec.ReadinessGates {
		i := slices.IndexFunc(s.status.Conditions, func(c corev1.PodCondition) bool { return c.Type == g.ConditionType })
		switch {
		case i < 0:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case s.status.Conditions[i].Status != corev1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", g.ConditionType, s.status.Conditions[i].Status))
		}
	}
	return missing
}

func (s *step) setCondition(want corev1.PodCondition) {
	i := slices.IndexFunc(s.status.Conditions, func(c corev1.PodCondition) bool { return c.Type == want.Type })
	if i < 0 {
		want.LastTransitionTime, want.ObservedGeneration = metav1.NewTime(s.now), s.pod.Generation
		s.status.Conditions = append(s.status.Conditions, want)
		return
	}
	have := &s.status.Conditions[i]
	if have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
		return
	}
	want.LastTransitionTime, want.ObservedGeneration = have.LastTransitionTime, s.pod.Generation
	if have.Status != want.Status {
		want.LastTransitionTime = metav1.NewTime(s.now)
	}
	*have = want
}

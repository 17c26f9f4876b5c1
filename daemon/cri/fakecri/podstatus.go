// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/daemon/cri"
)

// status fills in the parts of a Pod's status that are the kubelet's.
func (k *Kubelet) status(pod *corev1.Pod) {
	s := &pod.Status
	if s.StartTime == nil {
		s.StartTime = new(second())
	}
	s.HostIP, s.PodIP = "127.0.0.1", k.podIP()
	s.HostIPs, s.PodIPs = []corev1.HostIP{{IP: s.HostIP}}, []corev1.PodIP{{IP: s.PodIP}}
	s.InitContainerStatuses = k.statuses(pod, pod.Spec.InitContainers, s.InitContainerStatuses)
	s.ContainerStatuses = k.statuses(pod, pod.Spec.Containers, s.ContainerStatuses)
	s.Phase = phaseOf(pod)

	condition(pod, corev1.PodScheduled, true, "", "")
	condition(pod, corev1.PodReadyToStartContainers, true, "", "")
	condition(pod, corev1.PodInitialized, true, "", "")
	var unready []string
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	ready := len(unready) == 0
	reason, message := "ContainersNotReady", "containers with unready status: ["+strings.Join(unready, " ")+"]"
	if ready {
		reason, message = "", ""
	}
	condition(pod, corev1.ContainersReady, ready, reason, message)
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		if ready && (i < 0 || s.Conditions[i].Status != corev1.ConditionTrue) {
			ready, reason, message = false, "ReadinessGatesNotReady", "the status of pod readiness gate \""+string(gate.ConditionType)+"\" is not \"True\""
		}
	}
	condition(pod, corev1.PodReady, ready, reason, message)
}

// condition sets one condition; the time moves only with the status.
func condition(pod *corev1.Pod, kind corev1.PodConditionType, is bool, reason, message string) {
	want := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: second()}
	if is {
		want.Status = corev1.ConditionTrue
	}
	for i := range pod.Status.Conditions {
		have := &pod.Status.Conditions[i]
		if have.Type != kind {
			continue
		}
		if have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		want.LastProbeTime, want.ObservedGeneration = have.LastProbeTime, have.ObservedGeneration
		*have = want
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, want)
}

func (k *Kubelet) statuses(pod *corev1.Pod, specs []corev1.Container, before []corev1.ContainerStatus) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for i := range specs {
		spec := &specs[i]
		status := corev1.ContainerStatus{Name: spec.Name}
		if i := slices.IndexFunc(before, func(c corev1.ContainerStatus) bool { return c.Name == spec.Name }); i >= 0 {
			status = *before[i].DeepCopy()
		}
		k.fill(pod, spec, &status)
		statuses = append(statuses, status)
	}
	slices.SortFunc(statuses, func(a, b corev1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return statuses
}

// fill mirrors the newest container of a name, and its predecessor as the last state.
func (k *Kubelet) fill(pod *corev1.Pod, spec *corev1.Container, status *corev1.ContainerStatus) {
	behave := k.behaviour(pod, spec.Name)
	var of []Container
	for _, c := range k.Runtime.OfPod(uidOf(pod)) {
		if c.Name == spec.Name {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		status.Image, status.Started, status.Ready = spec.Image, new(false), false
		status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: cmp.Or(behave.Waiting, "ContainerCreating")}}
		return
	}
	c := of[0]
	status.ContainerID, status.Image, status.ImageID = k.id(c), c.Image, c.ImageRef
	status.RestartCount = int32(c.Attempt)
	if len(of) > 1 {
		status.LastTerminationState = corev1.ContainerState{Terminated: k.terminated(of[1])}
	}
	running := c.State == cri.StateRunning
	status.Started = &running
	status.State = corev1.ContainerState{Terminated: k.terminated(c)}
	status.Ready = c.State == cri.StateExited && c.ExitCode == 0 && slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == spec.Name })
	if running {
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.Started.Truncate(time.Second))}}
		status.Ready = behave.ReadyDelay >= 0 && time.Since(c.Started) >= behave.PostStart+behave.ReadyDelay
	}
}

func (k *Kubelet) id(c Container) string { return k.Runtime.Name() + "://" + c.ID }

func (k *Kubelet) terminated(c Container) *corev1.ContainerStateTerminated {
	reason := cmp.Or(c.Reason, "Completed")
	if c.Reason == "" && c.ExitCode != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: reason, Message: c.Message, ContainerID: k.id(c),
		StartedAt: metav1.NewTime(c.Started.Truncate(time.Second)), FinishedAt: metav1.NewTime(c.Finished.Truncate(time.Second)),
	}
}

// phaseOf is Pending before the first start, then Running, or the end of a Pod whose containers have all ended for good.
func phaseOf(pod *corev1.Pod) corev1.PodPhase {
	if !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.ContainerID != "" }) {
		return corev1.PodPending
	}
	phase := corev1.PodSucceeded
	for i := range pod.Status.ContainerStatuses {
		ended := pod.Status.ContainerStatuses[i].State.Terminated
		switch {
		case ended == nil, pod.Spec.RestartPolicy == corev1.RestartPolicyAlways,
			pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && ended.ExitCode != 0:
			return corev1.PodRunning
		case ended.ExitCode != 0:
			phase = corev1.PodFailed
		}
	}
	return phase
}

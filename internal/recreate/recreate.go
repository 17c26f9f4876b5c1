// SPDX-License-Identifier: Apache-2.0

// Package recreate holds what manager, node agent and command line have to agree on about a
// ContainerRecreateRequest: when it has ended, how, and which containers it means. It decides
// nothing about the way there. Rules: container-recreate.md 2, 4.4 and 11.
package recreate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// The types of the condition that a request gets with its end; exactly one of them, with
// status True.
const (
	// ConditionComplete: every container was recreated.
	ConditionComplete = "Complete"
	// ConditionFailed: some container was not; the reason is one of the others below, and the
	// message says which containers and how far they were.
	ConditionFailed = "Failed"
)

// The reasons of these conditions.
const (
	ReasonRecreated        = "Recreated"
	ReasonDeadlineExceeded = "DeadlineExceeded"
	ReasonPodGone          = "PodGone"
	ReasonNoAnswer         = "AgentNotResponding"
	ReasonNoRuntime        = "RuntimeNotFound"
	// ReasonContainerFailed: a container could not be stopped.
	ReasonContainerFailed = "ContainerFailed"
	// ReasonNotRestarted: a container has exited and kubelet will not start it again.
	ReasonNotRestarted = "ContainerNotRestarted"
)

// The messages of requests that the manager ends; clients compare them.
const (
	MessagePodGone          = "pod has gone"
	MessageNoAnswer         = "daemon has not responded for a long time"
	MessageDeadlineExceeded = "recreating has exceeded the activeDeadlineSeconds"
)

// End is how a request ends.
type End struct {
	// Reason is that of the condition.
	Reason string
	// Message is status.message: empty after a run to the end.
	Message string
}

// Finished tells whether the request has ended.
func Finished(r *v1beta1.ContainerRecreateRequest) bool {
	return r.Status.Phase == v1beta1.RecreateCompleted || r.Status.CompletionTime != nil
}

// Apply ends the request that status belongs to. The containers keep the states they have.
func (e End) Apply(r *v1beta1.ContainerRecreateRequest, status *v1beta1.ContainerRecreateRequestStatus, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	status.Phase, status.CompletionTime, status.Message = v1beta1.RecreateCompleted, &at, e.Message
	result := metav1.Condition{
		Type: ConditionComplete, Status: metav1.ConditionTrue, Reason: e.Reason, Message: e.Message,
		LastTransitionTime: at, ObservedGeneration: r.Generation,
	}
	if e.Reason != ReasonRecreated {
		result.Type = ConditionFailed
		if rest := Unfinished(r, status.ContainerRecreateStates); rest != "" {
			result.Message = strings.TrimPrefix(e.Message+"; unfinished containers: "+rest, "; ")
		}
	}
	status.Conditions = append(slices.Clone(status.Conditions), result)
}

// Unfinished names the containers that have not succeeded, each with its phase and why.
func Unfinished(r *v1beta1.ContainerRecreateRequest, states []v1beta1.RecreateState) string {
	var rest []string
	for _, c := range r.Spec.Containers {
		state, ok := StateOf(states, c.Name)
		switch {
		case !ok:
			rest = append(rest, c.Name+" (not begun)")
		case state.Phase == v1beta1.RecreateSucceeded:
		case state.Message != "":
			rest = append(rest, fmt.Sprintf("%s (%s: %s)", c.Name, state.Phase, state.Message))
		default:
			rest = append(rest, fmt.Sprintf("%s (%s)", c.Name, state.Phase))
		}
	}
	return strings.Join(rest, ", ")
}

// StateOf finds the state of a container; false when it has none yet.
func StateOf(states []v1beta1.RecreateState, container string) (v1beta1.RecreateState, bool) {
	for _, s := range states {
		if s.Name == container {
			return s, true
		}
	}
	return v1beta1.RecreateState{}, false
}

// Strategy is that of the request; one that never met admission may lack it.
func Strategy(r *v1beta1.ContainerRecreateRequest) v1beta1.RecreateStrategy {
	if r.Spec.Strategy == nil {
		return v1beta1.RecreateStrategy{FailurePolicy: v1beta1.RecreateFailurePolicyFail}
	}
	return *r.Spec.Strategy
}

// DrainedSince returns since when the Pod is held not ready for this request; false when it
// is not yet.
func DrainedSince(r *v1beta1.ContainerRecreateRequest) (time.Time, bool) {
	for _, c := range r.Status.Conditions {
		if c.Type == v1beta1.PreRecreateGraceCondition && c.Status == metav1.ConditionTrue {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// Holder is the party that keeps the Pod not ready for the request.
func Holder(r *v1beta1.ContainerRecreateRequest) podready.Holder {
	return podready.Holder{UserAgent: "ContainerRecreateRequest", Key: r.Namespace + "/" + r.Name}
}

// ContainerStatus finds a container of a request, which may be a native sidecar among the init
// containers, in the status of the Pod; nil when the kubelet has not told of it.
func ContainerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}

// SplitID splits a container ID of the API, such as containerd://abc, into the name of the
// runtime and the runtime's own ID. Both are empty if it is none.
func SplitID(id string) (runtime, own string) {
	runtime, own, ok := strings.Cut(id, "://")
	if !ok {
		return "", ""
	}
	return runtime, own
}

// Restarts tells whether kubelet starts a container again that exited with the code, and why
// it does not. A container that the Pod does not have counts as restarted: nothing is known.
func Restarts(pod *corev1.Pod, container string, exitCode int32) (why string, restarts bool) {
	if p := pod.Status.Phase; p == corev1.PodFailed || p == corev1.PodSucceeded {
		return fmt.Sprintf("the Pod's phase is %s", p), false
	}
	initial := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == container })
	regular := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	var c corev1.Container
	switch {
	case regular >= 0:
		c = pod.Spec.Containers[regular]
	case initial >= 0:
		c = pod.Spec.InitContainers[initial]
	default:
		return "", true
	}
	policy := string(pod.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	} else if initial >= 0 && exitCode == 0 {
		return "it is an init container and has done its work", false
	} else if initial >= 0 && policy == string(corev1.RestartPolicyAlways) {
		policy = string(corev1.RestartPolicyOnFailure)
	}
	for _, rule := range c.RestartPolicyRules {
		if matches(rule, exitCode) {
			return "", true
		}
	}
	switch {
	case policy == string(corev1.RestartPolicyNever):
		return "its restart policy is Never", false
	case policy == string(corev1.RestartPolicyOnFailure) && exitCode == 0:
		return "its restart policy is OnFailure and it exited with code 0", false
	}
	return "", true
}

// matches tells whether the rule, all of which restart, is for the exit code.
func matches(rule corev1.ContainerRestartRule, exitCode int32) bool {
	if rule.ExitCodes == nil {
		return false
	}
	listed := slices.Contains(rule.ExitCodes.Values, exitCode)
	return listed == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

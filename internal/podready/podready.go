// SPDX-License-Identifier: Apache-2.0

// Package podready holds the rules of a Pod's readiness gates: who keeps KruisePodReady
// False, and how Ready follows from the gates (platform.md 4, inplace-update.md 5 and 11).
//
// All functions are pure: they change the Pod they are given, which must be the caller's
// own copy, and report whether something changed. Writing is left to the caller, so that
// a hold and a label can go in one request (package podupdate).
package podready

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// ReasonGatesNotReady is the reason of a Ready condition that a readiness gate makes False.
const ReasonGatesNotReady = "ReadinessGatesNotReady"

// Holder is one party that keeps a Pod not ready: an entry of the JSON list in the
// message of the condition KruisePodReady.
type Holder struct {
	UserAgent string `json:"userAgent"`
	Key       string `json:"key"`
}

// The holders of lifecycle hooks with markPodNotReady.
var (
	PreDeleteHook = Holder{UserAgent: "Lifecycle", Key: "preDeleteHook"}
	PreUpdateHook = Holder{UserAgent: "Lifecycle", Key: "preUpdateHook"}
)

// Holders lists who keeps the Pod not ready, in the order of the message. A message that
// is no such list counts as empty.
func Holders(pod *corev1.Pod) []Holder {
	return parse(Condition(pod, v1beta1.KruisePodReady))
}

func parse(c *corev1.PodCondition) []Holder {
	if c == nil || c.Message == "" {
		return nil
	}
	var hs []Holder
	if json.Unmarshal([]byte(c.Message), &hs) != nil {
		return nil
	}
	return hs
}

// Hold adds h to the holders of KruisePodReady: the condition becomes False, and Ready
// with it. It does nothing for a Pod without the readiness gate or when h holds already.
func Hold(pod *corev1.Pod, h Holder, now time.Time) bool {
	if !HasGate(pod, v1beta1.KruisePodReady) {
		return false
	}
	c := Condition(pod, v1beta1.KruisePodReady)
	hs := parse(c)
	held := slices.Contains(hs, h)
	if held && c.Status != corev1.ConditionTrue {
		return false
	}
	if !held {
		hs = append(hs, h)
	}
	setHolders(pod, hs, now)
	RecomputeReady(pod, now)
	return true
}

// Release takes h from the holders; when the last one goes the condition becomes True.
// Ready itself is left to the kubelet. Other holders survive, also unknown ones.
func Release(pod *corev1.Pod, h Holder, now time.Time) bool {
	c := Condition(pod, v1beta1.KruisePodReady)
	if c == nil || !HasGate(pod, v1beta1.KruisePodReady) {
		return false
	}
	hs := parse(c)
	if !slices.Contains(hs, h) {
		return false
	}
	setHolders(pod, slices.DeleteFunc(hs, func(o Holder) bool { return o == h }), now)
	return true
}

// Initialize gives a Pod that has the readiness gate KruisePodReady but no such
// condition yet the value True.
func Initialize(pod *corev1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp != nil || !HasGate(pod, v1beta1.KruisePodReady) || Condition(pod, v1beta1.KruisePodReady) != nil {
		return false
	}
	return SetCondition(pod, corev1.PodCondition{Type: v1beta1.KruisePodReady, Status: corev1.ConditionTrue}, now)
}

func setHolders(pod *corev1.Pod, hs []Holder, now time.Time) {
	slices.SortFunc(hs, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.UserAgent, b.UserAgent), cmp.Compare(a.Key, b.Key))
	})
	if hs == nil {
		hs = []Holder{} // the message of no holders is [], not null
	}
	message, err := json.Marshal(hs)
	if err != nil {
		panic(fmt.Sprintf("encoding holders: %v", err)) // strings only
	}
	status := corev1.ConditionTrue
	if len(hs) > 0 {
		status = corev1.ConditionFalse
	}
	next := corev1.PodCondition{Type: v1beta1.KruisePodReady, Status: status, Message: string(message), LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	if c := Condition(pod, v1beta1.KruisePodReady); c != nil {
		if c.Status == status {
			next.LastTransitionTime = c.LastTransitionTime
		}
		*c = next
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, next)
}

// RecomputeReady applies the Ready rule after a readiness gate was set False: if Ready
// exists and all containers are ready, and some gate's condition is missing or not True,
// Ready becomes False and its message names those gates. Ready is never set to True
// here: that is the kubelet's.
func RecomputeReady(pod *corev1.Pod, now time.Time) bool {
	ready := Condition(pod, corev1.PodReady)
	containers := Condition(pod, corev1.ContainersReady)
	if ready == nil || containers == nil || containers.Status != corev1.ConditionTrue {
		return false
	}
	var unready []string
	for _, g := range pod.Spec.ReadinessGates {
		switch c := Condition(pod, g.ConditionType); {
		case c == nil:
			unready = append(unready, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", string(g.ConditionType)))
		case c.Status != corev1.ConditionTrue:
			unready = append(unready, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", string(g.ConditionType), c.Status))
		}
	}
	if len(unready) == 0 {
		return false
	}
	return SetCondition(pod, corev1.PodCondition{
		Type:               corev1.PodReady,
		Status:             corev1.ConditionFalse,
		Reason:             ReasonGatesNotReady,
		Message:            strings.Join(unready, ", "),
		ObservedGeneration: ready.ObservedGeneration,
	}, now)
}

// SetCondition sets a condition of the Pod unless it has that status already: other
// fields alone make no change. The transition time is now, in whole seconds.
func SetCondition(pod *corev1.Pod, next corev1.PodCondition, now time.Time) bool {
	next.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	c := Condition(pod, next.Type)
	switch {
	case c == nil:
		pod.Status.Conditions = append(pod.Status.Conditions, next)
	case c.Status == next.Status:
		return false
	default:
		*c = next
	}
	return true
}

// Condition finds a condition of the Pod by type; nil if there is none. The pointer is
// into the Pod.
func Condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// HasGate tells whether t is a readiness gate of the Pod.
func HasGate(pod *corev1.Pod, t corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == t })
}

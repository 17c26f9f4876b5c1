// SPDX-License-Identifier: Apache-2.0

// Package lifecycle holds the rules of a Pod's lifecycle states: when hooks of other
// controllers hold a Pod back, and which state follows which (cloneset.md 7).
//
// It is pure: decisions are values, and a Transition is applied to a copy of the Pod
// that the caller writes.
package lifecycle

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// State is the lifecycle state of the Pod; a Pod without the label is Normal.
func State(pod *corev1.Pod) v1beta1.LifecycleState {
	if s := pod.Labels[v1beta1.LifecycleStateLabel]; s != "" {
		return v1beta1.LifecycleState(s)
	}
	return v1beta1.LifecycleNormal
}

// SetState writes the state's label and the time of the change, in whole seconds.
func SetState(pod *corev1.Pod, s v1beta1.LifecycleState, now time.Time) {
	set(&pod.Labels, v1beta1.LifecycleStateLabel, string(s))
	set(&pod.Annotations, v1beta1.LifecycleTimestampAnnotation, now.UTC().Format(time.RFC3339))
}

func set(m *map[string]string, k, v string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[k] = v
}

// HookedAny tells whether at least one handler of the hook is on the Pod: a finalizer,
// or a label with exactly the handler's value. This is what holds back an update or a
// deletion. A nil or empty hook holds nothing.
func HookedAny(hook *v1beta1.LifecycleHook, pod *corev1.Pod) bool {
	if hook == nil {
		return false
	}
	for _, f := range hook.FinalizersHandler {
		if slices.Contains(pod.Finalizers, f) {
			return true
		}
	}
	for k, v := range hook.LabelsHandler {
		if has, ok := pod.Labels[k]; ok && has == v {
			return true
		}
	}
	return false
}

// HookedAll tells whether every handler of the hook is on the Pod. This is what lets a
// Pod become Normal. A hook without handlers, and a nil hook, are all on the Pod.
func HookedAll(hook *v1beta1.LifecycleHook, pod *corev1.Pod) bool {
	if hook == nil {
		return true
	}
	for _, f := range hook.FinalizersHandler {
		if !slices.Contains(pod.Finalizers, f) {
			return false
		}
	}
	for k, v := range hook.LabelsHandler {
		if has, ok := pod.Labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// Rehook puts all handlers of the hook on the Pod.
func Rehook(hook *v1beta1.LifecycleHook, pod *corev1.Pod) {
	if hook == nil {
		return
	}
	for _, f := range hook.FinalizersHandler {
		if !slices.Contains(pod.Finalizers, f) {
			pod.Finalizers = append(pod.Finalizers, f)
		}
	}
	if len(hook.LabelsHandler) > 0 && pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, hook.LabelsHandler)
}

// Unhook takes all handlers of the hook from the Pod, as whoever answers the hook does.
func Unhook(hook *v1beta1.LifecycleHook, pod *corev1.Pod) {
	if hook == nil {
		return
	}
	for k := range hook.LabelsHandler {
		delete(pod.Labels, k)
	}
	pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return slices.Contains(hook.FinalizersHandler, f) })
}

func empty(hook *v1beta1.LifecycleHook) bool {
	return hook == nil || len(hook.LabelsHandler)+len(hook.FinalizersHandler) == 0
}

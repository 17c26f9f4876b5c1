// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

const (
	// MinRecreateDeadlineSeconds is the least activeDeadlineSeconds of a ContainerRecreateRequest.
	MinRecreateDeadlineSeconds = 3
	// sidecarTerminated is the condition of Pods whose sidecars are being ended: they may be no
	// longer active.
	sidecarTerminated corev1.PodConditionType = "SidecarTerminated"
)

// ContainerRecreateRequest returns the faults that the object shows by itself
// (container-recreate.md 3, rules 1, 3, 4 and a part of 10). What is wrong with regard to the Pod
// is a matter of ContainerRecreateRequestTarget.
func ContainerRecreateRequest(crr *v1beta1.ContainerRecreateRequest, o Options) field.ErrorList {
	spec := field.NewPath("spec")
	errs := required(crr.Spec.PodName, spec.Child("podName"), "name the Pod whose containers to recreate")
	if len(crr.Spec.Containers) == 0 {
		errs = append(errs, field.Required(spec.Child("containers"), "name the containers to recreate"))
	}
	var seen []string
	for i := range crr.Spec.Containers {
		name, path := crr.Spec.Containers[i].Name, spec.Child("containers").Index(i).Child("name")
		switch {
		case name == "":
			errs = append(errs, field.Required(path, "name a container of the Pod"))
		case slices.Contains(seen, name):
			errs = append(errs, field.Duplicate(path, name))
		}
		seen = append(seen, name)
	}
	if n := crr.Spec.ActiveDeadlineSeconds; n != nil && *n < MinRecreateDeadlineSeconds {
		errs = append(errs, field.Invalid(spec.Child("activeDeadlineSeconds"), *n,
			fmt.Sprintf("must be at least %d, or leave it out for no deadline", MinRecreateDeadlineSeconds)))
	}
	if n := crr.Spec.TTLSecondsAfterFinished; n != nil && !o.V1alpha1 {
		errs = append(errs, notNegative(int64(*n), spec.Child("ttlSecondsAfterFinished"))...)
	}
	if s := crr.Spec.Strategy; s != nil {
		errs = append(errs, recreateStrategy(s, spec.Child("strategy"), o)...)
	}
	return errs
}

func recreateStrategy(s *v1beta1.RecreateStrategy, path *field.Path, o Options) field.ErrorList {
	errs := oneOf(s.FailurePolicy, path.Child("failurePolicy"), v1beta1.RecreateFailurePolicyFail, v1beta1.RecreateFailurePolicyIgnore)
	if n := s.TerminationGracePeriodSeconds; n != nil {
		errs = append(errs, notNegative(*n, path.Child("terminationGracePeriodSeconds"))...)
	}
	if n := s.UnreadyGracePeriodSeconds; n != nil {
		errs = append(errs, notNegative(*n, path.Child("unreadyGracePeriodSeconds"))...)
	}
	if !o.V1alpha1 { // whose schema has no minimum
		errs = append(errs, notNegative(int64(s.MinStartedSeconds), path.Child("minStartedSeconds"))...)
	}
	return errs
}

// ContainerRecreateRequestTarget returns why the Pod cannot serve the request (container-recreate.md
// 3, rules 5 to 7 and 10). pod and node are nil when there is none.
func ContainerRecreateRequestTarget(crr *v1beta1.ContainerRecreateRequest, pod *corev1.Pod, node *corev1.Node) field.ErrorList {
	path, name := field.NewPath("spec", "podName"), crr.Spec.PodName
	switch {
	case pod == nil:
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("no found Pod named %s in the namespace of the request", name))}
	case !recreatable(pod):
		return field.ErrorList{field.Invalid(path, name, "this Pod is "+state(pod)+", and its containers are not started again")}
	case pod.Spec.NodeName == "":
		return field.ErrorList{field.Invalid(path, name, "this Pod is not scheduled to a node yet; wait until it runs")}
	case node == nil:
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("there is no Node %s, on which this Pod is", pod.Spec.NodeName))}
	}
	var errs field.ErrorList
	for i := range crr.Spec.Containers {
		errs = append(errs, recreateContainer(&crr.Spec.Containers[i], pod, field.NewPath("spec", "containers").Index(i))...)
	}
	return errs
}

func recreatable(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return true
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == sidecarTerminated })
}

// state is a word for a Pod that is not active.
func state(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "terminating"
	}
	return strings.ToLower(string(pod.Status.Phase))
}

func recreateContainer(c *v1beta1.RecreateContainer, pod *corev1.Pod, path *field.Path) field.ErrorList {
	named := func(text string) field.ErrorList {
		return field.ErrorList{field.Invalid(path.Child("name"), c.Name, text)}
	}
	container, status, init := find(pod, c.Name)
	switch {
	case container == nil && slices.ContainsFunc(pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == c.Name }):
		return named("this is an ephemeral container, which is never started again")
	case container == nil:
		return named("there is no such container in the Pod; it has " + strings.Join(containerNames(pod), ", "))
	case init:
		// If it exits with 0 when it is stopped, kubelet goes on as if its work were done.
		return named("this is an init container, and the Pod would go on without what it does; only those with restartPolicy Always can be recreated")
	case status == nil || status.ContainerID == "":
		return named("this container has not been started yet; wait until it runs")
	}
	want, _ := RecreatedContainer(pod, c.Name)
	var errs field.ErrorList
	for _, f := range []struct {
		name        string
		given, fill any
		set         bool
	}{
		{"preStop", c.PreStop, want.PreStop, c.PreStop != nil},
		{"ports", c.Ports, want.Ports, len(c.Ports) > 0},
		{"statusContext", c.StatusContext, want.StatusContext, c.StatusContext != nil},
	} {
		if f.set && !apiequality.Semantic.DeepEqual(f.given, f.fill) {
			errs = append(errs, field.Forbidden(path.Child(f.name), "this field is read-only: it is filled in from the Pod, which says something else; leave it out"))
		}
	}
	return errs
}

// RecreatedContainer returns a container of a Pod as a request has to list it, with what is read
// from the Pod: its hook, its ports when the hook may name one, and which run of it is meant. It
// says false when the Pod has no such container.
func RecreatedContainer(pod *corev1.Pod, name string) (v1beta1.RecreateContainer, bool) {
	out := v1beta1.RecreateContainer{Name: name}
	c, status, _ := find(pod, name)
	if c == nil {
		return out, false
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		hook := c.Lifecycle.PreStop.DeepCopy()
		out.PreStop = &v1beta1.RecreatePreStop{Exec: hook.Exec, HTTPGet: hook.HTTPGet, TCPSocket: hook.TCPSocket, Sleep: hook.Sleep}
		if hook.HTTPGet != nil {
			out.Ports = slices.Clone(c.Ports)
		}
	}
	if status != nil {
		out.StatusContext = &v1beta1.RecreateContainerContext{ContainerID: status.ContainerID, RestartCount: status.RestartCount}
	}
	return out, true
}

// find returns a container of the Pod and its status, nil when there is none, and whether it is an
// init container that ends before the others start.
func find(pod *corev1.Pod, name string) (c *corev1.Container, status *corev1.ContainerStatus, init bool) {
	for _, l := range []struct {
		containers []corev1.Container
		init       bool
	}{{pod.Spec.Containers, false}, {pod.Spec.InitContainers, true}} {
		i := slices.IndexFunc(l.containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 {
			continue
		}
		c = &l.containers[i]
		always := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		return c, recreate.ContainerStatus(pod, name), l.init && !always
	}
	return nil, nil, false
}

func containerNames(pod *corev1.Pod) []string {
	var out []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out = append(out, list[i].Name)
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubectl/pkg/util/qos"
)

// resizable are the resources that change in place.
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// resource judges a change below the resources of a container; tail is the path after
// resources.
func (c *comparer) resource(ch change, path, container string, tail []string) {
	if !c.o.VerticalScaling {
		c.forbid(VerticalScalingDisabled, path, "%s; resources change in place only with feature gate InPlaceWorkloadVerticalScaling", ch.verb())
		return
	}
	if len(tail) != 2 || tail[0] != "limits" && tail[0] != "requests" || ch.op != opReplace {
		c.forbid(ResourceNotResizable, path, "%s; in place, only values of existing cpu and memory requests and limits change", ch.verb())
		return
	}
	name := corev1.ResourceName(tail[1])
	if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
		c.forbid(ResourceNotResizable, path, "changed; in place, only cpu and memory change")
		return
	}
	text, isText := ch.new.(string)
	if number, ok := ch.new.(interface{ String() string }); ok && !isText {
		text = number.String() // an unquoted quantity, such as cpu: 1
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		c.forbid(ResourceNotResizable, path, "the new value is not a quantity")
		return
	}
	if c.spec.ContainerResources == nil {
		c.spec.ContainerResources = map[string]corev1.ResourceRequirements{}
	}
	r := c.spec.ContainerResources[container]
	list := &r.Requests
	if tail[0] == "limits" {
		list = &r.Limits
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = quantity
	c.spec.ContainerResources[container] = r
}

// qosClass forbids a change of the QoS class, which the server refuses.
func (c *comparer) qosClass() {
	if len(c.spec.ContainerResources) == 0 {
		return
	}
	if a, b := qosOf(c.from.template), qosOf(c.to.template); a != b {
		c.forbid(QOSClassChanged, "spec.template.spec.containers", "the new resources change the QoS class from %s to %s, which a running Pod keeps", a, b)
	}
}

// qosOf computes the class as the server does: a limit without a request is also the request.
func qosOf(t *corev1.PodTemplateSpec) corev1.PodQOSClass {
	pod := &corev1.Pod{Spec: *t.Spec.DeepCopy()}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			r := &list[i].Resources
			for name, limit := range r.Limits {
				if _, ok := r.Requests[name]; !ok {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = limit
				}
			}
		}
	}
	return qos.ComputePodQOS(pod)
}

// restartsToResize tells whether the resize policy of the container asks for a restart
// for one of the changed resources. No policy is NotRequired.
func restartsToResize(c *corev1.Container, changed corev1.ResourceRequirements) bool {
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy != corev1.RestartContainer {
			continue
		}
		if _, ok := changed.Requests[p.ResourceName]; ok {
			return true
		}
		if _, ok := changed.Limits[p.ResourceName]; ok {
			return true
		}
	}
	return false
}

// differing is the part of wanted that the container does not have yet, by value.
func differing(c *corev1.Container, wanted corev1.ResourceRequirements) corev1.ResourceRequirements {
	part := func(has, want corev1.ResourceList) corev1.ResourceList {
		var list corev1.ResourceList
		for name, q := range want {
			if old, ok := has[name]; ok && old.Cmp(q) == 0 {
				continue
			}
			if list == nil {
				list = corev1.ResourceList{}
			}
			list[name] = q
		}
		return list
	}
	return corev1.ResourceRequirements{
		Requests: part(c.Resources.Requests, wanted.Requests),
		Limits:   part(c.Resources.Limits, wanted.Limits),
	}
}

// overlay sets the quantities of changed in r.
func overlay(r *corev1.ResourceRequirements, changed corev1.ResourceRequirements) {
	set := func(list *corev1.ResourceList, with corev1.ResourceList) {
		if len(with) == 0 {
			return
		}
		merged := corev1.ResourceList{}
		for name, q := range *list {
			merged[name] = q
		}
		for name, q := range with {
			merged[name] = q
		}
		*list = merged
	}
	set(&r.Requests, changed.Requests)
	set(&r.Limits, changed.Limits)
}

// resizeWaits lists what is missing until the kubelet has applied the resources. Only
// containers that this update touched count, and of them only cpu and memory, by value:
// other containers and extended resources may be reported otherwise for good.
func resizeWaits(pod *corev1.Pod, s *State) []Reason {
	touched := map[string]bool{}
	for _, batch := range s.ContainerBatchesRecord {
		for _, name := range batch.Containers {
			touched[name] = true
		}
	}
	var waits []Reason
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if !touched[c.Name] && len(touched) > 0 {
			continue
		}
		wants := false
		for _, name := range resizable {
			_, request := c.Resources.Requests[name]
			_, limit := c.Resources.Limits[name]
			wants = wants || request || limit
		}
		if wants {
			waits = append(waits, containerResizeWaits(pod, c)...)
		}
	}
	return waits
}

func containerResizeWaits(pod *corev1.Pod, c *corev1.Container) []Reason {
	path := "status.containerStatuses[" + c.Name + "].resources"
	status := containerStatus(pod, c.Name)
	if status == nil || status.Resources == nil {
		return []Reason{resizeReason(pod, path, "container "+c.Name+": the kubelet has not reported its resources yet")}
	}
	var waits []Reason
	check := func(kind string, want, has corev1.ResourceList) {
		for _, name := range resizable {
			w, ok := want[name]
			if !ok {
				continue
			}
			if h, ok := has[name]; !ok || h.Cmp(w) != 0 {
				waits = append(waits, resizeReason(pod, path+"."+kind+"s."+string(name),
					"container "+c.Name+": "+string(name)+" "+kind+" not changed yet: status reports "+quantityText(has, name)+", not "+w.String()))
			}
		}
	}
	check("request", c.Resources.Requests, status.Resources.Requests)
	check("limit", c.Resources.Limits, status.Resources.Limits)
	return waits
}

func quantityText(list corev1.ResourceList, name corev1.ResourceName) string {
	if q, ok := list[name]; ok {
		return q.String()
	}
	return "none"
}

// resizeReason adds what the kubelet says about a resize it cannot do.
func resizeReason(pod *corev1.Pod, path, message string) Reason {
	code := WaitResize
	for i := range pod.Status.Conditions {
		cond := &pod.Status.Conditions[i]
		if cond.Type != corev1.PodResizePending || cond.Status != corev1.ConditionTrue {
			continue
		}
		code = WaitResizeDeferred
		if cond.Reason == corev1.PodReasonInfeasible {
			code = WaitResizeFeasible
		}
		message += " (resize " + strings.ToLower(cond.Reason)
		if cond.Message != "" {
			message += ": " + cond.Message
		}
		message += ")"
	}
	if code == WaitResize && pod.Status.Resize == corev1.PodResizeStatusInfeasible {
		code, message = WaitResizeFeasible, message+" (resize infeasible on this node)"
	}
	return Reason{Code: code, Path: path, Message: message}
}

// SupportsResize tells from the GitVersion of a server whether it has the subresource
// pods/resize, which came with 1.32. It reads the leading digits of the parts
// ("v1.32.3-eks-1", "1.32+gke"); what it cannot read counts as older.
func SupportsResize(gitVersion string) bool {
	parts := strings.SplitN(strings.TrimPrefix(strings.TrimSpace(gitVersion), "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, errMajor := strconv.Atoi(leadingDigits(parts[0]))
	minor, errMinor := strconv.Atoi(leadingDigits(parts[1]))
	if errMajor != nil || errMinor != nil {
		return false
	}
	return major > 1 || major == 1 && minor >= 32
}

func leadingDigits(s string) string {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return s
	}
	return s[:end]
}

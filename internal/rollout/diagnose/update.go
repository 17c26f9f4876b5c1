// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// inPlaceUpdate asks the engine what an in-place update waits for, and adds what the
// engine cannot know: the events of the node, its agent, and the batches still to come.
func (c *podCase) inPlaceUpdate() {
	opts := c.s.Gates.InPlace
	state, _ := inplace.StateOf(c.p)
	since := time.Time{}
	if state != nil {
		since = state.UpdateTimestamp.Time
		if n := len(state.ContainerBatchesRecord); n > 0 {
			since = state.ContainerBatchesRecord[n-1].Timestamp.Time
		}
	}
	waits := inplace.Waiting(c.p, opts)
	for _, w := range waits {
		code, ok := waitCode[w.Code]
		if !ok {
			code = "P08"
		}
		evidence := []string{"waitsFor", w.Code}
		if w.Path != "" {
			evidence = append(evidence, "field", w.Path)
		}
		message, next, sev := w.Message, "", verdict.Cause
		switch w.Code {
		case inplace.WaitGracePeriod:
			if step := inplace.Next(c.p, opts, c.now); step.Action == inplace.Wait && len(step.Waiting) > 0 {
				message = step.Waiting[0].Message
			}
			sev = verdict.Note
		case inplace.WaitImage:
			code, message, evidence = c.image(state, w, message, evidence)
			next = "kubectl describe pod " + c.p.Name + " -n " + c.p.Namespace
		case inplace.WaitRuntimeMeta, inplace.WaitEnv:
			extra, e := c.daemon()
			message, evidence, next = message+extra, append(evidence, e...), "status"
		case inplace.WaitContainersReady:
			next = "kubectl logs " + c.p.Name + " -n " + c.p.Namespace + " -c " + firstContainer(state)
			evidence = append(evidence, batches(state)...)
			sev = verdict.Blocker
		case inplace.WaitResizeFeasible:
			sev, next = verdict.Blocker, "lower the requests, or set podUpdatePolicy to recreate the Pod"
		case inplace.WaitInvalidState:
			sev, next = verdict.Blocker, "remove the annotation if no update is running"
		}
		c.add(code, sev, since, next, message, evidence...)
	}
	c.onlyResourcesLeft(state)
}

// image tells an image that is the same under another name from one that the kubelet
// has not started.
func (c *podCase) image(state *inplace.State, w inplace.Reason, message string, evidence []string) (string, string, []string) {
	for name, last := range state.LastContainerStatuses {
		if !strings.Contains(w.Path, "["+name+"]") {
			continue
		}
		spec := containerOf(c.p, name)
		st := statusOf(c.p, name)
		if spec == nil || st == nil {
			continue
		}
		evidence = append(evidence, "specImage", spec.Image, "statusImage", st.Image, "imageID", st.ImageID, "lastImageID", last.ImageID)
		if st.Image == spec.Image || st.State.Running == nil {
			break
		}
		if why := c.pulling(name); why != "" {
			return "P08", message + "; " + why, evidence
		}
		meta, _ := runtimehash.FromObject(c.p)
		if rec := meta.Container(name); rec != nil && rec.ContainerID == st.ContainerID {
			return "P09", message + "; if both tags have the same digest, the node agent's hash decides", evidence
		}
	}
	return "P08", message, evidence
}

// pulling quotes the last event about the image of a container.
func (c *podCase) pulling(container string) string {
	for _, e := range slices.Backward(c.s.eventsOf("Pod", c.p.Name)) {
		if !strings.Contains(e.InvolvedObject.FieldPath, "{"+container+"}") {
			continue
		}
		switch e.Reason {
		case "Pulling", "Failed", "BackOff", "ErrImagePull", "ImagePullBackOff":
			return e.Message
		case "Pulled", "Created", "Started":
			return ""
		}
	}
	return ""
}

// daemon describes the node agent of the Pod's node.
func (c *podCase) daemon() (string, []string) {
	if c.s.Daemons == nil || c.p.Spec.NodeName == "" {
		return "", nil
	}
	d := c.s.Daemons[c.p.Spec.NodeName]
	switch {
	case d == nil:
		return "; no node agent runs on node " + c.p.Spec.NodeName, []string{"daemon", "absent"}
	case !PodReady(d):
		return fmt.Sprintf("; node agent %s on node %s is not ready", d.Name, d.Spec.NodeName), []string{"daemon", d.Name}
	}
	return fmt.Sprintf("; node agent %s on node %s is ready", d.Name, d.Spec.NodeName), []string{"daemon", d.Name}
}

func (c *podCase) onlyResourcesLeft(s *inplace.State) {
	if s == nil || len(s.NextContainerResources) == 0 || len(s.NextContainerImages)+len(s.NextContainerRefMetadata) > 0 {
		return
	}
	names := strings.Join(slices.Sorted(maps.Keys(s.NextContainerResources)), ", ")
	c.add("P13", verdict.Note, time.Time{}, "", "only resources are left to change, of "+names+": an OpenKruise manager up to 1.9 does not go on here",
		"nextContainerResources", names)
}

// batches is what was sent and what is to come, in order.
func batches(s *inplace.State) []string {
	if s == nil {
		return nil
	}
	var sent []string
	for _, b := range s.ContainerBatchesRecord {
		sent = append(sent, b.Timestamp.UTC().Format("15:04:05")+" ["+strings.Join(b.Containers, " ")+"]")
	}
	var next []string
	for _, n := range slices.Sorted(maps.Keys(s.NextContainerImages)) {
		next = append(next, n+" = "+s.NextContainerImages[n])
	}
	return []string{"batchesSent", strings.Join(sent, ", "), "nextContainerImages", strings.Join(next, ", ")}
}

func firstContainer(s *inplace.State) string {
	if s == nil || s.PreCheckBeforeNext == nil || len(s.PreCheckBeforeNext.ContainersRequiredReady) == 0 {
		return "CONTAINER"
	}
	return s.PreCheckBeforeNext.ContainersRequiredReady[0]
}

// startFaults are waiting reasons that do not go away by waiting.
var startFaults = []string{"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError",
	"CreateContainerError", "RunContainerError", "ErrImageNeverPull"}

// Failing reports a Pod that no node takes, or with a container that cannot start or keeps dying.
func Failing(p *corev1.Pod, _ time.Time) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	if c := condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		return true
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, cs := range list {
			if w := cs.State.Waiting; w != nil && slices.Contains(startFaults, w.Reason) && barrierKey(p, cs.Name) == "" {
				return true
			}
		}
	}
	return false
}

func (c *podCase) containers() {
	if !Active(c.p) || c.p.Spec.NodeName == "" {
		return
	}
	for _, list := range [][]corev1.ContainerStatus{c.p.Status.InitContainerStatuses, c.p.Status.ContainerStatuses} {
		for i := range list {
			c.container(&list[i])
		}
	}
}

func (c *podCase) container(cs *corev1.ContainerStatus) {
	logs := fmt.Sprintf("kubectl logs %s -n %s -c %s", c.p.Name, c.p.Namespace, cs.Name)
	since := notReadySince(c.p)
	switch w, t := cs.State.Waiting, cs.State.Terminated; {
	case w != nil && slices.Contains(startFaults, w.Reason):
		if barrierKey(c.p, cs.Name) != "" && w.Reason == "CreateContainerConfigError" {
			return // P18
		}
		next := "kubectl describe pod " + c.p.Name + " -n " + c.p.Namespace
		evidence := []string{"container", cs.Name, "reason", w.Reason, "restartCount", fmt.Sprint(cs.RestartCount)}
		message := fmt.Sprintf("container %s: %s", cs.Name, w.Reason)
		if w.Message != "" {
			message += ": " + firstLine(w.Message)
		}
		if w.Reason == "CrashLoopBackOff" {
			next = logs + " --previous"
			if last := cs.LastTerminationState.Terminated; last != nil {
				message = fmt.Sprintf("container %s keeps dying: exit code %d%s", cs.Name, last.ExitCode, inParens(last.Reason))
				evidence = append(evidence, "exitCode", fmt.Sprint(last.ExitCode))
			}
		}
		c.add("P17", verdict.Blocker, since, next, message, evidence...)
	case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
		c.add("P17", verdict.Cause, since, "", fmt.Sprintf("container %s: %s", cs.Name, w.Reason), "container", cs.Name, "reason", w.Reason)
	case t != nil && t.ExitCode != 0:
		c.add("P17", verdict.Cause, since, logs, fmt.Sprintf("container %s ended with exit code %d%s", cs.Name, t.ExitCode, inParens(t.Reason)),
			"container", cs.Name, "exitCode", fmt.Sprint(t.ExitCode))
	case cs.State.Running != nil && !cs.Ready && isApp(c.p, cs.Name):
		message := fmt.Sprintf("container %s runs but is not ready", cs.Name)
		for _, e := range slices.Backward(c.s.eventsOf("Pod", c.p.Name)) {
			if e.Reason == "Unhealthy" && strings.Contains(e.InvolvedObject.FieldPath, "{"+cs.Name+"}") {
				message += ": " + firstLine(e.Message)
				break
			}
		}
		c.add("P17", verdict.Cause, cs.State.Running.StartedAt.Time, logs, message, "container", cs.Name, "ready", "false")
	}
}

// launchBarrier explains a container that waits for others of higher launch priority.
func (c *podCase) launchBarrier() {
	for i := range c.p.Status.ContainerStatuses {
		cs := &c.p.Status.ContainerStatuses[i]
		key := barrierKey(c.p, cs.Name)
		if w := cs.State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || key == "" {
			continue
		}
		var first []string
		for j := range c.p.Status.ContainerStatuses {
			o := &c.p.Status.ContainerStatuses[j]
			if o.Name != cs.Name && !o.Ready && barrierKey(c.p, o.Name) != key {
				first = append(first, o.Name)
			}
		}
		message := fmt.Sprintf("container %s waits for its launch barrier (key %s of ConfigMap %s-barrier)", cs.Name, key, c.p.Name)
		if len(first) > 0 {
			message += ": first must be ready " + strings.Join(first, ", ")
		}
		c.add("P18", verdict.Cause, notReadySince(c.p), "", message, "container", cs.Name, "key", key)
	}
}

// barrierKey is the ConfigMap key that a container's start waits for; "" when none.
func barrierKey(p *corev1.Pod, container string) string {
	spec := containerOf(p, container)
	if spec == nil {
		return ""
	}
	for _, e := range spec.Env {
		if e.Name == "KRUISE_CONTAINER_BARRIER" && e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			return e.ValueFrom.ConfigMapKeyRef.Key
		}
	}
	return ""
}

func containerOf(p *corev1.Pod, name string) *corev1.Container {
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			return &p.Spec.Containers[i]
		}
	}
	return nil
}

func isApp(p *corev1.Pod, name string) bool { return containerOf(p, name) != nil }

func statusOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == name {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/nodestate"
	"github.com/kruisectl/kruisectl/internal/recreate"
	"github.com/kruisectl/kruisectl/internal/restart"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Codes of findings about restart requests (container-recreate.md 6.6) and the words behind
// them.
var recreateNames = map[string]string{
	"C01": "AgentSilent", "C02": "NoNodeAgent", "C03": "NodeDown", "C04": "WaitsForEarlier", "C05": "Draining", "C06": "NotBack",
	"C07": "StaysDead", "C08": "PodEnded", "C09": "DeadlineExceeded", "C10": "ContainerFailed", "C11": "NoAnswer", "C12": "PodGone", "C13": "NoDeadline",
}

// answerWithin is how long the manager waits for a node agent to take a request up.
const answerWithin = time.Minute

// RecreateSnapshot is what was read of one ContainerRecreateRequest.
type RecreateSnapshot struct {
	// Object is TYPE/NAME, Where namespace/name.
	Object, Where string
	Request       *v1beta1.ContainerRecreateRequest
	// Pod is nil when it is gone; one of the same name that came later is gone, too.
	Pod *corev1.Pod
	// Node is that of the Pod; nil when it cannot be read.
	Node *corev1.Node
	// Agents are the nodes with a node agent; nil when that is not known.
	Agents map[string]bool
	// Others are all requests of the namespace.
	Others []v1beta1.ContainerRecreateRequest
}

// Recreate says what a restart request waits for, or why it ended as it did.
func Recreate(s RecreateSnapshot, now time.Time) Report {
	c := &recreateCase{s: s, now: now, status: restart.Of(s.Request, s.Pod)}
	if c.status.Verdict == restart.Running {
		for _, rule := range []func(){c.podGone, c.podEnded, c.nodeDown, c.silent, c.earlier, c.draining, c.containers, c.noDeadline} {
			rule()
		}
	} else {
		c.ended()
	}
	r := Report{Object: s.Object, Findings: sorted(c.findings)}
	if c.status.Verdict == restart.Succeeded {
		r.Headline = "nothing blocks " + s.Where + ": " + c.status.Message
	} else {
		r.Headline = fmt.Sprintf("%s is %s: %s", s.Where, c.status.Verdict, c.status.Message)
	}
	return r
}

type recreateCase struct {
	s        RecreateSnapshot
	now      time.Time
	status   restart.Status
	findings []verdict.Finding
}

func (c *recreateCase) add(code string, sev verdict.Severity, since time.Time, next, message string, evidence ...string) {
	c.findings = append(c.findings, jobFinding(recreateNames, c.s.Object, code, sev, since, next, message, evidence...))
}

func (c *recreateCase) podName() string { return c.s.Request.Spec.PodName }

func (c *recreateCase) podGone() {
	if c.s.Pod == nil {
		c.add("C12", verdict.Blocker, time.Time{}, "", "pod "+c.podName()+" is gone; the manager completes the request", "spec.podName", c.podName())
	}
}

func (c *recreateCase) podEnded() {
	if p := c.s.Pod; p != nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded) {
		c.add("C08", verdict.Blocker, time.Time{}, "kubectl delete pod "+p.Name+" -n "+p.Namespace,
			fmt.Sprintf("the pod has ended (%s %s): its containers do not come back", p.Status.Phase, p.Status.Reason), "status.phase", string(p.Status.Phase))
	}
}

func (c *recreateCase) nodeDown() {
	if n := c.s.Node; n != nil && !nodestate.Ready(n) {
		c.add("C03", verdict.Blocker, time.Time{}, "kubectl describe node "+n.Name, "node "+n.Name+" is not Ready: its agent cannot be reached", "node", n.Name)
	}
}

// silent: nobody took the request up.
func (c *recreateCase) silent() {
	if c.s.Request.Status.Phase != "" || c.s.Pod == nil {
		return
	}
	created := c.s.Request.CreationTimestamp.Time
	node := c.s.Pod.Spec.NodeName
	if c.s.Agents != nil && !c.s.Agents[node] {
		c.add("C02", verdict.Blocker, created, "status", "node "+node+" has no node agent: nobody takes the request up", "spec.nodeName", node)
		return
	}
	left := answerWithin - c.now.Sub(created)
	text := fmt.Sprintf("the agent of node %s has not taken it up; in %s the request is given up", node, ago(max(0, left)))
	if left <= 0 {
		text = fmt.Sprintf("the agent of node %s has not taken it up for %s, and the manager has not given it up", node, ago(c.now.Sub(created)))
	}
	c.add("C01", verdict.Cause, created, "kubectl logs -n kruise-system -l control-plane=daemon --tail 50", text, "status.phase", "absent")
}

func (c *recreateCase) earlier() {
	if c.s.Request.Status.Phase != v1beta1.RecreatePending || c.s.Pod == nil {
		return
	}
	var before []string
	for _, name := range restart.Active(c.s.Pod, c.s.Others) {
		if name == c.s.Request.Name {
			break
		}
		before = append(before, name)
	}
	next := ""
	text := "the requests for a pod are done one after the other"
	if len(before) > 0 {
		text += "; before it: " + strings.Join(before, ", ")
		next = "why containerrecreaterequest/" + before[0]
	}
	c.add("C04", verdict.Cause, time.Time{}, next, text, "status.phase", "Pending")
}

func (c *recreateCase) draining() {
	strategy := recreate.Strategy(c.s.Request)
	if strategy.UnreadyGracePeriodSeconds == nil || c.s.Request.Status.Phase != v1beta1.RecreateRecreating {
		return
	}
	since, drained := recreate.DrainedSince(c.s.Request)
	grace := time.Duration(*strategy.UnreadyGracePeriodSeconds) * time.Second
	switch left := grace - c.now.Sub(since); {
	case !drained:
		c.add("C05", verdict.Cause, time.Time{}, "status", "the manager has not made the pod not ready yet", v1beta1.PreRecreateGraceCondition, "absent")
	case left > 0:
		c.add("C05", verdict.Note, since, "", fmt.Sprintf("the pod is not ready, and is given %s more before the first kill", ago(left)), "unreadyGracePeriodSeconds", fmt.Sprint(*strategy.UnreadyGracePeriodSeconds))
	}
}

// containers says of each container that was killed why it does not count as back.
func (c *recreateCase) containers() {
	for _, r := range c.status.Rows {
		if r.Phase == v1beta1.RecreateFailed {
			c.add("C10", verdict.Cause, time.Time{}, "", fmt.Sprintf("container %q failed: %s", r.Container, r.Message), "container", r.Container)
		}
		if r.Phase != v1beta1.RecreateRecreating || c.s.Pod == nil {
			continue
		}
		i := slices.IndexFunc(c.s.Pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == r.Container })
		if i < 0 {
			continue
		}
		c.container(c.s.Pod.Status.ContainerStatuses[i])
	}
}

func (c *recreateCase) container(s corev1.ContainerStatus) {
	logs := "kubectl logs " + c.podName() + " -n " + c.s.Request.Namespace + " -c " + s.Name
	switch {
	case s.State.Terminated != nil:
		t := s.State.Terminated
		if why, again := recreate.Restarts(c.s.Pod, s.Name, t.ExitCode); !again {
			c.add("C07", verdict.Blocker, t.FinishedAt.Time, "", fmt.Sprintf("container %q has exited and stays dead: %s", s.Name, why), "exitCode", fmt.Sprint(t.ExitCode))
			return
		}
		c.add("C06", verdict.Cause, t.FinishedAt.Time, logs, fmt.Sprintf("container %q has exited (code %d); the kubelet starts it next", s.Name, t.ExitCode), "exitCode", fmt.Sprint(t.ExitCode))
	case s.State.Waiting != nil:
		sev := verdict.Cause
		if s.State.Waiting.Reason == "CrashLoopBackOff" || strings.Contains(s.State.Waiting.Reason, "Image") {
			sev = verdict.Blocker
		}
		c.add("C06", sev, time.Time{}, logs+" --previous", fmt.Sprintf("container %q does not start: %s %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message), "reason", s.State.Waiting.Reason)
	case s.State.Running != nil && !s.Ready:
		c.add("C06", verdict.Cause, s.State.Running.StartedAt.Time, logs, fmt.Sprintf("container %q runs and is not ready", s.Name), "ready", "false")
	case s.State.Running != nil:
		if m := recreate.Strategy(c.s.Request).MinStartedSeconds; m > 0 && c.now.Sub(s.State.Running.StartedAt.Time) <= time.Duration(m)*time.Second {
			c.add("C06", verdict.Note, s.State.Running.StartedAt.Time, "", fmt.Sprintf("container %q must run for %ds to count as back", s.Name, m), "minStartedSeconds", fmt.Sprint(m))
		}
	}
}

// noDeadline: what blocks, blocks for ever, and with it the next requests for the Pod.
func (c *recreateCase) noDeadline() {
	blocked := slices.ContainsFunc(c.findings, func(f verdict.Finding) bool { return f.Severity == verdict.Blocker })
	if c.s.Request.Spec.ActiveDeadlineSeconds == nil && blocked && c.s.Pod != nil {
		c.add("C13", verdict.Note, time.Time{}, "container cancel "+c.s.Request.Name, "the request has no deadline: it keeps later requests for the pod waiting until it is cancelled", "spec.activeDeadlineSeconds", "absent")
	}
}

// ended says why a request did not succeed.
func (c *recreateCase) ended() {
	at := time.Time{}
	if t := c.s.Request.Status.CompletionTime; t != nil {
		at = t.Time
	}
	rest := recreate.Unfinished(c.s.Request, c.s.Request.Status.ContainerRecreateStates)
	again := "container restart " + c.podName()
	switch c.status.Verdict {
	case restart.DeadlineExceeded:
		c.add("C09", verdict.Blocker, at, again, "the deadline ended the request: "+rest, "spec.activeDeadlineSeconds", fmt.Sprint(deref(c.s.Request.Spec.ActiveDeadlineSeconds)))
	case restart.NoAnswer:
		c.add("C11", verdict.Blocker, at, "status", "the node agent did not take the request up within a minute", "status.message", c.s.Request.Status.Message)
	case restart.PodGone:
		c.add("C12", verdict.Blocker, at, "", "pod "+c.podName()+" was deleted or replaced meanwhile", "status.message", c.s.Request.Status.Message)
	case restart.Failed:
		c.add("C10", verdict.Blocker, at, again, strings.TrimSuffix("not restarted: "+rest+"; "+c.s.Request.Status.Message, "; "), "status.message", c.s.Request.Status.Message)
	}
}

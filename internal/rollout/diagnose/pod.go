// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/restart"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Codes of Pod findings (cli.md 6.1) and the words behind them.
var podNames = map[string]string{
	"P01": "Terminating", "P02": "OldRevision", "P03": "HookPreparingUpdate", "P04": "HookUpdated",
	"P05": "HookPreparingDelete", "P06": "HookPreparingNormal", "P07": "Grace", "P08": "ImageNotReplaced",
	"P09": "SameDigest", "P10": "NoRuntimeMeta", "P11": "EnvHash", "P12": "NextBatch", "P13": "OnlyResourcesLeft",
	"P14": "Resize", "P15": "ReadinessGate", "P16": "KruisePodReady", "P17": "ContainersNotReady",
	"P18": "LaunchBarrier", "P20": "CRRActive", "P21": "SpecifiedDelete", "P22": "Unscheduled", "P23": "NodeDown", "P25": "Protection",
}

// podCase is one Pod under examination. Each rule is a method that adds its findings.
type podCase struct {
	s   Snapshot
	p   *corev1.Pod
	now time.Time

	lifecycle *v1beta1.Lifecycle
	findings  []verdict.Finding
}

// Pod says what keeps p from being at the update revision, ready and alive. s may hold
// no workload: a Pod without a known owner gets the findings that the Pod alone gives.
func Pod(s Snapshot, p *corev1.Pod, now time.Time) Report {
	c := &podCase{s: s, p: p, now: now}
	if s.Workload.Live != nil {
		c.lifecycle = s.Workload.Lifecycle()
	}
	for _, rule := range []func(){
		c.terminating, c.oldRevision, c.hooks, c.specifiedDelete, c.unscheduled, c.nodeDown,
		c.inPlaceUpdate, c.readinessGates, c.kruisePodReady, c.containers, c.launchBarrier, c.recreating, c.protection,
	} {
		rule()
	}
	r := Report{Object: "pod/" + p.Name, Findings: sorted(c.findings)}
	r.Headline = c.headline(r)
	return r
}

func (c *podCase) headline(r Report) string {
	where := c.p.Namespace + "/" + c.p.Name
	if f, ok := r.First(); ok {
		return where + ": " + f.Message
	}
	text := "nothing blocks " + where
	var parts []string
	if u := c.s.Facts.UpdateRevision; u != "" && c.atUpdate() {
		parts = append(parts, "at update revision "+u)
	}
	if rc := condition(c.p, corev1.PodReady); rc != nil && rc.Status == corev1.ConditionTrue {
		parts = append(parts, "Ready since "+ago(c.now.Sub(rc.LastTransitionTime.Time)))
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// add appends a finding; evidence is key, value, key, value.
func (c *podCase) add(code string, sev verdict.Severity, since time.Time, next, message string, evidence ...string) {
	f := verdict.Finding{
		Code: code, Name: podNames[code], Severity: sev, Object: "pod/" + c.p.Name,
		Message: message, Evidence: map[string]string{}, Next: next,
	}
	if !since.IsZero() {
		f.Since = &since
	}
	for i := 0; i+1 < len(evidence); i += 2 {
		f.Evidence[evidence[i]] = evidence[i+1]
	}
	c.findings = append(c.findings, f)
}

func (c *podCase) atUpdate() bool {
	return revision.SameRevision(c.p.Labels[appsv1.ControllerRevisionHashLabelKey], c.s.Facts.UpdateRevision)
}

func (c *podCase) terminating() {
	if c.p.DeletionTimestamp == nil {
		return
	}
	fin := strings.Join(c.p.Finalizers, ", ")
	left := c.p.DeletionTimestamp.Sub(c.now)
	switch {
	case fin != "":
		c.add("P01", verdict.Blocker, c.p.DeletionTimestamp.Time, "whoever set the finalizers must remove them",
			"the Pod is being deleted and waits for its finalizers: "+fin+c.hookOf(c.p.Finalizers), "metadata.finalizers", fin)
	case left > 0:
		c.add("P01", verdict.Cause, time.Time{}, "", fmt.Sprintf("the Pod is being deleted; %s of its grace period left", ago(left)))
	default:
		c.add("P01", verdict.Blocker, c.p.DeletionTimestamp.Time, "kubectl get node "+c.p.Spec.NodeName,
			fmt.Sprintf("the Pod is being deleted and its grace period ended %s ago; the kubelet has not confirmed", ago(-left)),
			"spec.nodeName", c.p.Spec.NodeName)
	}
}

// hookOf names the lifecycle hook that some finalizer belongs to.
func (c *podCase) hookOf(finalizers []string) string {
	if c.lifecycle == nil {
		return ""
	}
	for _, h := range []struct {
		name string
		hook *v1beta1.LifecycleHook
	}{{"preDelete", c.lifecycle.PreDelete}, {"inPlaceUpdate", c.lifecycle.InPlaceUpdate}, {"preNormal", c.lifecycle.PreNormal}} {
		if h.hook == nil {
			continue
		}
		for _, f := range h.hook.FinalizersHandler {
			if slices.Contains(finalizers, f) {
				return fmt.Sprintf(" (%s belongs to lifecycle hook %s)", f, h.name)
			}
		}
	}
	return ""
}

func (c *podCase) oldRevision() {
	if c.s.Facts.UpdateRevision == "" || !Active(c.p) || c.atUpdate() {
		return
	}
	at := c.p.Labels[appsv1.ControllerRevisionHashLabelKey]
	evidence := []string{"controller-revision-hash", at, "status.updateRevision", c.s.Facts.UpdateRevision}
	plan := PlanOf(c.s, c.now)
	hold, held := plan.Held[c.p.Name]
	switch i := slices.Index(plan.Next, c.p.Name); {
	case held:
		evidence = append(evidence, "held", hold.Why)
		c.add("P02", holdSeverity(hold.Why), time.Time{}, holdNext(hold.Why, c.s.Facts.Object),
			"not at the update revision: "+hold.Detail, evidence...)
	case i >= 0:
		c.add("P02", verdict.Note, time.Time{}, "", fmt.Sprintf("not at the update revision: it is number %d of the next batch", i+1), evidence...)
	default:
		c.add("P02", verdict.Note, time.Time{}, "", "not at the update revision yet", evidence...)
	}
}

// holdSeverity: what a person decided is a cause; what nothing but a change ends blocks.
func holdSeverity(why string) verdict.Severity {
	switch why {
	case "InPlaceOnly", "InPlaceUpdateHook", "PreDeleteHook", "ClaimShapeDiffers", "ClaimNotExpandable":
		return verdict.Blocker
	case "Partition", "Selector", "ScaleFirst", "ManageFirst", "Refreshing", "GracePeriod", "OrderedReady", "MinReadySeconds",
		"Terminating", "BurstReplicas", "CreateBurst", "Surging", "ClaimOwners":
		return verdict.Note
	}
	return verdict.Cause
}

func holdNext(why, object string) string {
	switch why {
	case "Paused":
		return "rollout resume " + object
	case "Partition":
		return "rollout partition " + object + " 0"
	case "OnDelete":
		return "delete the Pod to update it"
	case "InPlaceOnly":
		return "rollout preview " + object
	case "MaxUnavailable", "MaxSurge", "OrderedReady", "Unavailable":
		return "why " + object
	case "Selector":
		return "label the node so that spec.updateStrategy.rollingUpdate.selector matches it, or change the selector"
	case "ClaimShapeDiffers", "ClaimNotExpandable":
		return "kubectl get persistentvolumeclaims"
	}
	return ""
}

func (c *podCase) hooks() {
	state := v1beta1.LifecycleState(c.p.Labels[v1beta1.LifecycleStateLabel])
	since := stateTime(c.p)
	hook := func(pick func(*v1beta1.Lifecycle) *v1beta1.LifecycleHook) *v1beta1.LifecycleHook {
		if c.lifecycle == nil {
			return nil
		}
		return pick(c.lifecycle)
	}
	switch state {
	case v1beta1.LifecyclePreparingUpdate:
		present, _ := handlers(hook(func(l *v1beta1.Lifecycle) *v1beta1.LifecycleHook { return l.InPlaceUpdate }), c.p)
		c.hookFinding("P03", since, present, "the update waits until its hook is removed from the Pod", "the hook is gone; the controller updates the Pod next")
	case v1beta1.LifecycleUpdated:
		_, missing := handlers(hook(func(l *v1beta1.Lifecycle) *v1beta1.LifecycleHook { return l.InPlaceUpdate }), c.p)
		c.hookFinding("P04", since, missing, "updated, and waits until its hook is put back", "updated; the controller sets it to Normal next")
	case v1beta1.LifecyclePreparingDelete:
		present, _ := handlers(hook(func(l *v1beta1.Lifecycle) *v1beta1.LifecycleHook { return l.PreDelete }), c.p)
		c.hookFinding("P05", since, present, "the deletion waits until its hook is removed from the Pod", "the hook is gone; the controller deletes the Pod next")
	case v1beta1.LifecyclePreparingNormal:
		_, missing := handlers(hook(func(l *v1beta1.Lifecycle) *v1beta1.LifecycleHook { return l.PreNormal }), c.p)
		c.hookFinding("P06", since, missing, "does not count as available until its hook is on the Pod", "the controller sets it to Normal once it has a node")
	}
}

func (c *podCase) hookFinding(code string, since time.Time, handlers []string, waits, passes string) {
	if len(handlers) == 0 {
		c.add(code, verdict.Note, since, "", passes, v1beta1.LifecycleStateLabel, c.p.Labels[v1beta1.LifecycleStateLabel])
		return
	}
	next := "the operator behind the hook must remove " + strings.Join(handlers, ", ")
	if code == "P04" || code == "P06" {
		next = "the operator behind the hook must add " + strings.Join(handlers, ", ")
	}
	c.add(code, verdict.Blocker, since, next, waits+": "+strings.Join(handlers, ", "),
		v1beta1.LifecycleStateLabel, c.p.Labels[v1beta1.LifecycleStateLabel])
}

// handlers splits the handlers of a hook into those on the Pod and those that are not.
func handlers(hook *v1beta1.LifecycleHook, p *corev1.Pod) (present, missing []string) {
	if hook == nil {
		return nil, nil
	}
	for _, k := range slices.Sorted(maps.Keys(hook.LabelsHandler)) {
		text := "label " + k + "=" + hook.LabelsHandler[k]
		if v, ok := p.Labels[k]; ok && v == hook.LabelsHandler[k] {
			present = append(present, text)
		} else {
			missing = append(missing, text)
		}
	}
	for _, f := range hook.FinalizersHandler {
		if slices.Contains(p.Finalizers, f) {
			present = append(present, "finalizer "+f)
		} else {
			missing = append(missing, "finalizer "+f)
		}
	}
	return present, missing
}

func (c *podCase) specifiedDelete() {
	if _, ok := c.p.Labels[v1beta1.SpecifiedDeleteLabel]; !ok || c.p.DeletionTimestamp != nil {
		return
	}
	detail := "it is deleted as soon as maxUnavailable allows"
	if h, ok := PlanOf(c.s, c.now).Held[c.p.Name]; ok && h.Why != "SpecifiedDelete" {
		detail = h.Detail
	}
	c.add("P21", verdict.Cause, time.Time{}, "", "marked to be deleted and replaced: "+detail,
		v1beta1.SpecifiedDeleteLabel, c.p.Labels[v1beta1.SpecifiedDeleteLabel])
}

func (c *podCase) unscheduled() {
	cond := condition(c.p, corev1.PodScheduled)
	if cond == nil || cond.Status != corev1.ConditionFalse {
		return
	}
	c.add("P22", verdict.Blocker, cond.LastTransitionTime.Time, "kubectl describe pod "+c.p.Name+" -n "+c.p.Namespace,
		"no node takes the Pod: "+cond.Message, "PodScheduled", cond.Reason)
}

func (c *podCase) nodeDown() {
	node := c.s.Nodes[c.p.Spec.NodeName]
	if node == nil {
		return
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionTrue {
			c.add("P23", verdict.Blocker, cond.LastTransitionTime.Time, "kubectl describe node "+node.Name,
				fmt.Sprintf("node %s is not Ready: %s", node.Name, cond.Message), "Ready", string(cond.Status))
		}
	}
}

func (c *podCase) readinessGates() {
	for _, g := range c.p.Spec.ReadinessGates {
		if g.ConditionType == v1beta1.KruisePodReady {
			continue // P16
		}
		cond := condition(c.p, g.ConditionType)
		switch {
		case cond == nil && c.p.Spec.NodeName != "" && Active(c.p):
			next := "status"
			c.add("P15", verdict.Cause, time.Time{}, next, fmt.Sprintf("readiness gate %s has no condition yet: its controller never set it", g.ConditionType),
				string(g.ConditionType), "absent")
		case cond != nil && cond.Status != corev1.ConditionTrue:
			c.add("P15", verdict.Note, cond.LastTransitionTime.Time, "", fmt.Sprintf("readiness gate %s is %s%s", g.ConditionType, cond.Status, inParens(cond.Reason)),
				string(g.ConditionType), string(cond.Status))
		}
	}
}

func (c *podCase) kruisePodReady() {
	cond := condition(c.p, v1beta1.KruisePodReady)
	if cond == nil || cond.Status == corev1.ConditionTrue {
		return
	}
	holders := podready.Holders(c.p)
	if len(holders) == 0 {
		c.add("P16", verdict.Cause, cond.LastTransitionTime.Time, "", "readiness gate KruisePodReady is False and nobody holds it", "KruisePodReady", cond.Message)
	}
	for _, h := range holders {
		who := h.UserAgent + " " + h.Key
		if h.UserAgent == "Lifecycle" {
			who = "lifecycle hook " + h.Key + " (markPodNotReady)"
		}
		c.add("P16", verdict.Cause, cond.LastTransitionTime.Time, "", "kept not ready by "+who, "userAgent", h.UserAgent, "key", h.Key)
	}
}

// recreating: requests restart containers of the Pod, one after the other.
func (c *podCase) recreating() {
	for i, name := range restart.Active(c.p, c.s.Requests) {
		at := slices.IndexFunc(c.s.Requests, func(r v1beta1.ContainerRecreateRequest) bool { return r.Name == name })
		crr := &c.s.Requests[at]
		st := restart.Of(crr, c.p)
		text := "request " + name + " restarts containers: " + st.Message
		if i > 0 {
			text = "request " + name + " waits for those before it"
		}
		if d := crr.Spec.ActiveDeadlineSeconds; d != nil {
			left := crr.CreationTimestamp.Add(time.Duration(*d) * time.Second).Sub(c.now)
			text += fmt.Sprintf("; %s until its deadline", ago(max(0, left)))
		}
		c.add("P20", verdict.Cause, crr.CreationTimestamp.Time, "why containerrecreaterequest/"+name, text, "request", name, "phase", string(crr.Status.Phase))
	}
}

func (c *podCase) protection() {
	if v := c.p.Labels[v1beta1.DeleteProtectionLabel]; v != "" {
		c.add("P25", verdict.Note, time.Time{}, "", "protected from deletion ("+v+")", v1beta1.DeleteProtectionLabel, v)
	}
}

func inParens(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// ago prints a duration as its largest unit or two.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d/time.Minute), int(d%time.Minute/time.Second))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d/time.Hour), int(d%time.Hour/time.Minute))
	}
	return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
}

// waitCode maps the engine's wait codes to finding codes.
var waitCode = map[string]string{
	inplace.WaitGracePeriod: "P07", inplace.WaitKubelet: "P08", inplace.WaitImage: "P08", inplace.WaitStatus: "P08",
	inplace.WaitRuntimeMeta: "P10", inplace.WaitEnv: "P11", inplace.WaitContainersReady: "P12", inplace.WaitNextBatch: "P12",
	inplace.WaitResize: "P14", inplace.WaitResizeDeferred: "P14", inplace.WaitResizeFeasible: "P14",
}

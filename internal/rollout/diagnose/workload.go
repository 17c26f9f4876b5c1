// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Codes of workload findings (cli.md 6.2) and the words behind them.
var workloadNames = map[string]string{
	"W01": "NotObserved", "W02": "Paused", "W03": "Partition", "W04": "MaxUnavailable", "W05": "ScaleLimited",
	"W07": "InPlaceOnlyImpossible", "W08": "ProgressDeadlineExceeded", "W09": "PartitionHoldsRollback",
	"W10": "PreparingDelete", "W11": "PreDownload", "W12": "AdmissionDenied", "W13": "FailedCondition",
	"W14": "MaxUnavailableZero", "W15": "WebhookDown", "W16": "ForeignDriver", "W17": "OrderedBrokenPod", "W18": "Ordinals",
	"W19": "Claims", "W20": "Nodes", "W22": "StatusLags", "W23": "PodFailing",
}

// recent is how old an event may be to count as the present state.
const recent = 10 * time.Minute

// workloadCase is one workload under examination.
type workloadCase struct {
	s        Snapshot
	now      time.Time
	plan     Plan
	result   verdict.Result
	findings []verdict.Finding
}

// Workload says what keeps the workload from being up to date and available.
func Workload(s Snapshot, now time.Time) Report {
	s = Planned(s, now)
	s.Facts.Blockers = Blockers(s, now)
	c := &workloadCase{s: s, now: now, plan: PlanOf(s, now), result: verdict.Of(s.Facts)}
	for _, rule := range []func(){
		c.notObserved, c.paused, c.partition, c.maxUnavailable, c.scaleLimited, c.deadline, c.held,
		c.preparingDelete, c.preDownload, c.conditions, c.foreign, c.failingPods, c.ordinals, c.missing, c.nodes, c.lags,
	} {
		rule()
	}
	c.findings = append(c.findings, s.Facts.Blockers...)
	r := Report{Object: s.Facts.Object, Findings: sorted(c.findings)}
	r.Headline = c.headline()
	return r
}

func (c *workloadCase) headline() string {
	live := c.s.Workload.Live
	where := live.GetNamespace() + "/" + live.GetName()
	if c.result.Verdict == verdict.Complete {
		return "nothing blocks " + where + ": " + c.result.Message
	}
	return fmt.Sprintf("%s is %s: %s", where, c.result.Verdict, c.result.Message)
}

func (c *workloadCase) add(code string, sev verdict.Severity, since time.Time, next, message string, evidence ...string) {
	c.findings = append(c.findings, finding(c.s, code, sev, since, next, message, evidence...))
}

func finding(s Snapshot, code string, sev verdict.Severity, since time.Time, next, message string, evidence ...string) verdict.Finding {
	f := verdict.Finding{
		Code: code, Name: workloadNames[code], Severity: sev, Object: s.Facts.Object,
		Message: message, Evidence: map[string]string{}, Next: next,
	}
	if !since.IsZero() {
		f.Since = &since
	}
	for i := 0; i+1 < len(evidence); i += 2 {
		f.Evidence[evidence[i]] = evidence[i+1]
	}
	return f
}

// Blockers are the findings that no waiting ends: they turn Progressing into Blocked.
func Blockers(s Snapshot, now time.Time) []verdict.Finding {
	var list []verdict.Finding
	plan := PlanOf(s, now)
	list = append(list, claims(s, plan)...)
	list = append(list, brokenInOrder(s, now)...)
	if policy := inPlaceOnly(plan); len(policy) > 0 {
		first := policy[0]
		var paths []string
		for _, r := range first.Reasons {
			paths = append(paths, r.Path)
		}
		list = append(list, finding(s, "W07", verdict.Blocker, time.Time{}, "rollout undo "+s.Facts.Object,
			fmt.Sprintf("recreation, which podUpdatePolicy InPlaceOnly forbids, is needed by %s: %s", pods(len(policy)), strings.Join(paths, ", ")),
			"podUpdatePolicy", "InPlaceOnly", "fields", strings.Join(paths, ", ")))
	}
	if e, ok := denied(s, now); ok && s.Facts.Total < s.Facts.Desired {
		code, next := "W12", ""
		if strings.Contains(e.Message, "failed calling webhook") {
			code, next = "W15", "status"
		}
		list = append(list, finding(s, code, verdict.Blocker, When(e), next,
			"pods cannot be created: "+firstLine(e.Message), "event", e.Reason, "count", fmt.Sprint(max(1, e.Count))))
	}
	return list
}

// denied returns the last event about a refused creation, unless one succeeded since.
func denied(s Snapshot, now time.Time) (corev1.Event, bool) {
	for _, e := range slices.Backward(s.eventsOf(s.Workload.Kind.Kind, s.Workload.Live.GetName())) {
		if now.Sub(When(e)) > recent {
			break
		}
		switch e.Reason {
		case "FailedCreate":
			return e, true
		case "SuccessfulCreate":
			return corev1.Event{}, false
		}
	}
	return corev1.Event{}, false
}

func (c *workloadCase) notObserved() {
	if c.result.Verdict != verdict.NotObserved {
		return
	}
	message := c.result.Message
	evidence := []string{"metadata.generation", fmt.Sprint(c.s.Facts.Generation), "status.observedGeneration", fmt.Sprint(c.s.Facts.ObservedGeneration)}
	if m := c.s.Manager; m != nil {
		message += fmt.Sprintf("; %d of %d manager pods are ready", m.Ready, m.Total)
		if m.Holder != "" {
			message += fmt.Sprintf(", the leader is %s, which renewed its lease %s ago", m.Holder, ago(c.now.Sub(m.Renewed)))
		}
	}
	c.add("W01", verdict.Blocker, time.Time{}, "status", message, evidence...)
}

func (c *workloadCase) paused() {
	if c.s.Facts.Paused && c.s.Facts.Updated < c.s.Facts.Desired {
		c.add("W02", verdict.Cause, time.Time{}, "rollout resume "+c.s.Facts.Object,
			"paused: no pod is updated until it is resumed", c.s.Workload.At.Paused.String(), "true")
	}
}

func (c *workloadCase) partition() {
	f := c.s.Facts
	if f.Partition.Keep == 0 || !f.UnderWay() {
		return
	}
	c.add("W03", verdict.Note, time.Time{}, "rollout partition "+f.Object+" 0",
		fmt.Sprintf("%s keeps %d of %d pods at the current revision", f.Partition.By(), f.Partition.Keep, f.Desired),
		c.s.Workload.At.Partition.String(), f.Partition.Raw)
}

// maxUnavailable lists the Pods that use up what the update may take down.
func (c *workloadCase) maxUnavailable() {
	held := 0
	for _, h := range c.plan.Held {
		if h.Why == "MaxUnavailable" {
			held++
		}
	}
	if held == 0 {
		return
	}
	var down []string
	for _, p := range c.s.Pods {
		if Available(p, 0, c.now) {
			continue
		}
		text := p.Name
		if f, ok := Pod(c.s, p, c.now).First(); ok {
			text += " (" + f.Code + " " + f.Name + ")"
		}
		down = append(down, text)
	}
	if len(down) == 0 {
		return
	}
	c.add("W04", verdict.Cause, time.Time{}, "why pod/"+strings.Fields(down[0])[0],
		fmt.Sprintf("maxUnavailable %s = %d is used up; %s waiting; unavailable: %s", c.s.Facts.MaxUnavailableRaw, c.s.Facts.MaxUnavailable, pods(held), strings.Join(down, ", ")),
		c.s.Workload.At.MaxUnavailable.String(), c.s.Facts.MaxUnavailableRaw)
}

func (c *workloadCase) scaleLimited() {
	if l := c.plan.CreateLimit; l != nil {
		c.add("W05", verdict.Cause, time.Time{}, "", fmt.Sprintf("scaleStrategy.maxUnavailable %d is used up: no pod is created until others are available", *l),
			"spec.scaleStrategy.maxUnavailable", fmt.Sprint(*l))
	}
}

func (c *workloadCase) deadline() {
	if d := c.s.Facts.Deadline; d != nil && d.Exceeded {
		c.add("W08", verdict.Blocker, d.Since, "rollout undo "+c.s.Facts.Object, d.Message, d.Field, fmt.Sprint(d.Seconds))
	}
}

// held passes on what the verdict itself found: a held rollback, no budget at all.
func (c *workloadCase) held() {
	code := map[string]string{verdict.ReasonPartitionHoldsRollback: "W09", verdict.ReasonMaxUnavailableZero: "W14"}[c.result.Reason]
	if code == "" || len(c.result.Blockers) == 0 {
		return
	}
	f := c.result.Blockers[0]
	f.Code, f.Name = code, workloadNames[code]
	c.findings = append(c.findings, f)
}

func (c *workloadCase) preparingDelete() {
	var names []string
	for _, p := range c.s.Pods {
		if p.Labels[v1beta1.LifecycleStateLabel] == string(v1beta1.LifecyclePreparingDelete) {
			names = append(names, p.Name)
		}
	}
	if len(names) > 0 {
		c.add("W10", verdict.Cause, time.Time{}, "why pod/"+names[0],
			fmt.Sprintf("in PreparingDelete, waiting for the hook: %s of %s: %s", pods(len(names)), pods(len(c.s.Pods)), strings.Join(names, ", ")))
	}
}

func (c *workloadCase) preDownload() {
	for i := range c.s.Jobs {
		j := &c.s.Jobs[i]
		if j.Status.CompletionTime != nil {
			continue
		}
		c.add("W11", verdict.Note, j.CreationTimestamp.Time, "image status "+j.Name,
			fmt.Sprintf("image %s is being pulled beforehand: %d of %d nodes done", j.Spec.Image, j.Status.Succeeded, j.Status.Desired), "job", j.Name)
	}
}

func (c *workloadCase) conditions() {
	for _, cond := range c.s.Workload.Conditions() {
		if !strings.HasPrefix(cond.Type, "Failed") || cond.Status != metav1.ConditionTrue {
			continue
		}
		c.add("W13", verdict.Note, cond.LastTransitionTime.Time, "",
			fmt.Sprintf("condition %s, may be old (OpenKruise never clears it): %s", cond.Type, firstLine(cond.Message)), cond.Type, "True")
	}
}

func (c *workloadCase) foreign() {
	o := adapter.Owners(c.s.Workload.Live, false)
	if o.Refusal != "" {
		c.add("W16", verdict.Note, time.Time{}, "", o.Refusal)
	}
	for _, n := range o.Notes {
		c.add("W16", verdict.Note, time.Time{}, "", n)
	}
}

// failingPods names update-revision Pods that cannot start, each once.
func (c *workloadCase) failingPods() {
	var lines []string
	first := ""
	for _, p := range c.s.Pods {
		if !Failing(p, c.now) {
			continue
		}
		if first == "" {
			first = p.Name
		}
		if f, ok := Pod(c.s, p, c.now).First(); ok {
			lines = append(lines, p.Name+": "+f.Message)
		}
	}
	if len(lines) == 0 {
		return
	}
	message := fmt.Sprintf("%s that cannot run; %s", pods(len(lines)), lines[0])
	c.add("W23", verdict.Blocker, time.Time{}, "why pod/"+first, message, "pods", fmt.Sprint(len(lines)))
}

// lags notices that the status speaks of other Pods than there are.
func (c *workloadCase) lags() {
	if c.s.Pods == nil || c.result.Verdict == verdict.NotObserved {
		return
	}
	if n := len(c.s.Pods); n != c.s.Facts.Total {
		c.add("W22", verdict.Note, time.Time{}, "", fmt.Sprintf("the status counts %d pods, and there are %d: the controller is behind", c.s.Facts.Total, n),
			"status.replicas", fmt.Sprint(c.s.Facts.Total))
	}
}

// pods is a number of Pods in words.
func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

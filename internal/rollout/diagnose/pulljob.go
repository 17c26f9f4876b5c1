// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/nodestate"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Codes of findings about image jobs (cli.md 6.4) and the words behind them.
var pullNames = map[string]string{
	"I01": "NotBegun", "I02": "DeadlineExceeded", "I03": "PullFailed", "I04": "NoNodeAgent", "I05": "NoNodeImage", "I06": "NodeDown",
	"I07": "SecretMissing", "I08": "ParallelismZero", "I09": "Queued", "I10": "AgentSilent", "I11": "NothingSelected", "I12": "Pulling",
}

// PullSnapshot is what was read of one image job.
type PullSnapshot struct {
	// Object is TYPE/NAME, Where namespace/name.
	Object, Where string
	Status        pull.Status
	// Wanted are the nodes that the job names or whose Pods it selects; nil when it selects
	// by labels or all.
	Wanted []string
	// Known are the nodes that have a NodeImage; nil when NodeImages cannot be read.
	Known map[string]bool
	// Nodes by name; nil when they cannot be read.
	Nodes map[string]*corev1.Node
	// Agents are the nodes with a node agent; nil when that is not known.
	Agents map[string]bool
	// MissingSecrets are pull secrets that do not exist.
	MissingSecrets []string
	// GateOff: the manager runs without ImagePullJobGate.
	GateOff bool
}

// begunAfter is how long a controller may take to look at a new job; silentAfter how long a
// node agent may take to answer.
const (
	begunAfter  = 15 * time.Second
	silentAfter = 30 * time.Second
)

// PullJob says what keeps an image job from being done.
func PullJob(s PullSnapshot, now time.Time) Report {
	c := &pullCase{s: s, now: now}
	for _, rule := range []func(){c.begun, c.deadline, c.failed, c.absent, c.waiting, c.secrets, c.queued, c.nothing, c.pulling} {
		rule()
	}
	r := Report{Object: s.Object, Findings: sorted(c.findings)}
	switch {
	case s.Status.Verdict == pull.Succeeded:
		r.Headline = "nothing blocks " + s.Where + ": " + s.Status.Message
	default:
		r.Headline = fmt.Sprintf("%s is %s: %s", s.Where, s.Status.Verdict, s.Status.Message)
	}
	return r
}

type pullCase struct {
	s        PullSnapshot
	now      time.Time
	findings []verdict.Finding
}

func (c *pullCase) active() bool { return c.s.Status.Verdict == pull.Active }

func (c *pullCase) add(code string, sev verdict.Severity, since time.Time, next, message string, evidence ...string) {
	c.findings = append(c.findings, jobFinding(pullNames, c.s.Object, code, sev, since, next, message, evidence...))
}

func jobFinding(names map[string]string, object, code string, sev verdict.Severity, since time.Time, next, message string, evidence ...string) verdict.Finding {
	f := verdict.Finding{Code: code, Name: names[code], Severity: sev, Object: object, Message: message, Evidence: map[string]string{}, Next: next, Since: timeOrNil(since)}
	for i := 0; i+1 < len(evidence); i += 2 {
		f.Evidence[evidence[i]] = evidence[i+1]
	}
	return f
}

func (c *pullCase) begun() {
	job := c.s.Status.Job
	if job.Status.StartTime != nil || !c.active() {
		return
	}
	created := job.CreationTimestamp.Time
	if c.s.GateOff {
		c.add("I01", verdict.Blocker, created, "feature-gates enable ImagePullJobGate", "feature gate ImagePullJobGate is off: no controller works on image jobs", "status.startTime", "absent")
		return
	}
	sev := verdict.Cause
	if c.now.Sub(created) > begunAfter {
		sev = verdict.Blocker
	}
	c.add("I01", sev, created, "status", "the controller has not begun with the job", "status.startTime", "absent")
}

func (c *pullCase) deadline() {
	job := c.s.Status.Job
	if job.Status.Message == pull.DeadlineMessage {
		at := time.Time{}
		if job.Status.CompletionTime != nil {
			at = job.Status.CompletionTime.Time
		}
		c.add("I02", verdict.Blocker, at, "image retry "+job.Name, fmt.Sprintf("the deadline ended the job with %d of %d nodes done", job.Status.Succeeded, job.Status.Desired),
			"spec.completionPolicy.activeDeadlineSeconds", fmt.Sprint(deref(job.Spec.CompletionPolicy.ActiveDeadlineSeconds)))
	}
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// failed groups the nodes that failed by what they say.
func (c *pullCase) failed() {
	by := map[string][]string{}
	for _, r := range c.s.Status.Rows {
		if r.Failed() {
			by[r.Message] = append(by[r.Message], r.Node)
		}
	}
	for _, message := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), cmp.Compare(a, b)) }) {
		c.add("I03", verdict.Blocker, time.Time{}, "image retry "+c.s.Status.Job.Name,
			fmt.Sprintf("%s failed (%s): %s", nodes(len(by[message])), enumerate.Some(by[message], shownNames), message), "nodes", enumerate.Some(by[message], shownNames))
	}
}

// absent are nodes that the job wants and that have no NodeImage.
func (c *pullCase) absent() {
	if c.s.Known == nil || !c.active() {
		return
	}
	var without []string
	for _, n := range c.s.Wanted {
		if !c.s.Known[n] {
			without = append(without, n)
		}
	}
	if len(without) > 0 {
		c.add("I05", verdict.Blocker, time.Time{}, "kubectl get nodes", fmt.Sprintf("%s without NodeImage, which the job leaves out: %s", nodes(len(without)), enumerate.Some(without, shownNames)), "nodes", enumerate.Some(without, shownNames))
	}
}

// waiting are nodes that have the task and do not answer.
func (c *pullCase) waiting() {
	var agentless, down, silent []string
	since := time.Time{}
	for _, r := range c.s.Status.Rows {
		if r.Done() || r.Phase == pull.PhaseQueued {
			continue
		}
		switch {
		case c.s.Agents != nil && !c.s.Agents[r.Node]:
			agentless = append(agentless, r.Node)
		case c.s.Nodes[r.Node] != nil && !nodestate.Ready(c.s.Nodes[r.Node]):
			down = append(down, r.Node)
		case r.Phase == "Waiting" && r.Took(c.now) > silentAfter:
			silent = append(silent, r.Node)
			if since.IsZero() || r.Started.Before(since) {
				since = r.Started
			}
		}
	}
	if len(agentless) > 0 {
		c.add("I04", verdict.Blocker, time.Time{}, "status", fmt.Sprintf("%s without node agent, so nobody pulls there: %s", nodes(len(agentless)), enumerate.Some(agentless, shownNames)), "nodes", enumerate.Some(agentless, shownNames))
	}
	if len(down) > 0 {
		c.add("I06", verdict.Blocker, time.Time{}, "kubectl describe node "+down[0], fmt.Sprintf("%s not Ready: %s", nodes(len(down)), enumerate.Some(down, shownNames)), "nodes", enumerate.Some(down, shownNames))
	}
	if len(silent) > 0 {
		c.add("I10", verdict.Cause, since, "kubectl logs -n kruise-system -l control-plane=daemon --tail 50",
			fmt.Sprintf("the agents of %s have not begun: %s; after 10 minutes they count as failed", nodes(len(silent)), enumerate.Some(silent, shownNames)), "nodes", enumerate.Some(silent, shownNames))
	}
}

func (c *pullCase) secrets() {
	for _, s := range c.s.MissingSecrets {
		c.add("I07", verdict.Cause, time.Time{}, "kubectl get secret "+s+" -n "+c.s.Status.Job.Namespace,
			fmt.Sprintf("pull secret %q does not exist: the job goes on without it", s), "spec.pullSecrets", strings.Join(c.s.Status.Job.Spec.PullSecrets, ", "))
	}
}

func (c *pullCase) queued() {
	st := c.s.Status
	if !c.active() || st.Job.Status.StartTime == nil {
		return
	}
	switch n := pull.Parallelism(st.Job); {
	case n == 0:
		c.add("I08", verdict.Blocker, time.Time{}, "", "parallelism is 0: no further node is given the task", "spec.parallelism", "0")
	case st.Queued > 0:
		c.add("I09", verdict.Note, time.Time{}, "", fmt.Sprintf("%s in line: parallelism %d lets so many pull at once", nodes(int(st.Queued)), n), "spec.parallelism", fmt.Sprint(n))
	}
}

func (c *pullCase) nothing() {
	s := c.s.Status.Job.Status
	if s.Desired == 0 && (s.StartTime != nil || s.CompletionTime != nil) {
		c.add("I11", verdict.Cause, time.Time{}, "image nodes", "the selection means no node", "status.desired", "0")
	}
}

func (c *pullCase) pulling() {
	n := 0
	for _, r := range c.s.Status.Rows {
		if r.Phase == "Pulling" {
			n++
		}
	}
	if n == 0 || !c.active() {
		return
	}
	e := pull.EstimateOf(c.s.Status, c.now)
	text := fmt.Sprintf("%s pulling, %d%% done", nodes(n), e.Percent)
	if e.Left > 0 {
		text += ", about " + ago(e.Left) + " left"
	}
	c.add("I12", verdict.Note, time.Time{}, "image status "+c.s.Status.Job.Name+" -w", text)
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

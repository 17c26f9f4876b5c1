// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/look"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// printLine prints how one object ended: the sentence on stdout, blockers and what to do
// on stderr.
func (o *statusOptions) printLine(e end, format out.Format) {
	if format.Name == "name" {
		fmt.Fprintln(o.f.Out, e.w.Object)
		return
	}
	style := o.f.OutStyle()
	fmt.Fprintf(o.f.Out, "%s: %s\n", e.w.Object, style.Paint(look.Of(e.r.Result.Verdict), o.sentence(e)))
	for _, p := range e.r.Pulls {
		if format.Name != "wide" && (p.Present == p.Nodes || e.code == out.CodeOK) {
			continue
		}
		state := out.Progressing
		switch {
		case p.Present == p.Nodes:
			state = out.OK
		case p.Failed > 0:
			state = out.Failed
		}
		fmt.Fprintf(o.f.Out, "  %s (job %s)\n", style.Paint(state, p.String()), p.Job)
	}
	blockers := e.r.Result.Blockers
	if e.timedOut {
		blockers = append(blockers, firstBlockers(e.r)...)
	}
	for i, b := range blockers {
		if i == 5 {
			fmt.Fprintf(o.f.ErrOut, "  and %d more\n", len(blockers)-5)
			break
		}
		fmt.Fprintf(o.f.ErrOut, "  %s %s: %s\n", b.Code, b.Object, b.Message)
		if b.Next != "" {
			fmt.Fprintf(o.f.ErrOut, "    next: %s\n", Next(o.f, b.Next))
		}
	}
	if next := o.next(e); next != "" && len(blockers) == 0 {
		fmt.Fprintf(o.f.ErrOut, "  next: %s\n", next)
	}
}

// firstBlockers are the Pods that are in the way, for a wait that timed out.
func firstBlockers(r view.Rollout) []verdict.Finding {
	var list []verdict.Finding
	for _, p := range r.Pods {
		if p.Why != "" && p.Group != view.GroupKept && p.Group != view.GroupUpdated {
			list = append(list, verdict.Finding{Code: p.Why, Severity: verdict.Blocker, Object: "pod/" + p.Name, Message: p.WhyText, Next: "why pod/" + p.Name})
		}
	}
	return list
}

// sentence holds the fragments that scripts match: "successfully rolled out", and
// "partition" with "updated".
func (o *statusOptions) sentence(e end) string {
	r, took := e.r.Result, ""
	if o.watch && !o.check && e.took >= time.Second {
		took = " in " + out.Age(e.took)
	}
	if e.timedOut {
		text := fmt.Sprintf("not finished after --timeout %s: %s", o.timeout, r.Message)
		if r.Message == "" {
			text = fmt.Sprintf("not finished after --timeout %s", o.timeout)
		}
		return text
	}
	switch r.Verdict {
	case verdict.Complete:
		return "successfully rolled out" + took + ": " + r.Message
	case verdict.PartitionReached:
		f := e.r.Facts
		at := f.UpdateRevision
		if f.RevisionNumber > 0 {
			at = strconv.FormatInt(f.RevisionNumber, 10)
		}
		return fmt.Sprintf("partition reached: %d of %d pods updated to revision %s%s (%d kept by %s)",
			f.Updated, f.Desired, at, took, f.Partition.Keep, f.Partition.By())
	case verdict.Paused:
		return r.Message
	case verdict.Manual:
		return "manual: " + r.Message
	case verdict.NotObserved, verdict.Progressing:
		return "progressing: " + r.Message
	}
	return lower(string(r.Verdict)) + ": " + r.Message
}

func lower(s string) string {
	b := []byte(s)
	if len(b) > 0 && b[0] >= 'A' && b[0] <= 'Z' {
		b[0] += 'a' - 'A'
	}
	return string(b)
}

func (o *statusOptions) next(e end) string {
	prog, obj := o.f.Name(), e.w.Short()
	switch v := e.r.Result.Verdict; {
	case e.timedOut:
		return prog + " why " + obj
	case v == verdict.Paused:
		return prog + " rollout resume " + obj
	case v == verdict.PartitionReached && o.full:
		return prog + " rollout partition " + obj + " 0"
	case v == verdict.NotObserved && (o.check || !o.watch):
		return prog + " status"
	}
	return ""
}

// Next puts the program's name in front of a next step that is one of its commands.
var Next = object.Next

func podColumns() []out.Column {
	return []out.Column{
		{Name: "POD"}, {Name: "NODE", Drop: 3}, {Name: "REVISION"}, {Name: "METHOD", Drop: 2}, {Name: "STATE"},
		{Name: "READY", Drop: 1}, {Name: "RESTARTS", Drop: 4}, {Name: "WHY"}, {Name: "AGE", Drop: 5},
	}
}

func podRow(p view.Pod, now time.Time, style out.Style) []string {
	state := out.OK
	switch {
	case p.Group == view.GroupFailing:
		state = out.Failed
	case !p.Ready:
		state = out.Progressing
	}
	rev := p.Hash
	if p.Number > 0 {
		rev = strconv.FormatInt(p.Number, 10)
	}
	return []string{
		p.Name, p.Node, rev, p.How, style.Paint(state, p.State), yesNo(p.Ready), strconv.Itoa(p.Restarts), p.Why, out.Age(now.Sub(p.Created)),
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

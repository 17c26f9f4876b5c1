// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// Actions implements view.Source.
func (l *Live) Actions(r view.Rollout) []view.Action {
	gone := ""
	if r.Result.Verdict == verdict.Gone {
		gone = "the object is gone"
	}
	actions := []view.Action{l.pause(r), l.full(r), l.undo(r), l.abort(r)}
	for i := range actions {
		if gone != "" {
			actions[i].Disabled = gone
		}
	}
	return actions
}

func (l *Live) pause(r view.Rollout) view.Action {
	a := view.Action{Name: "pause", Title: "pause: no further pod is updated", Command: l.command("rollout pause", r)}
	word := "paused"
	if r.Facts.Paused {
		a = view.Action{Name: "resume", Title: "resume the rollout", Command: l.command("rollout resume", r)}
		word = "resumed"
	}
	a.Do = l.do(apply.Pause(!r.Facts.Paused), nil, word, "already "+word)
	return a
}

func (l *Live) full(r view.Rollout) view.Action {
	a := view.Action{
		Name: "full", Title: "set partition " + orNone(r.Facts.Partition.Raw) + " to 0",
		Command: l.command("rollout partition", r) + " 0",
		Confirm: []string{fmt.Sprintf("%d more pods are updated", r.Facts.Partition.Keep)},
	}
	if r.Facts.Partition.Keep == 0 {
		a.Disabled = "the partition keeps no pod"
	}
	a.Do = l.do(apply.Partition(intstr.FromInt32(0)), nil, "partition set to 0", "unchanged")
	return a
}

func (l *Live) undo(r view.Rollout) view.Action {
	a := view.Action{Name: "undo", Command: l.command("rollout undo", r)}
	var to *view.Revision
	for i := range r.Revisions { // newest first
		rev := &r.Revisions[i]
		if !contains(rev.Roles, adapter.RoleLive) {
			to = rev
			break
		}
	}
	if to == nil {
		a.Title, a.Disabled = "undo", "no other revision is stored"
		return a
	}
	a.Title = fmt.Sprintf("undo to revision %d (%s)", to.Number, to.Name)
	a.Command += fmt.Sprintf(" --to-revision %d", to.Number)
	a.Confirm = []string{fmt.Sprintf("%d pods go to the template of revision %d", r.Facts.Desired-max(0, to.Pods), to.Number)}
	current := contains(to.Roles, adapter.RoleCurrent) || r.Facts.CurrentRevision == "" && to.Pods > 0
	if current && r.Facts.Partition.Raw != "" && r.Facts.Partition.Keep > 0 {
		a.Confirm = append(a.Confirm, "partition "+r.Facts.Partition.Raw+" is set to 0 with it")
	}
	name := to.Name
	a.Do = func(ctx context.Context) (string, error) {
		s, err := fetch.Snapshot(ctx, l.c, l.workload(), fetch.Want{Revisions: true})
		if err != nil {
			return "", err
		}
		rev, ok := adapter.FindRevision(s.Workload.Revisions(s.Stored, nil), name)
		if !ok {
			return "", fmt.Errorf("revision %s is not stored any more", name)
		}
		word := fmt.Sprintf("rolled back to revision %d", rev.Number)
		return l.do(apply.Undo(rev, apply.UndoOptions{}), apply.StoresTemplate(rev.Template), word, "unchanged")(ctx)
	}
	return a
}

func (l *Live) abort(r view.Rollout) view.Action {
	a := view.Action{Name: "abort", Title: "abort", Command: l.command("rollout abort", r)}
	if !r.Facts.UnderWay() || r.Current == nil || r.Update == nil {
		a.Disabled = "no rollout is under way"
		return a
	}
	a.Title = fmt.Sprintf("abort: back to revision %d (%s)", r.Current.Number, r.Current.Name)
	a.Confirm = []string{
		fmt.Sprintf("%d pods return to the template of revision %d", r.Facts.Updated, r.Current.Number),
		"partition goes to 0, and a pause ends",
	}
	a.Do = func(ctx context.Context) (string, error) {
		s, err := fetch.Snapshot(ctx, l.c, l.workload(), fetch.Want{Pods: true, Revisions: true})
		if err != nil {
			return "", err
		}
		to, err := apply.AbortTarget(s.Workload, s.Workload.Revisions(s.Stored, s.Pods))
		if err != nil {
			return "", err
		}
		if to.Name == "" {
			return "nothing to abort", nil
		}
		word := fmt.Sprintf("aborted: back to revision %d", to.Number)
		return l.do(apply.Abort(to), apply.StoresTemplate(to.Template), word, "unchanged")(ctx)
	}
	return a
}

func (l *Live) workload() adapter.Workload {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w
}

func (l *Live) do(change apply.Change, stored func(adapter.Workload) error, done, same string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		w := l.workload()
		out, err := apply.Patch(ctx, l.c, w, l.o.Write, change, stored)
		if err != nil {
			return "", err
		}
		l.Signal()
		if !out.Changed {
			return fmt.Sprintf("%s %s", w.Object, same), nil
		}
		return fmt.Sprintf("%s %s%s", w.Object, done, l.o.Write.DryRun.Suffix()), nil
	}
}

func (l *Live) command(verb string, r view.Rollout) string {
	return fmt.Sprintf("%s %s %s -n %s", l.o.Program, verb, r.Object.Typed, r.Object.Namespace)
}

func contains(list []string, word string) bool {
	for _, w := range list {
		if w == word {
			return true
		}
	}
	return false
}

func orNone(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

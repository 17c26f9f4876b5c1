// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/follow"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// end is how one followed object ended.
type end struct {
	w    adapter.Workload
	r    view.Rollout
	code int
	// timedOut: --timeout passed first.
	timedOut bool
	started  time.Time
	took     time.Duration
	// err is set when it could not be followed; then r may be empty.
	err error
}

// watcher follows one object for `rollout status`.
type watcher struct {
	o      *statusOptions
	w      adapter.Workload
	p      *out.Progress
	format out.Format
	many   bool

	first    string // the update revision at the start
	rows     map[string]view.Pod
	restarts map[string]int
	last     view.Rollout
	lastText string
	unseen   time.Time // since when the controller has not seen the spec
	hinted   bool
	pending  verdict.Verdict // a final verdict that has to hold a moment
	since    time.Time       // when pending was seen first
	lost     bool
}

// settle is how long a verdict that was not there before must hold: status and spec
// often change within the same second.
const settle = time.Second

// hintAfter is how long the controller may take to look at a new spec.
const hintAfter = 15 * time.Second

func (w *watcher) run(ctx context.Context) end {
	started := w.o.f.Clock.Now()
	e := w.follow(ctx)
	e.w, e.started, e.took = w.w, started, w.o.f.Clock.Since(started)
	return e
}

func (w *watcher) follow(ctx context.Context) end {
	c, err := w.o.f.WatchClient()
	if err != nil {
		return end{err: err, code: out.CodeError}
	}
	want := fetch.Want{Pods: true, Revisions: true, Events: true, Gates: true, Images: true}
	if !w.o.watch || w.o.check {
		return w.once(ctx, want)
	}
	live := follow.New(ctx, c, w.w, follow.Options{Context: w.o.f.ContextName(), Clock: w.o.f.Clock, Want: want, Program: w.o.f.Name()})
	defer live.Close()
	for {
		stop := w.watchLink(ctx, live)
		r, s, err := live.Step(ctx)
		stop()
		if err != nil {
			return w.ended(err)
		}
		firstLook := w.rows == nil
		w.judge(s, &r)
		code, ends := w.o.question().ExitCode(r.Result.Verdict)
		if !firstLook || !ends || w.format.Name == "jsonl" {
			w.show(r) // otherwise the final line says all of it
		}
		w.last = r
		if !ends {
			w.pending = ""
			w.hint(ctx, live, r)
			continue
		}
		now := w.o.f.Clock.Now()
		if firstLook || r.Result.Verdict == verdict.Gone || w.pending == r.Result.Verdict && now.Sub(w.since) >= settle {
			return end{r: r, code: code}
		}
		if w.pending != r.Result.Verdict {
			w.pending, w.since = r.Result.Verdict, now
			live.After(ctx, settle)
		}
	}
}

// once evaluates one read.
func (w *watcher) once(ctx context.Context, want fetch.Want) end {
	c, err := w.o.f.Client()
	if err != nil {
		return end{err: err, code: out.CodeError}
	}
	s, err := fetch.Snapshot(ctx, c, w.w, want)
	if err != nil {
		err = failure(w.o.f, "rollout status", w.w.Object, err, "")
		return end{err: err, code: out.ExitCode(err)}
	}
	r := view.Of(s, w.o.f.ContextName(), w.o.f.Clock.Now())
	w.judge(s, &r)
	hiddenNote(w.o.f, r.Hidden)
	code, _ := w.o.question().ExitCode(r.Result.Verdict)
	return end{r: r, code: code}
}

// ended turns the end of the wait by other causes into an end.
func (w *watcher) ended(err error) end {
	switch {
	case errors.Is(err, errTimeout):
		return end{r: w.last, code: out.CodeTimeout, timedOut: true}
	case errors.Is(err, io.EOF):
		return end{r: w.last, code: out.CodeGone}
	}
	var sig *out.Signal
	if errors.As(err, &sig) {
		return end{code: sig.Code, err: &out.Failure{
			Doing: doing("go on waiting for", w.w.Object), Cause: err, Code: sig.Code,
			Next: fmt.Sprintf("%s rollout status %s -n %s   # the rollout itself goes on", w.o.f.Name(), w.w.Short(), w.w.Live.GetNamespace()),
		}}
	}
	err = failure(w.o.f, "rollout status", w.w.Object, err, "")
	return end{err: err, code: out.ExitCode(err)}
}

// judge applies what only the caller of this wait asked for: revisions and --fail-on.
func (w *watcher) judge(s diagnose.Snapshot, r *view.Rollout) {
	if r.Result.Verdict == verdict.Gone {
		return
	}
	now := r.Facts.UpdateRevision
	observed := r.Facts.ObservedGeneration >= r.Facts.Generation
	if w.first == "" && observed {
		w.first = now
	}
	asked := w.o.revision
	switch {
	case asked != "" && observed && !w.isRevision(s, asked, now):
		r.Result = superseded(fmt.Sprintf("the update revision is %s, not %s", now, asked))
		return
	case w.first != "" && observed && now != w.first && w.o.strictRevision:
		r.Result = superseded(fmt.Sprintf("revision %s took over from %s", now, w.first))
		return
	case w.first != "" && observed && now != w.first:
		w.p.Note(w.prefix() + "the template changed; now following revision " + now)
		w.first = now
	}
	keys, _ := failKeys(w.o.failOn)
	if w.restarts == nil {
		w.restarts = map[string]int{}
	}
	for _, p := range s.Pods {
		if _, ok := w.restarts[string(p.UID)]; !ok {
			w.restarts[string(p.UID)] = diagnose.Restarts(p)
		}
	}
	faults := diagnose.Faults(s, diagnose.FaultOptions{Keys: keys, After: w.o.failAfter, Restarts: w.restarts}, w.o.f.Clock.Now())
	if len(faults) > 0 && !r.Result.Verdict.Final() {
		r.Result = verdict.Result{Verdict: verdict.Stalled, Reason: faults[0].Name, Message: faults[0].Message, Blockers: faults}
	}
	if !keys["blocked"] && r.Result.Verdict == verdict.Blocked {
		r.Result.Verdict = verdict.Progressing
	}
	if !keys["deadline"] && r.Result.Verdict == verdict.Stalled && r.Result.Reason == verdict.ReasonDeadline {
		r.Result.Verdict = verdict.Progressing
	}
}

func superseded(message string) verdict.Result {
	return verdict.Result{Verdict: verdict.Superseded, Reason: verdict.ReasonNewerRevision, Message: message, Blockers: []verdict.Finding{}}
}

func (w *watcher) isRevision(s diagnose.Snapshot, asked, name string) bool {
	if asked == name || revision.ShortHash(name) == asked {
		return true
	}
	r, ok := adapter.FindRevision(s.Workload.Revisions(s.Stored, nil), asked)
	return ok && r.Name == name
}

func (w *watcher) prefix() string {
	if w.many {
		return w.w.Short() + ": "
	}
	return ""
}

// show prints what changed.
func (w *watcher) show(r view.Rollout) {
	if w.format.Name == "jsonl" {
		w.event(r)
	}
	text := w.prefix() + progressText(w.w, r, w.rows == nil)
	if w.rows == nil && w.many {
		text = progressText(w.w, r, true) // it names the object
	}
	changed := changedPods(w.rows, r.Pods)
	if text != w.lastText && w.format.Name != "jsonl" {
		w.lastText = text
		w.p.Update(text)
	}
	if w.o.detail && len(changed) > 0 && w.format.People() {
		w.details(r)
	}
	w.rows = map[string]view.Pod{}
	for _, p := range r.Pods {
		w.rows[p.UID] = p
	}
}

// progressText is the line of the present state; the first one introduces the rollout.
func progressText(w adapter.Workload, r view.Rollout, introduce bool) string {
	f := r.Facts
	text := r.Result.Message
	if r.Result.Verdict == verdict.Progressing && r.Result.Reason == verdict.ReasonUpdating || r.Result.Reason == verdict.ReasonAvailability {
		text = fmt.Sprintf("%d of %d updated, %d available", f.Updated, f.Partition.Target, f.UpdatedAvailable)
		if f.Updated == f.UpdatedAvailable {
			text = fmt.Sprintf("%d of %d updated and available", f.Updated, f.Partition.Target)
		}
		for _, p := range r.Pulls {
			if p.Present < p.Nodes {
				text += ", " + p.String()
			}
		}
		if r.Remaining > 0 {
			text += ", about " + out.Age(r.Remaining) + " left"
		}
	}
	if !introduce {
		return text
	}
	head := w.Short()
	if f.RevisionNumber > 0 {
		head += fmt.Sprintf(" rev %d (%s)", f.RevisionNumber, f.UpdateRevision)
	}
	tail := ""
	if f.Partition.Keep > 0 && !r.Result.Verdict.Final() {
		tail += fmt.Sprintf(", %s keeps %d", f.Partition.By(), f.Partition.Keep)
	}
	if r.Result.Verdict == verdict.Progressing {
		tail += fmt.Sprintf(", maxUnavailable %s = %d", f.MaxUnavailableRaw, f.MaxUnavailable)
	}
	return head + ": " + text + tail
}

func changedPods(old map[string]view.Pod, pods []view.Pod) []string {
	var names []string
	for _, p := range pods {
		if p.Group == view.GroupMissing {
			continue
		}
		was, ok := old[p.UID]
		if !ok || was.State != p.State || was.Hash != p.Hash || was.Ready != p.Ready || was.Why != p.Why || was.Restarts != p.Restarts {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// event writes a RolloutEvent line.
func (w *watcher) event(r view.Rollout) {
	doc := out.Envelope("RolloutEvent", w.o.f.ContextName())
	doc["time"] = r.At.UTC().Format(time.RFC3339)
	doc["object"] = r.Object
	doc["verdict"] = r.Result.Verdict
	doc["reason"] = r.Result.Reason
	doc["message"] = r.Result.Message
	doc["counts"] = countsOf(r.Facts)
	names := changedPods(w.rows, r.Pods)
	if names == nil {
		names = []string{}
	}
	doc["changedPods"] = names
	if w.rows != nil && len(names) == 0 && r.Result.Message == w.last.Result.Message {
		return
	}
	_ = w.format.Write(w.o.f.Out, doc)
}

func (w *watcher) details(r view.Rollout) {
	t := out.Table{Columns: podColumns(), Indent: "  "}
	for _, p := range r.Pods {
		if p.Group == view.GroupUpdated || p.Group == view.GroupKept {
			continue
		}
		t.Rows = append(t.Rows, podRow(p, r.At, w.o.f.ErrStyle()))
	}
	if len(t.Rows) == 0 {
		return
	}
	_ = t.Print(w.o.f.ErrOut, w.o.f.ErrStyle(), false)
}

// hint names the manager when it does not look at the new spec.
func (w *watcher) hint(ctx context.Context, live *follow.Live, r view.Rollout) {
	now := w.o.f.Clock.Now()
	if r.Result.Verdict != verdict.NotObserved {
		w.unseen, w.hinted = time.Time{}, false
		return
	}
	if w.unseen.IsZero() {
		w.unseen = now
		live.After(ctx, hintAfter)
	}
	if w.hinted || now.Sub(w.unseen) < hintAfter {
		return
	}
	w.hinted = true
	w.p.Note(w.prefix() + "the controller has not seen the change; is the manager running?  " + w.o.f.Name() + " status" + w.manager(ctx))
}

func (w *watcher) manager(ctx context.Context) string {
	c, err := w.o.f.Client()
	if err != nil {
		return ""
	}
	s, err := fetch.Snapshot(ctx, c, w.w, fetch.Want{Nodes: true})
	if err != nil || s.Manager == nil {
		return ""
	}
	text := fmt.Sprintf("\n  manager: %d of %d pods ready", s.Manager.Ready, s.Manager.Total)
	if s.Manager.Holder != "" {
		text += fmt.Sprintf(", leader %s, lease renewed %s ago", s.Manager.Holder, out.Age(w.o.f.Clock.Since(s.Manager.Renewed)))
	}
	return text
}

// watchLink prints one line when the server is lost and one when it is back. It runs
// beside a blocking Step; stop ends it.
func (w *watcher) watchLink(ctx context.Context, live *follow.Live) (stop func()) {
	if w.lost && live.Lost().IsZero() {
		w.lost = false
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := w.o.f.Clock.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				if w.lost && live.Lost().IsZero() {
					w.lost = false
					w.p.Note(w.prefix() + "the API server answers again")
				}
				return
			case <-t.C():
				if !w.lost && !live.Lost().IsZero() {
					w.lost = true
					w.p.Note(w.prefix() + "the API server does not answer; trying again")
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// document is the RolloutStatus of cli.md 3.4.
func (e end) document(f *factory.Factory) map[string]any {
	doc := out.Envelope("RolloutStatus", f.ContextName())
	doc["object"] = e.r.Object
	doc["verdict"], doc["reason"], doc["message"] = e.r.Result.Verdict, e.r.Result.Reason, e.r.Result.Message
	fa := e.r.Facts
	doc["revision"] = map[string]any{"update": fa.UpdateRevision, "current": fa.CurrentRevision, "number": fa.RevisionNumber}
	doc["partition"] = map[string]any{"raw": fa.Partition.Raw, "keep": fa.Partition.Keep, "target": fa.Partition.Target}
	doc["paused"] = fa.Paused
	doc["counts"] = countsOf(fa)
	doc["blockers"] = e.r.Result.Blockers
	if len(e.r.Pulls) > 0 {
		doc["images"] = e.r.Pulls
	}
	doc["exitCode"] = e.code
	doc["timedOut"] = e.timedOut
	doc["hidden"] = append([]string{}, e.r.Hidden...)
	doc["startedAt"] = e.started.UTC().Format(time.RFC3339)
	doc["durationSeconds"] = int(e.took / time.Second)
	return doc
}

func countsOf(f verdict.Facts) map[string]any {
	return map[string]any{
		"desired": f.Desired, "total": f.Total, "ready": f.Ready, "available": f.Available, "updated": f.Updated,
		"updatedReady": f.UpdatedReady, "updatedAvailable": f.UpdatedAvailable, "surplus": max(0, f.Total-f.Desired),
	}
}

func firstLineOf(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

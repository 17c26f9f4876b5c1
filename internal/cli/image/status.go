// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// statusOptions is one run of `image status`.
type statusOptions struct {
	f          *factory.Factory
	watch      bool
	plain      bool
	readOnly   bool
	exitOnDone bool
	failedOnly bool
	timeout    time.Duration
	screen     Screen
	output     out.Output
}

func newStatus(f *factory.Factory, screen Screen) *cobra.Command {
	o := &statusOptions{f: f, screen: screen}
	cmd := &cobra.Command{
		Use:   "status JOB...",
		Short: "Show an image pull node by node",
		Long: "Show an image pull node by node. With -w it is followed until it ends: on a\n" +
			"terminal on a full screen, elsewhere and with --plain line by line.",
		Example: "  kruisectl image status pull-web-1a2b3\n" +
			"  kruisectl image status pull-web-1a2b3 --failed-only -o json\n" +
			"  kruisectl image status pull-web-1a2b3 -w --timeout 10m",
		ValidArgsFunction: completeJobs(f),
		Annotations:       map[string]string{out.ExitCodes: "3 a node failed; with -w those of image wait", out.SeeAlso: "kruisectl image wait, kruisectl image retry, kruisectl why"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.watch, "watch", "w", false, "follow the job until it ends")
	fs.BoolVar(&o.plain, "plain", false, "print lines also on a terminal")
	fs.BoolVar(&o.readOnly, "read-only", false, "offer no actions on the screen")
	fs.BoolVar(&o.exitOnDone, "exit-on-done", false, "leave the screen when the job ends")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "watch", "plain", "read-only", "exit-on-done", "timeout")
	fs.BoolVar(&o.failedOnly, "failed-only", false, "show only nodes that failed")
	fs.BoolVar(&o.output.NoHeaders, "no-headers", false, "leave out the header line of the table")
	o.output.AddTo(fs, "wide", "name")
	return cmd
}

func (o *statusOptions) run(ctx context.Context, args []string) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.timeout < 0 {
		return out.Usagef("--timeout %s is negative", o.timeout)
	}
	jobs, err := resolve(ctx, o.f, "image status", false, args)
	if err != nil {
		return err
	}
	if o.watch {
		if o.onScreen(jobs, format) {
			return o.show(ctx, jobs[0])
		}
		w := waiting{wait: true, timeout: o.timeout}
		return w.all(ctx, o.f, jobs, format)
	}
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	now, err := newReader(o.f, c, jobs, nil).read(ctx)
	if err != nil {
		return err
	}
	var codes []int
	var ends []ended
	for _, r := range now {
		codes = append(codes, r.code())
		ends = append(ends, ended{reading: r, code: r.code()})
	}
	if err := o.print(ends, format); err != nil {
		return err
	}
	return out.Silent(out.Worst(codes))
}

func (o *statusOptions) onScreen(jobs []target.Object, format out.Format) bool {
	return o.screen != nil && !o.plain && len(jobs) == 1 && jobs[0].Kind == target.ImagePullJob && format.People() && o.f.OutTerminal().TTY
}

func (o *statusOptions) print(ends []ended, format out.Format) error {
	switch {
	case format.Name == "name":
		for _, e := range ends {
			fmt.Fprintln(o.f.Out, e.job)
		}
		return nil
	case !format.People():
		return documents(o.f, ends, format)
	}
	for i, e := range ends {
		if i > 0 {
			fmt.Fprintln(o.f.Out)
		}
		if err := o.sheet(e.reading, format.Name == "wide"); err != nil {
			return err
		}
	}
	return nil
}

// sheet prints one job for people.
func (o *statusOptions) sheet(r reading, wide bool) error {
	style := o.f.OutStyle()
	head := func(what string) {
		fmt.Fprintf(o.f.Out, "%s  %s  %s\n", r.job, what, style.Paint(stateOf(r.verdict()), string(r.verdict())))
	}
	if r.list != nil {
		head(out.Plural(len(r.list.Images), "image"))
		fmt.Fprintf(o.f.Out, "  %s\n", r.list.Message)
		for _, im := range r.list.Images {
			if im.Status == nil {
				fmt.Fprintf(o.f.Out, "\n%s: no job yet %s\n", im.Image, im.Message)
				continue
			}
			fmt.Fprintf(o.f.Out, "\nimage %s  job %s  %s\n", im.Image, im.Status.Job.Name, style.Paint(stateOf(im.Status.Verdict), string(im.Status.Verdict)))
			if err := o.nodes(*im.Status, wide); err != nil {
				return err
			}
		}
		return nil
	}
	head("image " + r.status.Job.Spec.Image)
	return o.nodes(*r.status, wide)
}

func (o *statusOptions) nodes(st pull.Status, wide bool) error {
	now := o.f.Clock.Now()
	style := o.f.OutStyle()
	e := pull.EstimateOf(st, now)
	line := fmt.Sprintf("  %s %d%%  %s", style.Bar(e.Percent, 100, 20), e.Percent, st.Message)
	if e.Left > 0 {
		line += "; about " + out.Age(e.Left) + " left"
	}
	if !st.Deadline.IsZero() && st.Verdict == pull.Active {
		line += "; deadline in " + out.Age(max(0, st.Deadline.Sub(now)))
	}
	fmt.Fprintln(o.f.Out, line)
	t := out.Table{NoHeaders: o.output.NoHeaders, Columns: []out.Column{
		{Name: "NODE"}, {Name: "PHASE"}, {Name: "TRIES", Drop: 2}, {Name: "TIME", Drop: 1},
		{Name: "VERSION", Wide: true}, {Name: "STARTED", Wide: true}, {Name: "DIGEST", Wide: true}, {Name: "MESSAGE"},
	}}
	for _, r := range st.Rows {
		if o.failedOnly && !r.Failed() {
			continue
		}
		t.Rows = append(t.Rows, nodeRow(r, now, style))
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t.Print(o.f.Out, style, wide)
}

func nodeRow(r pull.Row, now time.Time, style out.Style) []string {
	phase := r.Phase
	if r.Phase == string(v1beta1.ImagePhasePulling) {
		phase += fmt.Sprintf(" %d%%", r.Progress)
	}
	took, started := "-", "-"
	if !r.Started.IsZero() {
		took, started = out.Age(r.Took(now)), r.Started.UTC().Format(time.RFC3339)
	}
	tries := "-"
	if r.Tries > 0 {
		tries = strconv.FormatInt(r.Tries, 10)
	}
	return []string{r.Node, style.Paint(rowState(r), phase), tries, took, strconv.FormatInt(r.Version, 10), started, r.Digest, r.Message}
}

func rowState(r pull.Row) out.State {
	switch v1beta1.ImagePullPhase(r.Phase) {
	case v1beta1.ImagePhaseSucceeded:
		return out.OK
	case v1beta1.ImagePhaseFailed:
		return out.Failed
	case v1beta1.ImagePhasePulling:
		return out.Progressing
	}
	return out.Unknown
}

func stateOf(v pull.Verdict) out.State {
	switch v {
	case pull.Succeeded, pull.Enough:
		return out.OK
	case pull.Failed:
		return out.Failed
	}
	return out.Progressing
}

// report prints how waits ended: a sentence each on stdout and what failed on stderr, or
// one document.
func report(f *factory.Factory, ends []ended, format out.Format) error {
	if !format.People() && format.Name != "name" {
		return documents(f, ends, format)
	}
	for _, e := range ends {
		if format.Name == "name" {
			fmt.Fprintln(f.Out, e.job)
			continue
		}
		fmt.Fprintf(f.Out, "%s %s: %s\n", e.job, e.word(), e.message())
		failed := 0
		for _, st := range e.statuses() {
			for _, r := range st.Rows {
				if !r.Failed() {
					continue
				}
				if failed++; failed <= 10 {
					fmt.Fprintf(f.ErrOut, "  %s: %s\n", r.Node, r.Message)
				}
			}
		}
		if failed > 10 {
			fmt.Fprintf(f.ErrOut, "  and %d more\n", failed-10)
		}
		if next := nextOf(f, e, failed); next != "" {
			fmt.Fprintf(f.ErrOut, "  next: %s\n", next)
		}
	}
	return nil
}

func nextOf(f *factory.Factory, e ended, failed int) string {
	switch {
	case e.code == out.CodeFailed && failed > 0:
		return f.Name() + " image retry " + jobWord(e.job)
	case e.code == out.CodeFailed, e.code == out.CodeTimeout:
		return f.Name() + " why " + e.job.Short()
	}
	return ""
}

// documents writes one document: that of the job, or a List of several.
func documents(f *factory.Factory, ends []ended, format out.Format) error {
	docs := make([]any, 0, len(ends))
	for _, e := range ends {
		docs = append(docs, e.document(f))
	}
	if len(docs) == 1 {
		return format.Write(f.Out, docs[0])
	}
	list := out.Envelope("List", "")
	list["items"] = docs
	return format.Write(f.Out, list)
}

// document is the ImagePullStatus of cli.md 1.6.
func (e ended) document(f *factory.Factory) map[string]any {
	doc := out.Envelope("ImagePullStatus", f.ContextName())
	u := e.job.Live
	doc["object"] = map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "namespace": u.GetNamespace(), "name": u.GetName(), "uid": string(u.GetUID()),
	}
	doc["verdict"], doc["message"], doc["exitCode"] = e.verdict(), e.message(), e.code
	doc["gone"], doc["timedOut"] = e.gone, e.code == out.CodeTimeout
	now := f.Clock.Now()
	switch {
	case e.status != nil:
		doc["image"] = e.status.Job.Spec.Image
		for k, v := range facts(*e.status, now) {
			doc[k] = v
		}
	case e.list != nil:
		s := e.list.Job.Status
		doc["counts"] = map[string]any{"desired": s.Desired, "active": s.Active, "completed": s.Completed, "succeeded": s.Succeeded, "failed": len(s.FailedImageStatuses)}
		images := make([]any, 0, len(e.list.Images))
		for _, im := range e.list.Images {
			d := map[string]any{"image": im.Image, "job": "", "verdict": pull.Active, "message": im.Message}
			if im.Status != nil {
				d["job"], d["verdict"], d["message"] = im.Status.Job.Name, im.Status.Verdict, im.Status.Message
				for k, v := range facts(*im.Status, now) {
					d[k] = v
				}
			}
			images = append(images, d)
		}
		doc["images"] = images
	}
	return doc
}

// facts are counts, estimate and nodes of one job.
func facts(st pull.Status, now time.Time) map[string]any {
	s := st.Job.Status
	e := pull.EstimateOf(st, now)
	rows := st.Rows
	if rows == nil {
		rows = []pull.Row{}
	}
	seconds := func(d time.Duration) int { return int(d.Round(time.Second) / time.Second) }
	m := map[string]any{
		"counts":   map[string]any{"desired": s.Desired, "active": s.Active, "succeeded": s.Succeeded, "failed": s.Failed, "queued": st.Queued},
		"estimate": map[string]any{"percent": e.Percent, "medianSeconds": seconds(e.Median), "p95Seconds": seconds(e.P95), "leftSeconds": seconds(e.Left)},
		"nodes":    rows,
	}
	if !st.Deadline.IsZero() {
		m["deadline"] = st.Deadline.UTC().Format(time.RFC3339)
	}
	return m
}

// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// statusOptions is one run of `rollout status`.
type statusOptions struct {
	f              *factory.Factory
	watch          bool
	check          bool
	full           bool
	waitPaused     bool
	detail         bool
	timeout        time.Duration
	heartbeat      time.Duration
	revision       string
	strictRevision bool
	failOn         []string
	failAfter      time.Duration
	files          object.Files
	sel            object.Select
	until          []verdict.Verdict // of `rollout wait`
	output         out.Output
}

const statusCodes = "3 stalled or blocked · 4 --timeout passed · 5 paused, or partition reached with --full · " +
	"6 superseded or deleted · 7 still in progress (--check) · 8 several objects that ended differently"

// waitCodes are the codes of commands that wait with --wait.
const waitCodes = "with --wait those of rollout status: 3 stalled or blocked · 4 timeout · 5 paused · 6 superseded or deleted; 8 several objects, of which some failed"

func newStatus(f *factory.Factory) *cobra.Command {
	o := &statusOptions{f: f}
	cmd := &cobra.Command{
		Use:   "status (TYPE NAME | TYPE/NAME...)",
		Short: "Wait for a rollout to end and say how it ended",
		Long: "Wait for a rollout to end and say how it ended. The exit code is the verdict.\n" +
			"With -w=false it only looks once; with --check the code is the verdict then, too.",
		Example: "  kruisectl rollout status cloneset/web\n" +
			"  kruisectl rollout status cloneset/web --timeout 5m --fail-on=all\n" +
			"  kruisectl rollout status cloneset/web --check -o json",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations:       map[string]string{out.ExitCodes: statusCodes, out.SeeAlso: "kruisectl why, kruisectl rollout watch"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	o.addTo(fs)
	fs.BoolVarP(&o.watch, "watch", "w", true, "wait until the rollout ends")
	fs.BoolVar(&o.check, "check", false, "look once; the exit code is the verdict")
	out.Group(fs, "Wait", "watch", "check")
	o.files.AddTo(fs, "follow")
	o.sel.AddTo(fs, true)
	o.output.AddTo(fs, "wide", "name", "jsonl")
	return cmd
}

// addTo registers the flags that status and watch share.
func (o *statusOptions) addTo(fs *pflag.FlagSet) {
	fs.BoolVar(&o.full, "full", false, "a partition reached is not the end")
	fs.BoolVar(&o.waitPaused, "wait-paused", false, "go on waiting while it is paused")
	fs.BoolVarP(&o.detail, "detail", "d", false, "show the pods that are not done yet")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	fs.DurationVar(&o.heartbeat, "heartbeat", factory.Heartbeat, "longest silence in line mode")
	fs.StringVar(&o.revision, "revision", "", "end when another revision takes over: number, name or hash")
	fs.BoolVar(&o.strictRevision, "strict-revision", false, "end when the template changes meanwhile")
	fs.StringSliceVar(&o.failOn, "fail-on", []string{"deadline", "blocked"}, "what ends the wait as failed: deadline, blocked, config, image, crash, schedule, probe, inplace, all or none")
	fs.DurationVar(&o.failAfter, "fail-after", time.Minute, "how long image and schedule faults may last")
	out.Group(fs, "Target", "revision", "strict-revision")
	out.Group(fs, "Wait", "full", "wait-paused", "timeout", "heartbeat", "fail-on", "fail-after")
}

func (o *statusOptions) validate() error {
	if o.timeout < 0 {
		return out.Usagef("--timeout %s is negative", o.timeout)
	}
	_, err := failKeys(o.failOn)
	return out.Usage(err)
}

func (o *statusOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout status", false, adapter.Kinds())
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	names, err := object.Targets(ctx, o.f, v, args, &o.files, &o.sel)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	return o.follow(ctx, v, names, format)
}

// errTimeout is the cancellation cause of --timeout.
var errTimeout = errors.New("--timeout passed")

// follow resolves the names and follows all of them at once under one timeout.
func (o *statusOptions) follow(ctx context.Context, v target.Verb, names []target.Name, format out.Format) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	} else if o.watch && !o.check && o.f.CI() {
		o.f.Note("no --timeout is set: this may wait for ever")
	}
	var ws []adapter.Workload
	for _, n := range names {
		w, err := object.Workloads(ctx, o.f, v, []target.Name{n})
		if err != nil {
			return err
		}
		ws = append(ws, w...)
	}
	return o.followAll(ctx, ws, format)
}

// followAll follows objects that were read and prints how they ended.
func (o *statusOptions) followAll(ctx context.Context, ws []adapter.Workload, format out.Format) error {
	ends := make([]end, len(ws))
	done := make(chan int)
	p := o.f.Progress(o.detail || len(ws) > 1 || format.Machine(), o.heartbeat)
	for i, w := range ws {
		go func() {
			one := &watcher{o: o, w: w, p: p, format: format, many: len(ws) > 1}
			ends[i] = one.run(ctx)
			done <- i
		}()
	}
	tick := o.f.Clock.NewTicker(time.Second)
	defer tick.Stop()
	for left := len(ws); left > 0; {
		select {
		case <-done:
			left--
		case <-tick.C():
			p.Beat()
		}
	}
	p.Finish()
	return o.report(ends, format)
}

// report prints the ends and folds their exit codes.
func (o *statusOptions) report(ends []end, format out.Format) error {
	var codes []int
	var first error
	for _, e := range ends {
		codes = append(codes, e.code)
		if e.err != nil && first == nil {
			first = e.err
		}
	}
	if len(ends) == 1 && first != nil {
		return first
	}
	if err := o.print(ends, format); err != nil {
		return err
	}
	for _, e := range ends {
		if e.err != nil {
			out.Print(o.f.ErrOut, o.f.ErrStyle(), o.f.Name(), e.err)
		}
	}
	code := out.Worst(codes)
	if !o.watch && !o.check && code != out.CodeError {
		code = out.CodeOK // one look that is not an error is no failure, as in kubectl
	}
	var sig *out.Signal
	if errors.As(first, &sig) {
		return first
	}
	return out.Silent(code)
}

func (o *statusOptions) print(ends []end, format out.Format) error {
	if format.People() || format.Name == "name" {
		for _, e := range ends {
			if e.err == nil {
				o.printLine(e, format)
			}
		}
		if len(ends) > 1 && format.People() {
			return o.summary(ends)
		}
		return nil
	}
	docs := make([]any, 0, len(ends))
	for _, e := range ends {
		if e.err == nil {
			docs = append(docs, e.document(o.f))
		}
	}
	if format.Name == "jsonl" || len(docs) == 1 {
		for _, d := range docs {
			if err := format.Write(o.f.Out, d); err != nil {
				return err
			}
		}
		return nil
	}
	list := out.Envelope("List", "")
	list["items"] = docs
	return format.Write(o.f.Out, list)
}

// waitFlags are --wait and --timeout of commands that change a rollout.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

// AddTo registers the flags.
func (o *waitFlags) AddTo(fs *pflag.FlagSet) {
	fs.BoolVar(&o.wait, "wait", false, "wait for the rollout to end")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "wait", "timeout")
}

// follow waits for the rollout that a change of w started. A dry run has none.
func (o *waitFlags) follow(ctx context.Context, f *factory.Factory, w adapter.Workload, opts apply.Options) error {
	if !o.wait || opts.DryRun != apply.DryRunNone {
		return nil
	}
	s := &statusOptions{f: f, watch: true, timeout: o.timeout, heartbeat: factory.Heartbeat, failOn: []string{"deadline", "blocked"}, failAfter: time.Minute}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	return s.followAll(ctx, []adapter.Workload{w}, out.Format{})
}

// Wait follows w until its rollout ends, as `rollout status` does. It is for commands
// outside this package.
func Wait(ctx context.Context, f *factory.Factory, w adapter.Workload, timeout time.Duration) error {
	o := waitFlags{wait: true, timeout: timeout}
	return o.follow(ctx, f, w, apply.Options{DryRun: apply.DryRunNone})
}

func (o *statusOptions) question() verdict.Question {
	return verdict.Question{Full: o.full, WaitPaused: o.waitPaused, Check: o.check || !o.watch, For: o.until}
}

func (o *statusOptions) summary(ends []end) error {
	t := out.Table{Columns: []out.Column{{Name: "OBJECT"}, {Name: "VERDICT"}, {Name: "UPDATED"}, {Name: "AVAILABLE"}, {Name: "MESSAGE", Drop: 1}}}
	spread := len(ends) > 0 && slices.ContainsFunc(ends, func(e end) bool { return e.w.Live.GetNamespace() != ends[0].w.Live.GetNamespace() })
	if spread {
		t.Columns = append([]out.Column{{Name: "NAMESPACE"}}, t.Columns...)
	}
	add := func(e end, cells ...string) {
		if spread {
			cells = append([]string{e.w.Live.GetNamespace()}, cells...)
		}
		t.Rows = append(t.Rows, cells)
	}
	for _, e := range ends {
		if e.err != nil {
			add(e, e.w.String(), "-", "-", "-", firstLineOf(e.err))
			continue
		}
		f := e.r.Facts
		add(e, e.w.String(), string(e.r.Result.Verdict),
			fmt.Sprintf("%d/%d", f.Updated, f.Partition.Target), fmt.Sprint(f.UpdatedAvailable), e.r.Result.Message)
	}
	fmt.Fprintln(o.f.Out)
	return t.Print(o.f.Out, o.f.OutStyle(), false)
}

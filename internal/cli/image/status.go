// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/percent"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
)

// errTimeout is the cancellation cause of --timeout.
var errTimeout = errors.New("--timeout passed")

// pollInterval is the time between two looks at a job.
const pollInterval = time.Second

// statusOptions is one run of `image status`.
type statusOptions struct {
	f          *factory.Factory
	watch      bool
	failedOnly bool
	wait       waiting
	output     out.Output
}

func newStatus(f *factory.Factory) *cobra.Command {
	o := &statusOptions{f: f}
	cmd := &cobra.Command{
		Use:               "status JOB...",
		Short:             "Show an image pull node by node",
		Example:           "  kruisectl image status pull-web-1a2b3\n  kruisectl image status pull-web-1a2b3 --failed-only -o json",
		ValidArgsFunction: completeJobs(f),
		Annotations:       map[string]string{out.ExitCodes: "3 a node failed", out.SeeAlso: "kruisectl image wait"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.watch, "watch", "w", false, "wait until the job ends")
	fs.BoolVar(&o.failedOnly, "failed-only", false, "show only nodes that failed")
	fs.DurationVar(&o.wait.timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "watch", "timeout")
	fs.BoolVar(&o.output.NoHeaders, "no-headers", false, "leave out the header line of the table")
	o.output.AddTo(fs, "name")
	return cmd
}

func (o *statusOptions) run(ctx context.Context, args []string) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	jobs, err := resolve(ctx, o.f, "image status", args)
	if err != nil {
		return err
	}
	if o.watch {
		o.wait.wait = true
		return o.wait.all(ctx, o.f, jobs, format)
	}
	var codes []int
	for _, j := range jobs {
		st, err := statusOf(ctx, o.f, j, nil)
		if err != nil {
			return object.Failure(o.f, "image status", j.Object, err, "")
		}
		if err := o.print(j, st, format); err != nil {
			return err
		}
		code := out.CodeOK
		if st.Verdict == pull.Failed {
			code = out.CodeFailed
		}
		codes = append(codes, code)
	}
	return out.Silent(out.Worst(codes))
}

func (o *statusOptions) print(j job, st pull.Status, format out.Format) error {
	if o.failedOnly {
		var failed []pull.Row
		for _, r := range st.Rows {
			if r.Phase == string(v1beta1.ImagePhaseFailed) {
				failed = append(failed, r)
			}
		}
		st.Rows = failed
	}
	switch {
	case format.Name == "name":
		_, err := fmt.Fprintln(o.f.Out, j.Object)
		return err
	case !format.People():
		return format.Write(o.f.Out, document(o.f, j, st, 0))
	}
	style := o.f.OutStyle()
	fmt.Fprintf(o.f.Out, "%s  image %s  %s\n", j.Object, st.Job.Spec.Image, style.Paint(stateOf(st.Verdict), st.Message))
	if len(st.Rows) == 0 {
		return nil
	}
	now := o.f.Clock.Now()
	t := out.Table{NoHeaders: o.output.NoHeaders, Columns: []out.Column{{Name: "NODE"}, {Name: "PHASE"}, {Name: "TRIES", Drop: 2}, {Name: "TIME", Drop: 1}, {Name: "MESSAGE"}}}
	for _, r := range st.Rows {
		phase := r.Phase
		if r.Phase == string(v1beta1.ImagePhasePulling) && r.Progress > 0 {
			phase += fmt.Sprintf(" %d%%", r.Progress)
		}
		took := "-"
		if !r.Started.IsZero() {
			end := r.Ended
			if end.IsZero() {
				end = now
			}
			took = out.Age(end.Sub(r.Started))
		}
		t.Rows = append(t.Rows, []string{r.Node, style.Paint(rowState(r), phase), strconv.FormatInt(r.Tries, 10), took, r.Message})
	}
	return t.Print(o.f.Out, style, false)
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

func document(f *factory.Factory, j job, st pull.Status, code int) map[string]any {
	doc := out.Envelope("ImagePullStatus", f.ContextName())
	s := st.Job.Status
	doc["object"] = map[string]any{
		"apiVersion": j.Live.GetAPIVersion(), "kind": j.Live.GetKind(), "namespace": j.Live.GetNamespace(), "name": j.Live.GetName(), "uid": string(j.Live.GetUID()),
	}
	doc["image"], doc["verdict"], doc["message"], doc["exitCode"] = st.Job.Spec.Image, st.Verdict, st.Message, code
	doc["counts"] = map[string]any{"desired": s.Desired, "active": s.Active, "succeeded": s.Succeeded, "failed": s.Failed}
	rows := st.Rows
	if rows == nil {
		rows = []pull.Row{}
	}
	doc["nodes"] = rows
	return doc
}

// waiting are the flags of commands that wait for jobs.
type waiting struct {
	wait         bool
	timeout      time.Duration
	minSucceeded string
}

// AddTo registers --wait and what goes with it.
func (o *waiting) AddTo(fs *pflag.FlagSet) {
	fs.BoolVar(&o.wait, "wait", false, "wait for the job to end")
	o.addLimits(fs)
	out.Group(fs, "Wait", "wait")
}

func (o *waiting) addLimits(fs *pflag.FlagSet) {
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	fs.StringVar(&o.minSucceeded, "min-succeeded", "", "nodes that are enough: N or P%")
	out.Group(fs, "Wait", "timeout", "min-succeeded")
}

func (o *waiting) min() (*intstr.IntOrString, error) {
	if o.minSucceeded == "" {
		return nil, nil
	}
	v := intstr.Parse(o.minSucceeded)
	if err := percent.Check(v); err != nil {
		return nil, fmt.Errorf("--min-succeeded: %w", err)
	}
	return &v, nil
}

func newWait(f *factory.Factory) *cobra.Command {
	o := &waiting{wait: true}
	var output out.Output
	cmd := &cobra.Command{
		Use:               "wait JOB...",
		Short:             "Wait for image pulls to end",
		Example:           "  kruisectl image wait pull-web-1a2b3 --timeout 5m\n  kruisectl image wait pull-web-1a2b3 --min-succeeded 90%",
		ValidArgsFunction: completeJobs(f),
		Annotations:       map[string]string{out.ExitCodes: "3 a node failed · 4 --timeout passed · 6 the job was deleted · 8 several jobs that ended differently", out.SeeAlso: "kruisectl image status"},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if _, err := o.min(); err != nil {
				return out.Usage(err)
			}
			jobs, err := resolve(cmd.Context(), f, "image wait", args)
			if err != nil {
				return err
			}
			return o.all(cmd.Context(), f, jobs, format)
		},
	}
	o.addLimits(cmd.Flags())
	output.AddTo(cmd.Flags())
	return cmd
}

// all waits for every job under one timeout and prints how each ended.
func (o *waiting) all(ctx context.Context, f *factory.Factory, jobs []job, format out.Format) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	limit, err := o.min()
	if err != nil {
		return out.Usage(err)
	}
	p := f.Progress(len(jobs) > 1 || format.Machine(), factory.Heartbeat)
	var codes []int
	for _, j := range jobs {
		st, code, err := o.one(ctx, f, j, limit, p)
		if err != nil {
			return err
		}
		p.Finish()
		codes = append(codes, code)
		if !format.People() {
			if err := format.Write(f.Out, document(f, j, st, code)); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(f.Out, "%s %s: %s\n", j.Object, ending(code, st), st.Message)
		for _, r := range st.Rows {
			if r.Phase == string(v1beta1.ImagePhaseFailed) {
				fmt.Fprintf(f.ErrOut, "  %s: %s\n", r.Node, r.Message)
			}
		}
	}
	return out.Silent(out.Worst(codes))
}

func ending(code int, st pull.Status) string {
	switch {
	case code == out.CodeTimeout:
		return "not finished"
	case code == out.CodeGone:
		return "deleted"
	case st.Verdict == pull.Enough:
		return "pulled on enough nodes"
	case st.Verdict == pull.Succeeded:
		return "pulled"
	}
	return "failed"
}

// one waits for one job. A job that its TTL removed counts as it was seen last.
func (o *waiting) one(ctx context.Context, f *factory.Factory, j job, limit *intstr.IntOrString, p *out.Progress) (pull.Status, int, error) {
	last := pull.Of(j.hub, nil, limit)
	for {
		st, err := statusOf(ctx, f, j, limit)
		switch {
		case apierrors.IsNotFound(err) || errors.Is(err, errReplaced):
			if last.Verdict == pull.Active {
				return last, out.CodeGone, nil
			}
			return last, codeOf(last), nil
		case err != nil && ctx.Err() == nil:
			return last, 0, object.Failure(f, "image wait", j.Object, err, "")
		case err == nil:
			last = st
			p.Update(j.Short() + ": " + st.Message)
			if st.Verdict != pull.Active {
				return st, codeOf(st), nil
			}
		}
		p.Beat()
		if err := f.Sleep(ctx, pollInterval); err != nil {
			if errors.Is(err, errTimeout) {
				return last, out.CodeTimeout, nil
			}
			return last, 0, err
		}
	}
}

func codeOf(st pull.Status) int {
	if st.Verdict == pull.Failed {
		return out.CodeFailed
	}
	return out.CodeOK
}

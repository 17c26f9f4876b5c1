// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/percent"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/follow"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// errTimeout is the cancellation cause of --timeout.
var errTimeout = errors.New("--timeout passed")

// nodeLines is how many nodes a job may have for a line to be printed when each is done.
const nodeLines = 20

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
	if o.timeout < 0 {
		return nil, fmt.Errorf("--timeout %s is negative", o.timeout)
	}
	if o.minSucceeded == "" {
		return nil, nil
	}
	v := intstr.Parse(o.minSucceeded)
	if err := percent.Check(v); err != nil {
		return nil, fmt.Errorf("--min-succeeded: %w", err)
	}
	return &v, nil
}

const waitCodes = "3 a node failed · 4 --timeout passed · 6 the job was deleted · 8 several jobs that ended differently"

func newWait(f *factory.Factory) *cobra.Command {
	o := &waiting{wait: true}
	var output out.Output
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait for image pulls to end",
		Long: "Wait for image pulls to end. A job that its time to live removes meanwhile counts\n" +
			"as it was seen last. A job of --always-run has no end: it counts as done when\n" +
			"every node is.",
		Example:           "  kruisectl image wait pull-web-1a2b3 --timeout 5m\n  kruisectl image wait pull-web-1a2b3 --min-succeeded 90%",
		ValidArgsFunction: completeJobs(f),
		Annotations:       map[string]string{out.ExitCodes: waitCodes, out.SeeAlso: "kruisectl image status"},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if _, err := o.min(); err != nil {
				return out.Usage(err)
			}
			jobs, err := resolve(cmd.Context(), f, "image wait", false, args)
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

// ended is how the wait for one job ended.
type ended struct {
	reading
	code int
}

func (e ended) word() string {
	switch {
	case e.code == out.CodeTimeout:
		return "not finished"
	case e.code == out.CodeGone:
		return "deleted"
	case e.verdict() == pull.Enough:
		return "pulled on enough nodes"
	case e.verdict() == pull.Succeeded:
		return "pulled"
	}
	return "failed"
}

// all waits for every job under one timeout and prints how each ended.
func (o *waiting) all(ctx context.Context, f *factory.Factory, jobs []target.Object, format out.Format) error {
	ends, err := o.until(ctx, f, jobs, format.Machine())
	if err != nil {
		return err
	}
	if err := report(f, ends, format); err != nil {
		return err
	}
	var codes []int
	for _, e := range ends {
		codes = append(codes, e.code)
	}
	return out.Silent(out.Worst(codes))
}

// until waits until every job has ended, or --timeout has passed.
func (o *waiting) until(ctx context.Context, f *factory.Factory, jobs []target.Object, machine bool) ([]ended, error) {
	limit, err := o.min()
	if err != nil {
		return nil, out.Usage(err)
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	c, err := f.WatchClient()
	if err != nil {
		return nil, err
	}
	r := newReader(f, c, jobs, limit)
	waker := watchJobs(ctx, f, c, jobs)
	defer waker.Close()
	p := f.Progress(machine, factory.Heartbeat)
	defer p.Finish()
	lines := narrator{f: f, p: p, done: map[string]bool{}}
	for {
		if err := waker.Wait(ctx, p.Beat); err != nil {
			return o.interrupted(f, r, err)
		}
		var now []reading
		err := waker.Read(func() error { now, err = r.read(ctx); return err })
		switch {
		case err != nil && ctx.Err() != nil:
			return o.interrupted(f, r, context.Cause(ctx))
		case err != nil && !transient(err):
			return nil, err
		case err != nil:
			waker.After(ctx, time.Second)
			continue
		}
		lines.tell(now)
		if !slices.ContainsFunc(now, goesOn) {
			return endsOf(now), nil
		}
	}
}

// transient errors are those of the line, not answers of the server.
func transient(err error) bool { return !follow.Refused(err) && !out.IsUsage(err) }

// interrupted is the end of a wait whose context ended.
func (o *waiting) interrupted(f *factory.Factory, r *reader, cause error) ([]ended, error) {
	if errors.Is(cause, errTimeout) {
		return endsOf(r.last), nil
	}
	var sig *out.Signal
	if errors.As(cause, &sig) {
		return nil, &out.Failure{Doing: "go on waiting", Cause: cause, Code: sig.Code,
			Next: f.Name() + " image wait " + words(r.jobs) + "   # the pull itself goes on"}
	}
	return nil, cause
}

func words(jobs []target.Object) string {
	var list []string
	for _, j := range jobs {
		list = append(list, jobWord(j))
	}
	return strings.Join(list, " ")
}

func goesOn(r reading) bool { return !r.gone && r.verdict() == pull.Active }

func endsOf(now []reading) []ended {
	var ends []ended
	for _, r := range now {
		e := ended{reading: r, code: r.code()}
		if r.verdict() == pull.Active {
			e.code = out.CodeTimeout
			if r.gone {
				e.code = out.CodeGone
			}
		}
		ends = append(ends, e)
	}
	return ends
}

// watchJobs wakes at every change of the jobs, of the jobs of lists, and of the NodeImages.
func watchJobs(ctx context.Context, f *factory.Factory, c client.WithWatch, jobs []target.Object) *follow.Waker {
	w := follow.NewWaker(c, f.Clock)
	seen := map[string]bool{}
	watch := func(k *target.Kind, ns string) {
		if seen[k.Kind+"/"+ns] {
			return
		}
		seen[k.Kind+"/"+ns] = true
		m, err := fetch.Version(c.RESTMapper(), k)
		if err != nil {
			return // the first read says so
		}
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(m.GroupVersionKind)
		w.Watch(ctx, l, client.InNamespace(ns))
	}
	for _, j := range jobs {
		watch(target.ImagePullJob, j.Live.GetNamespace())
		if j.Kind == target.ImageListPullJob {
			watch(j.Kind, j.Live.GetNamespace())
		}
	}
	watch(target.NodeImage, "")
	return w
}

// narrator turns readings into progress: one block on a terminal, else a line when
// something worth it has changed.
type narrator struct {
	f    *factory.Factory
	p    *out.Progress
	done map[string]bool // by job and node
}

func (n *narrator) tell(now []reading) {
	var block []string
	for _, r := range now {
		head := jobWord(r.job) + ": " + r.message()
		var images []string
		for _, st := range r.statuses() {
			switch {
			case r.list != nil:
				images = append(images, "  "+st.Job.Spec.Image+": "+st.Message+n.pace(st))
			case st.Verdict == pull.Active:
				head += n.pace(st)
			}
			n.nodes(r, st)
		}
		block = append(append(block, head), images...)
	}
	n.p.Update(strings.Join(block, "\n"))
}

// pace is how far a job is, and on a terminal what is left. In lines it moves by tens: each
// per cent is not worth a line.
func (n *narrator) pace(st pull.Status) string {
	e := pull.EstimateOf(st, n.f.Clock.Now())
	if !n.f.ErrTerminal().TTY {
		return fmt.Sprintf(", %d%%", e.Percent-e.Percent%10)
	}
	text := fmt.Sprintf(", %d%%", e.Percent)
	if e.Left > 0 {
		text += ", about " + out.Age(e.Left) + " left"
	}
	return text
}

// nodes notes each node that is done, unless there are too many of them.
func (n *narrator) nodes(r reading, st pull.Status) {
	for _, row := range st.Rows {
		key := st.Job.Name + "/" + row.Node
		if !row.Done() || n.done[key] || st.Job.Status.Desired > nodeLines {
			continue
		}
		n.done[key] = true
		text := row.Node + ": " + row.Phase
		if t := row.Took(n.f.Clock.Now()); t > 0 {
			text += " in " + out.Age(t)
		}
		if row.Failed() && row.Message != "" {
			text += ": " + row.Message
		}
		if r.list != nil {
			text = st.Job.Spec.Image + " on " + text
		}
		n.p.Note(text)
	}
}

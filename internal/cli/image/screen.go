// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/follow"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// show opens the full screen for one job; the exit code is that of a wait.
func (o *statusOptions) show(ctx context.Context, job target.Object) error {
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	s := newSource(ctx, o.f, c, job)
	defer s.Close()
	last, err := o.screen(ctx, o.f, s, o.exitOnDone, o.readOnly)
	timedOut := errors.Is(context.Cause(ctx), errTimeout)
	if err != nil || !o.exitOnDone && !timedOut {
		return err
	}
	if last.Status.Job == nil {
		return out.Silent(out.CodeTimeout)
	}
	st := last.Status
	ends := endsOf([]reading{{job: job, status: &st, gone: last.Gone}})
	if ends[0].code == out.CodeTimeout && !timedOut {
		return nil // the user left before the job ended
	}
	if err := report(o.f, ends, out.Format{}); err != nil {
		return err
	}
	return out.Silent(ends[0].code)
}

// source is a view.PullSource over a real cluster.
type source struct {
	*follow.Waker
	f   *factory.Factory
	c   client.Client
	job target.Object
	r   *reader

	mu   sync.Mutex
	lost time.Time
	gone bool
}

var _ view.PullSource = (*source)(nil)

func newSource(ctx context.Context, f *factory.Factory, c client.WithWatch, job target.Object) *source {
	jobs := []target.Object{job}
	return &source{Waker: watchJobs(ctx, f, c, jobs), f: f, c: c, job: job, r: newReader(f, c, jobs, nil)}
}

// Lost implements view.PullSource.
func (s *source) Lost() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// Next implements view.PullSource.
func (s *source) Next(ctx context.Context) (view.Pull, error) {
	if s.gone {
		return view.Pull{}, io.EOF
	}
	for {
		if err := s.Wait(ctx, nil); err != nil {
			return view.Pull{}, err
		}
		var now []reading
		err := s.Read(func() (err error) { now, err = s.r.read(ctx); return err })
		switch {
		case err == nil:
			s.setLost(time.Time{})
			s.gone = now[0].gone
			return s.view(now[0]), nil
		case ctx.Err() != nil:
			return view.Pull{}, context.Cause(ctx)
		case !transient(err):
			return view.Pull{}, err
		}
		s.setLost(s.f.Clock.Now())
		s.After(ctx, time.Second)
	}
}

func (s *source) setLost(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.IsZero() || s.lost.IsZero() {
		s.lost = at
	}
}

func (s *source) view(r reading) view.Pull {
	u := r.job.Live
	p := view.Pull{Context: s.f.ContextName(), Typed: jobWord(r.job), Namespace: u.GetNamespace(), Name: u.GetName(), Gone: r.gone, At: s.f.Clock.Now()}
	if who := owner(u); who != "user" {
		p.Owner = who
	}
	if r.status != nil {
		p.Status, p.Image = *r.status, r.status.Job.Spec.Image
		p.Estimate = pull.EstimateOf(p.Status, p.At)
	}
	return p
}

// Actions implements view.PullSource.
func (s *source) Actions(p view.Pull) []view.Action {
	opts := apply.Options{DryRun: apply.DryRunNone, FieldManager: factory.FieldManager}
	failed := p.Status.FailedNodes()
	retry := view.Action{
		Name: "retry", Title: fmt.Sprintf("pull again on %s", out.Plural(len(failed), "node")),
		Command: s.f.Name() + " image retry " + p.Typed + " -n " + p.Namespace,
		Confirm: []string{"context    " + p.Context, "image      " + p.Image, "nodes      " + enumerate.Some(failed, 5)},
		Do: func(ctx context.Context) (string, error) {
			jobs, err := maker{f: s.f, c: s.c, opts: opts}.again(ctx, reading{job: s.job, status: &p.Status})
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%s created", jobs[0].Object), nil
		},
	}
	cancel := view.Action{
		Name: "cancel", Title: "cancel the job",
		Command: s.f.Name() + " image cancel " + p.Typed + " -n " + p.Namespace,
		Confirm: []string{"context    " + p.Context, "image      " + p.Image, "effect     " + p.Status.Message, "           nodes that have not begun do not pull"},
		Do: func(ctx context.Context) (string, error) {
			if err := object.Delete(ctx, s.c, s.job, opts); err != nil {
				return "", err
			}
			return fmt.Sprintf("%s cancelled", s.job), nil
		},
	}
	if len(failed) == 0 {
		retry.Disabled = "no node failed"
	}
	if p.Gone {
		retry.Disabled, cancel.Disabled = "the job is gone", "the job is gone"
	}
	if s.f.ProtectedContext != nil && s.f.ProtectedContext(p.Context) {
		retry.Disabled, cancel.Disabled = errProtected.Error(), errProtected.Error()
	}
	return []view.Action{retry, cancel}
}

var errProtected = errors.New("the context is protected: use the command")

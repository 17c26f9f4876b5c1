// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

func newRetry(f *factory.Factory) *cobra.Command {
	var (
		write  object.Write
		wait   waiting
		output out.Output
	)
	cmd := &cobra.Command{
		Use:   "retry JOB...",
		Short: "Pull again on the nodes where a job failed",
		Long: "Pull again on the nodes where a job failed: a new job, <name>-retry-<n>, with\n" +
			"those nodes and otherwise the same fields.",
		Example:           "  kruisectl image retry pull-web-1a2b3\n  kruisectl image retry pull-web-1a2b3 --wait --timeout 10m",
		ValidArgsFunction: completeJobs(f),
		Annotations:       map[string]string{out.ExitCodes: pullCodes, out.SeeAlso: "kruisectl image status"},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if _, err := wait.min(); err != nil {
				return out.Usage(err)
			}
			opts, err := write.Options(f)
			if err != nil {
				return err
			}
			return retry(cmd.Context(), f, args, opts, &wait, format)
		},
	}
	fs := cmd.Flags()
	write.AddTo(fs)
	wait.AddTo(fs)
	output.AddTo(fs, "name")
	return cmd
}

func retry(ctx context.Context, f *factory.Factory, args []string, opts apply.Options, wait *waiting, format out.Format) error {
	objects, err := resolve(ctx, f, "image retry", true, args)
	if err != nil {
		return err
	}
	c, err := f.WatchClient()
	if err != nil {
		return err
	}
	now, err := newReader(f, c, objects, nil).read(ctx)
	if err != nil {
		return err
	}
	m := maker{f: f, c: c, opts: opts}
	var jobs []made
	for _, r := range now {
		again, err := m.again(ctx, r)
		if err != nil {
			return object.Failure(f, "image retry", r.job, err, "image status "+jobWord(r.job))
		}
		jobs = append(jobs, again...)
	}
	return wait.after(ctx, m, jobs, format)
}

// again makes the jobs that pull again what failed in r: one, or one for each image of a
// list that failed somewhere.
func (m maker) again(ctx context.Context, r reading) ([]made, error) {
	m.doing = object.Phrase("image retry") + " " + r.job.Title()
	var jobs []made
	for _, st := range r.statuses() {
		failed := st.FailedNodes()
		if len(failed) == 0 {
			continue
		}
		var asked error
		next, err := pull.Retry(st.Job, failed, func(name string) bool {
			have := &v1beta1.ImagePullJob{}
			err := m.exists(ctx, st.Job.Namespace, name, have)
			if err != nil && !apierrors.IsNotFound(err) {
				asked = err
			}
			return err == nil
		})
		if err = errors.Join(err, asked); err != nil {
			return nil, err
		}
		j, err := m.job(ctx, next)
		if err != nil {
			return nil, err
		}
		m.f.Note("again on %s: %s", out.Plural(len(failed), "node"), enumerate.Some(failed, 5))
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%w: %s", pull.ErrNoneFailed, r.message())
	}
	return jobs, nil
}

func (m maker) exists(ctx context.Context, ns, name string, into *v1beta1.ImagePullJob) error {
	o, err := fetch.Object(ctx, m.c, target.Verb{Command: "image retry", Kinds: jobKinds}, target.Name{Kinds: []*target.Kind{target.ImagePullJob}, Name: name}, ns)
	if err == nil {
		into.Name = o.Live.GetName()
	}
	return err
}

func newCancel(f *factory.Factory) *cobra.Command {
	var (
		write  object.Write
		output out.Output
	)
	cmd := &cobra.Command{
		Use:   "cancel JOB...",
		Short: "End image jobs: nodes that have not begun do not pull",
		Long: "End image jobs by deleting them. Nodes that have not begun do not pull, what was\n" +
			"pulled stays. While nodes pull this asks first.",
		Example:           "  kruisectl image cancel pull-web-1a2b3\n  kruisectl image cancel pull-web-1a2b3 --yes",
		ValidArgsFunction: completeJobs(f),
		Annotations:       map[string]string{out.ExitCodes: "8 several jobs, of which some failed · 9 not confirmed", out.SeeAlso: "kruisectl image list"},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			opts, err := write.Options(f)
			if err != nil {
				return err
			}
			return cancel(cmd.Context(), f, args, opts, format)
		},
	}
	write.AddTo(cmd.Flags())
	output.AddTo(cmd.Flags(), "name")
	return cmd
}

func cancel(ctx context.Context, f *factory.Factory, args []string, opts apply.Options, format out.Format) error {
	objects, err := resolve(ctx, f, "image cancel", true, args)
	if err != nil {
		return err
	}
	c, err := f.WatchClient()
	if err != nil {
		return err
	}
	now, err := newReader(f, c, objects, nil).read(ctx)
	if err != nil {
		return err
	}
	if opts.DryRun == apply.DryRunNone {
		if err := confirmCancel(ctx, f, now); err != nil {
			return err
		}
	}
	return object.Fold(f, now, func(r reading) error {
		if err := object.Delete(ctx, c, r.job, opts); err != nil {
			return object.Failure(f, "image cancel", r.job, err, "")
		}
		return object.Done(f.Out, format, opts, r.job, "cancelled")
	})
}

// confirmCancel asks when nodes are pulling; a job that has ended is just removed.
func confirmCancel(ctx context.Context, f *factory.Factory, now []reading) error {
	active := 0
	for _, r := range now {
		for _, st := range r.statuses() {
			if st.Verdict == pull.Active {
				active += int(st.Job.Status.Active)
			}
		}
		if goesOn(r) {
			fmt.Fprintf(f.ErrOut, "  %s: %s\n", r.job.Title(), r.message())
		}
	}
	if active == 0 {
		return nil
	}
	return f.Confirm(ctx, "cancel "+enumerate.Some(strings.Fields(words(jobsOf(now))), 3), fmt.Sprintf("%s pulling. Cancel%s?", out.Plural(active, "node"), f.ContextWords()))
}

func jobsOf(now []reading) []target.Object {
	var list []target.Object
	for _, r := range now {
		list = append(list, r.job)
	}
	return list
}

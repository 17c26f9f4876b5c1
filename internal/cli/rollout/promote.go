// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// promoteOptions is one run of `rollout promote`.
type promoteOptions struct {
	f          *factory.Factory
	to         string
	full       bool
	skipChecks bool
	write      object.Write
	wait       waitFlags
	output     out.Output
}

func newPromote(f *factory.Factory) *cobra.Command {
	o := &promoteOptions{f: f}
	cmd := &cobra.Command{
		Use:   "promote TYPE/NAME (--to P%|N | --full)",
		Short: "Let a canary reach more pods, or all of them",
		Long: "Let a canary reach more pods, or all of them. It is refused while the present\n" +
			"step is not done or one of its pods fails.",
		Example: "  kruisectl rollout promote cloneset/web --to 50%\n" +
			"  kruisectl rollout promote asts/db --full --wait\n" +
			"  kruisectl rollout promote ads/agent --full --skip-checks",
		ValidArgsFunction: object.Complete(f, partitioned),
		Annotations:       map[string]string{out.ExitCodes: "3 the present step is not done, or with --wait the rollout failed; " + waitCodes, out.SeeAlso: "kruisectl rollout canary, kruisectl rollout abort"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.to, "to", "", "how many pods to update: P% or N")
	fs.BoolVar(&o.full, "full", false, "update all pods: partition 0 and no pause")
	fs.BoolVar(&o.skipChecks, "skip-checks", false, "go on although the present step is not done or fails")
	out.Group(fs, "Change", "to", "full")
	out.Group(fs, "Safety", "skip-checks")
	o.write.AddTo(fs)
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	cmd.MarkFlagsMutuallyExclusive("to", "full")
	return cmd
}

func (o *promoteOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout promote", true, partitioned)
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.to == "" && !o.full {
		return out.UsageNext(o.f.Name()+" rollout promote cloneset/NAME --to 50%\n"+o.f.Name()+" rollout promote cloneset/NAME --full",
			errors.New("say how far: --to P%|N or --full"))
	}
	if o.to != "" {
		if _, err := apply.Updated(o.to, 0); err != nil {
			return out.Usagef("--to %q is neither a number of pods nor a percentage up to 100%%", o.to)
		}
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	names, err := object.Names(o.f, v, args, nil)
	if err != nil {
		return err
	}
	return each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		return o.one(ctx, w, opts, format)
	})
}

func (o *promoteOptions) one(ctx context.Context, w adapter.Workload, opts apply.Options, format out.Format) error {
	if err := o.write.Guard(o.f, "rollout promote", w.Object, false); err != nil {
		return err
	}
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true, Events: true, Gates: true})
	if err != nil {
		return failure(o.f, "rollout promote", w.Object, err, "")
	}
	to := o.to
	if o.full {
		to = "100%"
	}
	partition, err := apply.PartitionFor(w, to, s.Facts.Desired)
	if err != nil {
		return out.Usage(err)
	}
	if done, err := o.nothing(ctx, w, s.Facts, partition); err != nil || done {
		if err != nil {
			return err
		}
		return object.Done(o.f.Out, format, opts, w.Object, "nothing to promote")
	}
	if !o.skipChecks {
		if err := o.check(w, s); err != nil {
			return err
		}
	}
	if o.full {
		// 0 is what everybody reads as "all", whatever the kind takes.
		res, err := apply.Patch(ctx, c, w, opts, apply.Advance(intstr.FromInt32(0)), nil)
		if err != nil {
			return failure(o.f, "rollout promote", w.Object, err, "")
		}
		if err := object.Done(o.f.Out, format, opts, res.After.Object, "promoted to all "+out.Plural(s.Facts.Desired, "pod")); err != nil {
			return err
		}
		if sel, _ := w.NodeSelector(); sel != nil {
			o.f.Note("only nodes matching %s will follow", sel)
		}
		return o.wait.follow(ctx, o.f, res.After, opts)
	}
	a := advance{f: o.f, verb: "rollout promote", done: "promoted", share: to, opts: opts, format: format, wait: &o.wait}
	return a.send(ctx, w)
}

// nothing reports that the workload is where it is asked to be. Going back is an error.
func (o *promoteOptions) nothing(ctx context.Context, w adapter.Workload, f verdict.Facts, partition intstr.IntOrString) (bool, error) {
	if o.full {
		return f.Partition.Raw == "" || f.Partition.Raw == "0" || f.Partition.Raw == "0%", nil
	}
	next := w
	next.Live = w.Live.DeepCopy()
	res, err := apply.Patch(ctx, nil, next, apply.Options{DryRun: apply.DryRunClient}, apply.Partition(partition), nil)
	if err != nil {
		return false, failure(o.f, "rollout promote", w.Object, err, "")
	}
	wanted, err := res.After.Wanted()
	if err != nil {
		return false, failure(o.f, "rollout promote", w.Object, err, "")
	}
	if wanted.Partition.Target < f.Partition.Target {
		return false, &out.Failure{Doing: doing("rollout promote", w.Object), Object: w.Short(),
			Cause: fmt.Errorf("that is %s, and the present step has %d", out.Plural(wanted.Partition.Target, "pod"), f.Partition.Target),
			Next:  o.f.Name() + " rollout abort " + w.Short()}
	}
	return wanted.Partition.Target == f.Partition.Target && !f.Paused, nil
}

// check refuses while the present step is not reached, or a Pod of it fails.
func (o *promoteOptions) check(w adapter.Workload, s diagnose.Snapshot) error {
	now := o.f.Clock.Now()
	s.Facts.Blockers = diagnose.Blockers(s, now)
	r := verdict.Of(s.Facts)
	if paused := r.Verdict == verdict.Paused; r.Verdict != verdict.PartitionReached && r.Verdict != verdict.Complete && !paused {
		return &out.Failure{Doing: doing("rollout promote", w.Object), Why: "the present step is not done", Cause: errors.New(r.Message),
			Next: o.f.Name() + " rollout status " + w.Short() + ", or add --skip-checks", Code: out.CodeFailed, Object: w.Short()}
	}
	for _, p := range s.Pods {
		if !revision.SameRevision(p.Labels["controller-revision-hash"], s.Facts.UpdateRevision) {
			continue
		}
		if f, ok := diagnose.Pod(s, p, now).First(); ok && (diagnose.Failing(p, now) || !diagnose.Available(p, time.Duration(0), now)) {
			return &out.Failure{Doing: doing("rollout promote", w.Object), Why: "an updated pod fails", Cause: fmt.Errorf("pod %s: %s", p.Name, f.Message),
				Next: o.f.Name() + " why pod/" + p.Name + ", or add --skip-checks", Code: out.CodeFailed, Object: w.Short()}
		}
	}
	return nil
}

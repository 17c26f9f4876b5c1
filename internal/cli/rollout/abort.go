// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
)

// abortOptions is one run of `rollout abort`.
type abortOptions struct {
	f         *factory.Factory
	pauseOnly bool
	write     object.Write
	wait      waitFlags
	output    out.Output
}

func newAbort(f *factory.Factory) *cobra.Command {
	o := &abortOptions{f: f}
	cmd := &cobra.Command{
		Use:   "abort TYPE/NAME",
		Short: "Return every pod to the current revision",
		Long: "Return every pod to the current revision: the old template, partition 0 and no\n" +
			"pause go out in one patch. rollout retry puts the new template on again.",
		Example: "  kruisectl rollout abort cloneset/web --yes --wait\n" +
			"  kruisectl rollout abort asts/db --dry-run=server\n" +
			"  kruisectl rollout abort ads/agent --pause-only",
		ValidArgsFunction: object.Complete(f, partitioned),
		Annotations: map[string]string{
			out.ExitCodes: waitCodes + " · 9 a confirmation is missing, nothing was changed",
			out.SeeAlso:   "kruisectl rollout retry, kruisectl rollout undo",
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.pauseOnly, "pause-only", false, "only stop where it is")
	out.Group(fs, "Change", "pause-only")
	o.write.AddTo(fs)
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	return cmd
}

func (o *abortOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout abort", true, partitioned)
	format, err := o.output.Format()
	if err != nil {
		return err
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
		if err := o.write.Guard(o.f, "rollout abort", w.Object, true); err != nil {
			return err
		}
		if o.pauseOnly {
			return o.pause(ctx, w, opts, format)
		}
		return o.one(ctx, w, opts, format)
	})
}

func (o *abortOptions) pause(ctx context.Context, w adapter.Workload, opts apply.Options, format out.Format) error {
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	res, err := apply.Patch(ctx, c, w, opts, apply.Pause(true), nil)
	if err != nil {
		return failure(o.f, "rollout abort", w.Object, err, "")
	}
	sentence := "paused"
	if !res.Changed {
		sentence = "already paused"
	}
	if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
		return err
	}
	o.f.Note("go back with %s rollout undo %s, or go on with %s rollout resume %s", o.f.Name(), w.Short(), o.f.Name(), w.Short())
	return nil
}

func (o *abortOptions) one(ctx context.Context, w adapter.Workload, opts apply.Options, format out.Format) error {
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true, Gates: true})
	if err != nil {
		return failure(o.f, "rollout abort", w.Object, err, "")
	}
	if len(s.Hidden) > 0 && (len(s.Stored) == 0 || s.Pods == nil) {
		return failure(o.f, "rollout abort", w.Object, fmt.Errorf("its revisions cannot be read: %s", s.Hidden[0]), "")
	}
	if s.Facts.ObservedGeneration < s.Facts.Generation {
		return failure(o.f, "rollout abort", w.Object, errors.New("its controller has not seen the last change yet, so the current revision is not known"), "rollout status "+w.Short())
	}
	to, err := apply.AbortTarget(w, w.Revisions(s.Stored, s.Pods))
	if err != nil {
		return failure(o.f, "rollout abort", w.Object, err, "rollout history "+w.Short())
	}
	if to.Name == "" {
		return object.Done(o.f.Out, format, opts, w.Object, "nothing to abort")
	}
	if text := effect(s, to); text != "" {
		o.f.Note("back to %s; %s", to.Title(), text)
	}
	if opts.DryRun == apply.DryRunNone {
		if err := o.f.Confirm(ctx, "abort "+w.Title(), fmt.Sprintf("Return %s to %s%s?", w.Title(), to.Title(), o.f.ContextWords())); err != nil {
			return err
		}
	}
	res, err := apply.Patch(ctx, c, w, opts, apply.Abort(to), apply.StoresTemplate(to.Template))
	if err != nil {
		return failure(o.f, "rollout abort", w.Object, err, "")
	}
	sentence := fmt.Sprintf("aborted: back to revision %d", to.Number)
	if !res.Changed {
		sentence = "nothing to abort"
	}
	if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
		return err
	}
	return o.wait.follow(ctx, o.f, res.After, opts)
}

// retryOptions is one run of `rollout retry`.
type retryOptions struct {
	f      *factory.Factory
	to     string
	write  object.Write
	wait   waitFlags
	output out.Output
}

func newRetry(f *factory.Factory) *cobra.Command {
	o := &retryOptions{f: f}
	cmd := &cobra.Command{
		Use:   "retry TYPE/NAME --to P%|N",
		Short: "Put the template that was aborted on again",
		Example: "  kruisectl rollout retry cloneset/web --to 10%\n" +
			"  kruisectl rollout retry asts/db --to 1 --wait",
		ValidArgsFunction: object.Complete(f, partitioned),
		Annotations:       map[string]string{out.ExitCodes: waitCodes, out.SeeAlso: "kruisectl rollout abort, kruisectl rollout promote"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.to, "to", "", "how many pods to update: P% or N")
	out.Group(fs, "Change", "to")
	o.write.AddTo(fs)
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	return cmd
}

func (o *retryOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout retry", true, partitioned)
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.to == "" {
		return out.UsageNext(o.f.Name()+" rollout retry cloneset/NAME --to 10%", errors.New("say how many pods get it: --to P%|N"))
	}
	if _, err := apply.Updated(o.to, 0); err != nil {
		return out.Usagef("--to %q is neither a number of pods nor a percentage up to 100%%", o.to)
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

func (o *retryOptions) one(ctx context.Context, w adapter.Workload, opts apply.Options, format out.Format) error {
	if err := o.write.Guard(o.f, "rollout retry", w.Object, true); err != nil {
		return err
	}
	name := w.Live.GetAnnotations()[apply.AbortedAnnotation]
	if name == "" {
		return failure(o.f, "rollout retry", w.Object, errors.New("no rollout of it was aborted"), "rollout history "+w.Short())
	}
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true})
	if err != nil {
		return failure(o.f, "rollout retry", w.Object, err, "")
	}
	to, ok := adapter.FindRevision(w.Revisions(s.Stored, s.Pods), name)
	if !ok {
		return noRevision(o.f, "rollout retry", w, w.Revisions(s.Stored, s.Pods), name)
	}
	partition, err := apply.PartitionFor(w, o.to, s.Facts.Desired)
	if err != nil {
		return out.Usage(err)
	}
	res, err := apply.Patch(ctx, c, w, opts, apply.Retry(to, partition), apply.StoresTemplate(to.Template))
	if err != nil {
		return failure(o.f, "rollout retry", w.Object, err, "")
	}
	after, err := res.After.Wanted()
	if err != nil {
		return failure(o.f, "rollout retry", w.Object, err, "")
	}
	sentence := fmt.Sprintf("retried: revision %d for %s, partition %s", to.Number, out.Plural(after.Partition.Target, "pod"), orZero(after.Partition.Raw))
	if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
		return err
	}
	return o.wait.follow(ctx, o.f, res.After, opts)
}

// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/image"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// canaryOptions is one run of `rollout canary`.
type canaryOptions struct {
	f      *factory.Factory
	images []string
	env    []string
	first  image.Before
	write  object.Write
	wait   waitFlags
	output out.Output
}

func newCanary(f *factory.Factory) *cobra.Command {
	o := &canaryOptions{f: f}
	cmd := &cobra.Command{
		Use:   "canary TYPE/NAME (P% | N)",
		Short: "Change the template for a share of the pods only",
		Long: "Change the template for a share of the pods only: new image or variable,\n" +
			"partition and an end of the pause go out in one patch. 0 changes the template\n" +
			"and moves no pod.",
		Example: "  kruisectl rollout canary cloneset/web 10% --image app=repo/web:2\n" +
			"  kruisectl rollout canary asts/db 1 --image app=repo/db:2 --wait\n" +
			"  kruisectl rollout canary cloneset/web 10% --image app=repo/web:2 --predownload\n" +
			"  kruisectl rollout canary ads/agent 5% --env MODE=fast --dry-run=server",
		ValidArgsFunction: object.Complete(f, partitioned),
		Annotations:       map[string]string{out.ExitCodes: waitCodes, out.SeeAlso: "kruisectl rollout promote, kruisectl rollout abort"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&o.images, "image", nil, "new image as CONTAINER=IMAGE (repeat)")
	fs.StringArrayVar(&o.env, "env", nil, "variable as NAME=VALUE, set in every container (repeat)")
	out.Group(fs, "Change", "image", "env")
	o.first.AddTo(fs)
	o.write.AddTo(fs)
	o.write.AddReason(fs)
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	return cmd
}

// shareOf splits "how many are to be updated" from the objects.
func shareOf(f *factory.Factory, command string, args []string) (objects []string, share string, err error) {
	if len(args) < 2 {
		return nil, "", out.UsageNext(f.Name()+" "+command+" cloneset/NAME 10%", errors.New("name an object and how many of its pods to update: P% or N"))
	}
	share = args[len(args)-1]
	if _, err := apply.Updated(share, 0); err != nil {
		return nil, "", out.Usagef("%q is neither a number of pods nor a percentage up to 100%%", share)
	}
	return args[:len(args)-1], share, nil
}

func (o *canaryOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout canary", true, partitioned)
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	objects, share, err := shareOf(o.f, "rollout canary", args)
	if err != nil {
		return err
	}
	images, err := apply.ParseImages(o.images)
	if err != nil {
		return out.Usage(err)
	}
	set, _, err := apply.ParseEnv(o.env)
	if err != nil {
		return out.Usage(err)
	}
	if err := o.first.Validate(); err != nil {
		return err
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	names, err := object.Names(o.f, v, objects, nil)
	if err != nil {
		return err
	}
	changes := []apply.Change{apply.SetImages(images, o.write.Reason), apply.Env{Set: set, Reason: o.write.Reason}.Change}
	return each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		if err := o.write.Guard(o.f, "rollout canary", w.Object, true); err != nil {
			return err
		}
		if err := o.first.Run(ctx, o.f, w, images, opts, o.wait.timeout); err != nil {
			return failure(o.f, "rollout canary", w.Object, err, "")
		}
		a := advance{f: o.f, verb: "rollout canary", done: "canary", share: share, changes: changes, opts: opts, format: format, wait: &o.wait}
		return a.send(ctx, w)
	})
}

// advance sets how many Pods are to be updated, with or without a new template.
type advance struct {
	f          *factory.Factory
	verb, done string
	share      string
	changes    []apply.Change
	opts       apply.Options
	format     out.Format
	wait       *waitFlags
}

func (a advance) send(ctx context.Context, w adapter.Workload) error {
	before, err := w.Facts()
	if err != nil {
		return failure(a.f, a.verb, w.Object, err, "")
	}
	if before.Manual {
		return failure(a.f, a.verb, w.Object, errors.New("its update strategy is OnDelete: a partition means nothing there"), "")
	}
	partition, err := apply.PartitionFor(w, a.share, before.Desired)
	if err != nil {
		return out.Usage(err)
	}
	c, err := a.f.WatchClient()
	if err != nil {
		return err
	}
	res, err := apply.Patch(ctx, c, w, a.opts, apply.Advance(partition, a.changes...), nil)
	if err != nil {
		return failure(a.f, a.verb, w.Object, err, "")
	}
	if !res.Changed {
		return object.Done(a.f.Out, a.format, a.opts, res.After.Object, "unchanged")
	}
	after, err := res.After.Wanted()
	if err != nil {
		return failure(a.f, a.verb, w.Object, err, "")
	}
	sentence := fmt.Sprintf("%s: %s of %s = %s (%s), partition %s", a.done, a.share, out.Plural(after.Desired, "pod"),
		out.Plural(after.Partition.Target, "pod"), percentOf(after), orZero(after.Partition.Raw))
	if err := object.Done(a.f.Out, a.format, a.opts, res.After.Object, sentence); err != nil {
		return err
	}
	if over := after.Updated - after.Partition.Target; over > 0 && before.UnderWay() && len(a.changes) == 0 {
		a.f.Note("%s more than that are updated already and stay so", out.Plural(over, "pod"))
	}
	if text := effectNow(ctx, a.f, w, apply.Advance(partition, a.changes...)); text != "" {
		a.f.Note("%s", text)
	}
	return a.wait.follow(ctx, a.f, res.After, a.opts)
}

// percentOf is the real share of the Pods that are to be updated.
func percentOf(f verdict.Facts) string {
	if f.Desired == 0 {
		return "0%"
	}
	return fmt.Sprintf("%d%%", 100*f.Partition.Target/f.Desired)
}

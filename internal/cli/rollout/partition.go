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
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// partitionOptions is one run of `rollout partition`.
type partitionOptions struct {
	f       *factory.Factory
	updated string
	write   object.Write
	wait    waitFlags
	output  out.Output
}

var partitioned = adapter.Having(func(f adapter.Fields) adapter.Path { return f.Partition })

func newPartition(f *factory.Factory) *cobra.Command {
	o := &partitionOptions{f: f}
	cmd := &cobra.Command{
		Use:   "partition TYPE/NAME (VALUE | --updated N|P%)",
		Short: "Set how many pods stay at the old revision",
		Long: "Set how many pods stay at the old revision: a number of pods, or a percentage\n" +
			"of the replicas. 0 updates all of them.",
		Example: "  kruisectl rollout partition cloneset/web 70%\n" +
			"  kruisectl rollout partition cloneset/web 0 --wait\n" +
			"  kruisectl rollout partition cloneset/web --updated 10%",
		ValidArgsFunction: object.Complete(f, partitioned),
		Annotations:       map[string]string{out.ExitCodes: waitCodes, out.SeeAlso: "kruisectl rollout status, kruisectl rollout preview"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	cmd.Flags().StringVar(&o.updated, "updated", "", "how many pods to update instead: N or P%")
	out.Group(cmd.Flags(), "Change", "updated")
	o.write.AddTo(cmd.Flags())
	o.wait.AddTo(cmd.Flags())
	o.output.AddTo(cmd.Flags(), "name")
	return cmd
}

// value is the last argument, unless --updated stands for it.
func (o *partitionOptions) split(args []string) (objects []string, value string, err error) {
	if o.updated != "" {
		return args, "", nil
	}
	if len(args) < 2 {
		return nil, "", out.UsageNext(o.f.Name()+" rollout partition cloneset/NAME 30%",
			errors.New("name an object and a value: how many pods stay at the old revision"))
	}
	return args[:len(args)-1], args[len(args)-1], nil
}

func (o *partitionOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout partition", true, partitioned)
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	args, text, err := o.split(args)
	if err != nil {
		return err
	}
	if err := o.check(text); err != nil {
		return out.Usage(err)
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
		return o.one(ctx, w, text, opts, format)
	})
}

// check finds what is wrong with the value on any cluster.
func (o *partitionOptions) check(text string) error {
	if o.updated != "" {
		_, err := apply.Updated(o.updated, 0)
		return err
	}
	_, err := apply.ParsePartition(text)
	return err
}

func (o *partitionOptions) one(ctx context.Context, w adapter.Workload, text string, opts apply.Options, format out.Format) error {
	before, err := w.Facts()
	if err != nil {
		return failure(o.f, "partition", w.Object, err, "")
	}
	var value intstr.IntOrString
	if o.updated != "" {
		value, err = apply.Updated(o.updated, before.Desired)
	} else {
		value, err = apply.ParsePartition(text)
	}
	if err != nil {
		return out.Usage(err)
	}
	if share := value; share.Type == intstr.String && !w.PercentPartition {
		if value, err = apply.Fixed(share, before.Desired); err != nil {
			return out.Usage(err)
		}
		o.f.Note("this kind takes a number of pods: %s of %d is %s now, and does not follow scaling", share.String(), before.Desired, value.String())
	}
	if err := o.write.Guard(o.f, "partition", w.Object, false); err != nil {
		return err
	}
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	res, err := apply.Patch(ctx, c, w, opts, apply.Partition(value), nil)
	if err != nil {
		return failure(o.f, "partition", w.Object, err, "")
	}
	if !res.Changed {
		return object.Done(o.f.Out, format, opts, res.After.Object, "unchanged")
	}
	// The status is of the old spec: compute from the new one.
	after, err := res.After.Wanted()
	if err != nil {
		return failure(o.f, "partition", w.Object, err, "")
	}
	sentence := fmt.Sprintf("partition %s %s %s: keeps %d of %d pods, %d to be updated (was %d)",
		orZero(before.Partition.Raw), "->", value.String(), after.Partition.Keep, after.Desired, after.Partition.Target, before.Partition.Target)
	if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
		return err
	}
	o.notes(ctx, res.After, value)
	return o.wait.follow(ctx, o.f, res.After, opts)
}

// notes says what the numbers mean for the Pods there are.
func (o *partitionOptions) notes(ctx context.Context, w adapter.Workload, value intstr.IntOrString) {
	facts, _ := w.Wanted()
	if value.Type == intstr.Int && int(value.IntVal) > facts.Desired {
		o.f.Note("%d is more than the %d replicas: no pod is updated", value.IntVal, facts.Desired)
	}
	c, err := o.f.Client()
	if err != nil {
		return
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true, Gates: true})
	if err != nil || !facts.UnderWay() {
		return
	}
	if over := facts.Updated - facts.Partition.Target; over > 0 && w.Kind != target.CloneSet {
		o.f.Note("%s stay updated: a higher partition takes none back", out.Plural(over, "updated pod"))
	} else if over > 0 && !s.Gates.Plan.PartitionRollback {
		o.f.Note("%s stay updated: feature gate CloneSetPartitionRollback, which would take them back, is off", out.Plural(over, "updated pod"))
	}
	if plan := diagnose.PlanOf(s, time.Time{}); len(plan.Next) > 0 {
		o.f.Note("next: %s", enumerate.Some(plan.Next, 5))
	}
}

// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
)

// pauseOptions is one run of `rollout pause` or `rollout resume`.
type pauseOptions struct {
	f      *factory.Factory
	paused bool
	files  object.Files
	sel    object.Select
	write  object.Write
	output out.Output
}

func (o *pauseOptions) word() string {
	if o.paused {
		return "pause"
	}
	return "resume"
}

func newPause(f *factory.Factory) *cobra.Command {
	o := &pauseOptions{f: f, paused: true}
	return o.command("Stop a rollout where it is; pods already updated stay updated",
		"  kruisectl rollout pause cloneset/web\n  kruisectl rollout pause cloneset/web -n shop --dry-run=server\n  kruisectl rollout pause -f web.yaml",
		"kruisectl rollout resume, kruisectl rollout partition")
}

func newResume(f *factory.Factory) *cobra.Command {
	o := &pauseOptions{f: f}
	return o.command("Let a paused rollout go on",
		"  kruisectl rollout resume cloneset/web\n  kruisectl rollout resume cloneset/a cloneset/b",
		"kruisectl rollout pause, kruisectl rollout status")
}

func (o *pauseOptions) command(short, example, also string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               o.word() + " (TYPE NAME | TYPE/NAME...)",
		Short:             short,
		Example:           example,
		ValidArgsFunction: object.Complete(o.f, pausable),
		Annotations:       map[string]string{out.SeeAlso: also, out.ExitCodes: "8 several objects, of which some failed"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.files.AddTo(cmd.Flags(), o.word())
	o.sel.AddTo(cmd.Flags(), false)
	o.write.AddTo(cmd.Flags())
	o.output.AddTo(cmd.Flags(), "name")
	return cmd
}

// pausable are the kinds with a pause field.
var pausable = adapter.Having(func(f adapter.Fields) adapter.Path { return f.Paused })

func (o *pauseOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout "+o.word(), true, pausable)
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	names, err := object.Targets(ctx, o.f, v, args, &o.files, &o.sel)
	if err != nil {
		return err
	}
	if err := o.sel.Confirm(ctx, o.f, v, names, opts.DryRun != apply.DryRunNone); err != nil {
		return err
	}
	return each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		if err := o.write.Guard(o.f, o.word(), w.Object, false); err != nil {
			return err
		}
		c, err := o.f.Client()
		if err != nil {
			return err
		}
		res, err := apply.Patch(ctx, c, w, opts, apply.Pause(o.paused), nil)
		if err != nil {
			return failure(o.f, o.word(), w.Object, err, "")
		}
		sentence := o.word() + "d"
		if !res.Changed {
			sentence = "already " + sentence
		}
		if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
			return err
		}
		if res.Changed {
			o.note(res.After)
		}
		return nil
	})
}

// note says what follows from the change.
func (o *pauseOptions) note(w adapter.Workload) {
	if o.paused {
		o.f.Note("updates stop; scaling goes on")
		return
	}
	facts, err := w.Facts()
	if err != nil {
		return
	}
	if left := facts.Partition.Target - facts.Updated; left > 0 {
		o.f.Note("%s", fmt.Sprintf("%s at an older revision; partition %s keeps %d, so %d will be updated",
			out.Plural(facts.Desired-facts.Updated, "pod"), orZero(facts.Partition.Raw), facts.Partition.Keep, left))
	}
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

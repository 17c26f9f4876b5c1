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
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/follow"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// Screen shows a rollout on the terminal until the user leaves or ctx ends, or with
// exitOnDone until the rollout ends, and returns the last view. The root hands it to
// Commands; nil means that lines are printed instead.
type Screen func(ctx context.Context, f *factory.Factory, source view.Source, exitOnDone bool) (view.Rollout, error)

// watchOptions is one run of `rollout watch`.
type watchOptions struct {
	status     statusOptions
	plain      bool
	exitOnDone bool
	screen     Screen
}

func newWatch(f *factory.Factory, screen Screen) *cobra.Command {
	o := &watchOptions{status: statusOptions{f: f, watch: true}, screen: screen}
	cmd := &cobra.Command{
		Use:   "watch TYPE/NAME",
		Short: "Watch a rollout pod by pod",
		Long: "Watch a rollout pod by pod. On a terminal this is a full screen; elsewhere, and\n" +
			"with --plain, it is `rollout status` with the pods that are not done yet.",
		Example:           "  kruisectl rollout watch cloneset/web\n  kruisectl rollout watch cloneset/web --plain --timeout 10m",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations:       map[string]string{out.ExitCodes: statusCodes, out.SeeAlso: "kruisectl rollout status, kruisectl why"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	o.status.addTo(fs)
	fs.BoolVar(&o.plain, "plain", false, "print lines also on a terminal")
	fs.BoolVar(&o.exitOnDone, "exit-on-done", false, "leave the screen when the rollout ends")
	out.Group(fs, "Wait", "exit-on-done")
	o.status.output.AddTo(fs, "name", "jsonl")
	return cmd
}

func (o *watchOptions) run(ctx context.Context, args []string) error {
	f := o.status.f
	v := verb("rollout watch", false, adapter.Kinds())
	format, err := o.status.output.Format()
	if err != nil {
		return err
	}
	if err := o.status.validate(); err != nil {
		return err
	}
	names, err := object.Names(f, v, args, nil)
	if err != nil {
		return err
	}
	if o.plain || o.screen == nil || !f.OutTerminal().TTY || !format.People() || len(names) > 1 {
		o.status.detail = true
		return o.status.follow(ctx, v, names, format)
	}
	ws, err := object.Workloads(ctx, f, v, names)
	if err != nil {
		return err
	}
	c, err := f.WatchClient()
	if err != nil {
		return err
	}
	live := follow.New(ctx, c, ws[0], follow.Options{
		Context: f.ContextName(), Clock: f.Clock, Program: f.Name(),
		Want:  fetch.Want{Pods: true, Revisions: true, Events: true, Gates: true, Images: true},
		Write: apply.Options{DryRun: apply.DryRunNone, FieldManager: factory.FieldManager},
	})
	defer live.Close()
	if o.status.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.status.timeout)
		defer cancel()
	}
	last, err := o.screen(ctx, f, live, o.exitOnDone)
	if err != nil || !o.exitOnDone {
		return err
	}
	return o.finish(ctx, last)
}

// finish says on the ordinary screen how the rollout ended, and exits as status would.
func (o *watchOptions) finish(ctx context.Context, last view.Rollout) error {
	code, ends := o.status.question().ExitCode(last.Result.Verdict)
	if !ends && ctx.Err() != nil {
		code = out.CodeTimeout
	}
	if _, err := fmt.Fprintf(o.status.f.Out, "%s: %s\n", last.Object.Result, last.Result.Message); err != nil {
		return err
	}
	return out.Silent(code)
}

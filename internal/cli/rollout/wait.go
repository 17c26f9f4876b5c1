// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

func newWait(f *factory.Factory) *cobra.Command {
	o := &statusOptions{f: f, watch: true}
	var words []string
	cmd := &cobra.Command{
		Use:   "wait (TYPE NAME | TYPE/NAME...) --for VERDICT,...",
		Short: "Wait until rollouts have one of several verdicts",
		Example: "  kruisectl rollout wait cloneset/web --for Complete --timeout 10m\n" +
			"  kruisectl rollout wait asts -l team=data --for Complete,PartitionReached\n" +
			"  kruisectl rollout wait ads/agent --for Paused -o jsonl",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations: map[string]string{
			out.ExitCodes: "3 stalled or blocked and not asked for · 4 --timeout passed · 6 superseded or deleted · 8 several objects, of which some failed",
			out.SeeAlso:   "kruisectl rollout status",
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.until, err = verdicts(words); err != nil {
				return err
			}
			return o.wait(cmd.Context(), args)
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&words, "for", []string{string(verdict.Complete)}, "verdicts that end the wait well: "+allVerdicts())
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	fs.DurationVar(&o.heartbeat, "heartbeat", factory.Heartbeat, "longest silence in line mode")
	fs.StringSliceVar(&o.failOn, "fail-on", []string{"deadline", "blocked"}, "what ends the wait as failed; see rollout status")
	fs.DurationVar(&o.failAfter, "fail-after", time.Minute, "how long image and schedule faults may last")
	out.Group(fs, "Wait", "for", "timeout", "heartbeat", "fail-on", "fail-after")
	o.files.AddTo(fs, "wait for")
	o.sel.AddTo(fs, true)
	o.output.AddTo(fs, "name", "jsonl")
	_ = cmd.RegisterFlagCompletionFunc("for", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return strings.Split(allVerdicts(), ", "), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

func allVerdicts() string {
	var words []string
	for _, v := range verdict.All {
		words = append(words, string(v))
	}
	return strings.Join(words, ", ")
}

// verdicts reads --for, in any letter case.
func verdicts(words []string) ([]verdict.Verdict, error) {
	var list []verdict.Verdict
	for _, w := range words {
		i := slices.IndexFunc(verdict.All, func(v verdict.Verdict) bool { return strings.EqualFold(string(v), strings.TrimSpace(w)) })
		if i < 0 {
			return nil, out.Usagef("--for %q is no verdict: use %s", w, allVerdicts())
		}
		list = append(list, verdict.All[i])
	}
	if len(list) == 0 {
		return nil, out.Usagef("--for is empty: use %s", allVerdicts())
	}
	return list, nil
}

func (o *statusOptions) wait(ctx context.Context, args []string) error {
	v := verb("rollout wait", false, adapter.Kinds())
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	names, err := object.Targets(ctx, o.f, v, args, &o.files, &o.sel)
	if err != nil || len(names) == 0 {
		return err
	}
	return o.follow(ctx, v, names, format)
}

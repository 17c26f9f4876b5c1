// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// NewCreate is `create containerrecreaterequest`, as OpenKruise's plugin has it: one Pod, a
// given name, and no wait unless asked for.
func NewCreate(f *factory.Factory) *cobra.Command {
	o := &restartOptions{f: f, maxParallel: 1, waitGiven: true}
	pod := ""
	cmd := &cobra.Command{
		Use:     "containerrecreaterequest NAME --pod POD",
		Aliases: []string{"ContainerRecreateRequest", "crr"},
		Short:   "Create a request that restarts containers of a pod",
		Example: "  kruisectl create containerrecreaterequest r1 --pod web-x7k9w --containers app\n" +
			"  kruisectl create crr r1 --pod web-x7k9w -u 5 -m 7 --dry-run=client -o yaml",
		Annotations: map[string]string{out.ExitCodes: restartCodes, out.SeeAlso: "kruisectl container restart"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return out.UsageNext(f.Name()+" create containerrecreaterequest NAME --pod POD", errors.New("name one request"))
			case pod == "":
				return out.UsageNext(f.Name()+" create containerrecreaterequest "+args[0]+" --pod POD", errors.New("name the pod with --pod"))
			}
			o.name = args[0]
			return o.run(cmd.Context(), []string{"pod/" + pod})
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&pod, "pod", "p", "", "pod whose containers are restarted")
	out.Group(fs, "Target", "pod")
	o.request.AddTo(cmd)
	o.write.AddTo(fs)
	fs.Lookup("force").Usage = forceUsage
	fs.BoolVar(&o.wait, "wait", false, "wait for the containers to be back")
	fs.DurationVar(&o.timeout, "timeout", time.Duration(0), "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "wait", "timeout")
	o.output.AddTo(fs, "wide", "name")
	_ = cmd.RegisterFlagCompletionFunc("pod", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return object.ListNames(cmd.Context(), f, []*target.Kind{target.Pod}, ""), cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("containers", completeContainers(f, func([]string) []string { return []string{pod} }))
	return cmd
}

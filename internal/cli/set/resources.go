// SPDX-License-Identifier: Apache-2.0

package set

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
)

// resourcesOptions is one run of `set resources`.
type resourcesOptions struct {
	options
	containers       string
	limits, requests string
	remove           []string
}

func newResources(f *factory.Factory) *cobra.Command {
	o := &resourcesOptions{options: options{f: f, command: "set resources"}}
	cmd := &cobra.Command{
		Use:   "resources TYPE/NAME... [--limits LIST] [--requests LIST] [--remove LIST]",
		Short: "Change requests and limits of containers",
		Long: "Change requests and limits of containers. What is not named stays. The result\n" +
			"says whether pods are resized in place or recreated.",
		Example: "  kruisectl set resources cloneset/web -c app --limits cpu=1,memory=512Mi\n" +
			"  kruisectl set resources asts/db --requests cpu=250m --remove memory\n" +
			"  kruisectl set resources -f web.yaml --local --limits cpu=1 -o yaml",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations: map[string]string{
			out.ExitCodes: waitCodes, out.SeeAlso: "kruisectl rollout preview, kruisectl set env",
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.resources(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.containers, "containers", "c", "*", "containers to change; * stands for any text")
	fs.StringVar(&o.limits, "limits", "", "limits as RESOURCE=QUANTITY, comma separated")
	fs.StringVar(&o.requests, "requests", "", "requests as RESOURCE=QUANTITY, comma separated")
	fs.StringSliceVar(&o.remove, "remove", nil, "resources to remove from limits and requests")
	out.Group(fs, "Change", "containers", "limits", "requests", "remove")
	o.addTo(cmd)
	return cmd
}

func (o *resourcesOptions) resources(ctx context.Context, args []string) error {
	if o.limits == "" && o.requests == "" && len(o.remove) == 0 {
		return out.UsageNext(o.f.Name()+" set resources cloneset/NAME --limits cpu=1", errors.New("name at least one of --limits, --requests and --remove"))
	}
	limits, err := apply.ParseResources("--limits", o.limits)
	if err != nil {
		return out.Usage(err)
	}
	requests, err := apply.ParseResources("--requests", o.requests)
	if err != nil {
		return out.Usage(err)
	}
	for _, name := range o.remove {
		_, limited := limits[name]
		if _, requested := requests[name]; limited || requested || strings.Contains(name, "=") {
			return out.Usagef("--remove %s: give only names there, and no resource that is also set", name)
		}
	}
	r := apply.Resources{Containers: o.containers, Limits: limits, Requests: requests, Remove: o.remove, Reason: o.write.Reason}
	return o.run(ctx, args, edit{change: r.Change, done: "resource requirements updated"})
}

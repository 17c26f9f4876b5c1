// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// completePods offers the Pods of the workload that is named, each of a comma list. It stays
// silent on errors.
func completePods(f *factory.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		quiet := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		ctx, cancel := object.CompletionContext(cmd)
		defer cancel()
		names, err := object.Names(f, target.Verb{Command: "scaledown", Kinds: shrinkable}, typedName(args), nil)
		if err != nil || len(names) != 1 {
			return nil, quiet
		}
		ws, err := object.Workloads(ctx, f, target.Verb{Command: "scaledown", Kinds: shrinkable}, names)
		if err != nil {
			return nil, quiet
		}
		c, err := f.Client()
		if err != nil {
			return nil, quiet
		}
		s, err := fetch.Snapshot(ctx, c, ws[0], fetch.Want{Pods: true})
		if err != nil {
			return nil, quiet
		}
		before := typed[:strings.LastIndex(typed, ",")+1]
		var words []string
		for _, p := range s.Pods {
			if !slices.Contains(strings.Split(before, ","), p.Name) {
				words = append(words, before+p.Name)
			}
		}
		return words, quiet
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package image pulls images before a rollout needs them, and shows where they are: the
// commands `kruisectl image …` (cli.md 7). What is computed comes from internal/rollout/pull.
package image

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// Screen shows one image job on the terminal until the user leaves or ctx ends, or with
// exitOnDone until the job ends, and returns the last view. The root hands it to Commands;
// nil means that lines are printed instead.
type Screen func(ctx context.Context, f *factory.Factory, source view.PullSource, exitOnDone, readOnly bool) (view.Pull, error)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory, screen Screen) []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Pull images to nodes beforehand, and see where they are",
		Example: "  kruisectl image pull repo/web:2 --wait\n" +
			"  kruisectl image status pull-web-1a2b3\n" +
			"  kruisectl image nodes repo/web:2 --missing",
	}
	cmd.AddCommand(newPull(f), newPredownload(f), newStatus(f, screen), newWait(f), newList(f), newNodes(f), newRetry(f), newCancel(f))
	return []*cobra.Command{cmd}
}

// jobKinds are what a job of the commands may be.
var jobKinds = []*target.Kind{target.ImagePullJob, target.ImageListPullJob}

// completeJobs offers the names of jobs; those of lists with their type.
func completeJobs(f *factory.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		words := object.ListNames(cmd.Context(), f, []*target.Kind{target.ImagePullJob}, "")
		words = append(words, object.ListNames(cmd.Context(), f, []*target.Kind{target.ImageListPullJob}, "ilpj/")...)
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNodes offers the names of nodes for --node.
func completeNodes(f *factory.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return object.ListNames(cmd.Context(), f, []*target.Kind{target.NodeImage}, ""), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeImages offers the images that the jobs of the namespace pull.
func completeImages(f *factory.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := object.CompletionContext(cmd)
		defer cancel()
		return jobImages(ctx, f), cobra.ShellCompDirectiveNoFileComp
	}
}

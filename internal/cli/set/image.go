// SPDX-License-Identifier: Apache-2.0

package set

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/image"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
)

func newImage(f *factory.Factory) *cobra.Command {
	o := &options{f: f, command: "set image"}
	first := &image.Before{}
	cmd := &cobra.Command{
		Use:   "image TYPE/NAME... CONTAINER=IMAGE...",
		Short: "Change images of containers and nothing else",
		Long: "Change images of containers and nothing else of the template, so that pods are\n" +
			"updated in place where the update policy allows it. *=IMAGE means all containers.",
		Example: "  kruisectl set image cloneset/web app=repo/web:2\n" +
			"  kruisectl set image asts/db ads/agent *=repo/all:2 --reason 'release 2'\n" +
			"  kruisectl set image cloneset/web app=repo/web:2 --predownload --wait\n" +
			"  kruisectl set image cloneset/web app=repo/web:2 --dry-run=server",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations: map[string]string{
			out.ExitCodes: waitCodes, out.SeeAlso: "kruisectl rollout preview, kruisectl rollout status",
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.image(cmd.Context(), args, first) },
	}
	o.addTo(cmd)
	first.AddTo(cmd.Flags())
	return cmd
}

// split parts objects from NAME=VALUE words.
func split(args []string) (objects, words []string) {
	for _, a := range args {
		if strings.Contains(a, "=") {
			words = append(words, a)
		} else {
			objects = append(objects, a)
		}
	}
	return objects, words
}

func (o *options) image(ctx context.Context, args []string, first *image.Before) error {
	objects, words := split(args)
	if len(words) == 0 {
		return out.UsageNext(o.f.Name()+" set image cloneset/NAME CONTAINER=IMAGE", errors.New("name at least one CONTAINER=IMAGE"))
	}
	images, err := apply.ParseImages(words)
	if err != nil {
		return out.Usage(err)
	}
	for _, im := range images {
		if strings.HasSuffix(im.Image, ":latest") {
			o.f.Note("%s: with tag latest nobody can tell which image runs, and undo cannot go back", im.Image)
		}
	}
	if err := first.Validate(); err != nil {
		return err
	}
	return o.run(ctx, objects, edit{
		first: func(ctx context.Context, w adapter.Workload, opts apply.Options) error {
			return first.Run(ctx, o.f, w, images, opts, o.timeout)
		},
		change: apply.SetImages(images, o.write.Reason), done: "image updated",
		after: func(before adapter.Workload) {
			changes, err := apply.Images(before, images)
			if err != nil {
				return
			}
			for _, ch := range changes {
				o.f.Note("container %s: %s -> %s", ch.Container, ch.Old, ch.New)
				if ch.Init {
					o.f.Note("container %s is an init container: pods are recreated", ch.Container)
				}
			}
		},
	})
}

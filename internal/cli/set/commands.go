// SPDX-License-Identifier: Apache-2.0

// Package set changes Pod templates: the commands `kruisectl set …`.
package set

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/cli/rollout"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	cmd := &cobra.Command{
		Use:     "set",
		Short:   "Change the pod template of a workload",
		Example: "  kruisectl set image cloneset/web app=repo/web:2",
	}
	cmd.AddCommand(newImage(f))
	return []*cobra.Command{cmd}
}

// imageOptions is one run of `set image`.
type imageOptions struct {
	f       *factory.Factory
	write   object.Write
	wait    bool
	timeout time.Duration
	output  out.Output
}

func newImage(f *factory.Factory) *cobra.Command {
	o := &imageOptions{f: f}
	cmd := &cobra.Command{
		Use:   "image TYPE/NAME... CONTAINER=IMAGE...",
		Short: "Change images of containers and nothing else",
		Long: "Change images of containers and nothing else of the template, so that pods are\n" +
			"updated in place where the update policy allows it. *=IMAGE means all containers.",
		Example: "  kruisectl set image cloneset/web app=repo/web:2\n" +
			"  kruisectl set image cloneset/web app=repo/web:2 --reason 'release 2' --wait\n" +
			"  kruisectl set image cloneset/web app=repo/web:2 --dry-run=server",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations: map[string]string{
			out.ExitCodes: "with --wait those of rollout status: 3 stalled or blocked · 4 timeout · 5 paused · 6 superseded or deleted; 8 several objects, of which some failed",
			out.SeeAlso:   "kruisectl rollout preview, kruisectl rollout status",
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	o.write.AddTo(fs)
	o.write.AddReason(fs)
	fs.BoolVar(&o.wait, "wait", false, "wait for the rollout to end")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "wait", "timeout")
	o.output.AddTo(fs, "name")
	return cmd
}

// split parts objects from CONTAINER=IMAGE words.
func split(args []string) (objects, images []string) {
	for _, a := range args {
		if strings.Contains(a, "=") {
			images = append(images, a)
		} else {
			objects = append(objects, a)
		}
	}
	return objects, images
}

func (o *imageOptions) run(ctx context.Context, args []string) error {
	v := target.Verb{Command: "set image", Kinds: adapter.Kinds(), Mutates: true, Elsewhere: func(k *target.Kind) string {
		if k.Native() {
			return "kubectl set image"
		}
		return ""
	}}
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	objects, words := split(args)
	if len(words) == 0 {
		return out.UsageNext(o.f.Name()+" set image cloneset/NAME CONTAINER=IMAGE", errors.New("name at least one CONTAINER=IMAGE"))
	}
	images, err := apply.ParseImages(words)
	if err != nil {
		return out.Usage(err)
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	names, err := object.Names(o.f, v, objects, nil)
	if err != nil {
		return err
	}
	return object.Each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		return o.one(ctx, w, images, opts, format)
	})
}

func (o *imageOptions) one(ctx context.Context, w adapter.Workload, images []apply.Image, opts apply.Options, format out.Format) error {
	if err := o.write.Guard(o.f, "set image", w.Object, true); err != nil {
		return err
	}
	changes, err := apply.Images(w, images)
	if err != nil {
		return object.Failure(o.f, "set image", w.Object, err, "")
	}
	for _, im := range images {
		if strings.HasSuffix(im.Image, ":latest") {
			o.f.Note("%s: with tag latest nobody can tell which image runs, and undo cannot go back", im.Image)
		}
	}
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	res, err := apply.Patch(ctx, c, w, opts, apply.SetImages(images, o.write.Reason), nil)
	if err != nil {
		return object.Failure(o.f, "set image", w.Object, err, "")
	}
	sentence := "image updated"
	if !res.Changed {
		sentence = "unchanged"
	}
	if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
		return err
	}
	for _, ch := range changes {
		o.f.Note("container %s: %s -> %s", ch.Container, ch.Old, ch.New)
		if ch.Init {
			o.f.Note("container %s is an init container: pods are recreated", ch.Container)
		}
	}
	if res.Changed {
		if text := rollout.Effect(ctx, o.f, w, apply.SetImages(images, "")); text != "" {
			o.f.Note("%s", text)
		}
	}
	if !o.wait || opts.DryRun != apply.DryRunNone || !res.Changed {
		return nil
	}
	return rollout.Wait(ctx, o.f, res.After, o.timeout)
}

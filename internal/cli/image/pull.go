// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
)

// pullOptions is one run of `image pull`.
type pullOptions struct {
	f        *factory.Factory
	name     string
	separate bool
	sel      selectFlags
	job      jobFlags
	write    object.Write
	wait     waiting
	output   out.Output
}

// pullCodes are the exit codes of commands that wait for pulls with --wait.
const pullCodes = "with --wait: 3 a node failed · 4 --timeout passed · 6 the job was deleted · 8 several jobs that ended differently"

func newPull(f *factory.Factory) *cobra.Command {
	o := &pullOptions{f: f}
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images to nodes, before a rollout needs them",
		Long: "Pull images to nodes, before a rollout needs them. Without a selection that is\n" +
			"every node. Several images make one ImageListPullJob. The job is named after\n" +
			"images and selection: the same command finds the same job again.",
		Example: "  kruisectl image pull repo/web:2 --wait\n" +
			"  kruisectl image pull repo/web:2 --pod-selector app=web --parallelism 20%\n" +
			"  kruisectl image pull repo/web:2 repo/log:5 --node-selector 'zone in (a,b)'\n" +
			"  kruisectl image pull repo/web:2 --node n1 --dry-run=client -o yaml",
		Annotations: map[string]string{out.ExitCodes: pullCodes, out.SeeAlso: "kruisectl image status, kruisectl image predownload"},
		RunE:        func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.name, "name", "", "name of the job")
	out.Group(fs, "Target", "name")
	o.sel.AddTo(fs)
	o.job.AddTo(fs, "1")
	fs.BoolVar(&o.separate, "separate", false, "a job for each of several images, in place of one list")
	out.Group(fs, "Change", "separate")
	o.write.AddTo(fs)
	fs.Lookup("force").Usage = "replace a job of the same name that has ended or has another spec"
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	_ = cmd.RegisterFlagCompletionFunc("node", completeNodes(f))
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions([]string{"IfNotPresent", "Always"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *pullOptions) template(images []string) (v1beta1.ImagePullJobTemplate, error) {
	seen := map[string]bool{}
	for _, image := range images {
		if _, err := reference.ParseNormalizedNamed(image); err != nil {
			return v1beta1.ImagePullJobTemplate{}, fmt.Errorf("%q is not an image reference: %w", image, err)
		}
		if seen[image] {
			return v1beta1.ImagePullJobTemplate{}, fmt.Errorf("image %s is named twice", image)
		}
		seen[image] = true
	}
	t, err := o.job.template()
	if err != nil {
		return t, err
	}
	return t, o.sel.apply(&t)
}

func (o *pullOptions) run(ctx context.Context, images []string) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if len(images) == 0 {
		return out.UsageNext(o.f.Name()+" image pull repo/app:tag", errNoImage)
	}
	if o.name != "" && o.separate && len(images) > 1 {
		return out.Usagef("--name goes with one job; --separate makes %d", len(images))
	}
	t, err := o.template(images)
	if err != nil {
		return out.Usage(err)
	}
	if _, err := o.wait.min(); err != nil {
		return out.Usage(err)
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	o.job.note(o.f)
	doing := "pull image " + strings.Join(images, ", ")
	c, ns, err := open(o.f, doing)
	if err != nil {
		return err
	}
	if err := inNodes(ctx, o.f, c, ns, &t); err != nil {
		return &out.Failure{Doing: doing, Cause: err}
	}
	m := maker{f: o.f, c: c, opts: opts, force: o.write.Force, doing: doing}
	p := plan{namespace: ns, name: o.name, images: images, separate: o.separate, template: t, key: o.sel.key()}
	jobs, err := p.make(ctx, m)
	if err != nil {
		return err
	}
	return o.wait.after(ctx, m, jobs, format)
}

// plan is what jobs to make.
type plan struct {
	namespace, name string
	images          []string
	separate        bool
	template        v1beta1.ImagePullJobTemplate
	labels          map[string]string
	// key stands for the selection in the names.
	key string
}

// make makes one job, a list, or a job for each image.
func (p plan) make(ctx context.Context, m maker) ([]made, error) {
	if len(p.images) > 1 && !p.separate {
		meta, err := p.meta(p.images)
		if err != nil {
			return nil, err
		}
		t := *p.template.DeepCopy()
		j, err := m.list(ctx, &v1beta1.ImageListPullJob{ObjectMeta: meta, Spec: v1beta1.ImageListPullJobSpec{Images: p.images, ImagePullJobTemplate: t}})
		return []made{j}, err
	}
	var jobs []made
	for _, image := range p.images {
		meta, err := p.meta([]string{image})
		if err != nil {
			return nil, err
		}
		t := *p.template.DeepCopy()
		j, err := m.job(ctx, &v1beta1.ImagePullJob{ObjectMeta: meta, Spec: v1beta1.ImagePullJobSpec{Image: image, ImagePullJobTemplate: t}})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (p plan) meta(images []string) (metav1.ObjectMeta, error) {
	name := p.name
	if name == "" {
		var err error
		if name, err = pull.Name(images, p.key); err != nil {
			return metav1.ObjectMeta{}, out.Usage(err)
		}
	}
	return metav1.ObjectMeta{Namespace: p.namespace, Name: name, Labels: p.labels}, nil
}

// after prints what was made, and with --wait waits for it. A machine reads one document:
// the jobs, or how they ended.
func (o *waiting) after(ctx context.Context, m maker, jobs []made, format out.Format) error {
	waits := o.wait && m.opts.DryRun == apply.DryRunNone
	if !waits || !format.Machine() {
		if err := m.print(format, jobs); err != nil {
			return err
		}
	}
	if !waits {
		return nil
	}
	return o.all(ctx, m.f, objectsOf(jobs), format)
}

// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/imageref"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Which nodes a pre-download is for.
const (
	nodesCurrent  = "current"
	nodesEligible = "eligible"
)

// predownloadParallelism is a share of the nodes: a workload's pre-download is waited for.
const predownloadParallelism = "10%"

// predownload pulls the next images of a workload. Its flags are those of a command of its
// own, or of one that changes the workload afterwards.
type predownload struct {
	f     *factory.Factory
	nodes string
	job   jobFlags
	opts  apply.Options
	force bool
}

// predownloadOptions is one run of `image predownload`.
type predownloadOptions struct {
	predownload
	images []string
	files  object.Files
	write  object.Write
	wait   waiting
	output out.Output
}

func newPredownload(f *factory.Factory) *cobra.Command {
	o := &predownloadOptions{predownload: predownload{f: f}}
	cmd := &cobra.Command{
		Use:   "predownload (TYPE/NAME --image CONTAINER=IMAGE | -f FILE)",
		Short: "Pull the next images of a workload to its nodes",
		Long: "Pull the next images of a workload to its nodes, before its template changes. The\n" +
			"images are those of --image, or those of a manifest that is to be applied. Pull\n" +
			"secrets are the template's. Images that all nodes have are left out.\n\n" +
			"  current   the nodes of its pods\n" +
			"  eligible  every node that its pods may run on",
		Example: "  kruisectl image predownload cloneset/web --image app=repo/web:2 --wait\n" +
			"  kruisectl image predownload ads/agent --image app=repo/a:2 --nodes=eligible\n" +
			"  kruisectl image predownload -f web.yaml --wait --min-succeeded 90%",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations:       map[string]string{out.ExitCodes: pullCodes, out.SeeAlso: "kruisectl set image --predownload, kruisectl image status"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&o.images, "image", nil, "next image as CONTAINER=IMAGE (repeat)")
	fs.StringVar(&o.nodes, "nodes", nodesCurrent, "current or eligible")
	out.Group(fs, "Target", "image", "nodes")
	o.files.AddTo(fs, "pull for")
	o.job.AddTo(fs, predownloadParallelism)
	o.write.AddTo(fs)
	fs.Lookup("force").Usage = "replace a job of the same name that has ended or has another spec"
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	_ = cmd.RegisterFlagCompletionFunc("nodes", cobra.FixedCompletions([]string{nodesCurrent, nodesEligible}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *predownloadOptions) run(ctx context.Context, args []string) error {
	v := target.Verb{Command: "image predownload", Kinds: adapter.Kinds(), Mutates: true}
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	images, err := apply.ParseImages(o.images)
	if err != nil {
		return out.Usage(err)
	}
	if o.opts, err = o.write.Options(o.f); err != nil {
		return err
	}
	o.force = o.write.Force
	names, err := object.Names(o.f, v, args, &o.files)
	if err != nil {
		return err
	}
	manifests := map[string]*corev1.PodTemplateSpec{}
	if o.files.Given() {
		if manifests, err = o.templates(); err != nil {
			return err
		}
	}
	var jobs []made
	var m maker
	for _, n := range names {
		ws, err := object.Workloads(ctx, o.f, v, []target.Name{n})
		if err != nil {
			return err
		}
		w := ws[0]
		next, err := o.next(w, images, manifests[w.Short()])
		if err != nil {
			return object.Failure(o.f, "image predownload", w.Object, err, "")
		}
		found, maker, err := o.jobs(ctx, w, next)
		if err != nil {
			return object.Failure(o.f, "image predownload", w.Object, err, "")
		}
		jobs, m = append(jobs, found...), maker
	}
	if len(jobs) == 0 {
		return nothing(o.f, format)
	}
	return o.wait.after(ctx, m, jobs, format)
}

// nothing is the result when no job is needed: a machine gets its document all the same.
func nothing(f *factory.Factory, format out.Format) error {
	if !format.Machine() {
		return nil
	}
	return format.Write(f.Out, map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{}})
}

func (o *predownloadOptions) validate() error {
	if err := o.checkNodes("--nodes"); err != nil {
		return err
	}
	if len(o.images) == 0 && !o.files.Given() {
		return out.UsageNext(o.f.Name()+" image predownload cloneset/NAME --image CONTAINER=IMAGE", errors.New("name the next images with --image, or a manifest with -f"))
	}
	if len(o.images) > 0 && o.files.Given() {
		return out.Usagef("name the next images either with --image or with -f and -k, not both")
	}
	if _, err := o.job.template(); err != nil {
		return out.Usage(err)
	}
	_, err := o.wait.min()
	return out.Usage(err)
}

func (o *predownload) checkNodes(flag string) error {
	if o.nodes != nodesCurrent && o.nodes != nodesEligible {
		return out.Usagef("%s is %q: use current or eligible", flag, o.nodes)
	}
	return nil
}

// templates are the Pod templates of the manifests, by TYPE/NAME.
func (o *predownloadOptions) templates() (map[string]*corev1.PodTemplateSpec, error) {
	infos, err := o.files.Infos(o.f)
	if err != nil {
		return nil, err
	}
	found := map[string]*corev1.PodTemplateSpec{}
	for _, info := range infos {
		u, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		for _, k := range adapter.Kinds() {
			if k.GroupKind != u.GroupVersionKind().GroupKind() {
				continue
			}
			w, err := adapter.Wrap(target.Object{Kind: k, GVK: u.GroupVersionKind(), Live: u})
			if err != nil {
				return nil, out.Usage(err)
			}
			t, err := w.Template()
			if err != nil {
				return nil, out.Usage(err)
			}
			found[w.Short()] = t
		}
	}
	return found, nil
}

// next is the template as it will be.
func (o *predownloadOptions) next(w adapter.Workload, images []apply.Image, manifest *corev1.PodTemplateSpec) (*corev1.PodTemplateSpec, error) {
	if manifest != nil {
		return manifest, nil
	}
	return nextTemplate(w, images)
}

func nextTemplate(w adapter.Workload, images []apply.Image) (*corev1.PodTemplateSpec, error) {
	t, err := w.Template()
	if err != nil {
		return nil, err
	}
	changes, err := apply.Images(w, images)
	if err != nil {
		return nil, err
	}
	t = t.DeepCopy()
	for _, ch := range changes {
		for _, cs := range [][]corev1.Container{t.Spec.Containers, t.Spec.InitContainers} {
			for i := range cs {
				if cs[i].Name == ch.Container {
					cs[i].Image = ch.New
				}
			}
		}
	}
	return t, nil
}

// jobs makes the jobs that pull what next has and the live template has not.
func (o *predownload) jobs(ctx context.Context, w adapter.Workload, next *corev1.PodTemplateSpec) ([]made, maker, error) {
	doing := object.Phrase("image predownload") + " " + w.Title()
	c, _, err := open(o.f, doing)
	if err != nil {
		return nil, maker{}, err
	}
	m := maker{f: o.f, c: c, opts: o.opts, force: o.force, doing: doing}
	live, err := w.Template()
	if err != nil {
		return nil, m, err
	}
	images := newImages(live, next)
	if len(images) == 0 {
		o.f.Note("%s has no new image: nothing to pull beforehand", w.Short())
		return nil, m, nil
	}
	t, err := o.job.template()
	if err != nil {
		return nil, m, out.Usage(err)
	}
	for _, s := range next.Spec.ImagePullSecrets {
		if !slices.Contains(t.PullSecrets, s.Name) {
			t.PullSecrets = append(t.PullSecrets, s.Name)
		}
	}
	nodes, err := o.choose(ctx, c, w, next, &t)
	if err != nil {
		return nil, m, err
	}
	if len(nodes) == 0 {
		o.f.Note("no node is %s for %s: nothing to pull beforehand", o.nodes, w.Short())
		return nil, m, nil
	}
	if images, err = o.absent(ctx, c, images, nodes); err != nil || len(images) == 0 {
		return nil, m, err
	}
	if err := inNodes(ctx, o.f, c, w.Live.GetNamespace(), &t); err != nil {
		return nil, m, err
	}
	p := plan{namespace: w.Live.GetNamespace(), images: images, template: t, key: w.Short() + "|" + o.nodes,
		labels: map[string]string{pull.PredownloadForLabel: pull.PredownloadFor(w.Kind.Kind, w.Live.GetName())}}
	jobs, err := p.make(ctx, m)
	return jobs, m, err
}

// newImages are the images of next that live has nowhere, each once.
func newImages(live, next *corev1.PodTemplateSpec) []string {
	have := map[string]bool{}
	for _, c := range slices.Concat(live.Spec.Containers, live.Spec.InitContainers) {
		have[c.Image] = true
	}
	var images []string
	for _, c := range slices.Concat(next.Spec.InitContainers, next.Spec.Containers) {
		if c.Image != "" && !have[c.Image] {
			have[c.Image] = true
			images = append(images, c.Image)
		}
	}
	return images
}

// choose sets the selector and returns the nodes that it means now.
func (o *predownload) choose(ctx context.Context, c client.Client, w adapter.Workload, next *corev1.PodTemplateSpec, t *v1beta1.ImagePullJobTemplate) ([]string, error) {
	if o.nodes == nodesEligible {
		nodes, err := fetch.List[corev1.Node](ctx, c, target.Node)
		if err != nil {
			return nil, fmt.Errorf("listing nodes: %w", err)
		}
		names := pull.Eligible(nodes, next, w.Kind == target.DaemonSet)
		t.Selector = &v1beta1.ImagePullJobNodeSelector{Names: names}
		return names, nil
	}
	raw, _, err := unstructured.NestedMap(w.Live.Object, "spec", "selector")
	if err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	sel := metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &sel); err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	t.PodSelector = &v1beta1.ImagePullJobPodSelector{LabelSelector: sel}
	return nodesOfPods(ctx, c, w.Live.GetNamespace(), &sel)
}

// absent leaves out images that are on all nodes already, as far as the node agents know.
func (o *predownload) absent(ctx context.Context, c client.Client, images, nodes []string) ([]string, error) {
	agents, err := fetch.List[v1beta1.NodeImage](ctx, c, target.NodeImage)
	if err != nil {
		return images, nil //nolint:nilerr // then a node says by itself that it has the image
	}
	var left []string
	for _, image := range images {
		ref, err := imageref.Parse(image)
		if err != nil {
			return nil, err
		}
		if missing := pull.Missing(pull.Where(ref, agents, nil), nodes); len(missing) > 0 {
			left = append(left, image)
			continue
		}
		o.f.Note("image %s is on %s already", image, all(len(nodes)))
	}
	return left, nil
}

func all(n int) string {
	if n == 1 {
		return "the node"
	}
	return fmt.Sprintf("all %d nodes", n)
}

// Before pulls images before a command changes a workload: the flags of --predownload.
type Before struct {
	on           bool
	nodes        string
	parallelism  string
	minSucceeded string
}

// AddTo registers --predownload and what goes with it.
func (o *Before) AddTo(fs *pflag.FlagSet) {
	fs.BoolVar(&o.on, "predownload", false, "first pull the new images to the nodes, and wait for that")
	fs.StringVar(&o.nodes, "predownload-nodes", nodesCurrent, "nodes to pull on first: current or eligible")
	fs.StringVar(&o.parallelism, "predownload-parallelism", predownloadParallelism, "nodes that pull at once: N or P%")
	fs.StringVar(&o.minSucceeded, "min-succeeded", "", "nodes with the image that are enough to go on: N or P%; default all")
	out.Group(fs, "Wait", "predownload", "predownload-nodes", "predownload-parallelism", "min-succeeded")
}

// Validate reports flags that are wrong on any cluster.
func (o *Before) Validate() error {
	p := predownload{nodes: o.nodes}
	if err := p.checkNodes("--predownload-nodes"); err != nil {
		return err
	}
	if !o.on && o.minSucceeded != "" {
		return out.Usagef("--min-succeeded goes with --predownload")
	}
	flags := defaultJobFlags(o.parallelism)
	if _, err := flags.template(); err != nil {
		return out.Usage(err)
	}
	_, err := (&waiting{minSucceeded: o.minSucceeded}).min()
	return out.Usage(err)
}

// Run pulls what images change in w and waits until enough nodes have it; without
// --predownload it does nothing. Its error is to stop the command: nothing of the workload
// was changed then. A dry run only makes the job dry.
func (o *Before) Run(ctx context.Context, f *factory.Factory, w adapter.Workload, images []apply.Image, opts apply.Options, timeout time.Duration) error {
	if !o.on {
		return nil
	}
	next, err := nextTemplate(w, images)
	if err != nil {
		return err
	}
	p := predownload{f: f, nodes: o.nodes, job: defaultJobFlags(o.parallelism), opts: opts, force: true}
	jobs, m, err := p.jobs(ctx, w, next)
	if err != nil || len(jobs) == 0 {
		return err
	}
	for _, j := range jobs {
		f.Note("%s %s%s", j.Object, j.sentence, opts.DryRun.Suffix())
	}
	if m.opts.DryRun != apply.DryRunNone {
		return nil
	}
	wait := waiting{wait: true, timeout: timeout, minSucceeded: o.minSucceeded}
	ends, err := wait.until(ctx, f, objectsOf(jobs), false)
	if err != nil {
		return err
	}
	var codes []int
	var failed []string
	for _, e := range ends {
		codes = append(codes, e.code)
		f.Note("%s %s: %s", e.job, e.word(), e.message())
		if e.code != out.CodeOK {
			failed = append(failed, f.Name()+" image status "+jobWord(e.job))
		}
	}
	code := out.Worst(codes)
	if code == out.CodeOK {
		return nil
	}
	if code == out.CodePartial {
		code = out.CodeFailed
	}
	return &out.Failure{Doing: "pull the new images of " + w.Title() + " beforehand", Why: "the workload was not changed",
		Cause: fmt.Errorf("%s %s: %s", ends[0].job, ends[0].word(), ends[0].message()),
		Next:  strings.Join(failed, "\n") + "\nrepeat with --min-succeeded to go on with fewer nodes", Code: code, Object: w.Short()}
}

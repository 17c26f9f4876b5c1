// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/percent"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// pullOptions is one run of `image pull`.
type pullOptions struct {
	f            *factory.Factory
	name         string
	nodes        []string
	nodeSelector string
	podSelector  string
	parallelism  string
	secrets      []string
	pullTimeout  time.Duration
	backoff      int32
	deadline     time.Duration
	ttl          time.Duration
	policy       string
	alwaysRun    bool
	keep         bool
	sandbox      [2][]string
	write        object.Write
	wait         waiting
	output       out.Output
}

func newPull(f *factory.Factory) *cobra.Command {
	o := &pullOptions{f: f}
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images to nodes, before a rollout needs them",
		Long: "Pull images to nodes, before a rollout needs them. The job is named after image\n" +
			"and selection: the same command finds the same job again.",
		Example: "  kruisectl image pull repo/web:2 --wait\n" +
			"  kruisectl image pull repo/web:2 --pod-selector app=web --parallelism 20%\n" +
			"  kruisectl image pull repo/web:2 --node-selector 'zone in (a,b)' --keep",
		Annotations: map[string]string{out.ExitCodes: "with --wait: 3 a node failed · 4 --timeout passed · 8 several images, of which some failed",
			out.SeeAlso: "kruisectl image status"},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.name, "name", "", "name of the job")
	fs.StringSliceVar(&o.nodes, "node", nil, "node to pull on (repeat)")
	fs.StringVar(&o.nodeSelector, "node-selector", "", "nodes to pull on, as a label selector")
	fs.StringVar(&o.podSelector, "pod-selector", "", "nodes of the pods that this label selector selects")
	out.Group(fs, "Target", "name", "node", "node-selector", "pod-selector")
	fs.StringVar(&o.parallelism, "parallelism", "1", "nodes that pull at once: N or P%")
	fs.StringSliceVar(&o.secrets, "pull-secret", nil, "secret of the namespace to pull with (repeat)")
	fs.DurationVar(&o.pullTimeout, "pull-timeout", 10*time.Minute, "longest time of one attempt on one node")
	fs.Int32Var(&o.backoff, "backoff", 3, "further attempts on one node")
	fs.DurationVar(&o.deadline, "deadline", 0, "longest time of the whole job; 0 is without limit")
	fs.DurationVar(&o.ttl, "ttl", 24*time.Hour, "time after which the finished job is removed")
	fs.StringVar(&o.policy, "policy", string(v1beta1.PullIfNotPresent), "IfNotPresent or Always")
	fs.BoolVar(&o.alwaysRun, "always-run", false, "never end: pull again about once a day")
	fs.BoolVar(&o.keep, "keep", false, "keep the finished job")
	fs.StringSliceVar(&o.sandbox[0], "sandbox-label", nil, "label handed to the runtime, KEY=VALUE (repeat)")
	fs.StringSliceVar(&o.sandbox[1], "sandbox-annotation", nil, "annotation handed to the runtime, KEY=VALUE (repeat)")
	out.Group(fs, "Change", "parallelism", "pull-secret", "pull-timeout", "backoff", "deadline", "ttl", "policy", "always-run", "keep", "sandbox-label", "sandbox-annotation")
	o.write.AddTo(fs)
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	return cmd
}

// spec reads the flags into a job's spec. Every error is the user's.
func (o *pullOptions) spec(image string) (v1beta1.ImagePullJobSpec, error) {
	s := v1beta1.ImagePullJobSpec{Image: image}
	if _, err := reference.ParseNormalizedNamed(image); err != nil {
		return s, fmt.Errorf("%q is not an image reference: %w", image, err)
	}
	par := intstr.Parse(o.parallelism)
	if err := percent.Check(par); err != nil {
		return s, fmt.Errorf("--parallelism: %w", err)
	}
	if err := o.selectors(&s); err != nil {
		return s, err
	}
	if o.policy != string(v1beta1.PullAlways) && o.policy != string(v1beta1.PullIfNotPresent) {
		return s, fmt.Errorf("--policy is %q: use IfNotPresent or Always", o.policy)
	}
	s.Parallelism, s.PullSecrets, s.ImagePullPolicy = &par, o.secrets, v1beta1.ImagePullPolicy(o.policy)
	s.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(o.pullTimeout / time.Second)), BackoffLimit: &o.backoff}
	s.CompletionPolicy.Type = v1beta1.Always
	if o.alwaysRun {
		s.CompletionPolicy.Type = v1beta1.Never
	} else {
		if o.deadline > 0 {
			s.CompletionPolicy.ActiveDeadlineSeconds = new(int64(o.deadline / time.Second))
		}
		if !o.keep {
			s.CompletionPolicy.TTLSecondsAfterFinished = new(int32(o.ttl / time.Second))
		}
	}
	labels, err := pairs("--sandbox-label", o.sandbox[0])
	if err != nil {
		return s, err
	}
	annotations, err := pairs("--sandbox-annotation", o.sandbox[1])
	if err != nil {
		return s, err
	}
	if len(labels)+len(annotations) > 0 {
		s.SandboxConfig = &v1beta1.SandboxConfig{Labels: labels, Annotations: annotations}
	}
	return s, nil
}

func (o *pullOptions) selectors(s *v1beta1.ImagePullJobSpec) error {
	given := 0
	for _, b := range []bool{len(o.nodes) > 0, o.nodeSelector != "", o.podSelector != ""} {
		if b {
			given++
		}
	}
	if given > 1 {
		return errors.New("use one of --node, --node-selector and --pod-selector")
	}
	switch {
	case len(o.nodes) > 0:
		s.Selector = &v1beta1.ImagePullJobNodeSelector{Names: o.nodes}
	case o.nodeSelector != "":
		sel, err := metav1.ParseToLabelSelector(o.nodeSelector)
		if err != nil {
			return fmt.Errorf("--node-selector: %w", err)
		}
		s.Selector = &v1beta1.ImagePullJobNodeSelector{LabelSelector: *sel}
	case o.podSelector != "":
		sel, err := metav1.ParseToLabelSelector(o.podSelector)
		if err != nil {
			return fmt.Errorf("--pod-selector: %w", err)
		}
		s.PodSelector = &v1beta1.ImagePullJobPodSelector{LabelSelector: *sel}
	}
	return nil
}

func pairs(flag string, words []string) (map[string]string, error) {
	var m map[string]string
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%s %q is not KEY=VALUE", flag, w)
		}
		if m == nil {
			m = map[string]string{}
		}
		m[k] = v
	}
	return m, nil
}

func (o *pullOptions) run(ctx context.Context, args []string) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return out.UsageNext(o.f.Name()+" image pull repo/app:tag", errors.New("name at least one image"))
	}
	if o.name != "" && len(args) > 1 {
		return out.Usagef("--name goes with one image; %d are given", len(args))
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	if _, err := o.wait.min(); err != nil {
		return out.Usage(err)
	}
	var specs []v1beta1.ImagePullJobSpec
	for _, image := range args {
		s, err := o.spec(image)
		if err != nil {
			return out.Usage(err)
		}
		specs = append(specs, s)
	}
	if o.deadline > 0 && o.deadline < o.pullTimeout {
		o.f.Note("--deadline %s is shorter than --pull-timeout %s: an attempt may be cut off", o.deadline, o.pullTimeout)
	}
	var jobs []job
	for _, s := range specs {
		j, err := o.create(ctx, s, opts, format)
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	if !o.wait.wait || opts.DryRun != apply.DryRunNone {
		return nil
	}
	return o.wait.all(ctx, o.f, jobs, format)
}

// create makes the job, or finds the active one that the same command made before.
func (o *pullOptions) create(ctx context.Context, spec v1beta1.ImagePullJobSpec, opts apply.Options, format out.Format) (job, error) {
	doing := "pull image " + spec.Image
	c, err := o.f.Client()
	if err != nil {
		return job{}, &out.Failure{Doing: doing, Cause: err}
	}
	ns, err := o.f.Namespace()
	if err != nil {
		return job{}, err
	}
	m, err := fetch.Version(c.RESTMapper(), target.ImagePullJob)
	if err != nil {
		return job{}, &out.Failure{Doing: doing, Cause: err, Next: o.f.Name() + " version"}
	}
	hub := &v1beta1.ImagePullJob{Spec: spec}
	hub.Namespace, hub.Name = ns, o.name
	if hub.Name == "" {
		if hub.Name, err = pull.Name(spec.Image, o.nodeSelector+"|"+o.podSelector+"|"+strings.Join(o.nodes, ",")); err != nil {
			return job{}, out.Usage(err)
		}
	}
	u, err := encode(hub, m.GroupVersionKind.Version)
	if err != nil {
		return job{}, err
	}
	obj := target.Object{Kind: target.ImagePullJob, GVK: m.GroupVersionKind, Resource: m.Resource, Live: u}
	found, sentence, err := o.existing(ctx, c, obj, spec)
	if err != nil {
		return job{}, err
	}
	if found != nil {
		obj.Live = found
	} else if sentence == "" {
		sentence = "created"
		if opts.DryRun != apply.DryRunClient {
			co := []client.CreateOption{client.FieldOwner(opts.FieldManager)}
			if opts.DryRun == apply.DryRunServer {
				co = append(co, client.DryRunAll)
			}
			if err := c.Create(ctx, u, co...); err != nil {
				return job{}, o.refused(doing, err)
			}
		}
	}
	if err := object.Done(o.f.Out, format, opts, obj, sentence); err != nil {
		return job{}, err
	}
	return decode(obj)
}

// existing looks for a job of the same name: an active one of the same spec is taken, any
// other is in the way unless --force replaces it.
func (o *pullOptions) existing(ctx context.Context, c client.Client, want target.Object, spec v1beta1.ImagePullJobSpec) (*unstructured.Unstructured, string, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(want.GVK)
	err := c.Get(ctx, client.ObjectKeyFromObject(want.Live), u)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", object.Failure(o.f, "pull image by", want, err, "")
	}
	hub, err := hubOf(u)
	if err != nil {
		return nil, "", err
	}
	same := sameSpec(hub.Spec, spec)
	if same && hub.Status.CompletionTime == nil {
		return u, "already active", nil
	}
	if !o.write.Force {
		why := "a job of this name with another spec exists"
		if same {
			why = "a job of this name has finished"
		}
		return nil, "", &out.Failure{Doing: "pull image by " + want.Title(), Cause: errors.New(why),
			Next: "repeat with --force to replace it, or with --name to make another", Object: want.Short()}
	}
	uid := u.GetUID()
	if err := c.Delete(ctx, u, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil && !apierrors.IsNotFound(err) {
		return nil, "", object.Failure(o.f, "replace", want, err, "")
	}
	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(want.Live), u)
		if apierrors.IsNotFound(err) || err == nil && u.GetUID() != uid {
			return nil, "", nil
		}
		if err := o.f.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, "", err
		}
	}
}

// sameSpec compares what this tool sets; defaults of the server do not differ.
func sameSpec(have, want v1beta1.ImagePullJobSpec) bool {
	return have.Image == want.Image && reflect.DeepEqual(have.PullSecrets, want.PullSecrets) &&
		reflect.DeepEqual(have.Selector, want.Selector) && reflect.DeepEqual(have.PodSelector, want.PodSelector) &&
		have.CompletionPolicy.Type == want.CompletionPolicy.Type
}

func encode(hub *v1beta1.ImagePullJob, version string) (*unstructured.Unstructured, error) {
	var obj any = hub
	gvk := v1beta1.GroupVersion.WithKind("ImagePullJob")
	if version == "v1alpha1" {
		old := &v1alpha1.ImagePullJob{}
		old.FromHub(hub)
		obj, gvk = old, v1alpha1.GroupVersion.WithKind("ImagePullJob")
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding the job: %w", err)
	}
	delete(m, "status")
	if meta, ok := m["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// refused translates the webhook's answer when the feature gate is off.
func (o *pullOptions) refused(doing string, err error) error {
	f := &out.Failure{Doing: doing, Cause: err}
	if strings.Contains(err.Error(), "ImagePullJobGate") || strings.Contains(err.Error(), "KruiseDaemon") {
		f.Next = o.f.Name() + " feature-gates enable ImagePullJobGate"
	}
	return f
}

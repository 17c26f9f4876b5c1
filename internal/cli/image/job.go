// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// resolve reads the jobs that the arguments name; a bare word is the name of an
// ImagePullJob, or of an ImageListPullJob where there is none.
func resolve(ctx context.Context, f *factory.Factory, command string, mutates bool, args []string) ([]target.Object, error) {
	v := target.Verb{Command: command, Kinds: jobKinds, Mutates: mutates}
	if len(args) == 0 {
		return nil, out.UsageNext(f.Name()+" "+command+" JOB", errors.New("name at least one job"))
	}
	var jobs []target.Object
	for _, a := range args {
		kinds, name := jobKinds, a
		if strings.Contains(a, "/") {
			names, err := object.Names(f, v, []string{a}, nil)
			if err != nil {
				return nil, err
			}
			kinds, name = names[0].Kinds, names[0].Name
		}
		o, err := resolveOne(ctx, f, v, kinds, name)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, o)
	}
	return jobs, nil
}

func resolveOne(ctx context.Context, f *factory.Factory, v target.Verb, kinds []*target.Kind, name string) (target.Object, error) {
	var first error
	for _, k := range kinds {
		found, err := object.Resolve(ctx, f, v, []target.Name{{Kinds: []*target.Kind{k}, Name: name, Typed: target.Short(k, name)}})
		if err == nil {
			return found[0], nil
		}
		if first == nil {
			first = err
		}
		if !apierrors.IsNotFound(err) {
			break
		}
	}
	return target.Object{}, first
}

// reading is one job as it stands; of status and list exactly one is set.
type reading struct {
	job    target.Object
	status *pull.Status
	list   *pull.List
	// gone: it does not exist any more, or another took its name; the rest is what was seen
	// last, if anything.
	gone bool
}

func (r reading) verdict() pull.Verdict {
	switch {
	case r.status != nil:
		return r.status.Verdict
	case r.list != nil:
		return r.list.Verdict
	}
	return pull.Active
}

func (r reading) message() string {
	switch {
	case r.status != nil:
		return r.status.Message
	case r.list != nil:
		return r.list.Message
	}
	return "never seen"
}

// statuses are the status of a job, or those of the jobs of a list.
func (r reading) statuses() []pull.Status {
	switch {
	case r.status != nil:
		return []pull.Status{*r.status}
	case r.list != nil:
		return r.list.Statuses()
	}
	return nil
}

// code is the exit code of the verdict; a job that goes on has none.
func (r reading) code() int {
	if r.verdict() == pull.Failed {
		return out.CodeFailed
	}
	return out.CodeOK
}

// reader reads jobs together with what they are joined with.
type reader struct {
	f    *factory.Factory
	c    client.Client
	jobs []target.Object
	min  *intstr.IntOrString
	last []reading
	// hidden says that the NodeImages may not be listed; it is said once.
	hidden bool
}

func newReader(f *factory.Factory, c client.Client, jobs []target.Object, minimum *intstr.IntOrString) *reader {
	r := &reader{f: f, c: c, jobs: jobs, min: minimum}
	for _, j := range jobs {
		r.last = append(r.last, reading{job: j})
	}
	return r
}

// read reads every job anew. Jobs that are gone stay as they were seen last.
func (r *reader) read(ctx context.Context) ([]reading, error) {
	nodes, err := r.nodeImages(ctx)
	if err != nil {
		return nil, err
	}
	next := slices.Clone(r.last)
	for i := range next {
		if next[i].gone {
			continue
		}
		fresh, err := fetch.Again(ctx, r.c, next[i].job)
		if apierrors.IsNotFound(err) || err == nil && fresh.Live.GetUID() != next[i].job.Live.GetUID() {
			next[i].gone = true
			continue
		}
		if err != nil {
			return nil, object.Failure(r.f, "image status", next[i].job, err, "")
		}
		if next[i], err = r.join(ctx, fresh, nodes); err != nil {
			return nil, object.Failure(r.f, "image status", fresh, err, "")
		}
	}
	r.last = next
	return next, nil
}

func (r *reader) nodeImages(ctx context.Context) ([]v1beta1.NodeImage, error) {
	if r.hidden {
		return nil, nil
	}
	nodes, err := fetch.List[v1beta1.NodeImage](ctx, r.c, target.NodeImage)
	if apierrors.IsForbidden(err) {
		r.hidden = true
		r.f.Note("details hidden: cannot list nodeimages")
		return nil, nil
	}
	if err != nil {
		return nil, &out.Failure{Doing: "list nodeimages", Cause: err}
	}
	return nodes, nil
}

func (r *reader) join(ctx context.Context, o target.Object, nodes []v1beta1.NodeImage) (reading, error) {
	in := pull.Input{NodeImages: nodes, MinSucceeded: r.min}
	if o.Kind == target.ImagePullJob {
		job, err := fetch.As[v1beta1.ImagePullJob](o.Live)
		if err != nil {
			return reading{}, err
		}
		in.Job = job
		in.PodNodes = r.podNodes(ctx, job.Namespace, job.Spec.PodSelector)
		st := pull.Of(in)
		return reading{job: o, status: &st}, nil
	}
	list, err := fetch.As[v1beta1.ImageListPullJob](o.Live)
	if err != nil {
		return reading{}, err
	}
	jobs, err := fetch.List[v1beta1.ImagePullJob](ctx, r.c, target.ImagePullJob, client.InNamespace(list.Namespace))
	if err != nil {
		return reading{}, fmt.Errorf("listing imagepulljobs: %w", err)
	}
	in.PodNodes = r.podNodes(ctx, list.Namespace, list.Spec.PodSelector)
	l := pull.OfList(list, jobs, in)
	return reading{job: o, list: &l}, nil
}

// podNodes are the nodes of the Pods that a selector means; none when Pods are hidden.
func (r *reader) podNodes(ctx context.Context, ns string, sel *v1beta1.ImagePullJobPodSelector) []string {
	if sel == nil {
		return nil
	}
	nodes, err := nodesOfPods(ctx, r.c, ns, &sel.LabelSelector)
	if err != nil {
		return nil // only the rows of queued nodes are missing then
	}
	return nodes
}

func nodesOfPods(ctx context.Context, c client.Client, ns string, sel *metav1.LabelSelector) ([]string, error) {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: s}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return pull.NodesOf(pods.Items), nil
}

// jobImages are the images of the jobs in the namespace, for completion.
func jobImages(ctx context.Context, f *factory.Factory) []string {
	c, err := f.Client()
	if err != nil {
		return nil
	}
	ns, err := f.Namespace()
	if err != nil {
		return nil
	}
	jobs, err := fetch.List[v1beta1.ImagePullJob](ctx, c, target.ImagePullJob, client.InNamespace(ns))
	if err != nil {
		return nil
	}
	var images []string
	for _, j := range jobs {
		images = append(images, j.Spec.Image)
	}
	slices.Sort(images)
	return slices.Compact(images)
}

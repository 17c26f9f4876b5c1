// SPDX-License-Identifier: Apache-2.0

// Package nodepodprobe keeps one NodePodProbe per Node, and turns the results that the node
// agents write there into conditions, labels and annotations of Pods. Decide is the pure
// part. Rules: podprobe.md 4.
package nodepodprobe

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/freshness"
	"github.com/kruisectl/kruisectl/internal/podmark"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// name of the controller in logs and metrics.
const name = "nodepodprobe-controller"

// Options are what the manager decides.
type Options struct {
	Workers     int                                           // 3 when 0
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request] // nil: the library's
	Clock       clock.PassiveClock                            // nil: the real one
	Writers     int                                           // concurrent writes for one node; 8 when 0
	// Marked are the Pods that this controller and that of PodProbeMarkers wrote; nil: its own.
	Marked *freshness.Writes
}

func (o *Options) complete() {
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Writers == 0 {
		o.Writers = 8
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Marked == nil {
		o.Marked = &freshness.Writes{}
	}
}

// New returns a Reconciler that reads from the cache of c.
func New(c client.Client, live client.Reader, o Options) *Reconciler {
	o.complete()
	return &Reconciler{
		client: c, live: live, options: o,
		marks: podmark.Writer{Client: c, Clock: o.Clock, Marked: o.Marked, Limit: o.Writers, ThroughStatus: true},
	}
}

// Reconciler takes results to Pods.
type Reconciler struct {
	client  client.Client // reads from the cache
	live    client.Reader
	options Options
	marks   podmark.Writer
}

// Reconcile looks at one node and its NodePodProbe; the request's name is that of both.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	snap, err := r.observe(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	return ctrl.Result{}, r.act(ctx, snap, Decide(*snap))
}

func (r *Reconciler) observe(ctx context.Context, name string) (*Snapshot, error) {
	s := &Snapshot{Name: name}
	node, npp := &corev1.Node{}, &v1alpha1.NodePodProbe{}
	switch err := r.client.Get(ctx, types.NamespacedName{Name: name}, node, client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.Node = node
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	switch err := r.client.Get(ctx, types.NamespacedName{Name: name}, npp, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("reading NodePodProbe %s: %w", name, err)
	}
	s.NodeProbe = npp
	return s, r.observeSpec(ctx, s, npp.Spec)
}

// observeSpec reads the Pods and markers that spec names.
func (r *Reconciler) observeSpec(ctx context.Context, s *Snapshot, spec v1alpha1.NodePodProbeSpec) error {
	s.Pods, s.Markers = map[types.NamespacedName]*corev1.Pod{}, map[types.NamespacedName]*v1alpha1.PodProbeMarker{}
	for _, entry := range spec.PodProbes {
		pod, err := r.pod(ctx, keyOf(entry))
		if err != nil {
			return err
		}
		if pod != nil {
			s.Pods[keyOf(entry)] = pod
		}
	}
	for _, key := range podprobe.Markers(spec) {
		marker := &v1alpha1.PodProbeMarker{}
		err := r.client.Get(ctx, key, marker, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading PodProbeMarker %s: %w", key, err)
		}
		if err == nil {
			s.Markers[key] = marker
		}
	}
	return nil
}

// pod reads a Pod, from the API server if the cache is behind our own write; nil when there
// is none.
func (r *Reconciler) pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
	if err == nil && r.options.Marked.Behind(pod, r.options.Clock.Now()) {
		pod = &corev1.Pod{}
		err = r.live.Get(ctx, key, pod)
	}
	if apierrors.IsNotFound(err) {
		r.options.Marked.Forget(key)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Pod %s: %w", key, err)
	}
	return pod, nil
}

// act executes plan. One Pod's failure does not stop the others.
func (r *Reconciler) act(ctx context.Context, snap *Snapshot, plan Plan) error {
	switch {
	case plan.Create != nil:
		if err := r.client.Create(ctx, plan.Create); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating NodePodProbe %s: %w", snap.Name, err)
		}
		log.FromContext(ctx).Info("Created a NodePodProbe", "node", snap.Name)
		return nil
	case plan.Delete:
		err := r.client.Delete(ctx, snap.NodeProbe, client.Preconditions{UID: &snap.NodeProbe.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting NodePodProbe %s: %w", snap.Name, err)
		}
		log.FromContext(ctx).Info("Deleted the NodePodProbe of a node that is gone", "node", snap.Name)
		return nil
	}
	for _, m := range plan.Mark {
		for _, ignored := range m.Marks.Ignored {
			log.FromContext(ctx).V(1).Info("Two results ask for the same", "pod", m.Pod.Namespace+"/"+m.Pod.Name, "detail", ignored)
		}
	}
	err := r.marks.Each(ctx, plan.Mark)
	if plan.Prune {
		err = errors.Join(err, r.prune(ctx, snap))
	}
	return err
}

// prune removes Pods that are gone. On a conflict it looks anew, so that what the other
// writer added stays.
func (r *Reconciler) prune(ctx context.Context, snap *Snapshot) error {
	npp := snap.NodeProbe.DeepCopy()
	first := true
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		s := snap
		if !first {
			npp = &v1alpha1.NodePodProbe{}
			if err := r.live.Get(ctx, types.NamespacedName{Name: snap.Name}, npp); err != nil {
				return err
			}
			s = &Snapshot{Name: snap.Name, NodeProbe: npp}
			if err := r.observeSpec(ctx, s, npp.Spec); err != nil {
				return err
			}
		}
		first = false
		var differs bool
		if npp.Spec, differs = podprobe.Prune(npp.Spec, s.Listed); !differs {
			return nil
		}
		return r.client.Update(ctx, npp)
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("pruning NodePodProbe %s: %w", snap.Name, err)
	}
	return nil
}

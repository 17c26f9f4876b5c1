// SPDX-License-Identifier: Apache-2.0

// Package podprobemarker tells the nodes, in their NodePodProbes, what PodProbeMarkers want
// probed there, and takes it back. Decide is the pure part; the node agents probe, and
// controllers/nodepodprobe carries the results to the Pods. Rules: podprobe.md 3.
package podprobemarker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/freshness"
	"github.com/kruisectl/kruisectl/internal/podmark"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// name of the controller in logs and metrics.
const name = "podprobemarker-controller"

// Options are what the manager decides.
type Options struct {
	Workers     int                                           // 3 when 0
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request] // nil: the library's
	Clock       clock.PassiveClock                            // nil: the real one
	Writers     int                                           // concurrent writes for one marker; 8 when 0
	// Serverless is the gate EnablePodProbeMarkerOnServerless.
	Serverless bool
	// Marked are the Pods that this controller and that of NodePodProbes wrote; nil: its own.
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

// New returns a Reconciler that reads from the cache of c, which must have MarkerIndex.
func New(c client.Client, live client.Reader, o Options) *Reconciler {
	o.complete()
	return &Reconciler{
		client: c, live: live, options: o,
		marks: podmark.Writer{Client: c, Clock: o.Clock, Marked: o.Marked, Limit: o.Writers},
	}
}

// Reconciler takes PodProbeMarkers to the nodes.
type Reconciler struct {
	client  client.Client // reads from the cache
	live    client.Reader
	options Options
	marks   podmark.Writer

	written freshness.Writes // NodePodProbes
	old     history          // of markers that were changed
}

// Reconcile makes the NodePodProbes say what one marker wants.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	marker := &v1alpha1.PodProbeMarker{}
	err := r.client.Get(ctx, req.NamespacedName, marker)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.sweep(ctx, req.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the marker: %w", err)
	}
	if marker.DeletionTimestamp != nil {
		return ctrl.Result{}, r.finish(ctx, marker)
	}
	if err := r.ensureFinalizer(ctx, marker); err != nil {
		return ctrl.Result{}, err
	}
	snap, err := r.observe(ctx, marker)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	plan := Decide(*snap)
	log.FromContext(ctx).V(1).Info("Decided", "matched", plan.Status.MatchedPods, "assign", len(plan.Assign), "mark", len(plan.Mark))
	if err := errors.Join(r.assignAll(ctx, marker, plan.Assign), r.marks.Each(ctx, plan.Mark)); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.forgetOld(ctx, snap); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.writeStatus(ctx, marker, plan.Status)
}

// forgetOld takes back what earlier versions of the marker put on Pods and this one does
// not know. It is best effort: after a restart of the manager nobody remembers them.
func (r *Reconciler) forgetOld(ctx context.Context, snap *Snapshot) error {
	key := client.ObjectKeyFromObject(snap.Marker)
	versions := r.old.of(key)
	if len(versions) == 0 {
		return nil
	}
	if err := r.unmarkAll(ctx, *snap, versions, append(slices.Clone(snap.Others), snap.Marker)); err != nil {
		return err
	}
	r.old.drop(key, len(versions))
	return nil
}

// unmarkAll removes the marks of versions of the marker of snap from the Pods that it selects,
// or has until now. The API server is asked for them: a mark that the cache does not show yet
// would stay for good.
func (r *Reconciler) unmarkAll(ctx context.Context, snap Snapshot, versions, staying []*v1alpha1.PodProbeMarker) error {
	pods, err := r.livePods(ctx, snap.Marker)
	if err != nil {
		return err
	}
	// Pods that leave the selection at this moment may be in the cache alone.
	known := map[types.UID]bool{}
	for _, pod := range pods {
		known[pod.UID] = true
	}
	for _, pod := range slices.Concat(snap.Pods, snap.Lost) {
		if !known[pod.UID] {
			pods = append(pods, pod)
		}
	}
	snap.Pods = pods
	var errs []error
	for _, version := range versions {
		snap.Marker = version
		errs = append(errs, r.marks.Each(ctx, Unmark(snap, staying)))
	}
	return errors.Join(errs...)
}

// finish takes everything back and lets the marker go. Marks on Pods do not hold it up: a
// Pod may refuse them for reasons of its own.
func (r *Reconciler) finish(ctx context.Context, marker *v1alpha1.PodProbeMarker) error {
	if !controllerutil.ContainsFinalizer(marker, v1beta1.PodProbeMarkerFinalizer) {
		return nil
	}
	snap, err := r.observe(ctx, marker)
	if err != nil {
		return fmt.Errorf("observing: %w", err)
	}
	plan := Farewell(*snap)
	if err := r.assignAll(ctx, marker, plan.Assign); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(marker)
	if err := r.unmarkAll(ctx, *snap, append(r.old.of(key), marker), snap.Others); err != nil {
		log.FromContext(ctx).Info("Leaving marks of a deleted marker on Pods", "reason", err.Error())
	}
	r.old.forget(key)
	before := marker.DeepCopy()
	controllerutil.RemoveFinalizer(marker, v1beta1.PodProbeMarkerFinalizer)
	err = r.client.Patch(ctx, marker, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	log.FromContext(ctx).Info("Took back the probes of a deleted marker", "nodes", len(plan.Assign))
	return nil
}

// sweep removes the probes of a marker that does not exist. Its finalizer has seen to that,
// unless somebody removed it by force or the cache was behind.
func (r *Reconciler) sweep(ctx context.Context, key types.NamespacedName) error {
	r.old.forget(key)
	marker := &v1alpha1.PodProbeMarker{}
	marker.Namespace, marker.Name = key.Namespace, key.Name
	left, err := r.nodeProbesOf(ctx, marker)
	if err != nil || len(left) == 0 {
		return err
	}
	if err := r.live.Get(ctx, key, &v1alpha1.PodProbeMarker{}); !apierrors.IsNotFound(err) {
		return err // nil: it is there, and its event will come
	}
	return r.assignAll(ctx, marker, Decide(Snapshot{Marker: marker, NodeProbes: left}).Assign)
}

// assignAll writes the NodePodProbes. One node's failure does not stop the others.
func (r *Reconciler) assignAll(ctx context.Context, marker *v1alpha1.PodProbeMarker, assignments []Assignment) error {
	errs := make([]error, len(assignments))
	var group errgroup.Group
	group.SetLimit(r.options.Writers)
	for i, a := range assignments {
		group.Go(func() error {
			errs[i] = r.assign(ctx, marker, a)
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	return errors.Join(errs...)
}

// assign changes the NodePodProbe that is cached; when another writer came first, the one
// that the API server has now.
func (r *Reconciler) assign(ctx context.Context, marker *v1alpha1.PodProbeMarker, a Assignment) error {
	read := r.nodeProbe
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		npp, err := read(ctx, a.Node)
		if err != nil || npp == nil {
			return err
		}
		read = r.liveNodeProbe
		spec, differs := podprobe.Assign(npp.Spec, marker, a.Pods)
		if !differs {
			return nil
		}
		npp = npp.DeepCopy()
		npp.Spec = spec
		if err := r.client.Update(ctx, npp); err != nil {
			return err
		}
		r.written.Wrote(npp, r.options.Clock.Now())
		return nil
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating NodePodProbe %s: %w", a.Node, err)
	}
	return nil // without NodePodProbe there is no node
}

// ensureFinalizer keeps a marker until its probes are taken back.
func (r *Reconciler) ensureFinalizer(ctx context.Context, marker *v1alpha1.PodProbeMarker) error {
	before := marker.DeepCopy()
	if !controllerutil.AddFinalizer(marker, v1beta1.PodProbeMarkerFinalizer) {
		return nil
	}
	if err := r.client.Patch(ctx, marker, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	return nil
}

// writeStatus writes the status if it differs. Nobody else writes it, so no lock is needed.
func (r *Reconciler) writeStatus(ctx context.Context, marker *v1alpha1.PodProbeMarker, status v1alpha1.PodProbeMarkerStatus) error {
	if marker.Status == status {
		return nil
	}
	changed := marker.DeepCopy()
	changed.Status = status
	if err := r.client.Status().Patch(ctx, changed, client.MergeFrom(marker)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

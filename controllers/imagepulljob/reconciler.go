// SPDX-License-Identifier: Apache-2.0

// Package imagepulljob hands the task of an ImagePullJob to a limited number of NodeImages
// at a time, and sums up what the nodes report. Decide is the pure part; the node agents
// do the pulling. Rules: images.md 6.
package imagepulljob

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
)

// Event reasons on the job.
const (
	// EventSecretMissing: a pull secret does not exist; the job goes on without it.
	EventSecretMissing = "PullSecretNotFound"
	// EventAssignFailed: a NodeImage rejects the task, for example because it is full.
	EventAssignFailed = "FailedAssignNode"
	// EventInvalid: the spec cannot be carried out as it is.
	EventInvalid = "InvalidSpec"
)

const (
	// behindCache is how long to wait for the cache to show our own write, should the event
	// that usually ends the wait not come.
	behindCache = 5 * time.Second
	// lookAfterDelete is how long an active job outlives its deletion: scripts delete one and
	// then wait for it to be gone, and must find it at first (images.md 13, scenario 3). It has
	// the resolution of deletionTimestamp.
	lookAfterDelete, lookAgain = time.Second, 250 * time.Millisecond
	// writers bounds concurrent writes to NodeImages.
	writers = 8
)

// Options are what the manager decides.
type Options struct {
	Workers     int                                           // 3 when 0
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request] // nil: the library's
	Clock       clock.PassiveClock                            // nil: the real one
	Jitter      func(n int32) int32                           // in [0, n); nil: random
	// ConfigNamespace holds the copies of pull secrets; pullsecret.DefaultNamespace when empty.
	ConfigNamespace string
	// ExtraTTLSeconds is --default-ttlseconds-for-always-nodeimage.
	ExtraTTLSeconds int32
}

func (o *Options) complete() {
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Jitter == nil {
		o.Jitter = rand.Int32N
	}
	if o.ConfigNamespace == "" {
		o.ConfigNamespace = pullsecret.DefaultNamespace
	}
}

// Reconciler takes ImagePullJobs closer to their end.
type Reconciler struct {
	Client  client.Client // reads from the cache
	Live    client.Reader
	Secrets *pullsecret.Syncer
	Events  record.EventRecorder
	Options Options

	written freshness // NodeImages by name and jobs by key, as this process wrote them
}

// Reconcile takes one job one step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var job v1beta1.ImagePullJob
	if err := r.Client.Get(ctx, req.NamespacedName, &job); err != nil {
		if apierrors.IsNotFound(err) {
			r.written.forget(jobKey(req.NamespacedName))
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading the job: %w", err)
	}
	now := r.Options.Clock.Now()
	if r.written.behind(jobKey(req.NamespacedName), &job, now) {
		return ctrl.Result{RequeueAfter: behindCache}, nil
	}
	if job.DeletionTimestamp != nil || job.Status.CompletionTime != nil {
		return r.finish(ctx, &job, now)
	}
	if err := r.ensureFinalizer(ctx, &job); err != nil {
		return ctrl.Result{}, err
	}
	snap, err := r.observe(ctx, &job, now)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	if snap == nil {
		return ctrl.Result{RequeueAfter: behindCache}, nil
	}
	plan := Decide(*snap, now)
	log.FromContext(ctx).V(1).Info("Decided", "desired", plan.Status.Desired, "active", plan.Status.Active,
		"succeeded", plan.Status.Succeeded, "failed", plan.Status.Failed, "assign", len(plan.Assign), "waiting", plan.Waiting)

	assigned, actErr := r.act(ctx, snap, plan, now)
	// The nodes that just got the task count as active at once: one write instead of two.
	plan.Status.Active += assigned
	statusErr := r.writeStatus(ctx, &job, plan.Status)
	return ctrl.Result{RequeueAfter: plan.Requeue}, errors.Join(actErr, statusErr)
}

// act gives the task to the nodes of the plan and returns how many did not have it before.
// One node's failure does not stop the others.
func (r *Reconciler) act(ctx context.Context, snap *Snapshot, plan Plan, now time.Time) (int32, error) {
	byName := map[string]*v1beta1.NodeImage{}
	for _, node := range snap.Nodes {
		byName[node.Name] = node
	}
	var assigned atomic.Int32
	errs := make([]error, len(plan.Assign))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, name := range plan.Assign {
		group.Go(func() error {
			isNew, err := r.assignNode(ctx, byName[name], snap, now)
			if isNew {
				assigned.Add(1)
			}
			errs[i] = err
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	return assigned.Load(), errors.Join(errs...)
}

// assignNode changes the NodeImage that was seen; when another writer came first, the one
// that the API server has now.
func (r *Reconciler) assignNode(ctx context.Context, seen *v1beta1.NodeImage, snap *Snapshot, now time.Time) (bool, error) {
	node := &v1beta1.NodeImage{TypeMeta: seen.TypeMeta, ObjectMeta: *seen.ObjectMeta.DeepCopy(), Spec: seen.Spec, Status: seen.Status}
	options := taskOptions{ExtraTTLSeconds: r.Options.ExtraTTLSeconds, Jitter: r.Options.Jitter}
	var isNew bool
	first := true
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !first {
			node = &v1beta1.NodeImage{}
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(seen), node); err != nil {
				return err
			}
		}
		first = false
		var changed bool
		if isNew, changed = assign(node, *snap, options, now); !changed {
			return nil
		}
		if err := r.Client.Update(ctx, node); err != nil {
			return err
		}
		r.written.wrote(nodeKey(node.Name), node, now)
		return nil
	})
	switch {
	case err == nil:
		return isNew, nil
	case apierrors.IsNotFound(err):
		return false, nil // the node is gone; its event brings us back
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		r.Events.Eventf(snap.Job, corev1.EventTypeWarning, EventAssignFailed, "NodeImage %s rejects the task: %v", seen.Name, err)
	}
	return false, fmt.Errorf("assigning the task to NodeImage %s: %w", seen.Name, err)
}

// writeStatus replaces the status if it differs. A patch would leave out status.desired when
// it is 0 before and after, and a status without it is invalid.
func (r *Reconciler) writeStatus(ctx context.Context, job *v1beta1.ImagePullJob, status v1beta1.ImagePullJobStatus) error {
	if apiequality.Semantic.DeepEqual(job.Status, status) {
		return nil
	}
	changed := job.DeepCopy()
	changed.Status = status
	if err := r.Client.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.written.wrote(jobKey(client.ObjectKeyFromObject(job)), changed, r.Options.Clock.Now())
	if status.CompletionTime != nil {
		log.FromContext(ctx).Info("Job completed", "succeeded", status.Succeeded, "failed", status.Failed, "message", status.Message)
	}
	return nil
}

// ensureFinalizer keeps a job findable until its secrets are released.
func (r *Reconciler) ensureFinalizer(ctx context.Context, job *v1beta1.ImagePullJob) error {
	before := job.DeepCopy()
	if !controllerutil.AddFinalizer(job, v1beta1.ImagePullJobFinalizer) {
		return nil
	}
	if err := r.Client.Patch(ctx, job, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	r.written.wrote(jobKey(client.ObjectKeyFromObject(job)), job, r.Options.Clock.Now())
	return nil
}

// finish releases what a deleted or complete job holds, and deletes it when its time is up.
func (r *Reconciler) finish(ctx context.Context, job *v1beta1.ImagePullJob, now time.Time) (ctrl.Result, error) {
	if controllerutil.ContainsFinalizer(job, v1beta1.ImagePullJobFinalizer) {
		if job.Status.CompletionTime == nil && now.Sub(job.DeletionTimestamp.Time) < lookAfterDelete {
			return ctrl.Result{RequeueAfter: lookAgain}, nil
		}
		if err := r.Secrets.Release(ctx, client.ObjectKeyFromObject(job)); err != nil {
			return ctrl.Result{}, fmt.Errorf("releasing pull secrets: %w", err)
		}
		before := job.DeepCopy()
		controllerutil.RemoveFinalizer(job, v1beta1.ImagePullJobFinalizer)
		err := r.Client.Patch(ctx, job, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("removing the finalizer: %w", err)
		}
		r.written.wrote(jobKey(client.ObjectKeyFromObject(job)), job, now)
	}
	ttl := job.Spec.CompletionPolicy.TTLSecondsAfterFinished
	if job.DeletionTimestamp != nil || ttl == nil {
		return ctrl.Result{}, nil
	}
	if left := job.Status.CompletionTime.Add(time.Duration(*ttl) * time.Second).Sub(now); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if err := r.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting the job after its TTL: %w", err)
	}
	log.FromContext(ctx).Info("Deleted a job after its TTL")
	return ctrl.Result{}, nil
}

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
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
)

// Event reasons on the job.
const (
	// EventSecretMissing: a pull secret does not exist; the job goes on without it.
	EventSecretMissing = "PullSecretNotFound"
	// EventAssignFailed: a NodeImage rejects the task, or is full.
	EventAssignFailed = "FailedAssignNode"
	// EventInvalid: the spec cannot be carried out as it is.
	EventInvalid = "InvalidSpec"
)

const (
	// lookAfterDelete is how long an active job outlives its deletion: scripts delete one and
	// then wait for it to be gone, and must find it at first (images.md 13, scenario 3). It has
	// the resolution of deletionTimestamp.
	lookAfterDelete, lookAgain = time.Second, 250 * time.Millisecond
	// writers bounds concurrent writes to NodeImages.
	writers = 8
	// handout is how long one pass hands out the task, however slow the API server is: then
	// the status tells what has happened, and edits of the job are seen.
	handout = 2 * time.Second
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
	// ExpectationTimeout is --expectation-timeout: after how long a write of our own that the
	// cache does not show is logged. It blocks nothing: the API server is asked long before.
	ExpectationTimeout time.Duration
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
	if o.ExpectationTimeout <= 0 {
		o.ExpectationTimeout = 5 * time.Minute
	}
}

// Reconciler takes ImagePullJobs closer to their end. The zero value is not usable; see New.
type Reconciler struct {
	client  client.Client // reads from the cache
	live    client.Reader
	secrets *pullsecret.Syncer
	events  record.EventRecorder
	options Options
	written *expectation.Tracker // what the cache does not show yet, by job
}

// New makes a Reconciler. c reads from the cache, live from the API server.
func New(c client.Client, live client.Reader, secrets *pullsecret.Syncer, recorder record.EventRecorder, o Options) *Reconciler {
	o.complete()
	return &Reconciler{
		client: c, live: live, secrets: secrets, events: recorder, options: o,
		written: expectation.NewTracker(o.Clock, o.ExpectationTimeout, func(job types.NamespacedName) {
			log.Log.Info("The cache has not shown a write for long", "controller", name, "job", job)
		}),
	}
}

// Reconcile takes one job one step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var job v1beta1.ImagePullJob
	if err := r.client.Get(ctx, req.NamespacedName, &job); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, r.forget(ctx, req.NamespacedName)
		}
		return ctrl.Result{}, fmt.Errorf("reading the job: %w", err)
	}
	pending := r.written.Satisfied(ctx, req.NamespacedName, r.cached(ctx, job.Namespace), r.read(r.live, job.Namespace))
	if len(pending.Objects) > 0 {
		return ctrl.Result{RequeueAfter: pending.Wait}, nil
	}
	result, err := r.step(ctx, &job)
	if apierrors.IsConflict(err) {
		// Somebody else was faster: look at what they wrote.
		log.FromContext(ctx).V(1).Info("Trying again", "reason", err.Error())
		return ctrl.Result{RequeueAfter: settle}, nil
	}
	return result, err
}

func (r *Reconciler) step(ctx context.Context, job *v1beta1.ImagePullJob) (ctrl.Result, error) {
	now := r.options.Clock.Now()
	if job.DeletionTimestamp != nil || job.Status.CompletionTime != nil {
		return r.finish(ctx, job, now)
	}
	if err := r.ensureFinalizer(ctx, job); err != nil {
		return ctrl.Result{}, err
	}
	snap, err := r.observe(ctx, job)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	plan := Decide(*snap, now)
	log.FromContext(ctx).V(1).Info("Decided", "desired", plan.Status.Desired, "active", plan.Status.Active,
		"succeeded", plan.Status.Succeeded, "failed", plan.Status.Failed, "assign", len(plan.Assign), "waiting", plan.Waiting)

	assigned, late, actErr := r.act(ctx, snap, plan, now)
	// The nodes that just got the task count as active at once: one write instead of two.
	plan.Status.Active += assigned
	if rejected := rejection(actErr); rejected != "" {
		plan.Status.Message = sentence(plan.Status.Message, rejected)
	}
	statusErr := r.writeStatus(ctx, job, plan)
	wait := plan.Requeue
	if late {
		wait = settle
	}
	return ctrl.Result{RequeueAfter: wait}, errors.Join(actErr, statusErr)
}

// forget drops what is left of a job that is gone, its name on copies of secrets included:
// somebody may have taken the finalizer off by hand.
func (r *Reconciler) forget(ctx context.Context, key types.NamespacedName) error {
	r.written.Forget(key)
	used, err := r.secrets.Used(ctx, key)
	if err != nil || !used {
		return err
	}
	if err := r.secrets.Release(ctx, key); err != nil {
		return fmt.Errorf("releasing pull secrets: %w", err)
	}
	return nil
}

// act gives the task to the nodes of the plan and returns how many did not have it before,
// and whether time was up before all had it. One node's failure does not stop the others.
func (r *Reconciler) act(ctx context.Context, snap *Snapshot, plan Plan, now time.Time) (assigned int32, late bool, err error) {
	byName := map[string]*v1beta1.NodeImage{}
	for _, node := range snap.Nodes {
		byName[node.Name] = node
	}
	var given, left atomic.Int32
	todo := slices.Concat(plan.Refresh, plan.Assign)
	errs := make([]error, len(todo))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, name := range todo {
		group.Go(func() error {
			if r.options.Clock.Since(now) > handout {
				left.Add(1)
				return nil
			}
			isNew, err := r.assignNode(ctx, byName[name], snap, now)
			if isNew {
				given.Add(1)
			}
			errs[i] = err
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	return given.Load(), left.Load() > 0, errors.Join(errs...)
}

// rejectedError says that a NodeImage does not take the task, which a retry may not change.
type rejectedError struct {
	node  string
	cause error
}

func (e *rejectedError) Error() string {
	return fmt.Sprintf("NodeImage %s rejects the task: %v", e.node, e.cause)
}
func (e *rejectedError) Unwrap() error { return e.cause }

// rejection is what the job's status says of err.
func rejection(err error) string {
	var rejected *rejectedError
	if errors.As(err, &rejected) {
		return oneLine(rejected.Error())
	}
	return ""
}

// assignNode changes the NodeImage that was seen; when another writer came first, the one
// that the API server has now.
func (r *Reconciler) assignNode(ctx context.Context, seen *v1beta1.NodeImage, snap *Snapshot, now time.Time) (bool, error) {
	node := &v1beta1.NodeImage{TypeMeta: seen.TypeMeta, ObjectMeta: *seen.ObjectMeta.DeepCopy(), Spec: seen.Spec, Status: seen.Status}
	options := taskOptions{ExtraTTLSeconds: r.options.ExtraTTLSeconds, Jitter: r.options.Jitter}
	var isNew bool
	first := true
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !first {
			node = &v1beta1.NodeImage{}
			if err := r.live.Get(ctx, client.ObjectKeyFromObject(seen), node); err != nil {
				return err
			}
		}
		first = false
		var changed bool
		if isNew, changed = assign(node, *snap, options, now); !changed {
			return nil
		}
		if err := r.client.Update(ctx, node); err != nil {
			return err
		}
		r.wrote(snap.Job, node)
		return nil
	})
	switch {
	case err == nil:
		return isNew, nil
	case apierrors.IsNotFound(err):
		return false, nil // the node is gone; its event brings us back
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err):
		rejected := &rejectedError{seen.Name, err}
		events.Send(r.events, snap.Job, events.Warning, EventAssignFailed, "%s", rejected.Error())
		return false, rejected
	}
	return false, fmt.Errorf("assigning the task to NodeImage %s: %w", seen.Name, err)
}

// writeStatus replaces the status if it differs. A patch would leave out status.desired when
// it is 0 before and after, and a status without it is invalid.
func (r *Reconciler) writeStatus(ctx context.Context, job *v1beta1.ImagePullJob, plan Plan) error {
	if apiequality.Semantic.DeepEqual(job.Status, plan.Status) {
		return nil
	}
	changed := job.DeepCopy()
	changed.Status = plan.Status
	if err := r.client.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.wrote(job, changed)
	if full := fullNodes(plan.Full); full != "" && !strings.Contains(job.Status.Message, full) {
		events.Send(r.events, job, events.Warning, EventAssignFailed, "%s", full)
	}
	if plan.Status.CompletionTime != nil {
		log.FromContext(ctx).Info("Job completed", "succeeded", plan.Status.Succeeded, "failed", plan.Status.Failed, "message", plan.Status.Message)
	}
	return nil
}

// ensureFinalizer keeps a job findable until its secrets are released.
func (r *Reconciler) ensureFinalizer(ctx context.Context, job *v1beta1.ImagePullJob) error {
	before := job.DeepCopy()
	if !controllerutil.AddFinalizer(job, v1beta1.ImagePullJobFinalizer) {
		return nil
	}
	if err := r.client.Patch(ctx, job, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	r.wrote(job, job)
	return nil
}

// finish releases what a deleted or complete job holds, and deletes it when its time is up.
func (r *Reconciler) finish(ctx context.Context, job *v1beta1.ImagePullJob, now time.Time) (ctrl.Result, error) {
	if controllerutil.ContainsFinalizer(job, v1beta1.ImagePullJobFinalizer) {
		if job.Status.CompletionTime == nil && now.Sub(job.DeletionTimestamp.Time) < lookAfterDelete {
			return ctrl.Result{RequeueAfter: lookAgain}, nil
		}
		if len(job.Spec.PullSecrets) > 0 {
			if err := r.secrets.Release(ctx, client.ObjectKeyFromObject(job)); err != nil {
				return ctrl.Result{}, fmt.Errorf("releasing pull secrets: %w", err)
			}
		}
		before := job.DeepCopy()
		controllerutil.RemoveFinalizer(job, v1beta1.ImagePullJobFinalizer)
		err := r.client.Patch(ctx, job, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("removing the finalizer: %w", err)
		}
		if err == nil {
			r.wrote(job, job)
		}
	}
	ttl := job.Spec.CompletionPolicy.TTLSecondsAfterFinished
	if job.DeletionTimestamp != nil || ttl == nil || ofList(job) {
		return ctrl.Result{}, nil
	}
	if left := job.Status.CompletionTime.Add(time.Duration(*ttl) * time.Second).Sub(now); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if err := r.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting the job after its TTL: %w", err)
	}
	log.FromContext(ctx).Info("Deleted a job after its TTL")
	return ctrl.Result{}, nil
}

// ofList reports whether an ImageListPullJob controls job. It has the same TTL, which counts
// from the end of the last of its jobs, and takes them along. One that went before would be
// made again, and pull again.
func ofList(job *v1beta1.ImagePullJob) bool {
	_, is := owned.ControllerOf(job, v1beta1.GroupVersion.WithKind("ImageListPullJob").GroupKind())
	return is
}

// SPDX-License-Identifier: Apache-2.0

// Package imagelistpulljob makes one ImagePullJob for each image of an ImageListPullJob and
// sums up what they report. Decide is the pure part. Rules: images.md 9.
package imagelistpulljob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/slowstart"
)

// Event reasons on the list job. The first two are literally so on the wire.
const (
	EventCreated = "Successful create ImagePullJob"
	EventDeleted = "Successful delete ImagePullJob"
	// EventInvalid: for an image no valid ImagePullJob can be made.
	EventInvalid = "InvalidSpec"
)

const (
	// workers is how many list jobs are reconciled at once; there is no flag.
	workers = 3
	// retrySoon is after how long a conflict is tried again, should no event come before.
	retrySoon = 500 * time.Millisecond
	// parallel bounds concurrent creations.
	parallel = 16
)

// Options are what the manager decides.
type Options struct {
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request] // nil: the library's
	Clock       clock.PassiveClock                            // nil: the real one
	// ExpectationTimeout is --expectation-timeout: after how long a write of our own that the
	// cache does not show is logged. It blocks nothing: the API server is asked long before.
	ExpectationTimeout time.Duration
}

// Reconciler takes ImageListPullJobs closer to their end. The zero value is not usable; see New.
type Reconciler struct {
	client  client.Client // reads from the cache
	live    client.Reader
	events  record.EventRecorder
	clock   clock.PassiveClock
	written *expectation.Tracker
}

// New makes a Reconciler. c reads from the cache, which must have owned.Index on
// ImagePullJobs, live from the API server.
func New(c client.Client, live client.Reader, recorder record.EventRecorder, o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.ExpectationTimeout <= 0 {
		o.ExpectationTimeout = 5 * time.Minute
	}
	return &Reconciler{
		client: c, live: live, events: recorder, clock: o.Clock,
		written: expectation.NewTracker(o.Clock, o.ExpectationTimeout, func(job client.ObjectKey) {
			log.Log.Info("The cache has not shown a write for long", "controller", name, "job", job)
		}),
	}
}

// Reconcile takes one list job one step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var job v1beta1.ImageListPullJob
	if err := r.client.Get(ctx, req.NamespacedName, &job); err != nil {
		if apierrors.IsNotFound(err) {
			r.written.Forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading the list job: %w", err)
	}
	if job.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // the children go with it
	}
	now := r.clock.Now()
	if job.Status.CompletionTime != nil {
		return r.expire(ctx, &job, now)
	}
	children, err := r.children(ctx, &job)
	if err != nil {
		return ctrl.Result{}, err
	}
	pending := r.written.Satisfied(ctx, req.NamespacedName, r.cached(ctx, &job, children), r.reader(&job))
	if len(pending.Objects) > 0 {
		return ctrl.Result{RequeueAfter: pending.Wait}, nil
	}
	plan := Decide(Snapshot{Job: &job, Children: children}, now)
	log.FromContext(ctx).V(1).Info("Decided", "create", len(plan.Create), "delete", len(plan.Delete), "refused", len(plan.Refused), "completed", plan.Status.Completed)
	err = r.execute(ctx, &job, plan)
	switch {
	case apierrors.IsConflict(err):
		// Somebody else was faster: look at what they wrote.
		log.FromContext(ctx).V(1).Info("Trying again", "reason", err.Error())
		return ctrl.Result{RequeueAfter: retrySoon}, nil
	case owned.NamespaceEnds(err), apierrors.IsNotFound(err): // the list job goes, or is gone
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

// execute does what the plan says, and writes the status even when that failed: it is when
// the user looks at it.
func (r *Reconciler) execute(ctx context.Context, job *v1beta1.ImageListPullJob, plan Plan) error {
	if err := r.label(ctx, job, plan.Hash); err != nil {
		return err
	}
	rejected, actErr := r.act(ctx, job, plan)
	plan.Status.FailedImageStatuses = append(plan.Status.FailedImageStatuses, rejected...)
	return errors.Join(actErr, r.writeStatus(ctx, job, plan))
}

// label puts the hash of the template on the list job.
func (r *Reconciler) label(ctx context.Context, job *v1beta1.ImageListPullJob, hash string) error {
	if job.Labels[hashLabel] == hash {
		return nil
	}
	before := job.DeepCopy()
	if job.Labels == nil {
		job.Labels = map[string]string{}
	}
	job.Labels[hashLabel] = hash
	if err := r.client.Patch(ctx, job, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("labelling the list job: %w", err)
	}
	r.wrote(job)
	return nil
}

// act makes and deletes children. It returns those that the API server does not accept.
func (r *Reconciler) act(ctx context.Context, job *v1beta1.ImageListPullJob, plan Plan) (rejected []v1beta1.FailedImageStatus, err error) {
	results := make([]error, len(plan.Create))
	errs := slowstart.Run(len(plan.Create), parallel, slowstart.StopAtAll, func(i int) error {
		results[i] = r.create(ctx, job, plan.Create[i])
		return results[i]
	})
	created := 0
	for i, err := range results {
		child := plan.Create[i]
		switch {
		case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err):
			rejected = append(rejected, v1beta1.FailedImageStatus{Name: child.Spec.Image, Message: "no ImagePullJob can be made: " + err.Error()})
			events.Send(r.events, job, events.Warning, events.JobCreationFailed, "%s: %v", child.Spec.Image, err)
		case err == nil && child.Name != "":
			created++
		}
	}
	deleted := 0
	for _, child := range plan.Delete {
		err := r.remove(ctx, job, child)
		if err == nil {
			deleted++
		}
		errs = append(errs, err)
	}
	if created > 0 {
		events.Send(r.events, job, events.Normal, EventCreated, "Create %d ImagePullJob", created)
	}
	if deleted > 0 {
		events.Send(r.events, job, events.Normal, EventDeleted, "Delete %d ImagePullJob", deleted)
	}
	return rejected, errors.Join(errs...)
}

func (r *Reconciler) create(ctx context.Context, job *v1beta1.ImageListPullJob, child *v1beta1.ImagePullJob) error {
	key, image := client.ObjectKeyFromObject(job), imageObject(child)
	r.written.ExpectCreate(key, image)
	err := r.client.Create(ctx, child)
	if err != nil {
		if owned.Certainly(err) {
			r.written.CancelCreate(key, image)
		}
		return fmt.Errorf("creating the ImagePullJob for %s: %w", child.Spec.Image, err)
	}
	return nil
}

func (r *Reconciler) remove(ctx context.Context, job *v1beta1.ImageListPullJob, child *v1beta1.ImagePullJob) error {
	key, object := client.ObjectKeyFromObject(job), expectation.Object{Kind: kindChild, Name: child.Name}
	r.written.ExpectDelete(key, object, child.UID)
	err := r.client.Delete(ctx, child.DeepCopy(), client.Preconditions{UID: &child.UID})
	if client.IgnoreNotFound(err) != nil {
		r.written.CancelDelete(key, object)
		return fmt.Errorf("deleting ImagePullJob %s: %w", child.Name, err)
	}
	return nil
}

// writeStatus replaces the status if it differs, and tells once of images that cannot be
// pulled with this spec.
func (r *Reconciler) writeStatus(ctx context.Context, job *v1beta1.ImageListPullJob, plan Plan) error {
	if apiequality.Semantic.DeepEqual(job.Status, plan.Status) {
		return nil
	}
	changed := job.DeepCopy()
	changed.Status = plan.Status
	if err := r.client.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.wrote(changed)
	for _, refused := range plan.Refused {
		if !slices.Contains(job.Status.FailedImageStatuses, refused) {
			events.Send(r.events, job, events.Warning, EventInvalid, "%s: %s", refused.Name, refused.Message)
		}
	}
	if plan.Status.CompletionTime != nil {
		log.FromContext(ctx).Info("List job completed", "succeeded", plan.Status.Succeeded, "desired", plan.Status.Desired)
	}
	return nil
}

// expire deletes a complete list job, and with it its children, when its time is up.
func (r *Reconciler) expire(ctx context.Context, job *v1beta1.ImageListPullJob, now time.Time) (ctrl.Result, error) {
	ttl := job.Spec.CompletionPolicy.TTLSecondsAfterFinished
	if ttl == nil {
		return ctrl.Result{}, nil
	}
	if left := job.Status.CompletionTime.Add(time.Duration(*ttl) * time.Second).Sub(now); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if err := r.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting the list job after its TTL: %w", err)
	}
	log.FromContext(ctx).Info("Deleted a list job after its TTL")
	return ctrl.Result{}, nil
}

// children lists what the list job controls. They are read-only.
func (r *Reconciler) children(ctx context.Context, job *v1beta1.ImageListPullJob) ([]*v1beta1.ImagePullJob, error) {
	var list v1beta1.ImagePullJobList
	if err := r.client.List(ctx, &list, client.InNamespace(job.Namespace), owned.By(job.UID), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ImagePullJobs: %w", err)
	}
	children := make([]*v1beta1.ImagePullJob, 0, len(list.Items))
	for i := range list.Items {
		children = append(children, &list.Items[i])
	}
	return children, nil
}

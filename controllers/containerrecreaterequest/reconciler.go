// SPDX-License-Identifier: Apache-2.0

// Package containerrecreaterequest is the manager's part of ContainerRecreateRequests: it
// tells the node agent when restarted containers are ready, keeps the Pod out of service
// before they are stopped, guards deadlines, and cleans up. Decide is the pure part; the
// agent (daemon/recreate) does the work. Rules: container-recreate.md 4 and 5.
package containerrecreaterequest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/newest"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

const (
	// cacheLag is how long a cache may be behind our own writes before the API server is asked.
	cacheLag = 10 * time.Second
	// attempts limits how often one pass starts over with a newer version of the request.
	attempts = 5
)

// Options are what the manager decides.
type Options struct {
	Workers     int                                           // 3 when 0
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request] // nil: the library's
	Clock       clock.PassiveClock                            // nil: the real one
}

func (o *Options) complete() {
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// Reconciler serves requests. Create it with New.
type Reconciler struct {
	client client.Client // reads from the cache
	live   client.Reader
	pods   *podupdate.Updater
	clock  clock.PassiveClock
	known  *newest.Memory[*v1beta1.ContainerRecreateRequest]
}

// New returns a Reconciler that reads from c, and from live what must not be stale.
func New(c client.Client, live client.Reader, clock clock.PassiveClock) *Reconciler {
	return &Reconciler{
		client: c, live: live, clock: clock,
		pods:  &podupdate.Updater{Client: c, Live: live, Clock: clock},
		known: newest.New[*v1beta1.ContainerRecreateRequest](cacheLag),
	}
}

// Reconcile takes one request one step further. A write that somebody else came before
// starts it over with what the API server has now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cached := &v1beta1.ContainerRecreateRequest{}
	if err := r.client.Get(ctx, req.NamespacedName, cached); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading the request: %w", err)
	}
	var err error
	for range attempts {
		request, worth := r.known.Of(cached, r.clock.Now())
		switch worth {
		case newest.Gone:
			return ctrl.Result{}, nil
		case newest.Doubtful:
			if err = r.refresh(ctx, request); err != nil {
				return ctrl.Result{}, err
			}
			continue
		}
		var plan Plan
		if plan, err = r.once(ctx, request); err == nil {
			return ctrl.Result{RequeueAfter: plan.Requeue}, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			break
		}
		if freshErr := r.refresh(ctx, request); freshErr != nil {
			return ctrl.Result{}, freshErr
		}
	}
	return ctrl.Result{}, err
}

// once decides and acts on one version of the request.
func (r *Reconciler) once(ctx context.Context, request *v1beta1.ContainerRecreateRequest) (Plan, error) {
	pod, err := r.pod(ctx, request)
	if err != nil {
		return Plan{}, err
	}
	plan := Decide(Snapshot{Request: request, Pod: pod}, r.clock.Now())
	log.FromContext(ctx).V(1).Info("Decided", "phase", request.Status.Phase, "release", plan.Release, "deactivate", plan.Deactivate,
		"delete", plan.Delete, "end", plan.End, "containers", len(plan.Containers), "drain", plan.Drain, "requeue", plan.Requeue)
	switch {
	case plan.Release || plan.Deactivate:
		return plan, r.cleanUp(ctx, request, plan)
	case plan.Delete:
		return plan, r.remove(ctx, request)
	case plan.End != nil:
		return plan, r.end(ctx, request, *plan.End)
	case plan.Drain:
		return plan, r.drain(ctx, request, pod, plan.Containers)
	case plan.Containers != nil:
		return plan, r.writeContainers(ctx, request, plan.Containers)
	}
	return plan, nil
}

// pod returns the Pod that has the name, or nil. That the right one is gone is believed only
// from the API server: the request may have been admitted by another replica, whose cache
// knew a Pod that ours does not.
func (r *Reconciler) pod(ctx context.Context, request *v1beta1.ContainerRecreateRequest) (*corev1.Pod, error) {
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName}
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
	if err == nil && string(pod.UID) == request.Labels[v1beta1.RecreatePodUIDLabel] {
		return pod, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Pod %s: %w", key, err)
	}
	if recreate.Finished(request) {
		return nil, nil // whom it held, if anybody, is read when it is let go
	}
	pod = &corev1.Pod{}
	err = r.live.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Pod %s: %w", key, err)
	}
	return pod, nil
}

// refresh learns what the API server knows of a request.
func (r *Reconciler) refresh(ctx context.Context, request *v1beta1.ContainerRecreateRequest) error {
	fresh := &v1beta1.ContainerRecreateRequest{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(request), fresh)
	if apierrors.IsNotFound(err) || err == nil && fresh.UID != request.UID {
		r.known.Gone(request, r.clock.Now())
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	r.known.Saw(fresh, r.clock.Now())
	return nil
}

// end completes the request. It fails with a conflict if the request is not as it was seen:
// the node agent may have completed it.
func (r *Reconciler) end(ctx context.Context, request *v1beta1.ContainerRecreateRequest, end recreate.End) error {
	status := request.Status
	end.Apply(request, &status, r.clock.Now())
	fields := map[string]any{
		"phase": status.Phase, "completionTime": status.CompletionTime, "message": status.Message, "conditions": status.Conditions,
	}
	if err := r.patchStatus(ctx, request, fields, true); err != nil {
		return fmt.Errorf("completing the request: %w", err)
	}
	log.FromContext(ctx).Info("Completed a request", "reason", end.Reason, "message", end.Message)
	return nil
}

func (r *Reconciler) writeContainers(ctx context.Context, request *v1beta1.ContainerRecreateRequest, seen []v1beta1.ContainerSnapshot) error {
	if err := r.patchStatus(ctx, request, map[string]any{"containerStatusSnapshot": seen}, false); err != nil {
		return fmt.Errorf("writing the snapshot of containers: %w", err)
	}
	return nil
}

// patchStatus writes fields that belong to the manager; with lock only to the version seen.
func (r *Reconciler) patchStatus(ctx context.Context, request *v1beta1.ContainerRecreateRequest, fields map[string]any, lock bool) error {
	patch := map[string]any{"status": fields}
	if lock {
		patch["metadata"] = map[string]any{"resourceVersion": request.ResourceVersion}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	written := &v1beta1.ContainerRecreateRequest{}
	written.Namespace, written.Name = request.Namespace, request.Name
	if err := r.client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return err
	}
	r.known.Saw(written, r.clock.Now())
	return nil
}

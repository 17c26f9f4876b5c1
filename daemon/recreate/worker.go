// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/newest"
)

const (
	// workers is how many Pods are served at once: a stop takes as long as its grace period.
	workers              = 32
	firstRetry, maxRetry = 500 * time.Millisecond, 50 * time.Second
	// cacheLag is how long a cache may be behind our own writes before the API server is asked.
	cacheLag = 10 * time.Second
	// stepsAtOnce bounds the steps for one Pod before others have their turn.
	stepsAtOnce = 64
)

// Key is one Pod. Requests for another Pod of the same name never wait for those of this one.
type Key struct {
	Namespace, Pod string
	UID            types.UID
}

// KeyOf is the Pod of a request.
func KeyOf(r *v1beta1.ContainerRecreateRequest) Key {
	return Key{Namespace: r.Namespace, Pod: r.Spec.PodName, UID: types.UID(r.Labels[v1beta1.RecreatePodUIDLabel])}
}

// Store is where requests and Pods are. It has the active requests of this node alone.
type Store interface {
	// Requests lists the requests of a Pod from a cache, read-only, in any order.
	Requests(key Key) ([]*v1beta1.ContainerRecreateRequest, error)
	// Request reads one from the API server.
	Request(ctx context.Context, key types.NamespacedName) (*v1beta1.ContainerRecreateRequest, error)
	// PatchStatus patches the status subresource and returns the new version.
	PatchStatus(ctx context.Context, key types.NamespacedName, kind types.PatchType, patch []byte) (*v1beta1.ContainerRecreateRequest, error)
	// Pod returns a Pod of this node, read-only, or a NotFound error. It may lack its init
	// containers: those that keep running are restarted whatever the Pod's policy is.
	Pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error)
}

// Runtimes finds a runtime by the scheme of container IDs.
type Runtimes interface {
	ByName(name string) (cri.Runtime, bool)
}

// Options are what the agent's main decides.
type Options struct {
	Store    Store
	Runtimes Runtimes
	// Events have the component kruise-daemon-crr.
	Events record.EventRecorder
	// Synced reports whether the cache behind Store has been filled; nil is yes.
	Synced  func() bool
	Metrics *Metrics
}

// Worker serves the requests of one node. Create it with New and feed it with Changed and
// Deleted.
type Worker struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[Key]
	known *newest.Memory[*v1beta1.ContainerRecreateRequest]
	now   func() time.Time

	mu       sync.Mutex
	progress map[types.UID]*progress // by request
	stopped  map[Key][]stopped       // in the order in which they were
}

// progress is what this process did for a request.
type progress struct {
	since time.Time
	kills map[string]Kill
}

// stopped is a stop that the request does not tell yet.
type stopped struct {
	request *v1beta1.ContainerRecreateRequest // as it was when the container was stopped
	target  Target
	err     error
}

// New returns a Worker that does nothing before Run.
func New(o Options) *Worker {
	return &Worker{
		o: o,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[Key]{Name: "crr"}),
		known:    newest.New[*v1beta1.ContainerRecreateRequest](cacheLag),
		now:      time.Now,
		progress: map[types.UID]*progress{},
		stopped:  map[Key][]stopped{},
	}
}

// Name identifies the worker in logs and health checks.
func (*Worker) Name() string { return "crrInformerSynced" }

// Ready returns an error until requests can be read.
func (w *Worker) Ready() error {
	if w.o.Synced != nil && !w.o.Synced() {
		return errors.New("not synced")
	}
	return nil
}

// Changed is called for requests that appear in the cache or change there, those that have
// ended included: then it is the turn of the next one.
func (w *Worker) Changed(r *v1beta1.ContainerRecreateRequest) { w.queue.Add(KeyOf(r)) }

// Deleted is called for requests that are gone or not active any more.
func (w *Worker) Deleted(r *v1beta1.ContainerRecreateRequest) {
	w.mu.Lock()
	delete(w.progress, r.UID)
	w.mu.Unlock()
	w.queue.Add(KeyOf(r))
}

// Run serves requests until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for w.serveOne(ctx) {
			}
		})
	}
	<-ctx.Done()
	w.queue.ShutDown()
	group.Wait()
	return nil
}

func (w *Worker) serveOne(ctx context.Context) bool {
	key, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(key)
	again, err := w.serveSafely(ctx, key)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Recreating containers", "pod", klog.KRef(key.Namespace, key.Pod))
		}
		w.queue.AddRateLimited(key)
		return true
	case again > 0:
		w.queue.AddAfter(key, again)
	}
	w.queue.Forget(key)
	return true
}

// serveSafely turns a panic into an error: one odd container must not end the agent.
func (w *Worker) serveSafely(ctx context.Context, key Key) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.serve(ctx, key)
}

// serve takes the requests of a Pod as far as they go now. It returns when to look again.
func (w *Worker) serve(ctx context.Context, key Key) (time.Duration, error) {
	for range stepsAtOnce {
		if err := w.reportStops(ctx, key); err != nil {
			return 0, err
		}
		requests, err := w.requests(ctx, key)
		if err != nil {
			return 0, err
		}
		line := Order(requests)
		if line.Next == nil {
			return 0, nil
		}
		if len(line.Unanswered) > 0 {
			if err := w.answer(ctx, line.Unanswered); err != nil {
				return 0, err
			}
			continue // one of them may turn out to have begun
		}
		more, again, err := w.step(ctx, key, line.Next)
		if err != nil || !more {
			return again, err
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	return firstRetry, nil
}

// requests lists those of a Pod as far as this process knows them.
func (w *Worker) requests(ctx context.Context, key Key) ([]*v1beta1.ContainerRecreateRequest, error) {
	cached, err := w.o.Store.Requests(key)
	if err != nil {
		return nil, fmt.Errorf("listing the requests of Pod %s/%s: %w", key.Namespace, key.Pod, err)
	}
	var requests []*v1beta1.ContainerRecreateRequest
	for _, r := range cached {
		newer, exists, err := w.newest(ctx, r)
		if err != nil {
			return nil, err
		}
		if exists {
			requests = append(requests, newer)
		}
	}
	return requests, nil
}

// newest is the newest known version of a request; false when it does not exist any more.
func (w *Worker) newest(ctx context.Context, r *v1beta1.ContainerRecreateRequest) (*v1beta1.ContainerRecreateRequest, bool, error) {
	newer, worth := w.known.Of(r, w.now())
	if worth == newest.Doubtful {
		return w.refresh(ctx, r)
	}
	return newer, worth == newest.Current, nil
}

// answer tells requests that they wait for another one of their Pod.
func (w *Worker) answer(ctx context.Context, unanswered []*v1beta1.ContainerRecreateRequest) error {
	var errs []error
	for _, r := range unanswered {
		status := r.Status
		status.Phase = v1beta1.RecreatePending
		errs = append(errs, w.writePhase(ctx, r, status))
	}
	return errors.Join(errs...)
}

// step does one thing for the request whose turn it is. It returns whether there may be more
// to do at once, and if not, when to look again.
func (w *Worker) step(ctx context.Context, key Key, r *v1beta1.ContainerRecreateRequest) (more bool, again time.Duration, err error) {
	snap, rt, err := w.observe(ctx, key, r)
	if err != nil {
		if r.Status.Phase == v1beta1.RecreateRecreating {
			return false, 0, err
		}
		// The manager must not think that nobody is here.
		snap = Snapshot{Request: r}
	}
	plan := Decide(snap, w.now())
	klog.FromContext(ctx).V(1).Info("Decided", "request", klog.KObj(r), "begin", plan.Begin, "stop", plan.Stop, "end", plan.End, "requeue", plan.Requeue)
	if err != nil {
		status := r.Status
		status.Phase = v1beta1.RecreateRecreating
		return false, 0, errors.Join(err, w.writePhase(ctx, r, status))
	}
	if plan.Begin || plan.End != nil {
		return true, 0, w.conclude(ctx, r, plan)
	}
	if plan.States != nil && !apiequality.Semantic.DeepEqual(plan.States, r.Status.ContainerRecreateStates) {
		if err := w.writeStates(ctx, r, plan.States); err != nil {
			return false, 0, err
		}
		if plan.Stop != nil {
			return true, 0, nil // what came back may have ended meanwhile
		}
	}
	if plan.Stop != nil {
		w.stop(ctx, key, snap, rt, *plan.Stop)
		return true, 0, nil
	}
	return false, plan.Requeue, nil
}

// conclude writes the beginning or the end of a request.
func (w *Worker) conclude(ctx context.Context, r *v1beta1.ContainerRecreateRequest, plan Plan) error {
	status := r.Status
	if plan.States != nil {
		status.ContainerRecreateStates = plan.States
	}
	if plan.End == nil {
		status.Phase = v1beta1.RecreateRecreating
		w.of(r.UID) // time runs
		return w.writePhase(ctx, r, status)
	}
	now := w.now()
	plan.End.Apply(r, &status, now)
	if err := w.writePhase(ctx, r, status); err != nil {
		return err
	}
	took := now.Sub(w.of(r.UID).since)
	w.o.Metrics.ended(plan.End.Reason, took)
	klog.FromContext(ctx).Info("Ended a request", "request", klog.KObj(r), "reason", plan.End.Reason, "message", plan.End.Message, "took", took)
	w.mu.Lock()
	delete(w.progress, r.UID)
	w.mu.Unlock()
	return nil
}

// of is the progress of a request, which begins now if it is not known.
func (w *Worker) of(uid types.UID) *progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.progress[uid] == nil {
		w.progress[uid] = &progress{since: w.now(), kills: map[string]Kill{}}
	}
	return w.progress[uid]
}

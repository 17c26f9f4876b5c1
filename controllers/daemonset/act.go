// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	"github.com/kruisectl/kruisectl/internal/requeue"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/slowstart"
)

// Reasons of events that only DaemonSets have.
const (
	eventFailedPod    = "FailedDaemonPod"
	eventSucceededPod = "SucceededDaemonPod"
)

// conflictDelay is when to look again after somebody else wrote a Pod at the same time.
// The event of that write usually comes first.
const conflictDelay = time.Second

// overlay collects what became of Pods, concurrently; close puts it into the snapshot.
type overlay struct {
	snap   *snapshot
	wishes requeue.Wishes

	mu      sync.Mutex
	written map[string]*corev1.Pod
	created []*corev1.Pod
}

func (o *overlay) replace(pod *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written == nil {
		o.written = map[string]*corev1.Pod{}
	}
	o.written[pod.Name] = pod
}

func (o *overlay) add(pod *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.created = append(o.created, pod)
}

// close makes the snapshot's Pods those that there are now. Deleted ones stay: they
// terminate, and the next pass sees how far they are.
func (o *overlay) close() {
	pods := slices.Clone(o.created)
	for _, p := range o.snap.Pods {
		if now := o.written[p.Name]; now != nil {
			p = now
		}
		pods = append(pods, p)
	}
	o.snap.Pods = pods
}

// act executes the plan. One Pod's failure does not stop the others, but the first batch of
// creations with a failure is the last one; all errors are returned. Pods that were written
// replace those of the snapshot, so that the status tells of them in the same pass. It
// returns when to look again.
func (r *Reconciler) act(ctx context.Context, snap *snapshot, p *plan.Plan) (time.Duration, error) {
	o := &overlay{snap: snap}
	created := errors.Join(slowstart.Run(len(p.Create), r.parallel, slowstart.StopAtFirst, func(i int) error {
		return r.createPod(ctx, o, p.Create[i])
	})...)
	if owned.NamespaceEnds(created) {
		log.FromContext(ctx).V(1).Info("The namespace is being deleted, no Pod is created", "daemonSet", klog.KObj(snap.Set))
		created = nil
	}
	err := errors.Join(created, r.steps(ctx, o, p.Delete), r.steps(ctx, o, p.Update), r.steps(ctx, o, p.Refresh))
	o.close()
	return o.wishes.First(), err
}

func (r *Reconciler) createPod(ctx context.Context, o *overlay, s plan.Step) error {
	pod := newPod(o.snap.Set, o.snap.Hash(), s.Node, r.newID(), r.toNodes)
	if err := r.writer.Create(ctx, o.snap.key, pod); err != nil {
		if !owned.NamespaceEnds(err) {
			r.event(o.snap, events.Warning, events.CreateFailed, "Error creating: %v", err)
		}
		return fmt.Errorf("creating a Pod for node %s: %w", s.Node, err)
	}
	o.add(pod)
	r.event(o.snap, events.Normal, events.Created, "Created pod: %s", pod.Name)
	return nil
}

// steps executes steps concurrently. A conflict is no failure: the cache was behind, and
// the next pass decides again.
func (r *Reconciler) steps(ctx context.Context, o *overlay, steps []plan.Step) error {
	return errors.Join(slowstart.Run(len(steps), r.parallel, slowstart.NeverStop, func(i int) error {
		err := r.step(ctx, o, steps[i])
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil // a Pod that is gone needs nothing
		case apierrors.IsConflict(err):
			log.FromContext(ctx).V(1).Info("Somebody else wrote the Pod at the same time", "pod", steps[i].Pod, "daemonSet", klog.KObj(o.snap.Set))
			o.wishes.Add(conflictDelay)
			return nil
		}
		return err
	})...)
}

// step executes one step.
func (r *Reconciler) step(ctx context.Context, o *overlay, s plan.Step) error {
	pod := o.snap.pods[s.Pod]
	if pod == nil {
		return nil
	}
	switch s.Do {
	case plan.Delete:
		return r.deletePod(ctx, o, pod, s)
	case plan.Move:
		return r.move(ctx, o, pod, s.Transition)
	case plan.Refresh:
		got, err := r.pods.Refresh(ctx, pod, o.snap.EngineOptions())
		if err != nil {
			return err
		}
		o.wishes.Add(got.RequeueAfter)
		r.written(o, pod, got.Pod)
	case plan.UpdateInPlace:
		return r.updateInPlace(ctx, o, pod, s)
	}
	return nil
}

// move marks a Pod as one that is to be deleted once its hook lets go.
func (r *Reconciler) move(ctx context.Context, o *overlay, pod *corev1.Pod, t lifecycle.Transition) error {
	got, err := r.pods.Patch(ctx, pod, func(p *corev1.Pod) { t.Apply(p, r.clock.Now()) })
	if err != nil {
		return err
	}
	r.written(o, pod, got)
	return nil
}

// written notes a Pod as it came back from the API server.
func (r *Reconciler) written(o *overlay, was, pod *corev1.Pod) {
	if was.ResourceVersion != pod.ResourceVersion {
		r.writer.Wrote(o.snap.key, pod)
	}
	o.replace(pod)
}

func (r *Reconciler) deletePod(ctx context.Context, o *overlay, pod *corev1.Pod, s plan.Step) error {
	switch s.Why {
	case plan.ReasonFailed:
		r.event(o.snap, events.Warning, eventFailedPod, "Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, s.Node)
	case plan.ReasonSucceeded:
		r.event(o.snap, events.Normal, eventSucceededPod, "Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, s.Node)
	}
	if err := r.writer.Delete(ctx, o.snap.key, pod); err != nil {
		if !apierrors.IsConflict(err) {
			r.event(o.snap, events.Warning, events.DeleteFailed, "Error deleting: %v", err)
		}
		return fmt.Errorf("deleting Pod %s: %w", pod.Name, err)
	}
	if s.Why == plan.ReasonFailed || s.Why == plan.ReasonSucceeded {
		r.backoffs.deleted(o.snap.key, o.snap.Set, s.Node, r.clock.Now())
	}
	r.event(o.snap, events.Normal, events.Deleted, "Deleted pod: %s", pod.Name)
	return nil
}

func (r *Reconciler) updateInPlace(ctx context.Context, o *overlay, pod *corev1.Pod, s plan.Step) error {
	target := o.snap.Update
	got, wait, err := r.pods.Start(ctx, pod, s.Spec, target, o.snap.EngineOptions())
	switch {
	case podupdate.IsRejected(err):
		r.event(o.snap, events.Warning, events.InPlaceFailed, "failed to update pod %s in-place(revision %s): %v; it is recreated instead", pod.Name, target.Name, err)
		return r.deleteInstead(ctx, o, pod, s)
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return err
	case err != nil:
		r.event(o.snap, events.Warning, events.InPlaceFailed, "failed to update pod %s in-place(revision %s): %v", pod.Name, target.Name, err)
		return err
	}
	o.wishes.Add(wait)
	r.written(o, pod, got)
	r.event(o.snap, events.Normal, events.UpdatedInPlace, "successfully update pod %s in-place(revision %s)", pod.Name, target.Name)
	return nil
}

// deleteInstead recreates a Pod that the API server does not let be updated in place,
// unless a preDelete hook holds it.
func (r *Reconciler) deleteInstead(ctx context.Context, o *overlay, pod *corev1.Pod, s plan.Step) error {
	live := &corev1.Pod{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), live); err != nil {
		return fmt.Errorf("reading Pod %s: %w", pod.Name, err)
	}
	if d := lifecycle.OnDelete(live, o.snap.Set.Spec.Lifecycle); d.Verdict == lifecycle.Patch {
		return r.move(ctx, o, live, d.Transition)
	}
	return r.deletePod(ctx, o, pod, s)
}

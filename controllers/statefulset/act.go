// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/slowstart"
)

// conflictDelay is when to look again after somebody else wrote an object at the same
// time. The event of that write usually comes first.
const conflictDelay = time.Second

// outcome is what became of a plan.
type outcome struct {
	createErr, updateErr error
	requeue              time.Duration
}

// act executes the plan, list by list. One Pod's failure does not stop the others; all
// errors are returned.
func (r *Reconciler) act(ctx context.Context, snap *snapshot, p *plan.Plan) outcome {
	var done outcome
	if p.Idle() {
		return done
	}
	o := newOverlay(snap)
	refreshErr := r.steps(ctx, o, p.Refresh, slowstart.NeverStop)
	createdClaimErr, claimErr := r.claimSteps(ctx, o, p.Claims)
	done.createErr = errors.Join(createdClaimErr, r.create(ctx, o, p.Create))
	scaleErr := r.steps(ctx, o, p.Scale, slowstart.StopAtAll)
	done.updateErr = errors.Join(refreshErr, claimErr, scaleErr, r.steps(ctx, o, p.Update, slowstart.StopAtAll))
	o.close()
	done.requeue = o.wishes.First()
	return done
}

// steps executes steps concurrently.
func (r *Reconciler) steps(ctx context.Context, o *overlay, steps []plan.Step, p slowstart.Patience) error {
	return errors.Join(slowstart.Run(len(steps), r.parallel, p, func(i int) error {
		return r.tolerate(ctx, o, steps[i].Pod, r.step(ctx, o, steps[i]))
	})...)
}

// tolerate drops errors that are no failures: an object that is gone needs nothing, and
// after a conflict, when the cache was behind, the next pass decides again.
func (r *Reconciler) tolerate(ctx context.Context, o *overlay, object string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		log.FromContext(ctx).V(1).Info("Somebody else wrote the object at the same time", "object", object, "statefulSet", klog.KObj(o.snap.Set))
		o.wishes.Add(conflictDelay)
		return nil
	}
	return err
}

// step executes one step.
func (r *Reconciler) step(ctx context.Context, o *overlay, s plan.Step) error {
	pod := o.pods[s.Pod]
	if pod == nil {
		return nil
	}
	switch s.Do {
	case plan.Delete:
		return r.deletePod(ctx, o, pod)
	case plan.Move:
		return r.patch(ctx, o, pod, r.transition(s))
	case plan.Repair:
		return r.repair(ctx, o, pod, s.Ordinal)
	case plan.Refresh:
		return r.refresh(ctx, o, pod, s)
	case plan.UpdateInPlace:
		return r.updateInPlace(ctx, o, pod, s)
	}
	return nil
}

// transition is the mutation of a step's lifecycle change.
func (r *Reconciler) transition(s plan.Step) podupdate.Mutation {
	return func(p *corev1.Pod) {
		if s.Transition.Rule != "" {
			s.Transition.Apply(p, r.clock.Now())
		}
	}
}

func (r *Reconciler) patch(ctx context.Context, o *overlay, pod *corev1.Pod, m podupdate.Mutation) error {
	got, err := r.updater.Patch(ctx, pod, m)
	if err != nil {
		return err
	}
	r.written(o, pod, got)
	return nil
}

// written notes a Pod as it came back from the API server.
func (r *Reconciler) written(o *overlay, was, pod *corev1.Pod) {
	if was.ResourceVersion != pod.ResourceVersion {
		r.objects.Wrote(o.snap.key, pod)
	}
	o.pod(pod)
}

// repair gives a Pod the labels of its identity.
func (r *Reconciler) repair(ctx context.Context, o *overlay, pod *corev1.Pod, ordinal int) error {
	err := r.patch(ctx, o, pod, func(p *corev1.Pod) { plan.Identity(p, ordinal, r.gates) })
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.podEvent(o.snap, repairing, pod.Name, err)
	}
	return err
}

func (r *Reconciler) refresh(ctx context.Context, o *overlay, pod *corev1.Pod, s plan.Step) error {
	got, err := r.updater.Refresh(ctx, pod, o.snap.EngineOptions(), r.transition(s))
	if err != nil {
		return err
	}
	o.wishes.Add(got.RequeueAfter)
	r.written(o, pod, got.Pod)
	return nil
}

func (r *Reconciler) updateInPlace(ctx context.Context, o *overlay, pod *corev1.Pod, s plan.Step) error {
	target := o.snap.Update
	for _, rev := range o.snap.Revisions {
		if rev.Name == s.Target {
			target = rev
		}
	}
	got, grace, err := r.updater.Start(ctx, pod, s.Spec, target, o.snap.EngineOptions(), r.transition(s))
	switch {
	case podupdate.IsRejected(err) && plan.Policy(o.snap.Set) == v1beta1.InPlaceIfPossiblePodUpdatePolicyType:
		r.event(o.snap, events.Warning, events.InPlaceFailed, "failed to update pod %s in-place(revision %s): %v; it is recreated instead", pod.Name, s.Target, err)
		live := &corev1.Pod{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), live); err != nil {
			return fmt.Errorf("reading Pod %s: %w", pod.Name, err)
		}
		// A mark, not a deletion: hooks are obeyed.
		return r.patch(ctx, o, live, func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, v1beta1.SpecifiedDeleteLabel, "true") })
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return err
	case err != nil:
		r.event(o.snap, events.Warning, events.InPlaceFailed, "failed to update pod %s in-place(revision %s): %v", pod.Name, s.Target, err)
		return err
	}
	o.wishes.Add(grace)
	r.written(o, pod, got)
	r.event(o.snap, events.Normal, events.UpdatedInPlace, "successfully update pod %s in-place(revision %s)", pod.Name, s.Target)
	return nil
}

func (r *Reconciler) deletePod(ctx context.Context, o *overlay, pod *corev1.Pod) error {
	err := r.objects.Delete(ctx, o.snap.key, pod)
	if apierrors.IsConflict(err) { // another Pod has the name by now
		return err
	}
	r.podEvent(o.snap, deleting, pod.Name, err)
	if err != nil {
		r.event(o.snap, events.Warning, events.DeleteFailed, "failed to delete pod %s: %v", pod.Name, err)
		return fmt.Errorf("deleting Pod %s: %w", pod.Name, err)
	}
	o.deleted(pod, metav1.NewTime(r.clock.Now()))
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cloneset

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
	"github.com/kruisectl/kruisectl/internal/requeue"
	"github.com/kruisectl/kruisectl/internal/revision"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/slowstart"
)

// conflictDelay is when to look again after somebody else wrote a Pod at the same time.
// The event of that write usually comes first.
const conflictDelay = time.Second

// outcome is what became of a plan.
type outcome struct {
	scaled, updated     bool // the pass ran, so its failure condition is judged anew
	scaleErr, updateErr error
	requeue             time.Duration
}

// act executes the plan. One Pod's failure does not stop the others; all errors are
// returned. Pods that were written replace those of the snapshot, so that the status
// tells of them in the same pass.
func (r *Reconciler) act(ctx context.Context, snap *snapshot, p *plan.Plan) outcome {
	done := outcome{scaled: true}
	o := &overlay{snap: snap}
	claimErr := r.settleClaims(ctx, snap, p.Claims)
	refreshErr := r.steps(ctx, o, &done, p.Refresh, slowstart.NeverStop)
	r.limitedEvent(snap, p)
	done.scaleErr = errors.Join(claimErr, r.create(ctx, o, p.Create), r.steps(ctx, o, &done, p.Scale, slowstart.StopAtAll))
	done.updateErr = refreshErr
	if p.Create.Total()+len(p.Scale) == 0 && done.scaleErr == nil {
		done.updated = true
		done.updateErr = errors.Join(refreshErr, r.steps(ctx, o, &done, p.Update, slowstart.StopAtAll))
	}
	o.close()
	return done
}

// limitedEvent tells that creation is limited, once per number of Pods: the limit lasts
// for many passes.
func (r *Reconciler) limitedEvent(snap *snapshot, p *plan.Plan) {
	if p.Limited == nil {
		r.limited.Delete(snap.key)
		return
	}
	situation := [2]int64{snap.Set.Generation, int64(len(snap.Pods))}
	if was, known := r.limited.Swap(snap.key, situation); known && was == situation {
		return
	}
	r.event(snap, events.Warning, events.ScaleUpLimited, "scaleUp is limited because of scaleStrategy.maxUnavailable, limit: %d", *p.Limited)
}

// steps executes steps concurrently. A conflict is no failure: the cache was behind, and
// the next pass decides again.
func (r *Reconciler) steps(ctx context.Context, o *overlay, done *outcome, steps []plan.Step, p slowstart.Patience) error {
	if len(steps) == 0 {
		return nil
	}
	o.snap.byName()
	var wishes requeue.Wishes
	errs := slowstart.Run(len(steps), r.parallel, p, func(i int) error {
		err := r.step(ctx, o, &wishes, steps[i])
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil // a Pod that is gone needs nothing
		case apierrors.IsConflict(err):
			log.FromContext(ctx).V(1).Info("Somebody else wrote the Pod at the same time", "pod", steps[i].Pod, "cloneSet", klog.KObj(o.snap.Set))
			wishes.Add(conflictDelay)
			return nil
		}
		return err
	})
	done.requeue = requeue.Soonest(done.requeue, wishes.First())
	return errors.Join(errs...)
}

// step executes one step.
func (r *Reconciler) step(ctx context.Context, o *overlay, wishes *requeue.Wishes, s plan.Step) error {
	pod := o.snap.pods[s.Pod] // made by steps, before anything runs at once
	if pod == nil {
		return nil
	}
	switch s.Do {
	case plan.Delete:
		return r.deletePod(ctx, o, pod, s)
	case plan.Move:
		return r.patch(ctx, o, pod, s, r.transition(s))
	case plan.Refresh:
		return r.refresh(ctx, o, wishes, pod, s)
	case plan.Mark:
		return r.mark(ctx, o, pod, s.Target)
	case plan.UpdateInPlace:
		return r.updateInPlace(ctx, o, wishes, pod, s)
	}
	return nil
}

// transition is the mutation of a step's lifecycle change.
func (r *Reconciler) transition(s plan.Step) podupdate.Mutation {
	return func(p *corev1.Pod) {
		if s.Transition.Rule != "" {
			s.Transition.Apply(p, r.clock.Now())
		}
		if p.Labels[v1beta1.PodTemplateHashLabel] == "" {
			if hash := revision.ShortHash(p.Labels["controller-revision-hash"]); hash != "" {
				p.Labels[v1beta1.PodTemplateHashLabel] = hash
			}
		}
	}
}

// updater writes Pods as the step allows.
func (r *Reconciler) updater(s plan.Step) *podupdate.Updater {
	if s.Free {
		return r.pods.Once()
	}
	return r.pods
}

func (r *Reconciler) patch(ctx context.Context, o *overlay, pod *corev1.Pod, s plan.Step, m podupdate.Mutation) error {
	got, err := r.updater(s).Patch(ctx, pod, m)
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

func (r *Reconciler) refresh(ctx context.Context, o *overlay, wishes *requeue.Wishes, pod *corev1.Pod, s plan.Step) error {
	got, err := r.pods.Refresh(ctx, pod, o.snap.EngineOptions(), r.transition(s))
	if err != nil {
		return err
	}
	wishes.Add(got.RequeueAfter)
	r.written(o, pod, got.Pod)
	return nil
}

func (r *Reconciler) updateInPlace(ctx context.Context, o *overlay, wishes *requeue.Wishes, pod *corev1.Pod, s plan.Step) error {
	target := o.snap.revision(s.Target)
	got, grace, err := r.updater(s).Start(ctx, pod, s.Spec, target, o.snap.EngineOptions(), r.transition(s))
	switch {
	case podupdate.IsRejected(err) && plan.Policy(o.snap.Set) == v1beta1.InPlaceIfPossiblePodUpdatePolicyType:
		r.event(o.snap, events.Warning, events.InPlaceFailed, "failed to update pod %s in-place(revision %s): %v; it is recreated instead", pod.Name, s.Target, err)
		live := &corev1.Pod{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), live); err != nil {
			return fmt.Errorf("reading Pod %s: %w", pod.Name, err)
		}
		return r.mark(ctx, o, live, s.Target)
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return err
	case err != nil:
		r.event(o.snap, events.Warning, events.InPlaceFailed, "failed to update pod %s in-place(revision %s): %v", pod.Name, s.Target, err)
		return err
	}
	wishes.Add(grace)
	r.written(o, pod, got)
	r.event(o.snap, events.Normal, events.UpdatedInPlace, "successfully update pod %s in-place(revision %s)", pod.Name, s.Target)
	return nil
}

// mark labels a Pod for deletion; the next pass deletes it within its limits.
func (r *Reconciler) mark(ctx context.Context, o *overlay, pod *corev1.Pod, target string) error {
	err := r.patch(ctx, o, pod, plan.Step{}, func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, v1beta1.SpecifiedDeleteLabel, "true") })
	if err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			r.event(o.snap, events.Warning, events.MarkFailed, "failed to patch pod %s specified-delete for update(revision %s): %v", pod.Name, target, err)
		}
		return err
	}
	r.event(o.snap, events.Normal, events.MarkedForDeletion, "successfully patch pod %s specified-delete for update(revision %s)", pod.Name, target)
	return nil
}

// deletePod deletes a Pod and, after it, the claims of its instance id.
func (r *Reconciler) deletePod(ctx context.Context, o *overlay, pod *corev1.Pod, s plan.Step) error {
	remove := r.writer.Delete
	if s.Free {
		remove = r.writer.DeleteVersion
	}
	if err := remove(ctx, o.snap.key, pod); err != nil {
		if !apierrors.IsConflict(err) {
			r.event(o.snap, events.Warning, events.DeleteFailed, "failed to delete pod %s: %v", pod.Name, err)
		}
		return fmt.Errorf("deleting Pod %s: %w", pod.Name, err)
	}
	o.remove(pod)
	r.event(o.snap, events.Normal, events.Deleted, "succeed to delete pod %s", pod.Name)

	id := pod.Labels[v1beta1.InstanceIDLabel]
	var errs []error
	for _, c := range o.snap.Claims {
		if id != "" && c.Labels[v1beta1.InstanceIDLabel] == id {
			errs = append(errs, r.deleteClaim(ctx, o.snap, c, "failed to delete pvc %s: %v"))
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) deleteClaim(ctx context.Context, snap *snapshot, c *corev1.PersistentVolumeClaim, failure string) error {
	if err := r.writer.Delete(ctx, snap.key, c); err != nil {
		r.event(snap, events.Warning, events.DeleteFailed, failure, c.Name, err)
		return fmt.Errorf("deleting PersistentVolumeClaim %s: %w", c.Name, err)
	}
	return nil
}

// settleClaims deletes claims whose Pod is gone, and hands those of a Pod that is going to
// that Pod, so that they are collected with it (cloneset.md 8.4, reuse off).
func (r *Reconciler) settleClaims(ctx context.Context, snap *snapshot, steps []plan.ClaimStep) error {
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, c := range snap.Claims {
		claims[c.Name] = c
	}
	var errs []error
	for _, s := range steps {
		claim := claims[s.Claim]
		if s.Owner == "" {
			errs = append(errs, r.deleteClaim(ctx, snap, claim, "failed to clean up PVC %s: %v"))
			continue
		}
		given := claim.DeepCopy()
		given.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(snap.byName()[s.Owner], corev1.SchemeGroupVersion.WithKind("Pod"))}
		for _, ref := range claim.OwnerReferences {
			if ref.UID != snap.Set.UID {
				given.OwnerReferences = append(given.OwnerReferences, ref)
			}
		}
		err := r.client.Patch(ctx, given, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{}))
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the next pass looks again
		case err != nil:
			r.event(snap, events.Warning, events.UpdateFailed, "failed to update PVC %s: %v", claim.Name, err)
			errs = append(errs, fmt.Errorf("giving PersistentVolumeClaim %s to Pod %s: %w", claim.Name, s.Owner, err))
		default:
			r.writer.Wrote(snap.key, given)
		}
	}
	return errors.Join(errs...)
}

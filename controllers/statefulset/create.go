// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/revision"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/slowstart"
)

// create makes Pods with the claims that they lack. The first batch with a failure is the
// last one.
func (r *Reconciler) create(ctx context.Context, o *overlay, list []plan.Creation) error {
	templates := map[string]*corev1.PodTemplateSpec{}
	for _, c := range list {
		if templates[c.Revision] != nil {
			continue
		}
		i := slices.IndexFunc(o.snap.Revisions, func(v *appsv1.ControllerRevision) bool { return v.Name == c.Revision })
		if i < 0 {
			return fmt.Errorf("creating Pod %s: ControllerRevision %s is gone", c.Pod, c.Revision)
		}
		template, err := revision.Template(o.snap.Revisions[i])
		if err != nil {
			return err
		}
		templates[c.Revision] = template
	}
	err := errors.Join(slowstart.Run(len(list), r.parallel, slowstart.StopAtFirst, func(i int) error {
		return r.createPod(ctx, o, templates[list[i].Revision], list[i])
	})...)
	if owned.NamespaceEnds(err) {
		log.FromContext(ctx).V(1).Info("The namespace is being deleted, nothing is created", "statefulSet", klog.KObj(o.snap.Set))
		return nil
	}
	return err
}

// createPod makes the claims of the Pod, then the Pod. That a Pod of this name exists is
// an error too: it is not ours, or the cache will show it.
func (r *Reconciler) createPod(ctx context.Context, o *overlay, template *corev1.PodTemplateSpec, c plan.Creation) error {
	for _, name := range c.Claims {
		if err := r.createClaim(ctx, o, name, c.Ordinal, c.Pod); err != nil {
			return err
		}
	}
	pod := newPod(o.snap.Set, template, c, r.gates, r.clock.Now())
	err := r.objects.Create(ctx, o.snap.key, pod)
	if !apierrors.IsAlreadyExists(err) && !owned.NamespaceEnds(err) {
		r.podEvent(o.snap, creating, c.Pod, err)
	}
	if err != nil {
		return fmt.Errorf("creating Pod %s: %w", c.Pod, err)
	}
	o.pod(pod)
	return nil
}

// createClaim makes the claim of one template for an ordinal. One that exists already
// serves, unless it is going.
func (r *Reconciler) createClaim(ctx context.Context, o *overlay, template string, ordinal int, pod string) error {
	claim := plan.NewClaim(o.snap.Set, plan.ClaimTemplate(o.snap.Set, template), ordinal)
	err := r.objects.Create(ctx, o.snap.key, claim)
	if apierrors.IsAlreadyExists(err) {
		existing := &corev1.PersistentVolumeClaim{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(claim), existing); err != nil {
			return fmt.Errorf("reading PersistentVolumeClaim %s: %w", claim.Name, err)
		}
		if existing.DeletionTimestamp != nil {
			return fmt.Errorf("creating PersistentVolumeClaim %s: the one of this name is being deleted", claim.Name)
		}
		o.claim(existing)
		return nil
	}
	if !owned.NamespaceEnds(err) {
		r.claimEvent(o.snap, creating, claim.Name, pod, err)
	}
	if err != nil {
		return fmt.Errorf("creating PersistentVolumeClaim %s: %w", claim.Name, err)
	}
	o.claim(claim)
	return nil
}

// claimSteps changes claims, all at once. Errors of creation are told apart: they are part
// of another condition.
func (r *Reconciler) claimSteps(ctx context.Context, o *overlay, steps []plan.ClaimStep) (createErr, updateErr error) {
	var made, changed []plan.ClaimStep
	for _, s := range steps {
		if s.Do == plan.CreateClaim {
			made = append(made, s)
		} else {
			changed = append(changed, s)
		}
	}
	createErr = errors.Join(slowstart.Run(len(made), r.parallel, slowstart.StopAtFirst, func(i int) error {
		return r.createClaim(ctx, o, made[i].Template, made[i].Ordinal, made[i].Pod)
	})...)
	if owned.NamespaceEnds(createErr) {
		createErr = nil
	}
	updateErr = errors.Join(slowstart.Run(len(changed), r.parallel, slowstart.StopAtAll, func(i int) error {
		return r.tolerate(ctx, o, changed[i].Claim, r.changeClaim(ctx, o, changed[i]))
	})...)
	return createErr, updateErr
}

// changeClaim writes owners or sizes of a claim.
func (r *Reconciler) changeClaim(ctx context.Context, o *overlay, s plan.ClaimStep) error {
	base := o.claims[s.Claim]
	if base == nil {
		return nil
	}
	next := base.DeepCopy()
	s.Apply(next, o.snap.Set, o.pods[s.Pod])
	next.Spec.Resources.Limits = base.Spec.Resources.Limits // the API server lets only requests change
	err := r.client.Patch(ctx, next, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	settled := err == nil || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err)
	if s.Do == plan.ExpandClaim && settled {
		r.claimEvent(o.snap, resizing, s.Claim, s.Pod, err)
	}
	if err != nil {
		return fmt.Errorf("changing PersistentVolumeClaim %s: %w", s.Claim, err)
	}
	r.objects.Wrote(o.snap.key, next)
	o.claim(next)
	return nil
}

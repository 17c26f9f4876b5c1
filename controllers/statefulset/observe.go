// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/revision"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

// snapshot is what one pass looks at, and what it has learnt by writing.
type snapshot struct {
	plan.Snapshot
	key types.NamespacedName
	// before is the set as it was read, to compare the new status with.
	before *v1beta1.StatefulSet
	// status is the status of this pass.
	status v1beta1.StatefulSetStatus
}

// observe gathers the snapshot. It returns nil when there is nothing to decide: the set is
// gone, or, with a time to wait, the cache is behind our own writes. Objects from the
// cache are shared and must not be changed; the set is a copy.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*snapshot, time.Duration, error) {
	set := &v1beta1.StatefulSet{}
	if err := r.client.Get(ctx, key, set); apierrors.IsNotFound(err) {
		r.objects.Tracker.Forget(key)
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, fmt.Errorf("reading StatefulSet %s: %w", key, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || set.Spec.Selector == nil || selector.Empty() {
		log.FromContext(ctx).Info("The selector is not valid, so nothing is done", "statefulSet", klog.KObj(set))
		return nil, 0, nil //nolint:nilerr // no retry makes a selector valid
	}
	before := set.DeepCopy()
	// Objects exist that never passed the webhook. Templates are left as they are: one that
	// gains defaults would be a new revision.
	v1beta1.SetDefaultsStatefulSet(set, v1beta1.DefaultOptions{AutoDeletePVC: r.gates.AutoDeletePVC, AutoResizePVC: r.gates.AutoResizePVC})

	pods, revisions, err := r.list(ctx, set, selector)
	if err != nil {
		return nil, 0, err
	}
	cached := owned.Lookup(ctx, r.client, key.Namespace, func(l owned.Listed) {
		owned.List(l, pods)
		owned.List(l, revisions)
	})
	pending := r.objects.Tracker.Satisfied(ctx, key, cached, owned.Read(r.live, key.Namespace))
	if len(pending.Objects) > 0 {
		log.FromContext(ctx).V(2).Info("Waiting for the cache", "statefulSet", klog.KObj(set), "pending", pending.String())
		return nil, pending.Wait, nil
	}
	snap := &snapshot{key: key, before: before, Snapshot: plan.Snapshot{Set: set, Gates: r.gates, InPlace: r.engine}}
	if err := r.take(ctx, snap, selector, pods, revisions); err != nil {
		return nil, 0, err
	}
	if err := r.readClaims(ctx, snap); err != nil {
		return nil, 0, err
	}
	return snap, 0, nil
}

// list reads from the cache, without copies, the Pods and revisions that the set owns or
// may adopt.
func (r *Reconciler) list(ctx context.Context, set *v1beta1.StatefulSet, selector labels.Selector) (pods []*corev1.Pod, revisions []*appsv1.ControllerRevision, err error) {
	for _, which := range []client.MatchingFields{owned.By(set.UID), {orphanIndex: set.Name}} {
		var list corev1.PodList
		if err := r.client.List(ctx, &list, client.InNamespace(set.Namespace), which, client.UnsafeDisableDeepCopy); err != nil {
			return nil, nil, fmt.Errorf("listing Pods: %w", err)
		}
		for i := range list.Items {
			pods = append(pods, &list.Items[i])
		}
	}
	var list appsv1.ControllerRevisionList
	if err := r.client.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	for i := range list.Items {
		revisions = append(revisions, &list.Items[i])
	}
	return pods, revisions, nil
}

// take claims what belongs to the set (statefulset.md 7.2, steps 2 to 4), and finds its
// current and update revision.
func (r *Reconciler) take(ctx context.Context, snap *snapshot, selector labels.Selector, pods []*corev1.Pod, revisions []*appsv1.ControllerRevision) error {
	set := snap.Set
	claimer := &owned.Claimer{Writer: r.objects, Live: r.live, Owner: set, Kind: setKind, Selector: selector}
	stored, err := claimAll(ctx, claimer, revisions)
	if err != nil {
		return err
	}
	claimer.Fits = func(o client.Object) bool {
		_, ok := plan.OrdinalOf(set.Name, o.GetName())
		return ok
	}
	if snap.Pods, err = claimAll(ctx, claimer, pods); err != nil {
		return err
	}
	if set.DeletionTimestamp != nil {
		// The garbage collector takes the revisions; none is made anew, the status goes on
		// naming them.
		snap.Update, snap.Current, snap.Revisions = named(set.Status.UpdateRevision), named(set.Status.CurrentRevision), stored
		return nil
	}
	synced, err := r.history().Sync(ctx, revision.OfStatefulSet(set), stored)
	if err != nil {
		return err
	}
	snap.Update, snap.Current, snap.Revisions = synced.Update, synced.Current, synced.Revisions
	set.Status.CollisionCount = synced.CollisionCount // written with the status of this pass
	return nil
}

func named(revision string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: revision}}
}

// claimAll returns those of objects that belong to the set.
func claimAll[T client.Object](ctx context.Context, claimer *owned.Claimer, objects []T) (mine []T, err error) {
	var errs []error
	for _, o := range objects {
		got, err := claimer.Claim(ctx, o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if claimed, ok := got.(T); ok {
			mine = append(mine, claimed)
		}
	}
	return mine, errors.Join(errs...)
}

// manyMissing is how many ordinals without a Pod are looked at: as many as one pass makes.
const manyMissing = 500

// ordinals are those of the Pods, and of the first ones that are missing.
func (r *Reconciler) ordinals(snap *snapshot) map[int]bool {
	all := map[int]bool{}
	for _, p := range snap.Pods {
		if n, ok := plan.OrdinalOf(snap.Set.Name, p.Name); ok {
			all[n] = true
		}
	}
	missing := 0
	for n := range plan.Ordinals(snap.Set, r.gates).Walk() {
		if !all[n] {
			if missing++; missing > manyMissing {
				break
			}
			all[n] = true
		}
	}
	return all
}

// readClaims reads the claims that the set's Pods have or may get, and the storage classes
// when claims may grow.
func (r *Reconciler) readClaims(ctx context.Context, snap *snapshot) error {
	set := snap.Set
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	for n := range r.ordinals(snap) {
		for i := range set.Spec.VolumeClaimTemplates {
			claim := &corev1.PersistentVolumeClaim{}
			key := types.NamespacedName{Namespace: set.Namespace, Name: plan.ClaimName(set.Spec.VolumeClaimTemplates[i].Name, set.Name, n)}
			if err := r.client.Get(ctx, key, claim, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return fmt.Errorf("reading PersistentVolumeClaim %s: %w", key, err)
			}
			snap.Claims = append(snap.Claims, claim)
		}
	}
	if !plan.ExpandsClaims(set, r.gates) {
		return nil
	}
	var classes storagev1.StorageClassList
	if err := r.client.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing StorageClasses: %w", err)
	}
	snap.StorageClasses = map[string]*storagev1.StorageClass{}
	for i := range classes.Items {
		snap.StorageClasses[classes.Items[i].Name] = &classes.Items[i]
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// snapshot is what one pass looks at, and what it has learnt by writing.
type snapshot struct {
	plan.Snapshot
	key types.NamespacedName
	// pods are the Pods of the Snapshot by name, active or not; see byName.
	pods map[string]*corev1.Pod
	// before is the set as it was read, to compare the new status with.
	before *v1beta1.CloneSet
	// status is the status of this pass.
	status v1beta1.CloneSetStatus
}

// belongings are what the cache has of a CloneSet.
type belongings struct {
	pods      []*corev1.Pod
	claims    []*corev1.PersistentVolumeClaim
	revisions []*appsv1.ControllerRevision
}

// observe gathers the snapshot. It returns nil when there is nothing to decide: the set is
// gone or terminating, or, with a time to wait, the cache is behind our own writes.
// Objects from the cache are shared and must not be changed; the set is a copy.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*snapshot, time.Duration, error) {
	set := &v1beta1.CloneSet{}
	if err := r.client.Get(ctx, key, set); apierrors.IsNotFound(err) {
		r.writer.Tracker.Forget(key)
		r.limited.Delete(key)
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, fmt.Errorf("reading CloneSet %s: %w", key, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() {
		log.FromContext(ctx).Info("The selector is not valid, so nothing is done", "cloneSet", klog.KObj(set))
		return nil, 0, nil //nolint:nilerr // no retry makes a selector valid
	}
	if set.DeletionTimestamp != nil {
		return nil, 0, nil // its Pods are left to the garbage collector
	}
	before := set.DeepCopy()
	if r.exclude {
		set.Spec.ScaleStrategy.ExcludePreparingDelete = true
	}
	mine, err := r.list(ctx, set, selector)
	if err != nil {
		return nil, 0, err
	}
	if pending := r.writer.Tracker.Satisfied(ctx, key, owned.Lookup(ctx, r.client, key.Namespace, mine.listed), owned.Read(r.live, key.Namespace)); len(pending.Objects) > 0 {
		log.FromContext(ctx).V(2).Info("Waiting for the cache", "cloneSet", klog.KObj(set), "pending", pending.String())
		return nil, pending.Wait, nil
	}
	snap := &snapshot{key: key, before: before, Snapshot: plan.Snapshot{Set: set, Gates: r.gates, InPlace: r.engine, Claims: liveClaims(mine.claims)}}
	if err := r.sortPods(ctx, snap, mine.pods, selector); err != nil {
		return nil, 0, err
	}
	if err := r.revisions(ctx, snap, mine.revisions); err != nil {
		return nil, 0, err
	}
	snap.NodeLabels, err = r.nodeLabels(ctx, snap)
	return snap, 0, err
}

// list reads what the set owns from the cache, without copies.
func (r *Reconciler) list(ctx context.Context, set *v1beta1.CloneSet, selector labels.Selector) (belongings, error) {
	var o belongings
	byOwner := owned.By(set.UID)
	var err error
	if o.pods, err = r.podsOf(ctx, set.Namespace, set.UID); err != nil {
		return o, err
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.client.List(ctx, &claims, client.InNamespace(set.Namespace), byOwner, client.UnsafeDisableDeepCopy); err != nil {
		return o, fmt.Errorf("listing PersistentVolumeClaims: %w", err)
	}
	for i := range claims.Items {
		o.claims = append(o.claims, &claims.Items[i])
	}
	var revisions appsv1.ControllerRevisionList
	if err := r.client.List(ctx, &revisions, client.InNamespace(set.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return o, fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	for i := range revisions.Items {
		if ref := metav1.GetControllerOfNoCopy(&revisions.Items[i]); ref == nil || ref.UID == set.UID {
			o.revisions = append(o.revisions, &revisions.Items[i])
		}
	}
	return o, nil
}

func liveClaims(claims []*corev1.PersistentVolumeClaim) (out []*corev1.PersistentVolumeClaim) {
	for _, c := range claims {
		if c.DeletionTimestamp == nil {
			out = append(out, c)
		}
	}
	return out
}

// listed adds the belongings to l, for expectations.
func (b belongings) listed(l owned.Listed) {
	owned.List(l, b.pods)
	owned.List(l, b.claims)
	owned.List(l, b.revisions)
}

// sortPods divides Pods into active and inactive, and lets go of active ones that the
// selector does not match any more.
func (r *Reconciler) sortPods(ctx context.Context, snap *snapshot, pods []*corev1.Pod, selector labels.Selector) error {
	var errs []error
	for _, p := range plan.Sorted(pods) {
		switch {
		case !plan.IsActive(p):
			snap.Inactive = append(snap.Inactive, p)
		case !selector.Matches(labels.Set(p.Labels)):
			_, err := r.writer.Release(ctx, snap.key, p, snap.Set.UID)
			errs = append(errs, err)
		default:
			snap.Pods = append(snap.Pods, p)
		}
	}
	return errors.Join(errs...)
}

// byName are the Pods that were observed, by name; most passes need none of them.
func (s *snapshot) byName() map[string]*corev1.Pod {
	if s.pods == nil {
		s.pods = make(map[string]*corev1.Pod, len(s.Pods)+len(s.Inactive))
		for _, list := range [][]*corev1.Pod{s.Inactive, s.Pods} {
			for _, p := range list {
				s.pods[p.Name] = p
			}
		}
	}
	return s.pods
}

// revisions finds current and update revision and stores what is missing (cloneset.md 8.2).
func (r *Reconciler) revisions(ctx context.Context, snap *snapshot, stored []*appsv1.ControllerRevision) error {
	synced, err := r.history.Sync(ctx, revision.OfCloneSet(snap.Set), stored)
	if err != nil {
		return err
	}
	snap.Update, snap.Current, snap.Revisions = synced.Update, synced.Current, synced.Revisions
	snap.Set.Status.CollisionCount = synced.CollisionCount // written with the status of this pass
	return nil
}

// nodeLabels reads the labels of nodes that run Pods of the set, if its template has
// constraints that need them.
func (r *Reconciler) nodeLabels(ctx context.Context, snap *snapshot) (map[string]map[string]string, error) {
	needed := false
	for _, c := range snap.Set.Spec.Template.Spec.TopologySpreadConstraints {
		needed = needed || c.TopologyKey != corev1.LabelHostname
	}
	if !needed {
		return nil, nil
	}
	out := map[string]map[string]string{}
	for _, p := range snap.Pods {
		if _, done := out[p.Spec.NodeName]; done || p.Spec.NodeName == "" {
			continue
		}
		node := &metav1.PartialObjectMetadata{}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		err := r.client.Get(ctx, types.NamespacedName{Name: p.Spec.NodeName}, node)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading Node %s: %w", p.Spec.NodeName, err)
		}
		out[p.Spec.NodeName] = node.Labels
	}
	return out, nil
}

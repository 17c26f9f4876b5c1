// SPDX-License-Identifier: Apache-2.0

package daemonset

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
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/owned"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// eventSelectingAll is the reason of an event about a selector that would select every Pod.
const eventSelectingAll = "SelectingAll"

// snapshot is what one pass looks at, and what it has learnt by writing.
type snapshot struct {
	plan.Snapshot
	key types.NamespacedName
	// pods are Snapshot.Pods by name.
	pods map[string]*corev1.Pod
	// duplicates are stored revisions with the template of Update.
	duplicates []*appsv1.ControllerRevision
	// before is the set as it was read, to compare the new status with.
	before *v1beta1.DaemonSet
}

// belongings are what the cache has of a DaemonSet, and what it may adopt.
type belongings struct {
	pods      []*corev1.Pod
	revisions []*appsv1.ControllerRevision
}

// observe gathers the snapshot. It returns nil when there is nothing to decide: the set is
// gone or terminating, or, with a time to wait, the cache is behind our own writes.
// Objects from the cache are shared and must not be changed; the set is a copy.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*snapshot, time.Duration, error) {
	set := &v1beta1.DaemonSet{}
	if err := r.client.Get(ctx, key, set); apierrors.IsNotFound(err) {
		r.writer.Tracker.Forget(key)
		r.backoffs.forget(key)
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, fmt.Errorf("reading DaemonSet %s: %w", key, err)
	}
	if set.DeletionTimestamp != nil {
		return nil, 0, nil // its Pods are left to the garbage collector
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		log.FromContext(ctx).Info("The selector is not valid, so nothing is done", "daemonSet", klog.KObj(set))
		return nil, 0, nil //nolint:nilerr // no retry makes a selector valid
	}
	if selector.Empty() {
		events.Send(r.events, set, events.Warning, eventSelectingAll, "This daemon set is selecting all pods. A non-empty selector is required.")
		return nil, 0, nil
	}
	snap := &snapshot{key: key, before: set.DeepCopy(), Snapshot: plan.Snapshot{Set: set, Gates: r.gates, InPlace: r.engine}}
	v1beta1.SetDefaultsDaemonSet(set, v1beta1.DefaultOptions{})
	mine, err := r.list(ctx, set, selector)
	if err != nil {
		return nil, 0, err
	}
	lookup := owned.Lookup(ctx, r.client, key.Namespace, func(l owned.Listed) {
		owned.List(l, mine.pods)
		owned.List(l, mine.revisions)
	})
	if pending := r.writer.Tracker.Satisfied(ctx, key, lookup, owned.Read(r.live, key.Namespace)); len(pending.Objects) > 0 {
		log.FromContext(ctx).V(2).Info("Waiting for the cache", "daemonSet", klog.KObj(set), "pending", pending.String())
		return nil, pending.Wait, nil
	}
	if err := r.claim(ctx, snap, mine, selector); err != nil {
		return nil, 0, err
	}
	if err := r.nodes(ctx, snap); err != nil {
		return nil, 0, err
	}
	if wait, err := r.relabel(ctx, snap); wait > 0 || err != nil {
		return nil, wait, err
	}
	snap.Backoffs = r.backoffs.of(key, set)
	return snap, 0, nil
}

// list reads what the set owns, and what nobody owns and the selector matches, from the
// cache, without copies.
func (r *Reconciler) list(ctx context.Context, set *v1beta1.DaemonSet, selector labels.Selector) (belongings, error) {
	var b belongings
	for _, which := range []client.MatchingFields{owned.By(set.UID), {orphans: "true"}} {
		var pods corev1.PodList
		if err := r.client.List(ctx, &pods, client.InNamespace(set.Namespace), which, client.UnsafeDisableDeepCopy); err != nil {
			return b, fmt.Errorf("listing Pods: %w", err)
		}
		for i := range pods.Items {
			b.pods = append(b.pods, &pods.Items[i])
		}
	}
	var revisions appsv1.ControllerRevisionList
	if err := r.client.List(ctx, &revisions, client.InNamespace(set.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return b, fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	for i := range revisions.Items {
		b.revisions = append(b.revisions, &revisions.Items[i])
	}
	return b, nil
}

// claim adopts and releases Pods and revisions, then finds the update revision.
func (r *Reconciler) claim(ctx context.Context, snap *snapshot, mine belongings, selector labels.Selector) error {
	c := &owned.Claimer{
		Writer: r.writer, Live: r.live, Owner: snap.Set, Kind: v1beta1.GroupVersion.WithKind("DaemonSet"), Selector: selector,
	}
	var errs []error
	snap.pods = make(map[string]*corev1.Pod, len(mine.pods))
	for _, p := range mine.pods {
		obj, err := c.Claim(ctx, p)
		errs = append(errs, err)
		if pod, ok := obj.(*corev1.Pod); ok && pod != nil {
			snap.Pods = append(snap.Pods, pod)
			snap.pods[pod.Name] = pod
		}
	}
	var revisions []*appsv1.ControllerRevision
	for _, v := range mine.revisions {
		obj, err := c.Claim(ctx, v)
		errs = append(errs, err)
		if rev, ok := obj.(*appsv1.ControllerRevision); ok && rev != nil {
			revisions = append(revisions, rev)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.syncHistory(ctx, snap, revisions)
}

// nodes lists all nodes from the cache, without copies.
func (r *Reconciler) nodes(ctx context.Context, snap *snapshot) error {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	snap.Nodes = make([]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		snap.Nodes[i] = &nodes.Items[i]
	}
	return nil
}

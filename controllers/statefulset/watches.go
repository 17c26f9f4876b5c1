// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/owned"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

// orphanIndex is the field index of Pods without a controller by the name of the set they
// may belong to.
const orphanIndex = "orphanOfStatefulSet"

// addIndexes adds the indexes where no other controller has done so before.
func addIndexes(mgr ctrl.Manager, preDownload bool) error {
	ctx := context.Background()
	objects := []client.Object{&corev1.Pod{}}
	if preDownload {
		objects = append(objects, &v1beta1.ImagePullJob{})
	}
	if err := owned.AddIndexes(ctx, mgr.GetFieldIndexer(), objects...); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, orphanIndex, orphanOf); err != nil {
		return fmt.Errorf("indexing orphans: %w", err)
	}
	return nil
}

func orphanOf(o client.Object) []string {
	if metav1.GetControllerOfNoCopy(o) == nil {
		if set, ok := parentOf(o.GetName()); ok {
			return []string{set}
		}
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watch starts the sources of statefulset.md 7.1.
func watch(mgr ctrl.Manager, c controller.Controller, gates plan.Gates) error {
	cache := mgr.GetCache()
	w := watches{sets: mgr.GetClient(), gates: gates}
	sources := []source.Source{
		source.Kind(cache, &v1beta1.StatefulSet{}, &handler.TypedEnqueueRequestForObject[*v1beta1.StatefulSet]{}),
		source.Kind(cache, &corev1.Pod{}, w.pods()),
		source.Kind(cache, &corev1.PersistentVolumeClaim{}, w.claims()),
	}
	if gates.AutoResizePVC {
		sources = append(sources, source.Kind(cache, &storagev1.StorageClass{}, w.classes()))
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("starting a watch: %w", err)
		}
	}
	return nil
}

// watches finds out which set an event is about.
type watches struct {
	sets  client.Reader
	gates plan.Gates
}

func enqueue(q queue, key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) }

// pods wakes the set that controls a Pod or did so, the set that may adopt an orphan, and
// the set whose Pod's name becomes free when another's Pod goes.
func (w watches) pods() handler.TypedEventHandler[*corev1.Pod, reconcile.Request] {
	present := func(ctx context.Context, p *corev1.Pod, q queue) {
		if key, ok := owned.ControllerOf(p, setKind.GroupKind()); ok {
			enqueue(q, key)
			return
		}
		if metav1.GetControllerOfNoCopy(p) != nil || p.DeletionTimestamp != nil {
			return
		}
		if set := w.parent(ctx, p); set != nil && selects(set, p) {
			enqueue(q, client.ObjectKeyFromObject(set))
		}
	}
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) { present(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) {
			if e.ObjectOld.ResourceVersion == e.ObjectNew.ResourceVersion {
				return // a resync
			}
			if was, owned := owned.ControllerOf(e.ObjectOld, setKind.GroupKind()); owned {
				enqueue(q, was)
			}
			present(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) {
			if key, ok := owned.ControllerOf(e.Object, setKind.GroupKind()); ok {
				enqueue(q, key)
			} else if set := w.parent(ctx, e.Object); set != nil {
				enqueue(q, client.ObjectKeyFromObject(set))
			}
		},
	}
}

// parent is the set that a Pod has its name from; nil if there is none.
func (w watches) parent(ctx context.Context, p *corev1.Pod) *v1beta1.StatefulSet {
	name, ok := parentOf(p.Name)
	if !ok {
		return nil
	}
	set := &v1beta1.StatefulSet{}
	if err := w.sets.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: name}, set, client.UnsafeDisableDeepCopy); err != nil {
		return nil // it does not exist, or the cache is not there yet and will show it
	}
	return set
}

func selects(set *v1beta1.StatefulSet, o client.Object) bool {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(o.GetLabels()))
}

// claims wakes the set of a claim when the claim goes or changes in what a decision reads.
func (w watches) claims() handler.TypedEventHandler[*corev1.PersistentVolumeClaim, reconcile.Request] {
	return handler.TypedFuncs[*corev1.PersistentVolumeClaim, reconcile.Request]{
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.PersistentVolumeClaim], q queue) {
			if claimChanged(e.ObjectOld, e.ObjectNew) {
				w.enqueueClaim(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.PersistentVolumeClaim], q queue) {
			w.enqueueClaim(ctx, e.Object, q)
		},
	}
}

// enqueueClaim goes by the annotation and, without it, by the name, which several sets
// may be able to have made.
func (w watches) enqueueClaim(ctx context.Context, c *corev1.PersistentVolumeClaim, q queue) {
	if set := c.Annotations[v1beta1.OwnedByStatefulSetAnnotation]; set != "" {
		enqueue(q, types.NamespacedName{Namespace: c.Namespace, Name: set})
		return
	}
	if _, ok := parentOf(c.Name); !ok {
		return
	}
	var sets v1beta1.StatefulSetList
	if err := w.sets.List(ctx, &sets, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Finding the StatefulSet of a claim", "claim", c.Name)
		return
	}
	for i := range sets.Items {
		if claimOf(&sets.Items[i], c.Name) {
			enqueue(q, client.ObjectKeyFromObject(&sets.Items[i]))
		}
	}
}

// classes wakes the sets that may wait for a storage class to allow expansion.
func (w watches) classes() handler.TypedEventHandler[*storagev1.StorageClass, reconcile.Request] {
	allows := func(c *storagev1.StorageClass) bool { return c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion }
	wake := func(ctx context.Context, q queue) {
		var sets v1beta1.StatefulSetList
		if err := w.sets.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Finding the StatefulSets that wait for a storage class")
			return
		}
		for i := range sets.Items {
			if s := &sets.Items[i]; plan.ExpandsClaims(s, w.gates) && len(s.Spec.VolumeClaimTemplates) > 0 {
				enqueue(q, client.ObjectKeyFromObject(s))
			}
		}
	}
	return handler.TypedFuncs[*storagev1.StorageClass, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*storagev1.StorageClass], q queue) {
			if allows(e.Object) && !e.IsInInitialList {
				wake(ctx, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*storagev1.StorageClass], q queue) {
			if allows(e.ObjectNew) && !allows(e.ObjectOld) {
				wake(ctx, q)
			}
		},
	}
}

func claimChanged(old, claim *corev1.PersistentVolumeClaim) bool {
	return (old.DeletionTimestamp == nil) != (claim.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(old.OwnerReferences, claim.OwnerReferences) ||
		!equality.Semantic.DeepEqual(old.Spec.Resources, claim.Spec.Resources) ||
		!equality.Semantic.DeepEqual(old.Status.Capacity, claim.Status.Capacity) ||
		!equality.Semantic.DeepEqual(old.Status.Conditions, claim.Status.Conditions)
}

// SPDX-License-Identifier: Apache-2.0

package podprobemarker

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/nodestate"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// settle is how long what is not urgent waits for more of its kind: Pods that end, nodes
// that join, and what others, or we ourselves, wrote into a NodePodProbe.
const settle = time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add runs the controller in mgr. It adds the index podProbeMarker on NodePodProbes.
func Add(mgr ctrl.Manager, o Options) error {
	o.complete()
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.NodePodProbe{}, MarkerIndex, MarkersOf); err != nil {
		return fmt.Errorf("indexing NodePodProbes: %w", err)
	}
	r := New(mgr.GetClient(), mgr.GetAPIReader(), o)
	err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		Watches(&v1alpha1.PodProbeMarker{}, r.MarkerEvents()).
		Watches(&corev1.Pod{}, r.PodEvents()).
		Watches(&v1alpha1.NodePodProbe{}, r.NodeProbeEvents()).
		Watches(&corev1.Node{}, r.NodeEvents()).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers, RateLimiter: o.RateLimiter}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

// MarkerEvents wakes a marker that appears, goes or changes what it wants. Deletion arrives
// as a change, because of the finalizer.
func (r *Reconciler) MarkerEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			enqueue(q, 0, client.ObjectKeyFromObject(e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.PodProbeMarker), e.ObjectNew.(*v1alpha1.PodProbeMarker)
			if before.Generation == after.Generation && before.UID == after.UID {
				return
			}
			r.old.add(before, after)
			enqueue(q, 0, client.ObjectKeyFromObject(after))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			enqueue(q, 0, client.ObjectKeyFromObject(e.Object))
		},
	}
}

// markers lists the markers of a namespace, of all when it is empty. Read-only.
func (r *Reconciler) markers(ctx context.Context, namespace string) []v1alpha1.PodProbeMarker {
	list := &v1alpha1.PodProbeMarkerList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing PodProbeMarkers")
	}
	return list.Items
}

// PodEvents wakes the markers of Pods that become ready to be probed, move, or change in
// what markers look at. A Pod may be seen for the first time when all that has happened.
func (r *Reconciler) PodEvents() handler.EventHandler {
	created := func(ctx context.Context, pod *corev1.Pod, q queue) {
		if podprobe.Probeable(pod) {
			r.wake(ctx, q, 0, pod.Namespace, func(m *v1alpha1.PodProbeMarker) bool { return podprobe.Follows(m, pod) })
		}
	}
	deleted := func(ctx context.Context, pod *corev1.Pod, q queue) {
		r.wake(ctx, q, settle, pod.Namespace, func(m *v1alpha1.PodProbeMarker) bool { return podprobe.Selects(m, pod) })
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { created(ctx, e.Object.(*corev1.Pod), q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if before.UID != after.UID { // the watch missed the end of the one before
				deleted(ctx, before, q)
				created(ctx, after, q)
				return
			}
			r.podChanged(ctx, q, before, after)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { deleted(ctx, e.Object.(*corev1.Pod), q) },
	}
}

func (r *Reconciler) podChanged(ctx context.Context, q queue, before, after *corev1.Pod) {
	was, is := podprobe.Probeable(before), podprobe.Probeable(after)
	switch {
	case !was && !is:
	case was && !is: // the count changes, and its probes go with the NodePodProbe controller
		r.wake(ctx, q, settle, after.Namespace, func(m *v1alpha1.PodProbeMarker) bool { return podprobe.Selects(m, before) })
	case !was || before.Status.PodIP != after.Status.PodIP:
		r.wake(ctx, q, 0, after.Namespace, func(m *v1alpha1.PodProbeMarker) bool { return podprobe.Follows(m, after) })
	case !maps.Equal(before.Labels, after.Labels):
		r.wake(ctx, q, 0, after.Namespace, func(m *v1alpha1.PodProbeMarker) bool {
			return podprobe.Selects(m, before) != podprobe.Selects(m, after)
		})
	}
	if is && r.options.Serverless && r.onVirtualNode(ctx, after) {
		changed := changedConditions(before, after)
		r.wake(ctx, q, 0, after.Namespace, func(m *v1alpha1.PodProbeMarker) bool {
			return podprobe.Follows(m, after) && writesOneOf(m, changed)
		})
	}
}

// wake enqueues the markers of a namespace that concerns accepts.
func (r *Reconciler) wake(ctx context.Context, q queue, after time.Duration, namespace string, concerns func(*v1alpha1.PodProbeMarker) bool) {
	markers := r.markers(ctx, namespace)
	for i := range markers {
		if concerns(&markers[i]) {
			enqueue(q, after, client.ObjectKeyFromObject(&markers[i]))
		}
	}
}

func enqueue(q queue, after time.Duration, key types.NamespacedName) {
	if after == 0 {
		q.Add(reconcile.Request{NamespacedName: key})
		return
	}
	q.AddAfter(reconcile.Request{NamespacedName: key}, after)
}

func (r *Reconciler) onVirtualNode(ctx context.Context, pod *corev1.Pod) bool {
	node := &corev1.Node{}
	err := r.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy)
	return err == nil && nodestate.IsVirtual(node)
}

// changedConditions are the types whose status changed or is new.
func changedConditions(before, after *corev1.Pod) map[string]bool {
	changed := map[string]bool{}
	for _, c := range after.Status.Conditions {
		if podprobe.ConditionStatus(before, string(c.Type)) != c.Status {
			changed[string(c.Type)] = true
		}
	}
	return changed
}

func writesOneOf(m *v1alpha1.PodProbeMarker, conditions map[string]bool) bool {
	for i := range m.Spec.Probes {
		if conditions[m.Spec.Probes[i].PodConditionType] {
			return true
		}
	}
	return false
}

// NodeProbeEvents wakes all markers when a node gets its NodePodProbe: each may have Pods
// there that wait for it. Markers whose probes are in a NodePodProbe that appears or changes
// look whether they are as they should be, those that do not exist any more included.
func (r *Reconciler) NodeProbeEvents() handler.EventHandler {
	owners := func(q queue, objects ...client.Object) {
		for _, obj := range objects {
			for _, key := range podprobe.Markers(obj.(*v1alpha1.NodePodProbe).Spec) {
				enqueue(q, settle, key)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			owners(q, e.Object)
			r.wake(ctx, q, settle, "", func(*v1alpha1.PodProbeMarker) bool { return true })
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.GetGeneration(), e.ObjectNew.GetGeneration()
			if before == after && e.ObjectOld.GetUID() == e.ObjectNew.GetUID() {
				return
			}
			owners(q, e.ObjectOld, e.ObjectNew)
			if after != before+1 { // versions were missed, and who knows what they listed
				r.wake(ctx, q, settle, "", func(*v1alpha1.PodProbeMarker) bool { return true })
			}
		},
	}
}

// NodeEvents wakes all markers when a node comes or goes, for its Pods may be seen before it
// and outlive it, or when it becomes another kind of node.
func (r *Reconciler) NodeEvents() handler.EventHandler {
	all := func(ctx context.Context, q queue) {
		r.wake(ctx, q, settle, "", func(*v1alpha1.PodProbeMarker) bool { return true })
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { all(ctx, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if nodestate.IsVirtual(e.ObjectOld.(*corev1.Node)) != nodestate.IsVirtual(e.ObjectNew.(*corev1.Node)) {
				all(ctx, q)
			}
		},
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { all(ctx, q) },
	}
}

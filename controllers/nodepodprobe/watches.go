// SPDX-License-Identifier: Apache-2.0

package nodepodprobe

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add runs the controller in mgr.
func Add(mgr ctrl.Manager, o Options) error {
	o.complete()
	r := New(mgr.GetClient(), mgr.GetAPIReader(), o)
	err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&v1alpha1.NodePodProbe{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: Changed})).
		Watches(&corev1.Node{}, r.NodeEvents()).
		Watches(&corev1.Pod{}, r.PodEvents()).
		Watches(&v1alpha1.PodProbeMarker{}, r.MarkerEvents()).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers, RateLimiter: o.RateLimiter}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

// Changed passes new results, and new lists of Pods: results may have waited for them.
func Changed(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.NodePodProbe), e.ObjectNew.(*v1alpha1.NodePodProbe)
	return before.UID != after.UID || before.Generation != after.Generation || !apiequality.Semantic.DeepEqual(before.Status, after.Status)
}

func enqueue(q queue, node string) {
	q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
}

// nodeProbe reads from the cache, for looking only; nil when there is none.
func (r *Reconciler) nodeProbe(ctx context.Context, node string) *v1alpha1.NodePodProbe {
	npp := &v1alpha1.NodePodProbe{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: node}, npp, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	return npp
}

// NodeEvents enqueues a node whose NodePodProbe has to be created or deleted. Nodes are
// updated every few seconds; almost none of that matters here.
func (r *Reconciler) NodeEvents() handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, q queue) {
		node := obj.(*corev1.Node)
		exists := r.nodeProbe(ctx, node.Name) != nil
		if exists && node.DeletionTimestamp != nil || !exists && Wants(node) {
			enqueue(q, node.Name)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object.GetName()) },
	}
}

// PodEvents enqueues the node of a listed Pod that ends. One that is being deleted counts as
// ended: its probes stop while it still shuts down.
func (r *Reconciler) PodEvents() handler.EventHandler {
	ended := func(ctx context.Context, pod *corev1.Pod, q queue) {
		if pod.Spec.NodeName == "" {
			return
		}
		npp := r.nodeProbe(ctx, pod.Spec.NodeName)
		if npp != nil && slices.ContainsFunc(npp.Spec.PodProbes, func(p v1alpha1.PodProbe) bool { return p.UID == pod.UID }) {
			enqueue(q, pod.Spec.NodeName)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if podprobe.Active(before) && (!podprobe.Active(after) || before.UID != after.UID) {
				ended(ctx, before, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			pod := e.Object.(*corev1.Pod)
			r.options.Marked.Forget(client.ObjectKeyFromObject(pod))
			ended(ctx, pod, q)
		},
	}
}

// MarkerEvents enqueues the nodes with probes of a marker that appears, or says something
// else to do about the same results.
func (r *Reconciler) MarkerEvents() handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, q queue) {
		list := &v1alpha1.NodePodProbeList{}
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Listing NodePodProbes")
		}
		for i := range list.Items {
			if slices.Contains(podprobe.Markers(list.Items[i].Spec), client.ObjectKeyFromObject(obj)) {
				enqueue(q, list.Items[i].Name)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				wake(ctx, e.ObjectNew, q)
			}
		},
	}
}

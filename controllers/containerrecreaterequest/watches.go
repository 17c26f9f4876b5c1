// SPDX-License-Identifier: Apache-2.0

package containerrecreaterequest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

// name of the controller in logs and metrics.
const name = "containerrecreaterequest-controller"

// openIndex finds the requests of a Pod that have not ended, by its UID.
const openIndex = "openOfPod"

// Add runs the controller in mgr. It adds the index openOfPod on ContainerRecreateRequests.
func Add(mgr ctrl.Manager, o Options) error {
	o.complete()
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.ContainerRecreateRequest{}, openIndex, func(obj client.Object) []string {
		r := obj.(*v1beta1.ContainerRecreateRequest)
		if recreate.Finished(r) {
			return nil
		}
		return []string{r.Labels[v1beta1.RecreatePodUIDLabel]}
	})
	if err != nil {
		return fmt.Errorf("indexing ContainerRecreateRequests: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&v1beta1.ContainerRecreateRequest{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(openOf(mgr.GetClient())), builder.WithPredicates(relevant())).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers, RateLimiter: o.RateLimiter}).
		Complete(New(mgr.GetClient(), mgr.GetAPIReader(), o.Clock))
	if err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

// openOf maps a Pod to its requests that have not ended.
func openOf(c client.Reader) handler.MapFunc {
	return func(ctx context.Context, pod client.Object) []reconcile.Request {
		var list v1beta1.ContainerRecreateRequestList
		err := c.List(ctx, &list, client.InNamespace(pod.GetNamespace()), client.MatchingFields{openIndex: string(pod.GetUID())}, client.UnsafeDisableDeepCopy)
		if err != nil {
			log.FromContext(ctx).Error(err, "Looking for the requests of a Pod", "pod", client.ObjectKeyFromObject(pod))
			return nil
		}
		var requests []reconcile.Request
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return requests
	}
}

// relevant lets through what can change a decision about a Pod.
func relevant() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Pod)
			after, same := e.ObjectNew.(*corev1.Pod)
			if !ok || !same {
				return false
			}
			return before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
				!apiequality.Semantic.DeepEqual(before.Status.ContainerStatuses, after.Status.ContainerStatuses) ||
				!apiequality.Semantic.DeepEqual(before.Status.InitContainerStatuses, after.Status.InitContainerStatuses)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

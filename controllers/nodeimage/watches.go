// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"context"
	"fmt"
	"maps"

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
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/nodestate"
)

// name is that of the controller, in logs, metrics and events.
const name = "nodeimage-controller"

// ownerIndex finds the NodeImages with a task of a job by the job's UID.
const ownerIndex = "taskOwnerUID"

// Add runs the controller in mgr.
func Add(mgr ctrl.Manager, o Options) error {
	if o.Workers == 0 {
		o.Workers = 3
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NodeImage{}, ownerIndex, ownersOf)
	if err != nil {
		return fmt.Errorf("indexing NodeImages: %w", err)
	}
	recorder, err := events.NewRecorder(mgr, name)
	if err != nil {
		return err
	}
	r := New(mgr.GetClient(), mgr.GetAPIReader(), recorder, o)
	c, err := controller.New(name, mgr, controller.Options{MaxConcurrentReconciles: o.Workers, RateLimiter: o.RateLimiter, Reconciler: r})
	if err != nil {
		return fmt.Errorf("making %s: %w", name, err)
	}
	for _, w := range []source.Source{
		source.Kind[client.Object](mgr.GetCache(), &v1beta1.NodeImage{}, &handler.EnqueueRequestForObject{}),
		source.Kind[client.Object](mgr.GetCache(), &corev1.Node{}, r.nodeEvents()),
		source.Kind[client.Object](mgr.GetCache(), &v1beta1.ImagePullJob{}, r.jobEvents()),
	} {
		if err := c.Watch(w); err != nil {
			return fmt.Errorf("watching for %s: %w", name, err)
		}
	}
	return nil
}

func ownersOf(obj client.Object) []string {
	uids := map[string]bool{}
	for _, image := range obj.(*v1beta1.NodeImage).Spec.Images {
		for _, tag := range image.Tags {
			for _, ref := range tag.OwnerReferences {
				uids[string(ref.UID)] = true
			}
		}
	}
	list := make([]string, 0, len(uids))
	for uid := range uids {
		list = append(list, uid)
	}
	return list
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// nodeEvents enqueues a node when its NodeImage has to be created, deleted or relabelled.
// Nodes are updated every few seconds; almost none of that matters here.
func (r *Reconciler) nodeEvents() handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, q queue) {
		node := obj.(*corev1.Node)
		var nodeImage v1beta1.NodeImage
		err := r.client.Get(ctx, client.ObjectKeyFromObject(node), &nodeImage, client.UnsafeDisableDeepCopy)
		if err == nil {
			if node.DeletionTimestamp == nil && maps.Equal(node.Labels, nodeImage.Labels) {
				return
			}
		} else if !nodestate.Ready(node) || nodestate.IsVirtual(node) {
			return
		}
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(node)})
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
		},
	}
}

// jobEvents enqueues the NodeImages with tasks of a job that was deleted.
func (r *Reconciler) jobEvents() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.gone.add(e.Object.GetUID())
			var list v1beta1.NodeImageList
			err := r.client.List(ctx, &list, client.MatchingFields{ownerIndex: string(e.Object.GetUID())}, client.UnsafeDisableDeepCopy)
			if err != nil {
				log.FromContext(ctx).Error(err, "Listing NodeImages of a deleted job", "job", e.Object.GetName())
				return
			}
			for _, nodeImage := range list.Items {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: nodeImage.Name}})
			}
		},
	}
}

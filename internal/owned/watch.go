// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Handler enqueues the owner of kind, on update when changed says so, and the former owner
// too when that changed. Resyncs wake nobody.
func Handler[T client.Object](kind schema.GroupKind, changed func(old, obj T) bool) handler.TypedEventHandler[T, reconcile.Request] {
	enqueue := func(o client.Object, q queue) {
		if key, ok := ControllerOf(o, kind); ok {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[T], q queue) { enqueue(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[T], q queue) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[T], q queue) {
			if e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() {
				return // a resync
			}
			was, owned := ControllerOf(e.ObjectOld, kind)
			if is, _ := ControllerOf(e.ObjectNew, kind); owned && was != is {
				enqueue(e.ObjectOld, q)
			} else if owned && !changed(e.ObjectOld, e.ObjectNew) {
				return
			}
			enqueue(e.ObjectNew, q)
		},
	}
}

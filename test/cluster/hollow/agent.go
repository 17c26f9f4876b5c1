// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// nodeImages is where node agents find their work.
var nodeImages = schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1", Resource: "nodeimages"}

// agents play the node agents of all simulated nodes.
type agents struct {
	*simulation
	store cache.Store
	work  workqueue.TypedRateLimitingInterface[string] // names of nodes
}

// runAgents plays the node agents until ctx ends. The product may be installed later.
func (s *simulation) runAgents(ctx context.Context) {
	err := wait.PollUntilContextCancel(ctx, 2*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := s.dynamic.Resource(nodeImages).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	})
	if err != nil {
		return // ctx has ended
	}
	s.options.Progress("playing the node agents: NodeImages are served")
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.dynamic, resync)
	informer := factory.ForResource(nodeImages).Informer()
	a := &agents{
		simulation: s, store: informer.GetStore(),
		work: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	if _, err := informer.AddEventHandler(a.handler()); err != nil {
		s.options.Progress("watching NodeImages: %v", err)
		return
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	var group sync.WaitGroup
	defer group.Wait()
	for range 16 { // many nodes are told at once and must not wait for each other
		group.Go(func() { work(ctx, a.work, a.sync) })
	}
	<-ctx.Done()
	a.work.ShutDown()
}

func (a *agents) handler() cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok && a.nodes[u.GetName()] > 0 {
			a.work.Add(u.GetName())
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }}
}

// sync does what NextPulls says about the NodeImage of one node. A cache that is behind leads to a conflict, which is
// tried again.
func (a *agents) sync(ctx context.Context, node string) error {
	obj, exists, err := a.store.GetByKey(node)
	if err != nil || !exists {
		return err
	}
	if _, down := a.down.Load(node); down {
		a.work.AddAfter(node, 5*time.Second)
		return nil
	}
	u := obj.(*unstructured.Unstructured) //nolint:forcetypeassert // the informer stores nothing else
	var ni NodeImage
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &ni); err != nil {
		return fmt.Errorf("reading NodeImage %s: %w", node, err)
	}
	next := NextPulls(&ni, time.Now(), a.options.Behaviour.Pull)
	if next.Status != nil {
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(next.Status)
		if err != nil {
			return fmt.Errorf("writing the status of NodeImage %s: %w", node, err)
		}
		u = u.DeepCopy()
		u.Object["status"] = status
		_, err = a.dynamic.Resource(nodeImages).UpdateStatus(ctx, u, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("writing the status of NodeImage %s: %w", node, err)
		}
	}
	if next.Again > 0 {
		a.work.AddAfter(node, next.Again)
	}
	return nil
}

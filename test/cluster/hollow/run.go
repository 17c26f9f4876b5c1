// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// workers bounds the requests in flight; a request takes a few milliseconds.
	workers = 24
	// resync is never: everything that matters is an event or a known time.
	resync = 0
)

// Options say which nodes to play and how.
type Options struct {
	Nodes         int
	Prefix        string        // of the names of the nodes, which go on with a number from 1
	Taint         bool          // keep Pods away that do not tolerate LabelSimulated=true:NoSchedule
	LeaseInterval time.Duration // how often each node says that it is alive
	NodeAgent     bool          // report the images that NodeImages ask for as pulled, as the product's node agent does
	Behaviour     Behaviour
	Progress      func(format string, args ...any)
}

// DefaultOptions play no node.
func DefaultOptions() Options {
	return Options{
		Prefix: "sim-", LeaseInterval: 10 * time.Second,
		Behaviour: Behaviour{Start: 500 * time.Millisecond, Restart: time.Second, Stop: 300 * time.Millisecond, Complete: time.Second, Pull: 2 * time.Second},
		Progress:  func(string, ...any) {},
	}
}

// simulation is one call of Run.
type simulation struct {
	options Options
	client  kubernetes.Interface
	dynamic dynamic.Interface
	nodes   map[string]int // number of each node, from 1; read-only
	pods    corelisters.PodLister
	nodeAPI corelisters.NodeLister
	podWork workqueue.TypedRateLimitingInterface[string]
	down    sync.Map // names of nodes that play dead
	ips     *addresses

	mu    sync.Mutex
	known map[string]record // by namespace/name
}

// record is what is known about a Pod beside the cache.
type record struct {
	uid     types.UID
	memory  Memory
	written *corev1.Pod // as returned by our last write, while the cache is behind it
}

// Run registers the nodes and plays them until ctx ends. The nodes stay registered.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "hollow-kubelet"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	custom, err := dynamic.NewForConfig(config) // speaks JSON whatever the configuration says
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	s := &simulation{
		options: o, client: client, dynamic: custom, nodes: map[string]int{}, known: map[string]record{},
		podWork: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second)),
	}
	for i := 1; i <= o.Nodes; i++ {
		s.nodes[nodeName(o.Prefix, i)] = i
	}
	return s.run(ctx)
}

func (s *simulation) run(ctx context.Context) error {
	podFactory := informers.NewSharedInformerFactoryWithOptions(s.client, resync,
		informers.WithTransform(trimmed),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))
	nodeFactory := informers.NewSharedInformerFactoryWithOptions(s.client, resync,
		informers.WithTransform(trimmed),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "type=simulated" }))
	pods, nodes := podFactory.Core().V1().Pods(), nodeFactory.Core().V1().Nodes()
	s.pods, s.nodeAPI = pods.Lister(), nodes.Lister()
	nodeWork := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	if _, err := nodes.Informer().AddEventHandler(s.nodeHandler(nodeWork)); err != nil {
		return fmt.Errorf("watching Nodes: %w", err)
	}
	nodeFactory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.Informer().HasSynced) {
		return ctx.Err()
	}
	if err := s.register(ctx); err != nil {
		return err
	}
	podFactory.Start(ctx.Done())
	if _, err := pods.Informer().AddEventHandler(s.podHandler()); err != nil {
		return fmt.Errorf("watching Pods: %w", err)
	}
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
		return ctx.Err()
	}
	s.ips = newAddresses(pods.Informer().GetStore().List())
	s.options.Progress("%d simulated nodes are registered", s.options.Nodes)

	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { work(ctx, s.podWork, s.syncPod) })
	}
	for range 2 {
		wg.Go(func() { work(ctx, nodeWork, s.syncNode) })
	}
	wg.Go(func() { s.renewLeases(ctx) })
	if s.options.NodeAgent {
		wg.Go(func() { s.runAgents(ctx) })
	}
	<-ctx.Done()
	s.podWork.ShutDown()
	nodeWork.ShutDown()
	wg.Wait()
	podFactory.Shutdown()
	nodeFactory.Shutdown()
	return nil
}

// trimmed drops what nobody here reads: a simulation holds every Pod of a large cluster.
func trimmed(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// work handles the keys of a queue until it shuts down.
func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], handle func(context.Context, string) error) {
	for {
		key, stop := queue.Get()
		if stop {
			return
		}
		if err := handle(ctx, key); err != nil && ctx.Err() == nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

func (s *simulation) podHandler() cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && s.nodes[pod.Spec.NodeName] > 0 {
			s.podWork.Add(pod.Namespace + "/" + pod.Name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				s.mu.Lock()
				delete(s.known, key)
				s.mu.Unlock()
			}
		},
	}
}

func splitKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}

// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pods lists the Pods that the workload with uid controls, in no order. They are shared
// with the cache and must not be changed.
type Pods func(ctx context.Context, namespace string, uid types.UID) ([]*corev1.Pod, error)

// ListPods lists by way of a client whose cache has Index for Pods.
func ListPods(c client.Reader) Pods {
	return func(ctx context.Context, namespace string, uid types.UID) ([]*corev1.Pod, error) {
		var list corev1.PodList
		if err := c.List(ctx, &list, client.InNamespace(namespace), By(uid), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing Pods: %w", err)
		}
		pods := make([]*corev1.Pod, len(list.Items))
		for i := range list.Items {
			pods[i] = &list.Items[i]
		}
		return pods, nil
	}
}

// podIndex is the informer's own index; that of a client has keys of its own making.
const podIndex = "podsByOwnerUID"

// CachedPods reads the informer's index: also without deep copies a client's List copies
// the struct of each Pod, which for thousands of them costs more than to decide about them.
// A cache that has no such informer, such as one of some namespaces, is asked by fallback.
func CachedPods(ctx context.Context, c cache.Cache, fallback client.Reader) (Pods, error) {
	informer, err := c.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("asking the cache for Pods: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return ListPods(fallback), nil
	}
	if _, there := shared.GetIndexer().GetIndexers()[podIndex]; !there {
		err := shared.AddIndexers(toolscache.Indexers{podIndex: func(o any) ([]string, error) {
			if pod, ok := o.(client.Object); ok {
				return byOwner(pod), nil
			}
			return nil, nil
		}})
		if err != nil {
			return nil, fmt.Errorf("indexing Pods by owner: %w", err)
		}
	}
	return func(_ context.Context, namespace string, uid types.UID) ([]*corev1.Pod, error) {
		found, err := shared.GetIndexer().ByIndex(podIndex, string(uid))
		if err != nil {
			return nil, fmt.Errorf("looking up Pods by owner: %w", err)
		}
		pods := make([]*corev1.Pod, 0, len(found))
		for _, o := range found {
			if pod, ok := o.(*corev1.Pod); ok && pod.Namespace == namespace {
				pods = append(pods, pod)
			}
		}
		return pods, nil
	}, nil
}

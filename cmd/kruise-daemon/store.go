// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/containermeta"
	"github.com/kruisectl/kruisectl/daemon/images"
	"github.com/kruisectl/kruisectl/daemon/kube"
)

// groups are the types of the agent.
func groups() []kube.Group {
	return []kube.Group{kube.Core(), probeTypes(), {Version: v1beta1.GroupVersion, Types: []runtime.Object{
		&v1beta1.NodeImage{}, &v1beta1.NodeImageList{},
		&v1beta1.ContainerRecreateRequest{}, &v1beta1.ContainerRecreateRequestList{},
	}}}
}

// nodeImages is the NodeImage of one node.
type nodeImages struct {
	node     string
	client   *kube.Typed[*v1beta1.NodeImage, *v1beta1.NodeImageList]
	informer cache.SharedIndexInformer
}

var _ images.Store = nodeImages{}

func newNodeImages(c *kube.Client, node string) nodeImages {
	client := kube.Resource(c, v1beta1.GroupVersion, "nodeimages", "",
		func() *v1beta1.NodeImage { return &v1beta1.NodeImage{} }, func() *v1beta1.NodeImageList { return &v1beta1.NodeImageList{} })
	return nodeImages{node: node, client: client, informer: kube.Informer(client, kube.Select{Fields: "metadata.name=" + node}, nil, nil)}
}

// NodeImage implements images.Store.
func (s nodeImages) NodeImage(context.Context) (*v1beta1.NodeImage, error) {
	return cached[*v1beta1.NodeImage](s.informer, types.NamespacedName{Name: s.node}, v1beta1.GroupVersion.WithResource("nodeimages"))
}

// WriteStatus implements images.Store.
func (s nodeImages) WriteStatus(ctx context.Context, ni *v1beta1.NodeImage) (*v1beta1.NodeImage, error) {
	return s.client.UpdateStatus(ctx, ni, metav1.UpdateOptions{})
}

// secretReader reads one Secret from the API server's cache, which costs it next to nothing.
// The cache may not know a Secret that was written a moment ago, so that its absence is
// asked of the storage.
func secretReader(c *kube.Client) func(context.Context, types.NamespacedName) (*corev1.Secret, error) {
	return func(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
		secret, err := c.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{ResourceVersion: "0"})
		if apierrors.IsNotFound(err) {
			return c.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		}
		return secret, err
	}
}

// podStore is the Pods of one node.
type podStore struct {
	kube *kube.Client
	pods cache.SharedIndexInformer
}

var _ containermeta.Store = podStore{}

// Pod implements containermeta.Store.
func (s podStore) Pod(_ context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	return cached[*corev1.Pod](s.pods, key, corev1.SchemeGroupVersion.WithResource("pods"))
}

// PatchStatus implements containermeta.Store.
func (s podStore) PatchStatus(ctx context.Context, key types.NamespacedName, patch []byte) (*corev1.Pod, error) {
	return s.kube.Pods(key.Namespace).Patch(ctx, key.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// cached returns an object of an informer, to be read only, or a NotFound error.
func cached[T kube.Object](informer cache.SharedIndexInformer, key types.NamespacedName, resource schema.GroupVersionResource) (T, error) {
	var none T
	name := key.Name
	if key.Namespace != "" {
		name = key.String()
	}
	obj, exists, err := informer.GetIndexer().GetByKey(name)
	if err != nil {
		return none, err
	}
	if found, ok := obj.(T); exists && ok {
		return found, nil
	}
	return none, apierrors.NewNotFound(resource.GroupResource(), name)
}

// after calls f after every event.
func after(f func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f() },
		UpdateFunc: func(any, any) { f() },
		DeleteFunc: func(any) { f() },
	}
}

// podEvents tells r what happens to Pods.
func podEvents(r *containermeta.Reporter) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				r.Added(pod)
			}
		},
		UpdateFunc: func(before, after any) {
			old, wasPod := before.(*corev1.Pod)
			pod, isPod := after.(*corev1.Pod)
			if wasPod && isPod {
				r.Updated(old, pod)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				r.Deleted(pod)
			}
		},
	}
}

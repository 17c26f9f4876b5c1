// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/containermeta"
)

// store is the API server as the workers see it: a cache of this node's objects alone.
type store struct {
	node   string
	cache  cache.Cache
	client client.Client // reads Pods and NodeImages from the cache, all else live
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

// mapper knows the kinds that the agent uses. Asking the API server for them would cost a
// discovery per node, and a start without API server would fail instead of waiting.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	core := corev1.SchemeGroupVersion
	m.AddSpecific(core.WithKind("Pod"), core.WithResource("pods"), core.WithResource("pod"), meta.RESTScopeNamespace)
	m.AddSpecific(core.WithKind("Secret"), core.WithResource("secrets"), core.WithResource("secret"), meta.RESTScopeNamespace)
	kruise := v1beta1.GroupVersion
	m.AddSpecific(kruise.WithKind("NodeImage"), kruise.WithResource("nodeimages"), kruise.WithResource("nodeimage"), meta.RESTScopeRoot)
	return m
}

func newStore(config *rest.Config, o options) (*store, error) {
	objects, err := cache.New(config, cache.Options{
		Scheme:           scheme(),
		Mapper:           mapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1beta1.NodeImage{}: {Field: fields.OneTermEqualSelector("metadata.name", o.node)},
			&corev1.Pod{}:        {Field: fields.OneTermEqualSelector("spec.nodeName", o.node), Transform: stripPod},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	c, err := client.New(config, client.Options{
		Scheme: scheme(),
		Mapper: mapper(),
		Cache:  &client.CacheOptions{Reader: objects, DisableFor: []client.Object{&corev1.Secret{}}},
	})
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	return &store{node: o.node, cache: objects, client: c}, nil
}

// stripPod drops what no worker reads: a node's Pods have to fit into little memory.
func stripPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	pod.Spec.Volumes, pod.Spec.Tolerations, pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints = nil, nil, nil, nil
	pod.Spec.InitContainers, pod.Spec.EphemeralContainers = nil, nil
	pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses = nil, nil
	return pod, nil
}

// NodeImage implements images.Store.
func (s *store) NodeImage(ctx context.Context) (*v1beta1.NodeImage, error) {
	ni := &v1beta1.NodeImage{}
	return ni, s.client.Get(ctx, types.NamespacedName{Name: s.node}, ni, client.UnsafeDisableDeepCopy)
}

// WriteStatus implements images.Store.
func (s *store) WriteStatus(ctx context.Context, ni *v1beta1.NodeImage) (*v1beta1.NodeImage, error) {
	return ni, s.client.Status().Update(ctx, ni)
}

// secret reads one Secret from the API server's cache, which costs it next to nothing.
func (s *store) secret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, s.client.Get(ctx, key, secret, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})
}

// Pod implements containermeta.Store.
func (s *store) Pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, s.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
}

// PatchStatus implements containermeta.Store.
func (s *store) PatchStatus(ctx context.Context, key types.NamespacedName, patch []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return pod, s.client.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
}

// informer returns the informer of a kind. It is needed now, its content is not: readers
// wait for it.
func (s *store) informer(ctx context.Context, obj client.Object) (cache.Informer, error) {
	informer, err := s.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", obj, err)
	}
	return informer, nil
}

// after calls f after every event.
func after(f func()) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f() },
		UpdateFunc: func(any, any) { f() },
		DeleteFunc: func(any) { f() },
	}
}

// podEvents tells r what happens to Pods.
func podEvents(r *containermeta.Reporter) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
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
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				r.Deleted(pod)
			}
		},
	}
}

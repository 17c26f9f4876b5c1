// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/agent"
	"github.com/kruisectl/kruisectl/daemon/kube"
	"github.com/kruisectl/kruisectl/daemon/recreate"
	"github.com/kruisectl/kruisectl/internal/recreatelabel"
)

// byPod is the index of requests by their Pod.
const byPod = "pod"

// recreate builds the worker that restarts containers for ContainerRecreateRequests.
func (w *wiring) recreate(context.Context) (agent.Worker, error) {
	store := recreateStore{node: w.node, kube: w.kube, pods: w.pods, informer: kube.Informer(recreateRequests(w.kube, ""), kube.Select{
		Labels: v1beta1.RecreateNodeNameLabel + "=" + recreatelabel.Node(w.node) + "," + v1beta1.RecreateActiveLabel + "=true",
	}, nil, cache.Indexers{byPod: podOfRequest})}
	w.watch(store.informer)
	worker := recreate.New(recreate.Options{
		Store:    store,
		Runtimes: w.runtimes,
		Events:   w.events("kruise-daemon-crr"),
		Synced:   store.informer.HasSynced,
		Metrics:  recreate.NewMetrics(w.metrics),
	})
	if _, err := store.informer.AddEventHandler(requestEvents(worker)); err != nil {
		return nil, fmt.Errorf("watching ContainerRecreateRequests: %w", err)
	}
	return worker, nil
}

func recreateRequests(c *kube.Client, namespace string) *kube.Typed[*v1beta1.ContainerRecreateRequest, *v1beta1.ContainerRecreateRequestList] {
	return kube.Resource(c, v1beta1.GroupVersion, "containerrecreaterequests", namespace,
		func() *v1beta1.ContainerRecreateRequest { return &v1beta1.ContainerRecreateRequest{} },
		func() *v1beta1.ContainerRecreateRequestList { return &v1beta1.ContainerRecreateRequestList{} })
}

func indexOf(key recreate.Key) string {
	return key.Namespace + "/" + key.Pod + "/" + string(key.UID)
}

func podOfRequest(obj any) ([]string, error) {
	r, ok := obj.(*v1beta1.ContainerRecreateRequest)
	if !ok {
		return nil, nil
	}
	return []string{indexOf(recreate.KeyOf(r))}, nil
}

func requestEvents(worker *recreate.Worker) cache.ResourceEventHandler {
	changed := func(obj any) {
		if r, ok := obj.(*v1beta1.ContainerRecreateRequest); ok {
			worker.Changed(r)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if r, ok := obj.(*v1beta1.ContainerRecreateRequest); ok {
				worker.Deleted(r)
			}
		},
	}
}

// recreateStore has the active requests of one node, and its Pods.
type recreateStore struct {
	node     string
	kube     *kube.Client
	informer cache.SharedIndexInformer
	pods     cache.SharedIndexInformer // nil: Pods are read from the API server
}

var _ recreate.Store = recreateStore{}

// Requests implements recreate.Store.
func (s recreateStore) Requests(key recreate.Key) ([]*v1beta1.ContainerRecreateRequest, error) {
	objects, err := s.informer.GetIndexer().ByIndex(byPod, indexOf(key))
	if err != nil {
		return nil, err
	}
	requests := make([]*v1beta1.ContainerRecreateRequest, 0, len(objects))
	for _, obj := range objects {
		r, ok := obj.(*v1beta1.ContainerRecreateRequest)
		// Labels of nodes with long names are hashes: two nodes may share one.
		if ok && recreatelabel.Is(r.Labels[v1beta1.RecreateNodeNameLabel], r.Annotations[v1beta1.RecreateNodeNameAnnotation], s.node) {
			requests = append(requests, r)
		}
	}
	return requests, nil
}

// Request implements recreate.Store.
func (s recreateStore) Request(ctx context.Context, key types.NamespacedName) (*v1beta1.ContainerRecreateRequest, error) {
	return recreateRequests(s.kube, key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
}

// PatchStatus implements recreate.Store.
func (s recreateStore) PatchStatus(ctx context.Context, key types.NamespacedName, kind types.PatchType, patch []byte) (*v1beta1.ContainerRecreateRequest, error) {
	return recreateRequests(s.kube, key.Namespace).Patch(ctx, key.Name, kind, patch, metav1.PatchOptions{}, "status")
}

// Pod implements recreate.Store.
func (s recreateStore) Pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	if s.pods == nil {
		return s.kube.Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	}
	return cached[*corev1.Pod](s.pods, key, corev1.SchemeGroupVersion.WithResource("pods"))
}

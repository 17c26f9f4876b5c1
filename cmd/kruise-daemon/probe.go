// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/agent"
	"github.com/kruisectl/kruisectl/daemon/kube"
	"github.com/kruisectl/kruisectl/daemon/probe"
	"github.com/kruisectl/kruisectl/internal/features"
)

// probeTypes are the types of the prober.
func probeTypes() kube.Group {
	return kube.Group{Version: v1alpha1.GroupVersion, Types: []runtime.Object{&v1alpha1.NodePodProbe{}, &v1alpha1.NodePodProbeList{}}}
}

// probe builds the worker that runs the probes of this node's NodePodProbe.
func (w *wiring) probe(context.Context) (agent.Worker, error) {
	if !w.gates.Enabled(features.PodProbeMarkerGate) {
		return nil, nil
	}
	store := newNodePodProbes(w.kube, w.node)
	w.watch(store.informer)
	prober := probe.New(probe.Options{
		Store:      store,
		Runtimes:   w.runtimes.All(),
		Events:     w.events("kruise-daemon-podprobe"),
		Synced:     store.informer.HasSynced,
		RuntimeUID: w.runtimeUID,
		Metrics:    probe.NewMetrics(w.metrics),
	})
	if _, err := store.informer.AddEventHandler(after(prober.Wake)); err != nil {
		return nil, fmt.Errorf("watching NodePodProbes: %w", err)
	}
	return prober, nil
}

// runtimeUID is the UID that the kubelet labels a Pod's containers with: that of the static
// Pod's source and not that of its mirror, as far as this agent sees Pods.
func (w *wiring) runtimeUID(ctx context.Context, task probe.Task) string {
	if w.pods != nil {
		pod, err := podStore{kube: w.kube, pods: w.pods}.Pod(ctx, types.NamespacedName{Namespace: task.Namespace, Name: task.Pod})
		if err == nil && pod.UID == task.Key.UID && pod.Annotations["kubernetes.io/config.hash"] != "" {
			return pod.Annotations["kubernetes.io/config.hash"]
		}
	}
	return string(task.Key.UID)
}

// nodePodProbes is the NodePodProbe of one node.
type nodePodProbes struct {
	node     string
	client   *kube.Typed[*v1alpha1.NodePodProbe, *v1alpha1.NodePodProbeList]
	informer cache.SharedIndexInformer
}

var _ probe.Store = nodePodProbes{}

func newNodePodProbes(c *kube.Client, node string) nodePodProbes {
	client := kube.Resource(c, v1alpha1.GroupVersion, "nodepodprobes", "",
		func() *v1alpha1.NodePodProbe { return &v1alpha1.NodePodProbe{} }, func() *v1alpha1.NodePodProbeList { return &v1alpha1.NodePodProbeList{} })
	return nodePodProbes{node: node, client: client, informer: kube.Informer(client, kube.Select{Fields: "metadata.name=" + node}, nil, nil)}
}

// NodePodProbe implements probe.Store.
func (s nodePodProbes) NodePodProbe(context.Context) (*v1alpha1.NodePodProbe, error) {
	return cached[*v1alpha1.NodePodProbe](s.informer, types.NamespacedName{Name: s.node}, v1alpha1.GroupVersion.WithResource("nodepodprobes"))
}

// WriteProbeStatus implements probe.Store.
func (s nodePodProbes) WriteProbeStatus(ctx context.Context, npp *v1alpha1.NodePodProbe) (*v1alpha1.NodePodProbe, error) {
	return s.client.UpdateStatus(ctx, npp, metav1.UpdateOptions{})
}

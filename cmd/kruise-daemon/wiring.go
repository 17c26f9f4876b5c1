// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/daemon/agent"
	"github.com/kruisectl/kruisectl/daemon/containermeta"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/images"
	"github.com/kruisectl/kruisectl/daemon/kube"
	"github.com/kruisectl/kruisectl/internal/features"
)

// wiring is what the capabilities of the agent are built from. Each has a method that
// returns its worker, or nil when the gates leave it out.
//
// Clients are made with kube and not with controller-runtime or client-go/kubernetes: on
// every node those would cost more memory than all that the agent does. TestLeanImports
// holds that.
type wiring struct {
	options  options
	node     string
	config   *rest.Config
	kube     *kube.Client
	gates    *features.Set
	runtimes *cri.Set
	// events makes the recorder of a component such as kruise-daemon-crr.
	events func(component string) record.EventRecorder
	// checks answer /healthz. Workers are added by themselves, by name.
	checks  *agent.Checks
	metrics prometheus.Registerer
	// pods has the Pods of this node, without what stripPod drops; nil without the gate
	// DaemonWatchingPod.
	pods cache.SharedIndexInformer

	informers []cache.SharedIndexInformer
}

// watch makes an informer run as long as the agent. It returns its argument.
func (w *wiring) watch(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	w.informers = append(w.informers, informer)
	return informer
}

// workers builds the capabilities that the gates allow.
func (w *wiring) workers(ctx context.Context) ([]agent.Worker, error) {
	if w.gates.Enabled(features.DaemonWatchingPod) {
		w.pods = w.watch(kube.Informer(w.kube.Pods(""), kube.Select{Fields: "spec.nodeName=" + w.node}, stripPod, nil))
	}
	var workers []agent.Worker
	for _, build := range []func(context.Context) (agent.Worker, error){w.images, w.recreate, w.probe, w.containerMeta} {
		worker, err := build(ctx)
		if err != nil {
			return nil, err
		}
		if worker != nil {
			workers = append(workers, worker)
		}
	}
	return workers, nil
}

func (w *wiring) images(ctx context.Context) (agent.Worker, error) {
	var plugins *images.Plugins
	if _, err := os.Stat(w.options.pluginConfigFile); !errors.Is(err, fs.ErrNotExist) {
		// Not fatal: images without the plugins' logins can be pulled all the same.
		if plugins, err = images.LoadPlugins(w.options.pluginConfigFile, w.options.pluginBinDir); err != nil {
			klog.FromContext(ctx).Error(err, "Going on without credential providers")
		}
	}
	store := newNodeImages(w.kube, w.node)
	w.watch(store.informer)
	puller := images.New(images.Options{
		Store:          store,
		Runtime:        w.imageRuntime,
		Credentials:    images.NewKeyrings(ctx, secretReader(w.kube), w.options.configNamespace, plugins),
		Events:         w.events("kruise-daemon-imagepuller"),
		MaxWorkers:     w.options.maxWorkers,
		MaxPerRegistry: w.options.maxPerRegistry,
		Synced:         store.informer.HasSynced,
		Metrics:        images.NewMetrics(w.metrics),
	})
	if _, err := store.informer.AddEventHandler(after(puller.Wake)); err != nil {
		return nil, fmt.Errorf("watching NodeImages: %w", err)
	}
	return puller, nil
}

// imageRuntime is the runtime that this node's Pods run in.
func (w *wiring) imageRuntime() cri.Runtime {
	if w.pods == nil {
		return w.runtimes.First()
	}
	return w.runtimes.Busiest(func(yield func(string) bool) {
		for _, obj := range w.pods.GetIndexer().List() {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				continue
			}
			for i := range pod.Status.ContainerStatuses {
				if !yield(pod.Status.ContainerStatuses[i].ContainerID) {
					return
				}
			}
		}
	})
}

func (w *wiring) containerMeta(context.Context) (agent.Worker, error) {
	if w.pods == nil {
		return nil, nil
	}
	reporter := containermeta.New(containermeta.Options{
		Store:    podStore{kube: w.kube, pods: w.pods},
		Runtimes: w.runtimes,
		Events:   w.events("kruise-daemon-containermeta"),
		Synced:   w.pods.HasSynced,
		TrackEnv: w.gates.Enabled(features.InPlaceUpdateEnvFromMetadata),
	})
	if _, err := w.pods.AddEventHandler(podEvents(reporter)); err != nil {
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	return reporter, nil
}

// stripPod drops what no worker reads: a node's Pods have to fit into little memory.
// Containers stay whole, because hashes of older kubelets cover all of them.
func stripPod(pod *corev1.Pod) {
	pod.Spec.Volumes, pod.Spec.Tolerations, pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints = nil, nil, nil, nil
	pod.Spec.InitContainers, pod.Spec.EphemeralContainers = nil, nil
	pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses = nil, nil
}

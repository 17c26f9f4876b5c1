// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

type options struct {
	workload       string // a key of workloads
	pods           int    // a DaemonSet has as many as there are nodes
	nodes          int    // simulated ones, counted
	maxUnavailable string
	restart        time.Duration // what a simulated node takes from one instance of a container to the next
	parallelism    string        // of image jobs: numbers, separated by commas
	pullDelay      time.Duration // what a simulated node takes for an image
	metrics        string        // URL of a manager that is a process of this machine
	auditLog, out  string
}

// patience bounds every wait of the benchmark.
const patience = 20 * time.Minute

type bench struct {
	options
	client client.Client
	kube   kubernetes.Interface
	ns     string
}

// run returns what was measured: figures of a rollout, or those of image jobs.
func run(ctx context.Context, o options) ([]printer, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("reading KUBECONFIG: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	b := &bench{options: o}
	if b.client, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if b.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := b.client.Create(ctx, ns); err != nil {
		return nil, fmt.Errorf("creating a Namespace: %w", err)
	}
	b.ns = ns.Name
	var results []printer
	if b.workload == imageJob {
		var all []*pullFigures
		all, err = b.pulls(ctx)
		for _, f := range all {
			results = append(results, f)
		}
	} else {
		var f *figures
		f, err = b.measure(ctx)
		results = append(results, f)
	}
	return results, errors.Join(err, b.clear(context.WithoutCancel(ctx), ns))
}

// countNodes finds out how many nodes are simulated.
func (b *bench) countNodes(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := b.client.List(ctx, nodes, client.MatchingLabels{simulated: "true"}); err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	b.nodes = len(nodes.Items)
	return nil
}

// clear deletes ns and waits for its end: what the manager writes about Pods that go must
// not count as the next rollout's.
func (b *bench) clear(ctx context.Context, ns *corev1.Namespace) error {
	if err := b.client.Delete(ctx, ns); err != nil {
		return fmt.Errorf("deleting Namespace %s: %w", ns.Name, err)
	}
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of Namespace %s: %w", ns.Name, err)
	}
	return nil
}

func (b *bench) measure(ctx context.Context) (*figures, error) {
	if err := b.countNodes(ctx); err != nil {
		return nil, err
	}
	if b.workload == "daemonset" {
		b.pods = b.nodes
	}
	f := &figures{Workload: b.workload, Pods: b.pods, Nodes: b.nodes, MaxUnavailable: b.maxUnavailable}
	var err error
	if f.FloorSeconds, err = b.floor(); err != nil {
		return nil, err
	}

	start := time.Now()
	w := workloads[b.workload](b.ns, b.options)
	if err := b.client.Create(ctx, w.object); err != nil {
		return nil, fmt.Errorf("creating the workload: %w", err)
	}
	if err := b.complete(ctx, w); err != nil {
		return nil, err
	}
	f.CreateSeconds = time.Since(start).Seconds()

	l, err := b.findLeader(ctx)
	if err != nil {
		return nil, err
	}
	cpuBefore, _, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	mark, err := size(b.auditLog)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go l.watchPeak(watching)

	start = time.Now()
	patch := client.RawPatch("application/json-patch+json", []byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:1.17"}]`))
	if err := b.client.Patch(ctx, w.object, patch); err != nil {
		return nil, fmt.Errorf("changing the image: %w", err)
	}
	if err := b.complete(ctx, w); err != nil {
		return nil, err
	}
	f.RolloutSeconds = time.Since(start).Seconds()

	if err := settle(ctx); err != nil {
		return nil, err
	}
	return f, b.collect(ctx, f, l, cpuBefore, mark)
}

// collect reads everything that was counted while the rollout ran.
func (b *bench) collect(ctx context.Context, f *figures, l *leader, cpuBefore float64, mark int64) error {
	cpu, _, err := l.read(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	f.ManagerCPUSeconds, f.ManagerPeakBytes = cpu-cpuBefore, l.peak
	l.mu.Unlock()

	if f.Writes, err = b.writesSince(mark, byManager); err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := b.client.List(ctx, pods, client.InNamespace(b.ns)); err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	for _, p := range pods.Items {
		if len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount == 1 {
			f.RestartedPods++
		}
	}
	f.perPod()
	return nil
}

func size(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("audit log: %w", err)
	}
	return info.Size(), nil
}

// complete waits until every Pod is at the update revision and available.
func (b *bench) complete(ctx context.Context, w workload) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second/5, patience, true, func(ctx context.Context) (bool, error) {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(w.object), w.object); err != nil {
			return false, err
		}
		return w.done(), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d available Pods (status: %s): %w", b.pods, w.state(), err)
	}
	return nil
}

// floor is how many seconds the rollout takes when nothing but the nodes' own delay
// counts: as many waves as maxUnavailable makes, one restart each.
func (b *bench) floor() (float64, error) {
	limit := intstr.Parse(b.maxUnavailable)
	at, err := intstr.GetScaledValueFromIntOrPercent(&limit, b.pods, b.workload == "daemonset")
	if err != nil {
		return 0, fmt.Errorf("-max-unavailable %s: %w", b.maxUnavailable, err)
	}
	at = max(at, 1)
	return float64((b.pods+at-1)/at) * b.restart.Seconds(), nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/agent"
	"github.com/kruisectl/kruisectl/daemon/containermeta"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/images"
	"github.com/kruisectl/kruisectl/internal/features"
)

const (
	firstDetect, maxDetect = time.Second, 30 * time.Second
	// runtimeCheck is the health check that fails until a runtime answers.
	runtimeCheck = "containerRuntime"
)

var errLooking = errors.New("looking for a container runtime")

// run is the life of the agent, in the order of daemon.md 1.2.
func run(ctx context.Context, o options) error {
	logger := klog.FromContext(ctx)
	for _, warning := range o.gates.Warnings() {
		logger.Info("Feature gates", "warning", warning)
	}
	config, err := restConfig(o)
	if err != nil {
		return err
	}
	// Listening comes first: it fails when another agent runs on this node.
	checks := &agent.Checks{}
	checks.Add(runtimeCheck, func() error { return errLooking })
	group, ctx := errgroup.WithContext(ctx)
	if err := serve(ctx, group, o, checks); err != nil {
		return err
	}
	store, err := newStore(config, o)
	if err != nil {
		return err
	}
	events, stopEvents, err := newEvents(config)
	if err != nil {
		return err
	}
	defer stopEvents()
	runtimes, err := detect(ctx, o, checks)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	defer func() {
		if err := runtimes.Close(); err != nil {
			logger.Info("Closing runtimes", "reason", err.Error())
		}
	}()
	workers, err := newWorkers(ctx, o, store, runtimes, events)
	if err != nil {
		return err
	}
	for _, w := range workers {
		checks.Add(w.Name(), w.Ready)
	}
	group.Go(func() error { return store.cache.Start(ctx) })
	group.Go(func() error { return agent.Run(ctx, workers) })
	logger.Info("Started", "node", o.node, "runtime", runtimes.First().Name(), "gates", o.gates.String())
	return group.Wait()
}

// ignoreEnd turns the error of an ended context into a good end.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}

func restConfig(o options) (*rest.Config, error) {
	load := rest.InClusterConfig
	if o.kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.kubeconfig) }
	}
	config, err := load()
	if err != nil {
		return nil, fmt.Errorf("loading the client configuration: %w", err)
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	return rest.AddUserAgent(config, "kruise-daemon"), nil
}

func serve(ctx context.Context, group *errgroup.Group, o options, checks *agent.Checks) error {
	metrics.Registry.MustRegister(features.Collector(o.gates))
	mux := http.NewServeMux()
	mux.Handle("/healthz", checks)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	handlers := []struct {
		addr    string
		handler http.Handler
	}{{o.addr, mux}}
	if o.enablePprof {
		profiles := http.NewServeMux()
		profiles.HandleFunc("/debug/pprof/", pprof.Index)
		profiles.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		profiles.HandleFunc("/debug/pprof/profile", pprof.Profile)
		profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		profiles.HandleFunc("/debug/pprof/trace", pprof.Trace)
		handlers = append(handlers, struct {
			addr    string
			handler http.Handler
		}{o.pprofAddr, profiles})
	}
	for _, h := range handlers {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.addr)
		if err != nil {
			return fmt.Errorf("listening (does another agent run on this node?): %w", err)
		}
		group.Go(func() error { return agent.Serve(ctx, listener, h.handler) })
	}
	return nil
}

// detect looks for runtimes until one answers; meanwhile /healthz says why none does.
func detect(ctx context.Context, o options, checks *agent.Checks) (*cri.Set, error) {
	var last atomic.Pointer[error]
	last.Store(&errLooking)
	checks.Add(runtimeCheck, func() error { return *last.Load() })
	for wait := firstDetect; ; wait = min(2*wait, maxDetect) {
		runtimes, err := cri.Detect(ctx, o.hostRunDir, o.socketFile)
		last.Store(&err)
		if err == nil {
			return runtimes, nil
		}
		klog.FromContext(ctx).Info("Looking for a container runtime again", "in", wait, "reason", err.Error())
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
	}
}

// newEvents returns a maker of event recorders. Events are core/v1, in protobuf.
func newEvents(config *rest.Config) (func(component, node string) record.EventRecorder, func(), error) {
	core := rest.CopyConfig(config)
	core.ContentType = runtime.ContentTypeProtobuf
	client, err := typedcorev1.NewForConfig(core)
	if err != nil {
		return nil, nil, fmt.Errorf("making the client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return func(component, node string) record.EventRecorder {
		return broadcaster.NewRecorder(scheme(), corev1.EventSource{Component: component, Host: node})
	}, broadcaster.Shutdown, nil
}

// newWorkers builds the capabilities that the gates allow.
func newWorkers(ctx context.Context, o options, store *store, runtimes *cri.Set, events func(component, node string) record.EventRecorder) ([]agent.Worker, error) {
	var plugins *images.Plugins
	if _, err := os.Stat(o.pluginConfigFile); !errors.Is(err, fs.ErrNotExist) {
		// Not fatal: images without the plugins' logins can be pulled all the same.
		if plugins, err = images.LoadPlugins(o.pluginConfigFile, o.pluginBinDir); err != nil {
			klog.FromContext(ctx).Error(err, "Going on without credential providers")
		}
	}
	nodeImages, err := store.informer(ctx, &v1beta1.NodeImage{})
	if err != nil {
		return nil, err
	}
	puller := images.New(images.Options{
		Store:       store,
		Runtime:     runtimes.First(),
		Credentials: images.NewKeyrings(ctx, store.secret, o.configNamespace, plugins),
		Events:      events("kruise-daemon-imagepuller", o.node),
		MaxWorkers:  o.maxWorkers,
		Synced:      nodeImages.HasSynced,
		Metrics:     images.NewMetrics(metrics.Registry),
	})
	if _, err := nodeImages.AddEventHandler(after(puller.Wake)); err != nil {
		return nil, fmt.Errorf("watching NodeImages: %w", err)
	}
	workers := []agent.Worker{puller}
	if !o.gates.Enabled(features.DaemonWatchingPod) {
		return workers, nil
	}
	pods, err := store.informer(ctx, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	reporter := containermeta.New(containermeta.Options{
		Store:    store,
		Runtimes: runtimes,
		Events:   events("kruise-daemon-containermeta", o.node),
		Synced:   pods.HasSynced,
		TrackEnv: o.gates.Enabled(features.InPlaceUpdateEnvFromMetadata),
	})
	if _, err := pods.AddEventHandler(podEvents(reporter)); err != nil {
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	return append(workers, reporter), nil
}

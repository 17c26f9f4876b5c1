// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/daemon/agent"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/kube"
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
	registry := agent.NewRegistry()
	registry.MustRegister(features.Collector(o.gates))
	ctx, end := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	defer func() {
		// An early return ends what was begun; its error is the one that counts.
		end()
		_ = group.Wait()
	}()
	if err := serve(ctx, group, o, checks, registry); err != nil {
		return err
	}
	client, err := kube.New(config, groups()...)
	if err != nil {
		return err
	}
	runtimes, err := detect(ctx, o, checks, criMetrics(registry))
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	defer func() {
		if err := runtimes.Close(); err != nil {
			logger.Info("Closing runtimes", "reason", err.Error())
		}
	}()
	events := kube.NewEvents(ctx, client)
	defer events.Stop()
	wired := &wiring{
		options: o, node: o.node, config: config, kube: client, gates: o.gates, runtimes: runtimes, checks: checks, metrics: registry,
		events: func(component string) record.EventRecorder { return events.Recorder(component, o.node) },
	}
	workers, err := wired.workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		checks.Add(w.Name(), w.Ready)
	}
	for _, informer := range wired.informers {
		group.Go(func() error { informer.RunWithContext(ctx); return nil })
	}
	group.Go(func() error { runtimes.Keep(ctx, time.After); return nil })
	group.Go(func() error { return agent.Run(ctx, workers) })
	group.Go(func() error { trim(ctx, workers); return nil })
	logger.Info("Started", "node", o.node, "runtime", runtimes.First().Name(), "gates", o.gates.String())
	return group.Wait()
}

// calm is how long after the start the agent has read all that it reads.
const calm = 5 * time.Second

// trim gives back the memory that only the start needs: for reading all Pods of the node, and
// for the program's own pages.
func trim(ctx context.Context, workers []agent.Worker) {
	for _, w := range workers {
		if !agent.UntilReady(ctx, w) {
			return
		}
	}
	timer := time.NewTimer(calm)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	debug.FreeOSMemory()
	if err := dropProgramPages(); err != nil {
		klog.FromContext(ctx).V(1).Info("Keeping the program's pages", "reason", err.Error())
	}
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

func serve(ctx context.Context, group *errgroup.Group, o options, checks *agent.Checks, registry prometheus.Gatherer) error {
	mux := http.NewServeMux()
	mux.Handle("/healthz", checks)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
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
func detect(ctx context.Context, o options, checks *agent.Checks, observe func(cri.Call)) (*cri.Set, error) {
	var last atomic.Pointer[error]
	last.Store(&errLooking)
	checks.Add(runtimeCheck, func() error { return *last.Load() })
	for wait := firstDetect; ; wait = min(2*wait, maxDetect) {
		runtimes, err := cri.Detect(ctx, cri.Options{Dir: o.hostRunDir, SocketFile: o.socketFile, Observe: observe})
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

// criMetrics counts calls of container runtimes. Most take milliseconds: what is of interest
// is which fail, and how.
func criMetrics(r prometheus.Registerer) func(cri.Call) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kruise_daemon_cri_calls_total", Help: "Calls of container runtimes by method and gRPC code.",
	}, []string{"method", "code"})
	r.MustRegister(calls)
	return func(c cri.Call) { calls.WithLabelValues(c.Method, c.Code).Inc() }
}

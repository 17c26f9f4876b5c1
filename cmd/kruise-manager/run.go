// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/protection"
	"github.com/kruisectl/kruisectl/internal/version"
	"github.com/kruisectl/kruisectl/webhook/server"
)

const (
	userAgent = "kruise-manager"
	// shutdown must fit into the grace period of the Pod, 10 seconds, beside drain.
	shutdown = 6 * time.Second
)

// run is the manager from flags to its end, in the order of platform.md 2.1. It returns nil
// when ctx ends, and an error when the lease was lost or anything could not start.
func run(ctx context.Context, o *options) error {
	logger := klog.FromContext(ctx)
	if err := o.validate(); err != nil {
		return err
	}
	logFeatures(logger, o.features)
	settings, err := server.FromEnv(o.getenv)
	if err != nil {
		return err
	}
	settings.External = o.features.Enabled(features.EnableExternalCerts)
	if o.pprof {
		defer servePprof(logger, o.pprofAddr)()
	}
	cfg, err := o.restConfig()
	if err != nil {
		return err
	}
	api, err := newAPI(ctx, cfg)
	if err != nil {
		return err
	}
	denials, err := protection.Open(o.protectionLogPath)
	if err != nil {
		return err
	}
	defer denials.Close()

	mgr, err := newManager(o, cfg, settings)
	if err != nil {
		return err
	}
	served, err := handlers(mgr, o.features, denials)
	if err != nil {
		return err
	}
	for path, h := range served {
		mgr.GetWebhookServer().Register(path, h)
	}
	hooks, err := server.New(cfg, server.Options{
		Settings: settings,
		Serves:   func(path string) bool { return served[path] != nil },
		GatedOff: gatedOff(o.features),
		Scheme:   mgr.GetScheme(),
	})
	if err != nil {
		return err
	}
	leader := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kruise_manager_is_leader", Help: "1 on the replica that holds the lease, else 0."})
	for _, c := range []prometheus.Collector{leader, features.Collector(o.features), denials, hooks} {
		defer register(logger, c)()
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := hooks.Run(ctx); err != nil {
			return fmt.Errorf("running the webhook controller: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		// Certificates are on disk before the TLS server reads them, and callers know the
		// CA before they are let in.
		if err := awaitWebhooks(ctx, hooks, o.webhookTimeout); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // told to end: that is no failure
		}
		if err := addChecks(mgr, hooks, o.draining); err != nil {
			return err
		}
		group.Go(func() error {
			select {
			case <-mgr.Elected():
				leader.Set(1)
				logger.Info("This replica leads")
			case <-ctx.Done():
			}
			return nil
		})
		s := &starter{mgr: mgr, hooks: hooks, wiring: wiring{options: o, api: api}}
		if err := s.run(ctx); err != nil {
			return err
		}
		return errEnded
	})
	if err := group.Wait(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// errEnded makes the group stop the webhook controller once the manager has ended.
var errEnded = errors.New("the manager has ended")

func awaitWebhooks(ctx context.Context, hooks *server.Controller, limit time.Duration) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-hooks.Synced():
		return nil
	case <-ctx.Done():
		return nil
	case <-timeout.C:
		return fmt.Errorf("webhooks were not set up within %s (--webhook-initialize-timeout): %s", limit, hooks.LastError())
	}
}

func addChecks(mgr ctrl.Manager, hooks *server.Controller, draining <-chan struct{}) error {
	ready := func(req *http.Request) error {
		select {
		case <-draining:
			return errors.New("this replica is ending")
		default:
			return hooks.Ready(req)
		}
	}
	if err := mgr.AddReadyzCheck("webhook-ready", ready); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	return nil
}

func newManager(o *options, cfg *rest.Config, settings server.Settings) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	resync, err := o.resync()
	if err != nil {
		klog.Background().Error(err, "Using the default instead")
	}
	caches := cache.Options{
		SyncPeriod: resync,
		// Nobody here reads managed fields, and on most objects they are the larger half.
		DefaultTransform: cache.TransformStripManagedFields(),
	}
	if o.namespace != "" {
		caches.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        scheme,
		Logger:                        klog.Background(),
		Cache:                         caches,
		NewClient:                     newClient(o.deepCopyLists),
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddr},
		HealthProbeBindAddress:        o.probeAddr,
		LeaderElection:                o.leaderElection,
		LeaderElectionResourceLock:    o.leaseResource,
		LeaderElectionNamespace:       o.leaseNamespace,
		LeaderElectionID:              o.leaseName,
		LeaderElectionReleaseOnCancel: o.releaseLease,
		LeaseDuration:                 &o.leaseDuration,
		RenewDeadline:                 &o.renewDeadline,
		RetryPeriod:                   &o.retryPeriod,
		GracefulShutdownTimeout:       new(shutdown),
		Controller:                    config.Controller{CacheSyncTimeout: o.cacheSyncTimeout, SkipNameValidation: &o.skipNameCheck},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: "0.0.0.0", Port: settings.Port, CertDir: settings.CertDir, CertName: "tls.crt", KeyName: "tls.key",
			TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }},
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return s, nil
}

// restConfig is without client-side limits unless flags set them.
func (o *options) restConfig() (*rest.Config, error) {
	cfg := o.config
	if cfg == nil {
		var err error
		if cfg, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig); err != nil {
			return nil, fmt.Errorf("reading the configuration of the API client: %w", err)
		}
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = userAgent
	cfg.QPS, cfg.Burst = -1, 0
	if o.qps > 0 {
		cfg.QPS, cfg.Burst = o.qps, max(o.burst, int(o.qps), 1)
	}
	return cfg, nil
}

func logFeatures(logger klog.Logger, set *features.Set) {
	var on []string
	for _, st := range set.Effective() {
		if st.Enabled {
			on = append(on, string(st.Name))
		}
	}
	logger.Info("Starting", "version", version.Get().Version, "featureGates", on, "pid", os.Getpid())
	for _, w := range set.Warnings() {
		logger.Info("Warning: " + w)
	}
}

// register adds c to /metrics and returns what removes it. Of several managers in one
// process, as in tests, the first has the metrics.
func register(logger klog.Logger, c prometheus.Collector) func() {
	if err := metrics.Registry.Register(c); err != nil {
		logger.V(1).Info("A metric is missing", "reason", err.Error())
		return func() {}
	}
	return func() { metrics.Registry.Unregister(c) }
}

// servePprof serves profiles; a port that is taken is no reason to end. It returns what
// stops it.
func servePprof(logger klog.Logger, addr string) func() {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	srv := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			logger.Error(err, "Profiles are not served", "address", addr)
		}
	}()
	return func() {
		if err := srv.Close(); err != nil {
			logger.Error(err, "Closing the server of profiles")
		}
		<-ended
	}
}

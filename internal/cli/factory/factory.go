// SPDX-License-Identifier: Apache-2.0

// Package factory opens what commands need, on first use and once: the kubeconfig,
// the REST mapping, the API client. A command that only prints help opens nothing.
// The flags that every command shares (cli.md 1.2) live here too.
package factory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager is the default of --field-manager and names this tool in managedFields.
const FieldManager = "kruisectl"

// Factory hands out the lazily opened parts of a run. It is safe for concurrent use
// once the flags are parsed. Fields are set by New; tests replace what they need.
type Factory struct {
	genericiooptions.IOStreams
	// Flags are kubectl's connection flags.
	Flags *genericclioptions.ConfigFlags
	// Global are the flags of this tool that every command has.
	Global *Globals
	// Clock is the time that ages, timeouts and progress are measured with.
	Clock clock.WithTicker
	// Getenv reads the environment.
	Getenv func(string) string
	// Scheme decodes objects; nil means the one of NewScheme.
	Scheme *runtime.Scheme
	// OpenClient makes a client; nil means a real one with a lazy REST mapping.
	OpenClient func(*rest.Config, *runtime.Scheme) (client.WithWatch, error)

	// ProtectedContext reports contexts whose name the configuration wants typed before a
	// change; nil protects none. It is asked late: reading the context fixes the kubeconfig,
	// and flags may not be parsed yet.
	ProtectedContext func(context string) bool

	name   string
	mu     sync.Mutex
	config *rest.Config
	client client.WithWatch
	disco  discovery.DiscoveryInterface
	guard  *writeGuard
}

// New returns a Factory for the program called name ("kruisectl" or "kubectl kruise").
func New(name string, streams genericiooptions.IOStreams) *Factory {
	return &Factory{
		IOStreams: streams,
		Flags:     genericclioptions.NewConfigFlags(true),
		Global:    NewGlobals(),
		Clock:     clock.RealClock{},
		Getenv:    os.Getenv,
		name:      name,
		guard:     &writeGuard{},
	}
}

// Name is what the user types to run this program; every hint starts with it.
func (f *Factory) Name() string { return f.name }

// ErrNoCluster is wrapped by every error that means "no cluster is configured".
var ErrNoCluster = errors.New("no cluster is configured")

// Config reads the kubeconfig. Without any configuration it returns an error that wraps
// ErrNoCluster; it never falls back to localhost:8080.
func (f *Factory) Config() (*rest.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.configLocked()
}

func (f *Factory) configLocked() (*rest.Config, error) {
	if f.config != nil {
		return f.config, nil
	}
	cfg, err := f.Flags.ToRESTConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			return nil, fmt.Errorf("%w: %s", ErrNoCluster, f.kubeconfigOrigin())
		}
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	if f.noClusterConfigured() {
		return nil, fmt.Errorf("%w: %s", ErrNoCluster, f.kubeconfigOrigin())
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = f.Global.QPS, f.Global.Burst
	cfg.UserAgent = FieldManager + " " + rest.DefaultKubernetesUserAgent()
	cfg.WarningHandlerWithContext = f.Global.warnings(f.ErrOut)
	cfg.Wrap(f.guard.wrap)
	f.config = cfg
	return cfg, nil
}

// noClusterConfigured reports that neither a flag nor a kubeconfig names a server, so
// that ToRESTConfig made up its default.
func (f *Factory) noClusterConfigured() bool {
	if f.Flags.APIServer != nil && *f.Flags.APIServer != "" {
		return false
	}
	raw, err := f.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil || len(raw.Clusters) > 0 {
		return false
	}
	_, inCluster := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	return !inCluster
}

func (f *Factory) kubeconfigOrigin() string {
	if f.Flags.KubeConfig != nil && *f.Flags.KubeConfig != "" {
		return fmt.Sprintf("--kubeconfig %s names no cluster", *f.Flags.KubeConfig)
	}
	if v := f.Getenv("KUBECONFIG"); v != "" {
		return fmt.Sprintf("KUBECONFIG=%s names no cluster", v)
	}
	return "neither --kubeconfig, KUBECONFIG nor " + clientcmd.RecommendedHomeFile + " names one"
}

// Client opens the API client on first use. It speaks the versions that the server
// serves, and refuses writes while DryRunOnly is in force.
func (f *Factory) Client() (client.Client, error) { return f.WatchClient() }

// WatchClient is Client for commands that also watch.
func (f *Factory) WatchClient() (client.WithWatch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client != nil {
		return f.client, nil
	}
	open := f.OpenClient
	if open == nil {
		open = func(cfg *rest.Config, s *runtime.Scheme) (client.WithWatch, error) {
			return client.NewWithWatch(cfg, client.Options{Scheme: s})
		}
	}
	cfg, err := f.configLocked()
	if err != nil && f.OpenClient == nil {
		return nil, err
	}
	if f.Scheme == nil {
		s, err := NewScheme()
		if err != nil {
			return nil, err
		}
		f.Scheme = s
	}
	c, err := open(cfg, f.Scheme)
	if err != nil {
		return nil, fmt.Errorf("opening the API client: %w", err)
	}
	f.client = c
	return c, nil
}

// Discovery asks the server for its version and API groups, without a cache.
func (f *Factory) Discovery() (discovery.DiscoveryInterface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.disco != nil {
		return f.disco, nil
	}
	cfg, err := f.configLocked()
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("opening the discovery client: %w", err)
	}
	f.disco = d
	return d, nil
}

// Mapper maps kinds to resources and knows the served versions. It asks the server only
// for groups that somebody asked for, so a broken unrelated group does no harm.
func (f *Factory) Mapper() (meta.RESTMapper, error) {
	c, err := f.WatchClient()
	if err != nil {
		return nil, err
	}
	return c.RESTMapper(), nil
}

// Namespace is -n, else that of the context, else "default".
func (f *Factory) Namespace() (string, error) {
	if f.OpenClient != nil && f.Flags.Namespace != nil && *f.Flags.Namespace != "" {
		return *f.Flags.Namespace, nil
	}
	ns, _, err := f.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading kubeconfig: %w", err)
	}
	return ns, nil
}

// NamespaceGiven reports that the user named a namespace on the command line.
func (f *Factory) NamespaceGiven() bool { return f.Flags.Namespace != nil && *f.Flags.Namespace != "" }

// ContextName is the kubeconfig context in use, "" when there is none.
func (f *Factory) ContextName() string {
	if f.Flags.Context != nil && *f.Flags.Context != "" {
		return *f.Flags.Context
	}
	raw, err := f.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ""
	}
	return raw.CurrentContext
}

// DryRunOnly makes the transport refuse every request that would change the cluster.
// Commands call it as soon as they know that they run dry; there is no way back.
func (f *Factory) DryRunOnly() { f.guard.armed.Store(true) }

// Heartbeat is the time between two signs of life on a quiet line-mode wait.
const Heartbeat = 30 * time.Second

// Sleep waits for d or until ctx ends, on the Factory's clock.
func (f *Factory) Sleep(ctx context.Context, d time.Duration) error {
	t := f.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C():
		return nil
	}
}

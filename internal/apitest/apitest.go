// SPDX-License-Identifier: Apache-2.0

// Package apitest starts a real API server for tests, with the CRDs of this module and, on
// request, with conversion and admission webhooks that the test serves in its own process.
//
// It needs kube-apiserver, etcd and kubectl in the directory that KUBEBUILDER_ASSETS names,
// or in the binary cache that test/cluster fills. Tests that use it carry the build tag
// envtest. It is imported by tests only.
package apitest

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/manifests"
)

// Scheme returns a new scheme with the Kubernetes types, CustomResourceDefinition and every
// type of this module.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

type options struct {
	conversion http.Handler
	handlers   map[string]http.Handler
	mutating   []*admissionv1.MutatingWebhookConfiguration
	validating []*admissionv1.ValidatingWebhookConfiguration
	noCRDs     bool
	changeCRD  func(*apiextensionsv1.CustomResourceDefinition)
	args       map[string]string
}

// Option changes what Start and New set up.
type Option func(*options)

// WithConversion makes the API server convert Kruise objects with h, which answers
// ConversionReviews. Without it the CRDs get strategy None: only the storage version,
// v1beta1, is useful then.
func WithConversion(h http.Handler) Option {
	return func(o *options) { o.conversion = h }
}

// WithHandler serves h at path of the webhook server of the test.
func WithHandler(path string, h http.Handler) Option {
	return func(o *options) { o.handlers[path] = h }
}

// WithMutating installs cfg. The client configuration of every entry is replaced by the URL
// of the test's webhook server; the path is taken from its Service reference.
func WithMutating(cfg *admissionv1.MutatingWebhookConfiguration) Option {
	return func(o *options) { o.mutating = append(o.mutating, cfg.DeepCopy()) }
}

// WithValidating is WithMutating for validating webhooks.
func WithValidating(cfg *admissionv1.ValidatingWebhookConfiguration) Option {
	return func(o *options) { o.validating = append(o.validating, cfg.DeepCopy()) }
}

// WithoutCRDs starts the API server without the CRDs of this module, for tests that install
// them their own way.
func WithoutCRDs() Option {
	return func(o *options) { o.noCRDs = true }
}

// WithCRDs changes every CRD of this module before it is installed.
func WithCRDs(change func(*apiextensionsv1.CustomResourceDefinition)) Option {
	return func(o *options) { o.changeCRD = change }
}

// WithAPIServerArg sets --name=value of kube-apiserver.
func WithAPIServerArg(name, value string) Option {
	return func(o *options) { o.args[name] = value }
}

// Server is a running API server.
type Server struct {
	// Config is for an administrator, without client-side rate limits.
	Config *rest.Config
	// Kubeconfig is the content of a kubeconfig file for the same user.
	Kubeconfig []byte

	stop []func() error
}

// Start starts an API server and stops it when the test ends. Without the binaries it fails
// the test, with a sentence that says how to get them.
func Start(t testing.TB, opts ...Option) *rest.Config {
	t.Helper()
	return StartServer(t, opts...).Config
}

// StartServer is Start for tests that need more than the configuration.
func StartServer(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := New(opts...)
	if err != nil {
		t.Fatalf("starting an API server: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	return s
}

// New starts an API server that several tests of a package share; TestMain stops it.
func New(opts ...Option) (*Server, error) {
	o := options{handlers: map[string]http.Handler{}, args: map[string]string{}}
	for _, opt := range opts {
		opt(&o)
	}
	assets, err := assetsDir()
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if err := s.start(assets, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Stop ends what New started. Calling it twice is harmless.
func (s *Server) Stop() error {
	var errs []error
	for _, stop := range slices.Backward(s.stop) {
		errs = append(errs, stop())
	}
	s.stop = nil
	return errors.Join(errs...)
}

func (s *Server) start(assets string, o options) error {
	env := &envtest.Environment{Scheme: Scheme(), BinaryAssetsDirectory: assets}
	args := env.ControlPlane.GetAPIServer().Configure()
	for name, value := range o.args {
		args.Set(name, value)
	}
	if o.conversion != nil {
		o.handlers["/convert"] = o.conversion
	}
	var hooks *hookServer
	if len(o.handlers) > 0 {
		var err error
		if hooks, err = serve(o.handlers); err != nil {
			return err
		}
		s.stop = append(s.stop, hooks.stop)
	}
	cfg, err := env.Start()
	s.stop = append(s.stop, env.Stop)
	if err != nil {
		return fmt.Errorf("starting kube-apiserver and etcd of %s: %w", assets, err)
	}
	cfg.QPS, cfg.Burst = -1, 0
	s.Config, s.Kubeconfig = cfg, env.KubeConfig
	if !o.noCRDs {
		crds, err := CRDs()
		if err != nil {
			return err
		}
		for _, crd := range crds {
			crd.Spec.Conversion = hooks.conversion(o.conversion != nil)
			if o.changeCRD != nil {
				o.changeCRD(crd)
			}
		}
		if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: crds}); err != nil {
			return fmt.Errorf("installing CRDs: %w", err)
		}
	}
	return s.install(hooks, o)
}

// CRDs returns the CRDs of manifests/crds.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(manifests.Files, "crds/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing CRDs: %w", err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		raw, err := manifests.Files.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(raw, crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if crd.Kind == "CustomResourceDefinition" {
			crds = append(crds, crd)
		}
	}
	return crds, nil
}

// assetsDir finds the directory of the binaries.
func assetsDir() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("KUBEBUILDER_ASSETS is not set: %w", err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "kruisectl", "bin", "*", "kube-apiserver"))
	if err != nil {
		return "", fmt.Errorf("looking for kube-apiserver: %w", err)
	}
	for _, path := range slices.Backward(found) {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, "etcd")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("neither KUBEBUILDER_ASSETS nor %s has kube-apiserver and etcd: build them with test/cluster", filepath.Join(cache, "kruisectl", "bin"))
}

// NewClient returns a client for cfg that knows Scheme, and fails the test if it cannot.
func NewClient(t testing.TB, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	return c
}

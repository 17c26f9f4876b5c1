// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// resync is how long after a successful sync the next one comes without any event.
const resync = 60 * time.Second

// ourGroups are the API groups whose CRDs are kept pointing at the server.
var ourGroups = [...]string{"apps.kruise.io", "policy.kruise.io"}

// Options are what a Controller needs to know.
type Options struct {
	Settings Settings
	// Serves reports whether the webhook server of this manager has a handler at a path.
	Serves func(path string) bool
	// GatedOff names the gate that keeps a path from being served, or is empty: then the
	// manifests and the manager disagree, which is logged and counted.
	GatedOff func(path string) string
	// Scheme knows the kinds that /convert converts.
	Scheme *runtime.Scheme
	// Clock is the real one when nil.
	Clock clock.PassiveClock
}

// Controller keeps certificate, webhook configurations and CRDs right. Make it with New.
type Controller struct {
	settings Settings
	serves   func(string) bool
	gatedOff func(string) string
	scheme   *runtime.Scheme
	clock    clock.PassiveClock
	client   client.Client
	metadata metadata.Interface
	crds     cache.GenericLister

	first      chan struct{} // closed by the first successful sync
	firstOnce  sync.Once
	lastErr    atomic.Value // of error text
	mu         sync.Mutex
	drops      []dropped
	certExpiry time.Time
}

// New returns a Controller that talks to the API server of cfg. Run starts it.
func New(cfg *rest.Config, o Options) (*Controller, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionv1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("building the scheme of the webhook controller: %w", err)
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		return nil, fmt.Errorf("making the client of the webhook controller: %w", err)
	}
	m, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making the client of the webhook controller: %w", err)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.GatedOff == nil {
		o.GatedOff = func(string) string { return "" }
	}
	return &Controller{
		settings: o.Settings, serves: o.Serves, gatedOff: o.GatedOff, scheme: o.Scheme, clock: o.Clock,
		client: c, metadata: m, first: make(chan struct{}),
	}, nil
}

// Synced is closed once everything has been right for the first time.
func (c *Controller) Synced() <-chan struct{} { return c.first }

// LastError is the text of the error of the last sync, empty when it succeeded.
func (c *Controller) LastError() string {
	text, _ := c.lastErr.Load().(string)
	return text
}

// Run syncs on every relevant event, and a minute after each success, until ctx ends. It
// returns when all that it started has ended.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[struct{}]())
	stop, err := c.watch(ctx, func() { queue.Add(struct{}{}) })
	if err != nil {
		queue.ShutDown()
		return err
	}
	defer stop()
	defer cancel() // before stop, which waits for the informers
	context.AfterFunc(ctx, queue.ShutDown)
	queue.Add(struct{}{})
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return nil
		}
		err := c.sync(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if err.Error() != c.LastError() { // retries of the same fault are no news
				log.FromContext(ctx).Error(err, "Webhooks are not set up")
			}
			c.lastErr.Store(err.Error())
			queue.AddRateLimited(key)
		default:
			c.lastErr.Store("")
			c.firstOnce.Do(func() { close(c.first) })
			queue.Forget(key)
			queue.AddAfter(key, resync)
		}
		queue.Done(key)
	}
}

// watch starts informers on the metadata of what a sync looks at, and waits for their first
// lists. Content is read live by each sync: the events only say that it is time for one.
func (c *Controller) watch(ctx context.Context, changed func()) (stop func(), err error) {
	named := func(name string) metadatainformer.TweakListOptionsFunc {
		return func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}
	}
	admission := admissionv1.SchemeGroupVersion
	crds := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	sources := []struct {
		resource  schema.GroupVersionResource
		namespace string
		tweak     metadatainformer.TweakListOptionsFunc
	}{
		{corev1.SchemeGroupVersion.WithResource("secrets"), c.settings.Namespace, named(c.settings.SecretName)},
		{admission.WithResource("mutatingwebhookconfigurations"), "", named(MutatingConfiguration)},
		{admission.WithResource("validatingwebhookconfigurations"), "", named(ValidatingConfiguration)},
		{crds, "", nil},
	}
	var factories []metadatainformer.SharedInformerFactory
	stop = func() {
		for _, f := range factories {
			f.Shutdown()
		}
	}
	for _, src := range sources {
		f := metadatainformer.NewFilteredSharedInformerFactory(c.metadata, 0, src.namespace, src.tweak)
		factories = append(factories, f)
		informer := f.ForResource(src.resource)
		relevant := func(string) bool { return true }
		if src.resource == crds {
			c.crds, relevant = informer.Lister(), ours
		}
		if _, err := informer.Informer().AddEventHandler(events(relevant, changed)); err != nil {
			return nil, fmt.Errorf("watching %s: %w", src.resource.Resource, err)
		}
	}
	for _, f := range factories {
		f.Start(ctx.Done())
	}
	for _, f := range factories {
		for resource, ok := range f.WaitForCacheSync(ctx.Done()) {
			if !ok && ctx.Err() == nil {
				return stop, fmt.Errorf("watching %s: no first list", resource.Resource)
			}
		}
	}
	return stop, nil
}

// events calls changed for new and changed objects with a relevant name.
func events(relevant func(name string) bool, changed func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if m, ok := obj.(*metav1.PartialObjectMetadata); ok && relevant(m.Name) {
				changed()
			}
		},
		UpdateFunc: func(old, obj any) {
			o, okOld := old.(*metav1.PartialObjectMetadata)
			m, ok := obj.(*metav1.PartialObjectMetadata)
			if ok && okOld && relevant(m.Name) && o.ResourceVersion != m.ResourceVersion {
				changed()
			}
		},
	}
}

// ours reports whether a CRD, by its name plural.group, is of one of our groups.
func ours(crd string) bool {
	for _, g := range ourGroups {
		if strings.HasSuffix(crd, "."+g) {
			return true
		}
	}
	return false
}

func urlPath(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Path
}

// expiry returns when the first certificate of a PEM ends, or the zero time.
func expiry(cert []byte) time.Time {
	block, _ := pem.Decode(cert)
	if block == nil {
		return time.Time{}
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return parsed.NotAfter
}

// SPDX-License-Identifier: Apache-2.0

// Package kube is the API server as the node agent sees it: typed clients of the few
// resources that it uses, informers narrowed to one node, and events. It runs on every
// node, so it does without discovery, without controller-runtime and without the scheme of
// all of Kubernetes, which together take more memory than everything else in the agent.
// Rules: daemon.md 0 and 1.
package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
)

// Object is what the API server stores.
type Object interface {
	runtime.Object
	metav1.Object
}

// Client speaks to the API server: protobuf for core types, JSON for all others. All
// resources share its connections and its rate limit. Its methods may be called concurrently.
type Client struct {
	scheme *runtime.Scheme
	params runtime.ParameterCodec
	groups map[schema.GroupVersion]rest.Interface
}

// Group is one API group and version with the types that the agent uses of it.
type Group struct {
	Version schema.GroupVersion
	// Types are objects and lists.
	Types []runtime.Object
}

// Core are the core types of the agent. Registering one type keeps its code in the program.
func Core() Group {
	return Group{Version: corev1.SchemeGroupVersion, Types: []runtime.Object{
		&corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{}, &corev1.SecretList{}, &corev1.Event{}, &corev1.EventList{},
	}}
}

// New makes a client of the given groups. It asks the API server for nothing.
func New(config *rest.Config, groups ...Group) (*Client, error) {
	c := &Client{scheme: runtime.NewScheme(), groups: map[schema.GroupVersion]rest.Interface{}}
	for _, g := range groups {
		c.scheme.AddKnownTypes(g.Version, g.Types...)
		metav1.AddToGroupVersion(c.scheme, g.Version)
	}
	c.params = runtime.NewParameterCodec(c.scheme)
	codecs := serializer.NewCodecFactory(c.scheme).WithoutConversion()
	config = rest.CopyConfig(config)
	if config.RateLimiter == nil {
		config.RateLimiter = rateLimiter(config)
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client: %w", err)
	}
	for _, g := range groups {
		of := rest.CopyConfig(config)
		of.GroupVersion, of.NegotiatedSerializer, of.APIPath = new(g.Version), codecs, "/apis"
		if g.Version.Group == "" {
			of.APIPath = "/api"
			of.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
			of.ContentType = runtime.ContentTypeProtobuf
		}
		if c.groups[g.Version], err = rest.RESTClientForConfigAndClient(of, http); err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", g.Version, err)
		}
	}
	return c, nil
}

// rateLimiter is the one limiter that all groups share; client-go would give each its own.
func rateLimiter(config *rest.Config) flowcontrol.RateLimiter {
	if config.QPS < 0 {
		return nil
	}
	qps, burst := config.QPS, config.Burst
	if qps == 0 {
		qps = rest.DefaultQPS
	}
	if burst == 0 {
		burst = rest.DefaultBurst
	}
	return flowcontrol.NewTokenBucketRateLimiter(qps, burst)
}

// Scheme knows the types that were given to New.
func (c *Client) Scheme() *runtime.Scheme { return c.scheme }

// Pods returns the client of the Pods of a namespace; empty is all.
func (c *Client) Pods(namespace string) *Typed[*corev1.Pod, *corev1.PodList] {
	return Resource(c, corev1.SchemeGroupVersion, "pods", namespace,
		func() *corev1.Pod { return &corev1.Pod{} }, func() *corev1.PodList { return &corev1.PodList{} })
}

// Secrets returns the client of the Secrets of a namespace.
func (c *Client) Secrets(namespace string) *Typed[*corev1.Secret, *corev1.SecretList] {
	return Resource(c, corev1.SchemeGroupVersion, "secrets", namespace,
		func() *corev1.Secret { return &corev1.Secret{} }, func() *corev1.SecretList { return &corev1.SecretList{} })
}

// Select narrows what an informer watches. Both fields are selectors as kubectl takes them.
type Select struct{ Fields, Labels string }

// Informer makes an informer of what the selectors leave of a resource. Managed fields are
// dropped from every object; strip, which may be nil, drops what else nobody reads, in place.
// It has no resync. The caller runs it.
func Informer[T Object, L runtime.Object](resource *Typed[T, L], by Select, strip func(T), indexers cache.Indexers) cache.SharedIndexInformer {
	narrow := func(o *metav1.ListOptions) { o.FieldSelector, o.LabelSelector = by.Fields, by.Labels }
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			return resource.Watch(ctx, o)
		},
	}
	var kind T
	informer := cache.NewSharedIndexInformerWithOptions(lw, kind, cache.SharedIndexInformerOptions{Indexers: indexers})
	// It can only fail on an informer that runs already.
	_ = informer.SetTransform(func(obj any) (any, error) {
		if o, ok := obj.(T); ok {
			o.SetManagedFields(nil)
			if strip != nil {
				strip(o)
			}
		}
		return obj, nil
	})
	return informer
}

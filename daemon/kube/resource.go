// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Typed is the client of one resource in one namespace, or in all, or without one. It is
// client-go's gentype without the fakes that come along there, which bring in megabytes.
type Typed[T Object, L runtime.Object] struct {
	rest                rest.Interface
	params              runtime.ParameterCodec
	resource, namespace string
	object              func() T
	list                func() L
}

// Resource returns the client of one resource, such as "pods" of core/v1. T and L are the
// types of an object and of a list; namespace is empty for cluster-scoped resources and for
// lists and watches of all namespaces. The group must have been given to New.
func Resource[T Object, L runtime.Object](c *Client, version schema.GroupVersion, resource, namespace string, object func() T, list func() L) *Typed[T, L] {
	return &Typed[T, L]{rest: c.groups[version], params: c.params, resource: resource, namespace: namespace, object: object, list: list}
}

func (t *Typed[T, L]) on(request *rest.Request) *rest.Request {
	return request.NamespaceIfScoped(t.namespace, t.namespace != "").Resource(t.resource)
}

// Get reads one object.
func (t *Typed[T, L]) Get(ctx context.Context, name string, o metav1.GetOptions) (T, error) {
	object := t.object()
	return object, t.on(t.rest.Get()).Name(name).VersionedParams(&o, t.params).Do(ctx).Into(object)
}

// List reads what the options select.
func (t *Typed[T, L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	list := t.list()
	return list, t.on(t.rest.Get()).VersionedParams(&o, t.params).Do(ctx).Into(list)
}

// Watch watches what the options select.
func (t *Typed[T, L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return t.on(t.rest.Get()).VersionedParams(&o, t.params).Watch(ctx)
}

// UpdateStatus replaces the status of the version that object carries.
func (t *Typed[T, L]) UpdateStatus(ctx context.Context, object T, o metav1.UpdateOptions) (T, error) {
	written := t.object()
	return written, t.on(t.rest.Put()).Name(object.GetName()).SubResource("status").VersionedParams(&o, t.params).Body(object).Do(ctx).Into(written)
}

// Patch patches an object or one of its subresources.
func (t *Typed[T, L]) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (T, error) {
	written := t.object()
	return written, t.on(t.rest.Patch(kind)).Name(name).SubResource(subresources...).VersionedParams(&o, t.params).Body(data).Do(ctx).Into(written)
}

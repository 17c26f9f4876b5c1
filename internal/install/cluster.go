// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is what this package needs of an API server.
type Cluster struct {
	// Client needs no scheme: every object is unstructured.
	Client client.Client
	// Version asks for the server's version.
	Version discovery.ServerVersionInterface
	// Clock measures timeouts.
	Clock clock.WithTicker
	// Poll is the time between two looks while waiting; 0 is one second.
	Poll time.Duration
}

// Progress receives what happens, in order. Any of its functions may be nil.
type Progress struct {
	// Step starts a numbered step of a run.
	Step func(n, of int, text string)
	// Object reports what was done to one object.
	Object func(c Change)
	// Waiting replaces the text of what is waited for.
	Waiting func(text string)
	// Note is a sentence that stays.
	Note func(text string)
}

func (p Progress) step(n, of int, format string, args ...any) {
	if p.Step != nil {
		p.Step(n, of, fmt.Sprintf(format, args...))
	}
}

func (p Progress) object(c Change) {
	if p.Object != nil {
		p.Object(c)
	}
}

func (p Progress) waiting(text string) {
	if p.Waiting != nil {
		p.Waiting(text)
	}
}

func (p Progress) note(format string, args ...any) {
	if p.Note != nil {
		p.Note(fmt.Sprintf(format, args...))
	}
}

// get returns the live object of the same kind and name, nil when there is none, be it
// that its kind is not served.
func (c *Cluster) get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, u)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		u.SetName(name)
		u.SetNamespace(namespace)
		u.SetGroupVersionKind(gvk)
		return nil, fmt.Errorf("reading %s: %w", Name(u), err)
	}
	return u, nil
}

func (c *Cluster) live(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.get(ctx, o.GroupVersionKind(), o.GetNamespace(), o.GetName())
}

// list returns all objects of a kind, none when the kind is not served.
func (c *Cluster) list(ctx context.Context, gvk schema.GroupVersionKind, opts ...client.ListOption) ([]unstructured.Unstructured, error) {
	var items []unstructured.Unstructured
	token := ""
	for {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		err := c.Client.List(ctx, l, append(opts, client.Limit(500), client.Continue(token))...)
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
		}
		items = append(items, l.Items...)
		if token = l.GetContinue(); token == "" {
			return items, nil
		}
	}
}

func (c *Cluster) poll() time.Duration {
	if c.Poll > 0 {
		return c.Poll
	}
	return time.Second
}

// The kinds that this package reads by name.
var (
	gvkNamespace   = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	gvkPod         = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	gvkNode        = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	gvkSecret      = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	gvkConfigMap   = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	gvkService     = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	gvkDeployment  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	gvkDaemonSet   = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	gvkLease       = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	gvkEndpoints   = schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	gvkCRD         = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	gvkMutating    = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"}
	gvkValidating  = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}
	gvkCloneSet    = schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "CloneSet"}
	gvkClusterRole = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
)

func named(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetName(name)
	return u
}

// schemaKind names a kind in a table.
type schemaKind struct{ group, version, kind string }

func (k schemaKind) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind}
}

// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// As decodes an object that was read at any served version. The fields that T lacks are
// dropped, so T must spell the fields of all versions alike, as the kinds for images,
// restarts and probes do.
func As[T any](u *unstructured.Unstructured) (*T, error) { return as[T](u) }

// List reads all objects of k in the best served version, page by page.
func List[T any](ctx context.Context, c client.Client, k *target.Kind, opts ...client.ListOption) ([]T, error) {
	m, err := Version(c.RESTMapper(), k)
	if err != nil {
		return nil, err
	}
	var all []T
	for token := ""; ; {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(m.GroupVersionKind)
		page := append([]client.ListOption{client.Limit(pageSize), client.Continue(token)}, opts...)
		if err := c.List(ctx, l, page...); err != nil {
			return nil, err
		}
		for i := range l.Items {
			v, err := as[T](&l.Items[i])
			if err != nil {
				return nil, err
			}
			all = append(all, *v)
		}
		if token = l.GetContinue(); token == "" {
			return all, nil
		}
	}
}

// Encode makes what is sent to create obj at gvk: without status and creation time.
func Encode(obj any, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", gvk.Kind, err)
	}
	delete(m, "status")
	if meta, ok := m["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

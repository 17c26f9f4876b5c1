// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newClient makes the client of the manager. With copies, what a controller reads from the
// cache is its own even where it asked for the cached object itself (--disable-no-deepcopy).
func newClient(copies bool) client.NewClientFunc {
	return func(cfg *rest.Config, o client.Options) (client.Client, error) {
		c, err := client.New(cfg, o)
		if err != nil || !copies {
			return c, err
		}
		return copyingClient{c}, nil
	}
}

// copyingClient ignores client.UnsafeDisableDeepCopy.
type copyingClient struct{ client.Client }

// Get implements client.Reader.
func (c copyingClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.Client.Get(ctx, key, obj, slices.DeleteFunc(slices.Clone(opts), func(o client.GetOption) bool { return uncopied(o) })...)
}

// List implements client.Reader.
func (c copyingClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Client.List(ctx, list, slices.DeleteFunc(slices.Clone(opts), func(o client.ListOption) bool { return uncopied(o) })...)
}

func uncopied(option any) bool {
	_, ok := option.(client.UnsafeDisableDeepCopyOption)
	return ok
}

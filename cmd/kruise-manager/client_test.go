// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestCopyingClientAlwaysCopies(t *testing.T) {
	seen := 0
	inner := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, opts ...client.GetOption) error {
			seen += len(opts)
			return nil
		},
		List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) error {
			seen += len(opts)
			return nil
		},
	}).Build()
	c := copyingClient{inner}
	opts := []client.ListOption{client.InNamespace("shop"), client.UnsafeDisableDeepCopy}
	if err := c.List(t.Context(), &corev1.PodList{}, opts...); err != nil || seen != 1 {
		t.Errorf("List was called with %d options, %v", seen, err)
	}
	if opts[1] != client.ListOption(client.UnsafeDisableDeepCopy) {
		t.Error("the caller's options were changed")
	}
	if err := c.Get(t.Context(), client.ObjectKey{}, &corev1.Pod{}, client.UnsafeDisableDeepCopy); err != nil || seen != 1 {
		t.Errorf("Get was called with %d options, %v", seen-1, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package container

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// open opens the client and the namespace.
func open(f *factory.Factory, doing string) (client.WithWatch, string, error) {
	c, err := f.WatchClient()
	if err != nil {
		return nil, "", &out.Failure{Doing: doing, Cause: err}
	}
	ns, err := f.Namespace()
	return c, ns, err
}

// podsOf are the Pod itself, or the active Pods that a workload controls, by name.
func podsOf(ctx context.Context, c client.Client, o target.Object) ([]corev1.Pod, error) {
	if o.Kind == target.Pod {
		p, err := fetch.As[corev1.Pod](o.Live)
		if err != nil {
			return nil, err
		}
		return []corev1.Pod{*p}, nil
	}
	raw, ok, err := unstructured.NestedMap(o.Live.Object, "spec", "selector")
	if err != nil || !ok {
		return nil, fmt.Errorf("%s has no selector", o)
	}
	sel := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, sel); err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	owners := map[types.UID]bool{o.Live.GetUID(): true}
	ns := o.Live.GetNamespace()
	if o.Kind.Kind == "Deployment" {
		var sets appsv1.ReplicaSetList
		if err := c.List(ctx, &sets, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: s}); err != nil {
			return nil, fmt.Errorf("listing replicasets: %w", err)
		}
		for i := range sets.Items {
			if ref := metav1.GetControllerOf(&sets.Items[i]); ref != nil && ref.UID == o.Live.GetUID() {
				owners[sets.Items[i].UID] = true
			}
		}
	}
	all, err := podsWith(ctx, c, ns, s)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p corev1.Pod) bool {
		ref := metav1.GetControllerOf(&p)
		return ref == nil || !owners[ref.UID]
	}), nil
}

// podsWith are the active Pods with labels, by name.
func podsWith(ctx context.Context, c client.Client, ns string, s labels.Selector) ([]corev1.Pod, error) {
	all, err := fetch.List[corev1.Pod](ctx, c, target.Pod, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: s})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	all = slices.DeleteFunc(all, func(p corev1.Pod) bool { return !diagnose.Active(&p) })
	slices.SortFunc(all, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

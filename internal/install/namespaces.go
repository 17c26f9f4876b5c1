// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A TerminatingError says that a Namespace is being deleted and what holds it.
type TerminatingError struct {
	Namespace string
	Remaining []string
}

// Error implements error.
func (e *TerminatingError) Error() string {
	return fmt.Sprintf("namespace %s is being deleted: %s", e.Namespace, strings.Join(e.Remaining, "; "))
}

// ErrNoNamespace says that the system namespace is missing and is not to be created.
var ErrNoNamespace = errors.New("the namespace does not exist and installation.createNamespace is false")

func (r *run) namespacesUsable(ctx context.Context) error {
	names := map[string]bool{}
	for _, o := range r.m.Objects {
		if o.GetKind() == "Namespace" {
			names[o.GetName()] = true
		} else if ns := o.GetNamespace(); ns != "" {
			names[ns] = true
		}
	}
	names[r.m.Values.Installation.Namespace] = true
	limit := r.o.NamespaceWait
	if limit == 0 {
		limit = 30 * time.Second
	}
	var conditions []Condition
	for _, name := range sortedKeys(names) {
		live, err := r.get(ctx, gvkNamespace, "", name)
		if err != nil {
			return err
		}
		if live == nil {
			return fmt.Errorf("%s: %w", name, ErrNoNamespace)
		}
		conditions = append(conditions, r.namespaceActive(name))
	}
	err := r.waitFor(ctx, conditions, limit, r.p)
	var timeout *TimeoutError
	if errors.As(err, &timeout) {
		for _, name := range sortedKeys(names) {
			if live, getErr := r.get(ctx, gvkNamespace, "", name); getErr == nil && live != nil && live.GetDeletionTimestamp() != nil {
				return &TerminatingError{Namespace: name, Remaining: remaining(live)}
			}
		}
	}
	return err
}

// remaining says why a Namespace, or another object, is still there.
func remaining(o *unstructured.Unstructured) []string {
	var list []string
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, x := range conditions {
		m, _ := x.(map[string]any)
		if o.GetKind() == "CustomResourceDefinition" && m["type"] != "Terminating" {
			continue // says that its names are fine
		}
		if m["status"] == "True" && m["message"] != nil {
			list = append(list, fmt.Sprint(m["message"]))
		}
	}
	finalizers, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "finalizers")
	if all := append(finalizers, o.GetFinalizers()...); len(all) > 0 {
		list = append(list, "finalizers "+strings.Join(all, ", "))
	}
	if len(list) == 0 {
		list = append(list, "nothing is known to hold it")
	}
	return list
}

// SPDX-License-Identifier: Apache-2.0

// Package fetch reads what the rollout packages compute with: the objects that users
// name, and everything around a workload. It is the only one of them that reads from the
// API server; writing is in package apply.
package fetch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Version returns the best version of k that the server and this tool both know.
func Version(mapper meta.RESTMapper, k *target.Kind) (*meta.RESTMapping, error) {
	all, err := mapper.RESTMappings(k.GroupKind)
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	var served []string
	for _, m := range all {
		served = append(served, m.GroupVersionKind.Version)
	}
	for _, v := range k.Versions {
		if i := slices.Index(served, v); i >= 0 {
			return all[i], nil
		}
	}
	return nil, &target.NotServedError{Kind: k, Served: served}
}

// Object reads the object that n names, in namespace. A word that means two kinds is
// looked up in both (cli.md 1.4).
func Object(ctx context.Context, c client.Client, verb target.Verb, n target.Name, namespace string) (target.Object, error) {
	if len(n.Kinds) == 1 {
		return get(ctx, c, n.Kinds[0], n.Name, namespace)
	}
	var found []target.Object
	var firstErr error
	for _, k := range n.Kinds {
		o, err := get(ctx, c, k, n.Name, namespace)
		switch {
		case err == nil:
			found = append(found, o)
		case apierrors.IsNotFound(err) || isNotServed(err):
		case firstErr == nil:
			firstErr = err
		}
	}
	switch {
	case len(found) == 0 && firstErr != nil:
		return target.Object{}, firstErr
	case len(found) == 0:
		var tried []string
		for _, k := range n.Kinds {
			tried = append(tried, k.Spelling())
		}
		return target.Object{}, &neitherError{
			text: fmt.Sprintf("neither %s named %q exists in namespace %q", strings.Join(tried, " nor "), n.Name, namespace),
			err:  apierrors.NewNotFound(schema.GroupResource{Resource: n.Kinds[0].Plural}, n.Name),
		}
	case len(found) > 1 && verb.Mutates:
		return target.Object{}, &target.InputError{
			Err:  fmt.Errorf("%q is ambiguous: %s and %s both exist", n.Typed, found[0].Kind.Spelling(), found[1].Kind.Spelling()),
			Next: verb.Command + " " + found[0].Kind.Spelling() + "/" + n.Name + "\n" + verb.Command + " " + found[1].Kind.Spelling() + "/" + n.Name,
		}
	}
	chosen := choose(verb, found)
	chosen.Note = fmt.Sprintf("%s is %s", n.Typed, chosen.Kind.Spelling())
	for _, o := range found {
		if o.Kind != chosen.Kind {
			chosen.Note += fmt.Sprintf("; %s/%s exists as well", o.Kind.Spelling(), n.Name)
		}
	}
	if !slices.Contains(verb.Kinds, chosen.Kind) {
		return target.Object{}, target.WrongKind(verb, chosen.Kind, n.Name)
	}
	return chosen, nil
}

// choose prefers a kind that the verb works on, and among those the native one.
func choose(verb target.Verb, found []target.Object) target.Object {
	best, rank := found[0], -1
	for _, o := range found {
		r := 0
		if slices.Contains(verb.Kinds, o.Kind) {
			r += 2
		}
		if o.Kind.Native() {
			r++
		}
		if r > rank {
			best, rank = o, r
		}
	}
	return best
}

// neitherError is a NotFound for every kind that a word may mean.
type neitherError struct {
	text string
	err  error
}

func (e *neitherError) Error() string { return e.text }
func (e *neitherError) Unwrap() error { return e.err }

// isNotServed also covers a group that the server does not have at all.
func isNotServed(err error) bool {
	_, ok := err.(*target.NotServedError) //nolint:errorlint // get returns it unwrapped
	return ok
}

func get(ctx context.Context, c client.Client, k *target.Kind, name, namespace string) (target.Object, error) {
	m, err := Version(c.RESTMapper(), k)
	if err != nil {
		return target.Object{}, err
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(m.GroupVersionKind)
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if k.ClusterScoped {
		key.Namespace = ""
	}
	if err := c.Get(ctx, key, u); err != nil {
		return target.Object{}, err
	}
	return target.Object{Kind: k, GVK: m.GroupVersionKind, Resource: m.Resource, Live: u}, nil
}

// Again returns o as it is now.
func Again(ctx context.Context, c client.Client, o target.Object) (target.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.GVK)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o.Live), u); err != nil {
		return o, err
	}
	o.Live = u
	return o, nil
}

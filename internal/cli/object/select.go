// SPDX-License-Identifier: Apache-2.0

package object

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Select are -l, --all and -A: a type on the command line, and the objects by property.
type Select struct {
	Selector      string
	All           bool
	AllNamespaces bool
}

// AddTo registers -l and --all, and -A where the command may leave its namespace.
func (o *Select) AddTo(fs *pflag.FlagSet, everywhere bool) {
	fs.StringVarP(&o.Selector, "selector", "l", "", "labels that the objects of TYPE must have")
	fs.BoolVar(&o.All, "all", false, "all objects of TYPE in the namespace")
	out.Group(fs, "Target", "selector", "all")
	if everywhere {
		fs.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "objects of TYPE in all namespaces")
		out.Group(fs, "Target", "all-namespaces")
	}
}

// Given reports that the flags choose objects.
func (o *Select) Given() bool { return o.Selector != "" || o.All || o.AllNamespaces }

// pageSize bounds one list request.
const pageSize = 500

// Targets are the objects of one command line: named as arguments, in files, or chosen by
// sel. files and sel may be nil. Only with sel is the server asked; then there may be none
// at all, which is said and is no error.
func Targets(ctx context.Context, f *factory.Factory, verb target.Verb, args []string, files *Files, sel *Select) ([]target.Name, error) {
	if sel == nil || !sel.Given() {
		return Names(f, verb, args, files)
	}
	if files != nil && files.Given() {
		return nil, out.Usagef("choose objects either with -l, --all and -A or with -f and -k, not both")
	}
	if sel.Selector != "" && sel.All {
		return nil, out.Usagef("-l and --all exclude each other")
	}
	kinds, err := target.ParseType(verb, args)
	if err != nil {
		return nil, asUsage(f, err)
	}
	labelled, err := labels.Parse(sel.Selector)
	if err != nil {
		return nil, out.Usage(fmt.Errorf("-l %q: %w", sel.Selector, err))
	}
	c, err := f.Client()
	if err != nil {
		return nil, &out.Failure{Doing: Phrase(verb.Command) + " it", Cause: err}
	}
	ns := ""
	if !sel.AllNamespaces {
		if ns, err = f.Namespace(); err != nil {
			return nil, err
		}
	}
	var names []target.Name
	for _, k := range kinds {
		found, err := list(ctx, c, k, ns, labelled)
		if err != nil {
			if len(kinds) > 1 && errors.As(err, new(*target.NotServedError)) {
				continue
			}
			return nil, &out.Failure{Doing: "list " + k.Spelling(), Cause: err}
		}
		names = append(names, found...)
	}
	if len(names) == 0 {
		fmt.Fprintln(f.ErrOut, "No resources found")
	}
	return names, nil
}

func list(ctx context.Context, c client.Client, k *target.Kind, ns string, labelled labels.Selector) ([]target.Name, error) {
	m, err := fetch.Version(c.RESTMapper(), k)
	if err != nil {
		return nil, err
	}
	var names []target.Name
	for token := ""; ; {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(m.GroupVersionKind)
		if err := c.List(ctx, l, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: labelled}, client.Limit(pageSize), client.Continue(token)); err != nil {
			return nil, err
		}
		for i := range l.Items {
			o := &l.Items[i]
			names = append(names, target.Name{
				Kinds: []*target.Kind{k}, Name: o.GetName(), Namespace: o.GetNamespace(), Typed: target.Short(k, o.GetName()),
			})
		}
		if token = l.GetContinue(); token == "" {
			break
		}
	}
	slices.SortFunc(names, func(a, b target.Name) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return names, nil
}

// Confirm shows the objects that sel chose and asks whether to change them; it asks nothing
// for objects that were named, for one object, and under a dry run.
func (o *Select) Confirm(ctx context.Context, f *factory.Factory, verb target.Verb, names []target.Name, dryRun bool) error {
	if !o.Given() || dryRun || len(names) == 0 {
		return nil
	}
	for _, n := range names {
		fmt.Fprintf(f.ErrOut, "  %s/%s\n", n.Namespace, n.Typed)
	}
	return f.Confirm(ctx, Phrase(verb.Command)+" them", fmt.Sprintf("%s: %s%s?", verb.Command, out.Plural(len(names), "object"), f.ContextWords()))
}

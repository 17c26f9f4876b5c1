// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

const (
	// completionTime bounds a lookup while the user waits for TAB.
	completionTime = 1500 * time.Millisecond
	// completionNames bounds its result.
	completionNames = 500
)

// Complete offers TYPE/ and the names behind it, for the given kinds. It stays silent on
// errors.
func Complete(f *factory.Factory, kinds []*target.Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		quiet := cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 && !strings.Contains(args[0], "/") {
			if found := target.Lookup(args[0]); len(found) > 0 {
				return ListNames(cmd.Context(), f, found, ""), quiet
			}
			return nil, quiet
		}
		typ, _, hasSlash := strings.Cut(typed, "/")
		if hasSlash {
			return ListNames(cmd.Context(), f, target.Lookup(typ), typ+"/"), quiet
		}
		var words []string
		for _, k := range kinds {
			words = append(words, k.Word()+"/")
		}
		return words, quiet | cobra.ShellCompDirectiveNoSpace
	}
}

// CompletionContext bounds a lookup while the user waits for TAB.
func CompletionContext(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return completionContext(cmd.Context())
}

func completionContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil { // completion runs without one
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, completionTime)
}

// ListNames lists the names of objects of kinds, each with a prefix.
func ListNames(ctx context.Context, f *factory.Factory, kinds []*target.Kind, prefix string) []string {
	ctx, cancel := completionContext(ctx)
	defer cancel()
	c, err := f.Client()
	if err != nil {
		return nil
	}
	ns, err := f.Namespace()
	if err != nil {
		return nil
	}
	var words []string
	for _, k := range kinds {
		m, err := fetch.Version(c.RESTMapper(), k)
		if err != nil {
			continue
		}
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(m.GroupVersionKind)
		opts := []client.ListOption{client.Limit(completionNames)}
		if !k.ClusterScoped {
			opts = append(opts, client.InNamespace(ns))
		}
		if c.List(ctx, l, opts...) != nil {
			continue
		}
		for _, i := range l.Items {
			words = append(words, prefix+i.GetName())
		}
	}
	return words
}

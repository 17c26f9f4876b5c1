// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Each runs do for every named object and folds the errors: those of all but the last
// are printed at once, so that none is lost.
func Each(ctx context.Context, f *factory.Factory, v target.Verb, names []target.Name, do func(context.Context, adapter.Workload) error) error {
	return EachObject(ctx, f, v, names, func(ctx context.Context, o target.Object) error {
		w, err := adapter.Wrap(o)
		if err != nil {
			return &out.Failure{Doing: Phrase(v.Command) + " " + o.Title(), Cause: err, Object: o.Short()}
		}
		return do(ctx, w)
	})
}

// EachObject is Each for commands that need no row of the adapter.
func EachObject(ctx context.Context, f *factory.Factory, v target.Verb, names []target.Name, do func(context.Context, target.Object) error) error {
	return Fold(f, names, func(n target.Name) error {
		objects, err := Resolve(ctx, f, v, []target.Name{n})
		if err != nil {
			return err
		}
		return do(ctx, objects[0])
	})
}

// Fold runs do for every item, whatever becomes of the others. The error of a single item is
// returned, those of several are printed, and their exit codes become one (out.Worst).
func Fold[T any](f *factory.Factory, items []T, do func(T) error) error {
	if len(items) == 1 {
		return do(items[0])
	}
	var codes []int
	for _, item := range items {
		err := do(item)
		codes = append(codes, out.ExitCode(err))
		if err != nil {
			out.Print(f.ErrOut, f.ErrStyle(), f.Name(), err)
		}
	}
	return out.Silent(out.Worst(codes))
}

// Delete deletes this very object, and what belongs to it after it; one that is gone is fine.
func Delete(ctx context.Context, c client.Client, o target.Object, opts apply.Options) error {
	if opts.DryRun == apply.DryRunClient {
		return nil
	}
	uid := o.Live.GetUID()
	do := []client.DeleteOption{client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if opts.DryRun == apply.DryRunServer {
		do = append(do, client.DryRunAll)
	}
	return client.IgnoreNotFound(c.Delete(ctx, o.Live.DeepCopy(), do...))
}

// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// listOptions is one run of `image list`.
type listOptions struct {
	f          *factory.Factory
	everywhere bool
	active     bool
	selector   string
	output     out.Output
}

func newList(f *factory.Factory) *cobra.Command {
	o := &listOptions{f: f}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List image jobs",
		Example: "  kruisectl image list\n" +
			"  kruisectl image list -A --active",
		Annotations: map[string]string{out.SeeAlso: "kruisectl image status"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return out.UsageNext(f.Name()+" image status "+args[0], fmt.Errorf("image list takes no argument, got %q", args[0]))
			}
			return o.run(cmd.Context())
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "jobs of all namespaces")
	fs.StringVarP(&o.selector, "selector", "l", "", "labels that the jobs must have")
	fs.BoolVar(&o.active, "active", false, "only jobs that have not ended")
	out.Group(fs, "Target", "all-namespaces", "selector", "active")
	fs.BoolVar(&o.output.NoHeaders, "no-headers", false, "leave out the header line of the table")
	o.output.AddTo(fs, "wide", "name")
	return cmd
}

// listed is one row.
type listed struct {
	target.Object
	images  []string
	desired int32
	done    int32
	failed  int32
	active  int32
	ended   bool
	message string
}

func (o *listOptions) run(ctx context.Context) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	sel, err := labels.Parse(o.selector)
	if err != nil {
		return out.Usage(fmt.Errorf("-l %q: %w", o.selector, err))
	}
	c, ns, err := open(o.f, "list image jobs")
	if err != nil {
		return err
	}
	if o.everywhere {
		ns = ""
	}
	rows, err := o.read(ctx, c, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: sel})
	if err != nil {
		return err
	}
	if len(rows) == 0 && format.People() {
		fmt.Fprintln(o.f.ErrOut, "No resources found")
		return nil
	}
	switch {
	case format.Name == "name":
		for _, r := range rows {
			fmt.Fprintln(o.f.Out, r.Object)
		}
		return nil
	case !format.People():
		return o.documents(rows, format)
	}
	return o.table(rows, format.Name == "wide")
}

func (o *listOptions) read(ctx context.Context, c client.Client, opts ...client.ListOption) ([]listed, error) {
	var rows []listed
	for i, k := range jobKinds {
		found, err := fetch.List[unstructured.Unstructured](ctx, c, k, opts...)
		if err != nil && i > 0 && (meta.IsNoMatchError(err) || isNotServed(err)) {
			continue // an older server without lists
		}
		if err != nil {
			return nil, &out.Failure{Doing: "list " + k.Spelling(), Cause: err, Next: ""}
		}
		for j := range found {
			row, err := rowOf(k, &found[j])
			if err != nil {
				return nil, err
			}
			if !o.active || !row.ended {
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b listed) int {
		return cmp.Or(cmp.Compare(a.Live.GetNamespace(), b.Live.GetNamespace()), cmp.Compare(a.Live.GetName(), b.Live.GetName()))
	})
	return rows, nil
}

func rowOf(k *target.Kind, u *unstructured.Unstructured) (listed, error) {
	l := listed{Object: target.Object{Kind: k, GVK: u.GroupVersionKind(), Live: u}}
	if k == target.ImagePullJob {
		j, err := fetch.As[v1beta1.ImagePullJob](u)
		if err != nil {
			return l, err
		}
		s := j.Status
		l.images, l.desired, l.done, l.failed, l.active = []string{j.Spec.Image}, s.Desired, s.Succeeded, s.Failed, s.Active
		l.ended, l.message = s.CompletionTime != nil, s.Message
		return l, nil
	}
	j, err := fetch.As[v1beta1.ImageListPullJob](u)
	if err != nil {
		return l, err
	}
	s := j.Status
	l.images, l.desired, l.done, l.failed, l.active = j.Spec.Images, s.Desired, s.Succeeded, int32(len(s.FailedImageStatuses)), s.Active
	l.ended = s.CompletionTime != nil
	return l, nil
}

// owner is the workload a job pulls for, or the user.
func owner(u *unstructured.Unstructured) string {
	if ref := metav1.GetControllerOf(u); ref != nil {
		if found := target.Lookup(ref.Kind); len(found) > 0 {
			for _, k := range found {
				if !k.Native() {
					return target.Short(k, ref.Name)
				}
			}
		}
		return ref.Kind + "/" + ref.Name
	}
	if v := u.GetLabels()[pull.PredownloadForLabel]; v != "" {
		return v
	}
	return "user"
}

func (o *listOptions) table(rows []listed, wide bool) error {
	t := out.Table{NoHeaders: o.output.NoHeaders, Columns: []out.Column{
		{Name: "NAME"}, {Name: "IMAGE", Drop: 3}, {Name: "SELECTED", Right: true}, {Name: "DONE", Right: true}, {Name: "FAILED", Right: true},
		{Name: "ACTIVE", Right: true}, {Name: "AGE", Drop: 1}, {Name: "OWNER", Drop: 2}, {Name: "MESSAGE", Wide: true},
	}}
	if o.everywhere {
		t.Columns = append([]out.Column{{Name: "NAMESPACE"}}, t.Columns...)
	}
	now := o.f.Clock.Now()
	n := func(v int32) string { return strconv.Itoa(int(v)) }
	for _, r := range rows {
		image := ""
		if len(r.images) > 0 {
			image = r.images[0]
		}
		if len(r.images) > 1 {
			image += fmt.Sprintf(" +%d", len(r.images)-1)
		}
		selected := n(r.desired)
		if r.Kind == target.ImageListPullJob {
			selected = out.Plural(int(r.desired), "image")
		}
		cells := []string{jobWord(r.Object), image, selected, n(r.done), n(r.failed), n(r.active), out.Age(now.Sub(r.Live.GetCreationTimestamp().Time)), owner(r.Live), r.message}
		if o.everywhere {
			cells = append([]string{r.Live.GetNamespace()}, cells...)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t.Print(o.f.Out, o.f.OutStyle(), wide)
}

func (o *listOptions) documents(rows []listed, format out.Format) error {
	items := make([]any, 0, len(rows))
	for _, r := range rows {
		u := r.Live.DeepCopy()
		u.SetManagedFields(nil)
		items = append(items, u.Object)
	}
	return format.Write(o.f.Out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

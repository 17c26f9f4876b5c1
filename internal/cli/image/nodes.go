// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/imageref"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// nodesOptions is one run of `image nodes`.
type nodesOptions struct {
	f       *factory.Factory
	missing bool
	output  out.Output
}

func newNodes(f *factory.Factory) *cobra.Command {
	o := &nodesOptions{f: f}
	cmd := &cobra.Command{
		Use:   "nodes [IMAGE]",
		Short: "Show on which nodes an image is",
		Long: "Show on which nodes an image is, from what the node agents pulled and what the\n" +
			"kubelets list. A kubelet lists only the largest images of its node: an image\n" +
			"that nobody names may be there all the same. Without an image: how many images\n" +
			"each node agent has to do with.",
		Example: "  kruisectl image nodes repo/web:2\n" +
			"  kruisectl image nodes repo/web:2 --missing -o name\n" +
			"  kruisectl image nodes",
		ValidArgsFunction: completeImages(f),
		Annotations:       map[string]string{out.SeeAlso: "kruisectl image pull, kruisectl image predownload"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.missing, "missing", false, "only nodes on which the image is not known to be")
	out.Group(fs, "Target", "missing")
	fs.BoolVar(&o.output.NoHeaders, "no-headers", false, "leave out the header line of the table")
	o.output.AddTo(fs, "name")
	return cmd
}

func (o *nodesOptions) run(ctx context.Context, args []string) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	switch {
	case len(args) > 1:
		return out.Usagef("image nodes looks for one image; %d are named", len(args))
	case len(args) == 0 && o.missing:
		return out.UsageNext(o.f.Name()+" image nodes repo/app:tag --missing", errors.New("--missing needs an image"))
	}
	var ref imageref.Ref
	if len(args) == 1 {
		if ref, err = imageref.Parse(args[0]); err != nil {
			return out.Usage(fmt.Errorf("%q is not an image reference: %w", args[0], errors.Unwrap(err)))
		}
	}
	c, _, err := open(o.f, "look for images on nodes")
	if err != nil {
		return err
	}
	images, nodes, err := onNodes(ctx, o.f, c)
	if err != nil {
		return &out.Failure{Doing: "look for images on nodes", Cause: err}
	}
	if len(args) == 0 {
		return o.summary(images, nodes, format)
	}
	list := pull.Where(ref, images, nodes)
	if o.missing {
		list = slices.DeleteFunc(list, pull.Presence.Has)
	}
	return o.print(ref, list, format)
}

// onNodes reads NodeImages and Nodes; one of the two may be hidden from the user.
func onNodes(ctx context.Context, f *factory.Factory, c client.Client) ([]v1beta1.NodeImage, []corev1.Node, error) {
	images, ierr := fetch.List[v1beta1.NodeImage](ctx, c, target.NodeImage)
	if ierr != nil && !apierrors.IsForbidden(ierr) && !isNotServed(ierr) {
		return nil, nil, fmt.Errorf("listing nodeimages: %w", ierr)
	}
	nodes, nerr := fetch.List[corev1.Node](ctx, c, target.Node)
	switch {
	case nerr != nil && !apierrors.IsForbidden(nerr):
		return nil, nil, fmt.Errorf("listing nodes: %w", nerr)
	case nerr != nil && ierr != nil:
		return nil, nil, ierr
	case nerr != nil:
		f.Note("details hidden: cannot list nodes")
	case ierr != nil:
		f.Note("details hidden: cannot list nodeimages")
	}
	return images, nodes, nil
}

func isNotServed(err error) bool { return errors.As(err, new(*target.NotServedError)) }

func (o *nodesOptions) print(ref imageref.Ref, list []pull.Presence, format out.Format) error {
	switch {
	case format.Name == "name":
		for _, p := range list {
			fmt.Fprintln(o.f.Out, "node/"+p.Node)
		}
		return nil
	case !format.People():
		doc := out.Envelope("ImageNodes", o.f.ContextName())
		has := 0
		for _, p := range list {
			if p.Has() {
				has++
			}
		}
		doc["image"], doc["counts"] = ref.String(), map[string]any{"nodes": len(list), "present": has}
		doc["nodes"] = append([]pull.Presence{}, list...)
		return format.Write(o.f.Out, doc)
	case len(list) == 0:
		fmt.Fprintln(o.f.ErrOut, "No resources found")
		return nil
	}
	style := o.f.OutStyle()
	now := o.f.Clock.Now()
	t := out.Table{NoHeaders: o.output.NoHeaders, Columns: []out.Column{{Name: "NODE"}, {Name: "STATE"}, {Name: "SINCE", Drop: 2}, {Name: "SIZE", Drop: 1, Right: true}, {Name: "MESSAGE", Drop: 3}}}
	for _, p := range list {
		state, since := p.State, "-"
		if p.State == string(v1beta1.ImagePhasePulling) {
			state += fmt.Sprintf(" %d%%", p.Progress)
		}
		if p.State == pull.PresentKubelet {
			state = "Present (kubelet)"
		}
		if !p.Since.IsZero() {
			since = out.Age(now.Sub(p.Since))
		}
		t.Rows = append(t.Rows, []string{p.Node, style.Paint(presenceState(p), state), since, bytes(p.Size), p.Message})
	}
	return t.Print(o.f.Out, style, false)
}

func presenceState(p pull.Presence) out.State {
	switch {
	case p.Has():
		return out.OK
	case p.State == string(v1beta1.ImagePhaseFailed):
		return out.Failed
	case p.State == pull.NotKnown:
		return out.Unknown
	}
	return out.Progressing
}

// bytes prints a size in the unit that registries use.
func bytes(n int64) string {
	switch {
	case n <= 0:
		return "-"
	case n < 1e6:
		return fmt.Sprintf("%dkB", n/1e3)
	case n < 1e9:
		return fmt.Sprintf("%dMB", n/1e6)
	}
	return fmt.Sprintf("%.1fGB", float64(n)/1e9)
}

// summary is one line for each node.
func (o *nodesOptions) summary(images []v1beta1.NodeImage, nodes []corev1.Node, format out.Format) error {
	byName := map[string]*v1beta1.NodeImage{}
	var names []string
	for i := range images {
		byName[images[i].Name] = &images[i]
		names = append(names, images[i].Name)
	}
	listed := map[string]int{}
	for i := range nodes {
		names = append(names, nodes[i].Name)
		listed[nodes[i].Name] = len(nodes[i].Status.Images)
	}
	slices.SortFunc(names, cmp.Compare[string])
	names = slices.Compact(names)
	doc := out.Envelope("ImageNodes", o.f.ContextName())
	items := make([]any, 0, len(names))
	t := out.Table{NoHeaders: o.output.NoHeaders, Columns: []out.Column{{Name: "NODE"}, {Name: "TASKS", Right: true}, {Name: "PULLING", Right: true}, {Name: "SUCCEEDED", Right: true}, {Name: "FAILED", Right: true}, {Name: "ON KUBELET", Right: true}, {Name: "AGE"}}}
	for _, name := range names {
		item := map[string]any{"node": name, "agent": false, "tasks": 0, "pulling": 0, "succeeded": 0, "failed": 0, "kubeletImages": listed[name]}
		cells := []string{name, "-", "-", "-", "-", strconv.Itoa(listed[name]), "-"}
		if ni := byName[name]; ni != nil {
			s := ni.Status
			for at, n := range map[int]int32{1: s.Desired, 2: s.Pulling + s.Waiting, 3: s.Succeeded, 4: s.Failed} {
				cells[at] = strconv.Itoa(int(n))
			}
			cells[6] = out.Age(o.f.Clock.Now().Sub(ni.CreationTimestamp.Time).Truncate(time.Second))
			item["agent"], item["tasks"], item["pulling"], item["succeeded"], item["failed"] = true, s.Desired, s.Pulling+s.Waiting, s.Succeeded, s.Failed
		}
		t.Rows = append(t.Rows, cells)
		items = append(items, item)
	}
	doc["nodes"] = items
	switch {
	case format.Name == "name":
		for _, n := range names {
			fmt.Fprintln(o.f.Out, "node/"+n)
		}
		return nil
	case !format.People():
		return format.Write(o.f.Out, doc)
	case len(names) == 0:
		fmt.Fprintln(o.f.ErrOut, "No resources found")
		return nil
	}
	return t.Print(o.f.Out, o.f.OutStyle(), false)
}

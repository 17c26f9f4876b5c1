// SPDX-License-Identifier: Apache-2.0

package container

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/restart"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// listOptions is one run of `container list`.
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
		Use:     "list [POD | TYPE/NAME]",
		Aliases: []string{"ls"},
		Short:   "List restart requests",
		Example: "  kruisectl container list\n" +
			"  kruisectl container list cloneset/web --active\n" +
			"  kruisectl container list -A -o wide",
		ValidArgsFunction: completePods(f),
		Annotations:       map[string]string{out.SeeAlso: "kruisectl container wait, kruisectl why"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "requests of all namespaces")
	fs.StringVarP(&o.selector, "selector", "l", "", "labels that the requests must have")
	fs.BoolVar(&o.active, "active", false, "only requests that have not ended")
	out.Group(fs, "Target", "all-namespaces", "selector", "active")
	fs.BoolVar(&o.output.NoHeaders, "no-headers", false, "leave out the header line of the table")
	o.output.AddTo(fs, "wide", "name")
	return cmd
}

func (o *listOptions) run(ctx context.Context, args []string) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	sel, err := labels.Parse(o.selector)
	if err != nil {
		return out.Usage(fmt.Errorf("-l %q: %w", o.selector, err))
	}
	if len(args) > 0 && o.everywhere {
		return out.Usagef("-A and a named object exclude each other")
	}
	c, ns, err := open(o.f, "list restart requests")
	if err != nil {
		return err
	}
	pods, err := o.pods(ctx, c, args)
	if err != nil {
		return err
	}
	if o.everywhere {
		ns = ""
	}
	all, err := fetch.List[v1beta1.ContainerRecreateRequest](ctx, c, target.ContainerRecreateRequest, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: sel})
	if err != nil {
		return &out.Failure{Doing: "list restart requests", Cause: err}
	}
	all = slices.DeleteFunc(all, func(r v1beta1.ContainerRecreateRequest) bool {
		return len(args) > 0 && !pods[r.Spec.PodName] || o.active && r.Status.Phase == v1beta1.RecreateCompleted
	})
	slices.SortFunc(all, func(a, b v1beta1.ContainerRecreateRequest) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return o.print(all, format)
}

// pods are the names of the Pods of the arguments.
func (o *listOptions) pods(ctx context.Context, c client.Client, args []string) (map[string]bool, error) {
	names := map[string]bool{}
	if len(args) == 0 {
		return names, nil
	}
	v := target.Verb{Command: "container list", Kinds: podKinds()}
	parsed, err := object.Names(o.f, v, asPod(args), nil)
	if err != nil {
		return nil, err
	}
	for _, n := range parsed {
		if n.Kinds[0] == target.Pod {
			names[n.Name] = true // requests outlive their Pod
			continue
		}
		objects, err := object.Resolve(ctx, o.f, v, []target.Name{n})
		if err != nil {
			return nil, err
		}
		pods, err := podsOf(ctx, c, objects[0])
		if err != nil {
			return nil, object.Failure(o.f, "container list", objects[0], err, "")
		}
		for _, p := range pods {
			names[p.Name] = true
		}
	}
	return names, nil
}

func (o *listOptions) print(all []v1beta1.ContainerRecreateRequest, format out.Format) error {
	switch {
	case format.Name == "name":
		for _, r := range all {
			fmt.Fprintf(o.f.Out, "%s/%s\n", target.ContainerRecreateRequest.Resource(), r.Name)
		}
		return nil
	case !format.People():
		items := make([]any, 0, len(all))
		for i := range all {
			all[i].ManagedFields = nil
			all[i].APIVersion, all[i].Kind = v1beta1.GroupVersion.String(), "ContainerRecreateRequest"
			items = append(items, all[i])
		}
		return format.Write(o.f.Out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	case len(all) == 0:
		fmt.Fprintln(o.f.ErrOut, "No resources found")
		return nil
	}
	t := out.Table{NoHeaders: o.output.NoHeaders, Columns: []out.Column{{Name: "NAME"}, {Name: "POD"}, {Name: "STATE"}, {Name: "CONTAINERS", Drop: 2}, {Name: "AGE", Drop: 1},
		{Name: "NODE", Wide: true}, {Name: "RUN", Wide: true}, {Name: "MESSAGE", Wide: true}}}
	if o.everywhere {
		t.Columns = append([]out.Column{{Name: "NAMESPACE"}}, t.Columns...)
	}
	style, now := o.f.OutStyle(), o.f.Clock.Now()
	for i := range all {
		r := &all[i]
		st := restart.Of(r, nil)
		var words []string
		for _, row := range st.Rows {
			words = append(words, row.Container+"="+string(row.Phase))
		}
		node := r.Annotations[v1beta1.RecreateNodeNameAnnotation]
		if node == "" {
			node = r.Labels[v1beta1.RecreateNodeNameLabel]
		}
		cells := []string{r.Name, r.Spec.PodName, style.Paint(stateOf(&job{stage: restart.StageOf(&st, true)}), string(st.Verdict)),
			strings.Join(words, ","), out.Age(now.Sub(r.CreationTimestamp.Time)), node, r.Labels[restart.RestartIDLabel], st.Message}
		if o.everywhere {
			cells = append([]string{r.Namespace}, cells...)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t.Print(o.f.Out, style, format.Name == "wide")
}

func newWait(f *factory.Factory) *cobra.Command {
	var (
		timeout time.Duration
		output  out.Output
	)
	cmd := &cobra.Command{
		Use:               "wait NAME...",
		Short:             "Wait for restart requests to end",
		Long:              "Wait for restart requests to end. A request is judged by its containers: the phase\nof one that ended by its deadline is Completed, too.",
		Example:           "  kruisectl container wait web-x7k9w-restart-2k4fz\n  kruisectl container wait web-x7k9w-restart-2k4fz --timeout 2m -o json",
		ValidArgsFunction: completeRequests(f),
		Annotations:       map[string]string{out.ExitCodes: "3 a container failed, a deadline passed or the node agent did not answer · 4 --timeout passed · 6 the request was deleted · 8 several requests that ended differently", out.SeeAlso: "kruisectl why"},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if timeout < 0 {
				return out.Usagef("--timeout %s is negative", timeout)
			}
			return wait(cmd.Context(), f, args, timeout, format)
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "timeout")
	output.AddTo(fs, "wide", "name")
	return cmd
}

func wait(ctx context.Context, f *factory.Factory, args []string, timeout time.Duration, format out.Format) error {
	objects, err := resolveRequests(ctx, f, "container wait", args)
	if err != nil {
		return err
	}
	c, ns, err := open(f, "wait for restart requests")
	if err != nil {
		return err
	}
	r := &run{f: f, c: c, ns: ns, command: "container wait " + strings.Join(args, " "), atOnce: len(objects), keepGoing: true, quiet: !format.People()}
	for _, o := range objects {
		crr, err := fetch.As[v1beta1.ContainerRecreateRequest](o.Live)
		if err != nil {
			return err
		}
		j := &job{request: crr.Name, uid: string(crr.UID), stage: restart.Working}
		j.pod = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: crr.Namespace, Name: crr.Spec.PodName}}
		r.jobs = append(r.jobs, j)
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	return r.finish(r.drive(ctx), format)
}

func newCancel(f *factory.Factory) *cobra.Command {
	var (
		write  object.Write
		output out.Output
	)
	cmd := &cobra.Command{
		Use:   "cancel NAME...",
		Short: "End restart requests: containers that were not killed stay as they are",
		Long: "End restart requests by deleting them. Containers that were killed already come\n" +
			"back all the same.",
		Example:           "  kruisectl container cancel web-x7k9w-restart-2k4fz\n  kruisectl container cancel web-x7k9w-restart-2k4fz --dry-run=server",
		ValidArgsFunction: completeRequests(f),
		Annotations:       map[string]string{out.ExitCodes: "8 several requests, of which some failed", out.SeeAlso: "kruisectl container list"},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			opts, err := write.Options(f)
			if err != nil {
				return err
			}
			return cancel(cmd.Context(), f, args, opts, format)
		},
	}
	write.AddTo(cmd.Flags())
	output.AddTo(cmd.Flags(), "name")
	return cmd
}

func cancel(ctx context.Context, f *factory.Factory, args []string, opts apply.Options, format out.Format) error {
	objects, err := resolveRequests(ctx, f, "container cancel", args)
	if err != nil {
		return err
	}
	c, err := f.Client()
	if err != nil {
		return err
	}
	return object.Fold(f, objects, func(o target.Object) error {
		crr, err := fetch.As[v1beta1.ContainerRecreateRequest](o.Live)
		if err != nil {
			return err
		}
		if err := object.Delete(ctx, c, o, opts); err != nil {
			return object.Failure(f, "container cancel", o, err, "")
		}
		if err := object.Done(f.Out, format, opts, o, "cancelled"); err != nil {
			return err
		}
		var killed []string
		for _, row := range restart.Of(crr, nil).Rows {
			if row.Killed {
				killed = append(killed, row.Container)
			}
		}
		if len(killed) > 0 {
			f.Note("%s killed already: %s", out.Plural(len(killed), "container"), strings.Join(killed, ", "))
		}
		return nil
	})
}

// SPDX-License-Identifier: Apache-2.0

// Package probe shows what the probes of PodProbeMarkers say of Pods: the command `kruisectl
// probe` (cli.md 13.8). What is joined is in internal/probeview.
package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/probeview"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/follow"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// options is one run of `probe`.
type options struct {
	f          *factory.Factory
	selector   string
	marker     string
	everywhere bool
	watch      bool
	timeout    time.Duration
	output     out.Output
}

// Commands returns the command of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	o := &options{f: f}
	cmd := &cobra.Command{
		Use:   "probe [POD...]",
		Short: "Show what the probes of PodProbeMarkers say of pods",
		Long: "Show what the probes of PodProbeMarkers say of pods, joined from the markers, the\n" +
			"results of the nodes and the conditions of the pods. Where there is no result, the\n" +
			"reason is shown. With -w, changes are printed as they come.",
		Example: "  kruisectl probe\n" +
			"  kruisectl probe web-x7k9w\n" +
			"  kruisectl probe -l app=web -o wide\n" +
			"  kruisectl probe -w --timeout 5m",
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return object.ListNames(cmd.Context(), f, []*target.Kind{target.Pod}, ""), cobra.ShellCompDirectiveNoFileComp
		},
		Annotations: map[string]string{out.SeeAlso: "kruisectl why"},
		RunE:        func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.selector, "selector", "l", "", "labels that the pods must have")
	fs.StringVar(&o.marker, "marker", "", "only probes of this PodProbeMarker")
	fs.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "pods of all namespaces")
	out.Group(fs, "Target", "selector", "marker", "all-namespaces")
	fs.BoolVarP(&o.watch, "watch", "w", false, "go on, and print what changes")
	fs.DurationVar(&o.timeout, "timeout", 0, "end -w after this time; 0 is without limit")
	out.Group(fs, "Wait", "watch", "timeout")
	fs.BoolVar(&o.output.NoHeaders, "no-headers", false, "leave out the header line of the table")
	o.output.AddTo(fs, "wide", "jsonl")
	_ = cmd.RegisterFlagCompletionFunc("marker", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return object.ListNames(cmd.Context(), f, []*target.Kind{target.PodProbeMarker}, ""), cobra.ShellCompDirectiveNoFileComp
	})
	return []*cobra.Command{cmd}
}

// question is which rows are asked for.
type question struct {
	ns   string
	sel  labels.Selector
	pods []string
}

func (o *options) run(ctx context.Context, args []string) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	sel, err := labels.Parse(o.selector)
	switch {
	case err != nil:
		return out.Usage(fmt.Errorf("-l %q: %w", o.selector, err))
	case len(args) > 0 && (o.everywhere || o.selector != ""):
		return out.Usagef("name pods, or choose them with -l and -A, not both")
	case o.watch && !format.People() && format.Name != "jsonl":
		return out.Usagef("-w prints many documents: use -o jsonl")
	case o.timeout < 0:
		return out.Usagef("--timeout %s is negative", o.timeout)
	}
	q := question{sel: sel}
	for _, a := range args {
		typ, name, typed := strings.Cut(a, "/")
		if typed && !slices.Contains(target.Lookup(typ), target.Pod) {
			return out.UsageNext(o.f.Name()+" probe "+name, fmt.Errorf("%q is not a pod: probe shows pods", a))
		}
		if !typed {
			name = typ
		}
		q.pods = append(q.pods, name)
	}
	c, err := o.f.WatchClient()
	if err != nil {
		return &out.Failure{Doing: "show probes", Cause: err}
	}
	if !o.everywhere {
		if q.ns, err = o.f.Namespace(); err != nil {
			return err
		}
	}
	if o.watch {
		return o.follow(ctx, c, q, format)
	}
	rows, err := o.read(ctx, c, q)
	if err != nil {
		return err
	}
	return o.print(rows, format)
}

// read joins what the server says now.
func (o *options) read(ctx context.Context, c client.Client, q question) ([]probeview.Row, error) {
	in, err := o.input(ctx, c, q)
	if err != nil {
		return nil, err
	}
	rows := probeview.Join(in)
	if o.marker != "" {
		rows = slices.DeleteFunc(rows, func(r probeview.Row) bool { return r.Marker != o.marker })
	}
	return rows, nil
}

func (o *options) input(ctx context.Context, c client.Client, q question) (in probeview.Input, err error) {
	failed := func(err error) error { return &out.Failure{Doing: "show probes", Cause: err} }
	if in.Pods, err = fetch.List[corev1.Pod](ctx, c, target.Pod, client.InNamespace(q.ns), client.MatchingLabelsSelector{Selector: q.sel}); err != nil {
		return in, failed(fmt.Errorf("listing pods: %w", err))
	}
	for _, name := range q.pods {
		if !slices.ContainsFunc(in.Pods, func(p corev1.Pod) bool { return p.Name == name }) {
			return in, &out.Failure{Doing: "show the probes of pod " + q.ns + "/" + name, Why: "not found",
				Cause: apierrors.NewNotFound(corev1.Resource("pods"), name), Next: "kubectl get pods -n " + q.ns, Object: "pod/" + name}
		}
	}
	if len(q.pods) > 0 {
		in.Pods = slices.DeleteFunc(in.Pods, func(p corev1.Pod) bool { return !slices.Contains(q.pods, p.Name) })
	}
	if in.Markers, err = fetch.List[v1alpha1.PodProbeMarker](ctx, c, target.PodProbeMarker, client.InNamespace(q.ns)); err != nil {
		next := ""
		if errors.As(err, new(*target.NotServedError)) {
			next = o.f.Name() + " status"
		}
		return in, &out.Failure{Doing: "show probes", Cause: fmt.Errorf("listing podprobemarkers: %w", err), Next: next}
	}
	if in.Results, err = fetch.List[v1alpha1.NodePodProbe](ctx, c, target.NodePodProbe); err != nil {
		if !apierrors.IsForbidden(err) {
			return in, failed(fmt.Errorf("listing nodepodprobes: %w", err))
		}
		in.ResultsHidden = true
	}
	// What may be hidden only makes the reasons coarser.
	if nodes, err := fetch.List[corev1.Node](ctx, c, target.Node); err == nil {
		in.Virtual = probeview.VirtualNodes(nodes)
	}
	if agents, err := fetch.NodeAgents(ctx, c); err == nil && len(agents) > 0 {
		in.Agents = map[string]bool{}
		for _, a := range agents {
			in.Agents[a.Spec.NodeName] = true
		}
	}
	return in, nil
}

func (o *options) print(rows []probeview.Row, format out.Format) error {
	switch {
	case format.Name == "jsonl":
		return o.lines(rows, format)
	case !format.People():
		doc := out.Envelope("ProbeList", o.f.ContextName())
		doc["probes"] = rows
		doc["executors"] = probeview.Executors(rows)
		return format.Write(o.f.Out, doc)
	case len(rows) == 0:
		fmt.Fprintln(o.f.ErrOut, "No resources found")
		return nil
	}
	if err := o.table(rows, format.Name == "wide", o.output.NoHeaders); err != nil {
		return err
	}
	o.f.Note("%s", probeview.Executors(rows))
	return nil
}

func (o *options) lines(rows []probeview.Row, format out.Format) error {
	for _, r := range rows {
		if err := format.Write(o.f.Out, r); err != nil {
			return err
		}
	}
	return nil
}

var states = map[string]out.State{
	string(v1alpha1.ProbeSucceeded): out.OK, string(v1alpha1.ProbeFailed): out.Failed, string(v1alpha1.ProbeUnknown): out.Unknown,
}

func (o *options) table(rows []probeview.Row, wide, bare bool) error {
	t := out.Table{NoHeaders: bare, Columns: []out.Column{{Name: "POD"}, {Name: "MARKER", Drop: 3}, {Name: "PROBE"}, {Name: "STATE"}, {Name: "MESSAGE"}, {Name: "LAST", Drop: 2}, {Name: "NODE", Drop: 1},
		{Name: "CONTAINER", Wide: true}, {Name: "CONDITION", Wide: true}, {Name: "SINCE", Wide: true}, {Name: "EXECUTED BY", Wide: true}}}
	if o.everywhere {
		t.Columns = append([]out.Column{{Name: "NAMESPACE"}}, t.Columns...)
	}
	style, now := o.f.OutStyle(), o.f.Clock.Now()
	age := func(at time.Time) string {
		if at.IsZero() {
			return "-"
		}
		return out.Age(now.Sub(at))
	}
	for _, r := range rows {
		message, state := oneLine(r.Message), "-"
		if r.State != "" {
			state = style.Paint(states[r.State], r.State)
		}
		if r.Reason != "" {
			message = strings.TrimPrefix(message+"; "+r.Reason, "; ")
		}
		cells := []string{r.Pod, r.Marker, r.Probe, state, message, age(r.Last), r.Node, r.Container, r.Condition, age(r.Since), r.By}
		if o.everywhere {
			cells = append([]string{r.Namespace}, cells...)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t.Print(o.f.Out, style, wide)
}

// oneLine is the first line of a message, at most 80 characters of it.
func oneLine(s string) string {
	line, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(line); len(r) > 80 {
		line, more = string(r[:79]), true
	}
	if more {
		line += "~"
	}
	return line
}

// follow prints all rows once, then those whose state, message or reason changed.
func (o *options) follow(ctx context.Context, c client.WithWatch, q question, format out.Format) error {
	errTimeout := errors.New("--timeout passed")
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	waker := follow.NewWaker(c, o.f.Clock)
	defer waker.Close()
	for _, k := range []*target.Kind{target.Pod, target.PodProbeMarker, target.NodePodProbe} {
		m, err := fetch.Version(c.RESTMapper(), k)
		if err != nil {
			continue // the first read says so
		}
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(m.GroupVersionKind)
		ns := q.ns
		if k.ClusterScoped {
			ns = ""
		}
		waker.Watch(ctx, l, client.InNamespace(ns))
	}
	seen := map[string]probeview.Row{}
	for first := true; ; first = false {
		if err := waker.Wait(ctx, nil); err != nil {
			if errors.Is(err, errTimeout) {
				return nil
			}
			return err
		}
		var rows []probeview.Row
		err := waker.Read(func() (err error) { rows, err = o.read(ctx, c, q); return err })
		switch {
		case err != nil && ctx.Err() != nil:
			continue // Wait says how it ended
		case err != nil && (first || follow.Refused(err)):
			return err
		case err != nil:
			waker.After(ctx, time.Second)
			continue
		}
		if err := o.changed(seen, rows, first, format); err != nil {
			return err
		}
	}
}

func (o *options) changed(seen map[string]probeview.Row, rows []probeview.Row, first bool, format out.Format) error {
	var news []probeview.Row
	for _, r := range rows {
		key := strings.Join([]string{r.Namespace, r.Pod, r.Marker, r.Probe}, "/")
		was, known := seen[key]
		seen[key] = r
		if !known || was.State != r.State || was.Message != r.Message || was.Reason != r.Reason || was.Condition != r.Condition {
			news = append(news, r)
		}
	}
	switch {
	case format.Name == "jsonl":
		return o.lines(news, format)
	case len(news) == 0:
		return nil
	}
	return o.table(news, format.Name == "wide", o.output.NoHeaders || !first)
}

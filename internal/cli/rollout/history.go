// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
)

// historyOptions is one run of `rollout history`.
type historyOptions struct {
	f        *factory.Factory
	revision string
	diff     string
	limit    int
	files    object.Files
	sel      object.Select
	output   out.Output
}

func newHistory(f *factory.Factory) *cobra.Command {
	o := &historyOptions{f: f}
	cmd := &cobra.Command{
		Use:   "history (TYPE NAME | TYPE/NAME...)",
		Short: "List the stored revisions of a workload",
		Example: "  kruisectl rollout history cloneset/web\n" +
			"  kruisectl rollout history cloneset/web --revision=3 -o yaml\n" +
			"  kruisectl rollout history cloneset/web --diff 2:3",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations:       map[string]string{out.SeeAlso: "kruisectl rollout undo"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.revision, "revision", "", "show the template of this revision: number, name or hash")
	fs.StringVar(&o.diff, "diff", "", "compare revision N with the live template, or N:M with each other")
	fs.IntVar(&o.limit, "limit", 0, "newest revisions to list; 0 is all")
	fs.BoolVar(&o.output.NoHeaders, "no-headers", false, "leave out the header line of the table")
	out.Group(fs, "Target", "revision", "diff", "limit")
	o.files.AddTo(fs, "list")
	o.sel.AddTo(fs, true)
	o.output.AddTo(fs, "wide", "name")
	_ = cmd.RegisterFlagCompletionFunc("revision", completeRevisions(f))
	return cmd
}

func (o *historyOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout history", false, adapter.Kinds())
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.revision == "0" {
		o.revision = ""
	}
	if n, err := strconv.ParseInt(o.revision, 10, 64); err == nil && n < 0 {
		return out.Usagef("--revision %d is negative", n)
	}
	names, err := object.Targets(ctx, o.f, v, args, &o.files, &o.sel)
	if err != nil {
		return err
	}
	return each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		c, err := o.f.Client()
		if err != nil {
			return err
		}
		s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true, Gates: true})
		if err != nil {
			return failure(o.f, "rollout history", w.Object, err, "")
		}
		hiddenNote(o.f, s.Hidden)
		list := s.Workload.Revisions(s.Stored, s.Pods)
		switch {
		case o.diff != "":
			return o.printDiff(s, list)
		case o.revision != "":
			return o.printOne(s, list, format)
		}
		return o.printAll(s, list, format, len(names) > 1)
	})
}

func hiddenNote(f *factory.Factory, hidden []string) {
	if len(hidden) > 0 {
		f.Note("details hidden: %s", strings.Join(hidden, ", "))
	}
}

func (o *historyOptions) find(s diagnose.Snapshot, list []adapter.Revision, word string) (adapter.Revision, error) {
	if r, ok := adapter.FindRevision(list, word); ok {
		return r, nil
	}
	return adapter.Revision{}, noRevision(o.f, "rollout history", s.Workload, list, word)
}

// noRevision is the error for a revision that is not stored.
func noRevision(f *factory.Factory, verb string, w adapter.Workload, list []adapter.Revision, word string) error {
	return &out.Failure{
		Doing: doing(verb, w.Object), Why: fmt.Sprintf("revision %s is not stored", word),
		Cause: fmt.Errorf("stored revisions: %s", adapter.Numbers(list)),
		Next:  f.Name() + " rollout history " + w.Short(), Object: w.Short(),
	}
}

func (o *historyOptions) printAll(s diagnose.Snapshot, list []adapter.Revision, format out.Format, titled bool) error {
	if o.limit > 0 && len(list) > o.limit {
		list = list[len(list)-o.limit:]
	}
	if len(list) == 0 && format.People() {
		fmt.Fprintf(o.f.ErrOut, "No revisions found of %s\n", s.Workload.Object)
		return nil
	}
	steps := diagnose.InPlaceSteps(s)
	if format.Name == "name" {
		for _, r := range list {
			fmt.Fprintf(o.f.Out, "controllerrevision.apps/%s\n", r.Name)
		}
		return nil
	}
	if !format.People() {
		return format.Write(o.f.Out, historyDocument(o.f, s, list, steps))
	}
	if titled {
		fmt.Fprintf(o.f.Out, "%s\n", s.Workload.Object)
	}
	now := o.f.Clock.Now()
	t := out.Table{NoHeaders: o.output.NoHeaders, Columns: []out.Column{
		{Name: "REVISION"}, {Name: "NAME"}, {Name: "ROLE"}, {Name: "PODS"}, {Name: "AGE", Drop: 1}, {Name: "CHANGE-CAUSE", Drop: 2},
		{Name: "IMAGES", Wide: true}, {Name: "IN-PLACE", Wide: true},
	}}
	for _, r := range list {
		t.Rows = append(t.Rows, []string{
			strconv.FormatInt(r.Number, 10), r.Hash, strings.Join(r.Roles, ","), podCount(r.Pods),
			out.Age(now.Sub(r.Created)), r.Cause, strings.Join(r.Images, ","), steps[r.Name],
		})
	}
	return t.Print(o.f.Out, o.f.OutStyle(), format.Name == "wide")
}

func podCount(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func historyDocument(f *factory.Factory, s diagnose.Snapshot, list []adapter.Revision, steps map[string]string) map[string]any {
	doc := out.Envelope("RolloutHistory", f.ContextName())
	doc["object"] = objectRef(s.Workload)
	revs := make([]map[string]any, len(list))
	for i, r := range list {
		roles := r.Roles
		if roles == nil {
			roles = []string{}
		}
		revs[i] = map[string]any{
			"revision": r.Number, "name": r.Name, "hash": r.Hash, "roles": roles, "pods": r.Pods,
			"createdAt": r.Created.UTC().Format(time.RFC3339), "changeCause": r.Cause, "images": r.Images,
			"inPlaceFromPrevious": steps[r.Name],
		}
	}
	doc["revisions"] = revs
	return doc
}

func objectRef(w adapter.Workload) map[string]any {
	return map[string]any{
		"apiVersion": w.Live.GetAPIVersion(), "kind": w.Live.GetKind(), "namespace": w.Live.GetNamespace(),
		"name": w.Live.GetName(), "uid": string(w.Live.GetUID()), "generation": w.Live.GetGeneration(),
	}
}

func (o *historyOptions) printOne(s diagnose.Snapshot, list []adapter.Revision, format out.Format) error {
	r, err := o.find(s, list, o.revision)
	if err != nil {
		return err
	}
	raw, err := r.RawTemplate()
	if err != nil {
		return failure(o.f, "rollout history", s.Workload.Object, err, "")
	}
	if !format.People() {
		return format.Write(o.f.Out, raw)
	}
	text, err := yaml.Marshal(raw)
	if err != nil {
		return fmt.Errorf("printing the template: %w", err)
	}
	fmt.Fprintf(o.f.Out, "%s %s", s.Workload.Object, r.Title())
	if len(r.Roles) > 0 {
		fmt.Fprintf(o.f.Out, ", %s", strings.Join(r.Roles, ", "))
	}
	if r.Pods >= 0 {
		fmt.Fprintf(o.f.Out, ", %s", out.Plural(r.Pods, "pod"))
	}
	fmt.Fprintf(o.f.Out, "\n")
	if r.Cause != "" {
		fmt.Fprintf(o.f.Out, "change cause: %s\n", r.Cause)
	}
	fmt.Fprintf(o.f.Out, "template:\n%s", indent(string(text), "  "))
	return nil
}

func indent(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(by + line)
	}
	return b.String()
}

func (o *historyOptions) printDiff(s diagnose.Snapshot, list []adapter.Revision) error {
	from, to, two := strings.Cut(o.diff, ":")
	a, err := o.find(s, list, from)
	if err != nil {
		return err
	}
	b, ok := adapter.Live(list)
	if two {
		if b, err = o.find(s, list, to); err != nil {
			return err
		}
	} else if !ok {
		return failure(o.f, "rollout history", s.Workload.Object, errors.New("the live template is not stored yet; is the manager running?"), "status")
	}
	left, err := templateYAML(a)
	if err != nil {
		return failure(o.f, "rollout history", s.Workload.Object, err, "")
	}
	right, err := templateYAML(b)
	if err != nil {
		return failure(o.f, "rollout history", s.Workload.Object, err, "")
	}
	printUnified(o.f.Out, o.f.OutStyle(), a.Title(), b.Title(), left, right)
	fmt.Fprintln(o.f.Out, stepVerdict(s, a, b))
	return nil
}

func templateYAML(r adapter.Revision) (string, error) {
	raw, err := r.RawTemplate()
	if err != nil {
		return "", err
	}
	text, err := yaml.Marshal(raw)
	if err != nil {
		return "", fmt.Errorf("printing the template of %s: %w", r.Name, err)
	}
	return string(text), nil
}

// completeRevisions offers the numbers with images and age as description.
func completeRevisions(f *factory.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		quiet := cobra.ShellCompDirectiveNoFileComp
		ctx, cancel := object.CompletionContext(cmd)
		defer cancel()
		v := verb("rollout history", false, adapter.Kinds())
		names, err := object.Names(f, v, args, nil)
		if err != nil {
			return nil, quiet
		}
		ws, err := object.Workloads(ctx, f, v, names[:1])
		if err != nil {
			return nil, quiet
		}
		c, err := f.Client()
		if err != nil {
			return nil, quiet
		}
		s, err := fetch.Snapshot(ctx, c, ws[0], fetch.Want{Revisions: true})
		if err != nil {
			return nil, quiet
		}
		var words []string
		for _, r := range ws[0].Revisions(s.Stored, nil) {
			words = append(words, fmt.Sprintf("%d\t%s, %s old", r.Number, strings.Join(r.Images, ","), out.Age(f.Clock.Since(r.Created))))
		}
		return words, quiet | cobra.ShellCompDirectiveKeepOrder
	}
}

// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/forecast"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// previewOptions is one run of `rollout preview`.
type previewOptions struct {
	f           *factory.Factory
	images      []string
	env         []string
	labels      []string
	annotations []string
	allBatches  bool
	present     []string
	gates       string
	files       object.Files
	output      out.Output
}

// NewPreview returns `rollout preview`; `inplace preview` is the same command.
func NewPreview(f *factory.Factory) *cobra.Command {
	o := &previewOptions{f: f}
	cmd := &cobra.Command{
		Use:   "preview (TYPE/NAME | -f FILE) [--all-batches] [--present FILE]",
		Short: "Say what a new template would do to each pod",
		Long: "Say what a new template would do to each pod: update in place, recreate or\n" +
			"refuse, why, and in which batch. Nothing is changed. The new template comes from\n" +
			"a file or from flags; without either, the present one is looked at. With\n" +
			"--present no server is asked: the file holds the workload, its pods and\n" +
			"controllerrevisions, and for an ads the nodes, as kubectl get -o yaml prints them.",
		Example: "  kruisectl rollout preview -f web.yaml --all-batches\n" +
			"  kruisectl rollout preview asts/db --image app=repo/db:2\n" +
			"  kruisectl rollout preview -f web.yaml --present now.yaml --all-batches\n" +
			"  kruisectl rollout preview cloneset/web --env MODE=fast -o json",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations:       map[string]string{out.ExitCodes: "3 the update policy refuses the change", out.SeeAlso: "kruisectl set image, kruisectl rollout history --diff"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&o.images, "image", nil, "new image as CONTAINER=IMAGE (repeat)")
	fs.StringArrayVar(&o.env, "env", nil, "variable as NAME=VALUE, set in every container (repeat)")
	fs.StringArrayVar(&o.labels, "label", nil, "label of the template as KEY=VALUE (repeat)")
	fs.StringArrayVar(&o.annotations, "annotation", nil, "annotation of the template as KEY=VALUE (repeat)")
	out.Group(fs, "Change", "image", "env", "label", "annotation")
	fs.BoolVar(&o.allBatches, "all-batches", false, "show the whole rollout, batch by batch")
	fs.StringSliceVar(&o.present, "present", nil, "file with the present objects; no server is asked")
	fs.StringVar(&o.gates, "feature-gates", "", "with --present: gates of the manager as NAME=BOOL, comma separated")
	out.Group(fs, "Target", "present", "feature-gates")
	out.Group(fs, "Output", "all-batches")
	o.files.AddTo(fs, "preview")
	o.output.AddTo(fs, "wide")
	return cmd
}

func (o *previewOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout preview", false, adapter.Kinds())
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	edit, err := o.edits()
	if err != nil {
		return err
	}
	o.f.DryRunOnly()
	if len(o.present) > 0 {
		return o.offline(ctx, v, args, edit, format)
	}
	if o.gates != "" {
		return out.Usagef("--feature-gates belongs to --present; otherwise the gates are read from the manager")
	}
	if !o.files.Given() {
		names, err := object.Names(o.f, v, args, nil)
		if err != nil {
			return err
		}
		return each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
			return o.one(ctx, w, edit, format)
		})
	}
	if len(args) > 0 {
		return out.Usagef("give the object either as an argument or with -f and -k, not both")
	}
	return o.eachFile(v, func(u *unstructured.Unstructured, k *target.Kind) error {
		return o.file(ctx, v, u, k, edit, format)
	})
}

// eachFile calls do for every workload of the given files and folds the errors.
func (o *previewOptions) eachFile(v target.Verb, do func(*unstructured.Unstructured, *target.Kind) error) error {
	infos, err := o.files.Infos(o.f)
	if err != nil {
		return err
	}
	var errs []error
	for _, info := range infos {
		u, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		for _, k := range v.Kinds {
			if k.GroupKind == u.GroupVersionKind().GroupKind() {
				errs = append(errs, do(u, k))
			}
		}
	}
	switch len(errs) {
	case 0:
		return out.Usagef("the given files hold no %s", target.List(v.Kinds))
	case 1:
		return errs[0]
	}
	var codes []int
	for _, err := range errs {
		out.Print(o.f.ErrOut, o.f.ErrStyle(), o.f.Name(), err)
		codes = append(codes, out.ExitCode(err))
	}
	return out.Silent(out.Worst(codes))
}

// file previews one manifest against the object of the same name.
func (o *previewOptions) file(ctx context.Context, v target.Verb, u *unstructured.Unstructured, k *target.Kind, edit apply.Change, format out.Format) error {
	c, err := o.f.Client()
	if err != nil {
		return &out.Failure{Doing: v.Command, Cause: err}
	}
	ns, err := object.NamespaceOf(o.f, u.GetName(), u.GetNamespace())
	if err != nil {
		return err
	}
	if ns == "" {
		if ns, err = o.f.Namespace(); err != nil {
			return err
		}
	}
	n := target.Name{Kinds: []*target.Kind{k}, Name: u.GetName(), Typed: target.Short(k, u.GetName())}
	obj, err := fetch.Object(ctx, c, v, n, ns)
	if err != nil {
		return object.ResolveError(o.f, v, n, ns, err)
	}
	w, err := adapter.Wrap(obj)
	if err != nil {
		return failure(o.f, v.Command, obj, err, "")
	}
	if got := u.GroupVersionKind(); got != obj.GVK {
		return &out.Failure{Doing: doing(v.Command, obj), Object: obj.Short(),
			Cause: fmt.Errorf("the file is written for %s and the server is asked at %s", got.GroupVersion(), obj.GVK.GroupVersion()),
			Next:  "write the file for " + obj.GVK.GroupVersion().String()}
	}
	return o.one(ctx, w, both(forecast.FromManifest(u), edit), format)
}

// both applies the operations of two changes.
func both(a, b apply.Change) apply.Change {
	return func(w adapter.Workload) ([]apply.Op, error) {
		x, err := a(w)
		if err != nil {
			return nil, err
		}
		y, err := b(w)
		return apply.Join(x, y), err
	}
}

// edits are the changes that flags ask for.
func (o *previewOptions) edits() (apply.Change, error) {
	images, err := apply.ParseImages(o.images)
	if err != nil {
		return nil, out.Usage(err)
	}
	env, err := pairs("--env", o.env)
	if err != nil {
		return nil, err
	}
	labels, err := pairs("--label", o.labels)
	if err != nil {
		return nil, err
	}
	annotations, err := pairs("--annotation", o.annotations)
	if err != nil {
		return nil, err
	}
	return func(w adapter.Workload) ([]apply.Op, error) {
		ops, err := apply.SetImages(images, "")(w)
		if err != nil {
			return nil, err
		}
		for _, e := range env {
			more, err := apply.SetEnv(w, e[0], e[1])
			if err != nil {
				return nil, err
			}
			ops = apply.Join(ops, more)
		}
		for _, l := range labels {
			ops = apply.Join(ops, apply.SetTemplateMetadata(w, "labels", l[0], l[1]))
		}
		for _, a := range annotations {
			ops = apply.Join(ops, apply.SetTemplateMetadata(w, "annotations", a[0], a[1]))
		}
		return ops, nil
	}, nil
}

func pairs(flag string, words []string) ([][2]string, error) {
	var list [][2]string
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok || k == "" {
			return nil, out.Usagef("%s %q is not KEY=VALUE", flag, w)
		}
		list = append(list, [2]string{k, v})
	}
	return list, nil
}

func (o *previewOptions) one(ctx context.Context, w adapter.Workload, change apply.Change, format out.Format) error {
	p, err := Preview(ctx, o.f, w, change)
	if err != nil {
		return failure(o.f, "rollout preview", w.Object, err, "")
	}
	return o.show(p, format)
}

func (o *previewOptions) show(p *preview, format out.Format) error {
	p.allBatches = o.allBatches
	if !format.People() {
		if err := format.Write(o.f.Out, p.document(o.f)); err != nil {
			return err
		}
	} else if err := p.print(o.f, format.Name == "wide"); err != nil {
		return err
	}
	if p.Verdict == forecast.Refused {
		return out.Silent(out.CodeFailed)
	}
	return nil
}

// preview is a forecast together with what it was made of.
type preview struct {
	forecast.Forecast
	w          adapter.Workload
	s          diagnose.Snapshot
	allBatches bool
}

// Preview computes what change would do to w. The change is sent as a server dry run,
// so that the server's defaults are in it; without permission for that, the defaults of
// this tool stand in, with a note.
func Preview(ctx context.Context, f *factory.Factory, w adapter.Workload, change apply.Change) (*preview, error) {
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true, Gates: true})
	if err != nil {
		return nil, err
	}
	hiddenNote(f, s.Hidden)
	if s.Pods == nil || len(s.Hidden) > 0 && len(s.Stored) == 0 {
		return nil, errors.New("its pods and revisions cannot be read: " + strings.Join(s.Hidden, ", "))
	}
	anything := func(adapter.Workload) error { return nil }
	res, err := apply.Patch(ctx, c, w, apply.Options{DryRun: apply.DryRunServer, FieldManager: factory.FieldManager}, change, anything)
	local := apierrors.IsForbidden(err)
	if local {
		f.Note("no permission for a server dry run: the defaults of this tool stand in for those of the server")
		res, err = apply.Patch(ctx, c, w, apply.Options{DryRun: apply.DryRunClient}, change, anything)
	}
	if err != nil {
		return nil, err
	}
	fc, err := forecast.Of(s, res.After, local, f.Clock.Now())
	if err != nil {
		return nil, err
	}
	return &preview{Forecast: fc, w: w, s: s}, nil
}

func (p *preview) print(f *factory.Factory, wide bool) error {
	style := f.OutStyle()
	pods := 0
	for _, r := range p.Pods {
		if r.Pod != "" {
			pods++
		}
	}
	fmt.Fprintf(f.Out, "%s, policy %s, %s\n", p.w.Title(), p.Policy, out.Plural(pods, "pod"))
	changes := out.Table{NoHeaders: true, Indent: "  ", Columns: []out.Column{{Name: ""}, {Name: ""}, {Name: ""}}}
	for _, c := range p.Changes {
		changes.Rows = append(changes.Rows, []string{c.Path, c.Op, c.Effect})
	}
	if err := changes.Print(f.Out, style, true); err != nil {
		return err
	}
	mark := map[forecast.Verdict]out.State{forecast.Refused: out.Failed, forecast.Recreate: out.Warning}[p.Verdict]
	if mark == out.Plain {
		mark = out.OK
	}
	fmt.Fprintf(f.Out, "verdict: %s - %s\n", style.Paint(mark, p.Verdict.Words()), p.Message)
	if p.Batches != "" {
		fmt.Fprintf(f.Out, "batches: %s\n", p.Batches)
	}
	if len(p.Pods) == 0 {
		return nil
	}
	fmt.Fprintln(f.Out)
	if p.allBatches {
		return p.printBatches(f, wide)
	}
	t := out.Table{Columns: []out.Column{{Name: "POD"}, {Name: "NODE", Drop: 2}, {Name: "REVISION", Drop: 1}, {Name: "ACTION"}, {Name: "BATCH"}, {Name: "WHY"}}}
	for _, row := range p.Pods {
		batch := ""
		if row.Batch > 0 {
			batch = strconv.Itoa(row.Batch)
		}
		why := row.Why
		if !wide {
			why = cut(why, 90)
		}
		t.Rows = append(t.Rows, []string{row.Pod, row.Node, row.Revision, row.Action, batch, why})
	}
	return t.Print(f.Out, style, wide)
}

func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "~"
}

func (p *preview) document(f *factory.Factory) map[string]any {
	doc := out.Envelope("RolloutPreview", f.ContextName())
	doc["object"] = objectRef(p.w)
	doc["verdict"], doc["message"], doc["policy"] = p.Verdict, p.Message, p.Policy
	doc["changes"], doc["pods"] = p.Changes, p.Pods
	doc["counts"] = map[string]any{"inPlace": p.InPlace, "recreate": p.Recreated, "blocked": p.Blocked, "kept": p.Kept, "delete": p.Deleted, "create": p.Created, "batches": p.LastBatch}
	batches := []any{}
	for i, rows := range p.AllBatches() {
		batches = append(batches, map[string]any{"batch": i + 1, "pods": rowNames(rows)})
	}
	doc["batches"] = batches
	doc["revision"] = map[string]any{"update": p.Update, "current": p.Current, "new": p.New}
	doc["gatesKnown"] = p.s.Gates.Known
	return doc
}

// Effect is one sentence on what change does to the Pods of w as it was read; "" when it
// cannot be told. It is for commands that have just sent that change.
func Effect(ctx context.Context, f *factory.Factory, w adapter.Workload, change apply.Change) string {
	fc, ok := foresee(ctx, f, w, change)
	if !ok {
		return ""
	}
	return strings.ToLower(fc.Verdict.Words()) + ": " + fc.Message
}

// effectNow is Effect for a change that reaches only some of the Pods.
func effectNow(ctx context.Context, f *factory.Factory, w adapter.Workload, change apply.Change) string {
	fc, ok := foresee(ctx, f, w, change)
	if !ok {
		return ""
	}
	var parts []string
	if fc.InPlace > 0 {
		parts = append(parts, "in place: "+out.Plural(fc.InPlace, "pod"))
	}
	if fc.Recreated > 0 {
		parts = append(parts, "recreate: "+out.Plural(fc.Recreated, "pod"))
	}
	if fc.Blocked > 0 {
		parts = append(parts, "refused: "+fc.Message)
	}
	if len(parts) == 0 {
		return "no pod changes"
	}
	return strings.Join(parts, ", ")
}

func foresee(ctx context.Context, f *factory.Factory, w adapter.Workload, change apply.Change) (forecast.Forecast, bool) {
	c, err := f.Client()
	if err != nil {
		return forecast.Forecast{}, false
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true, Gates: true})
	if err != nil || s.Pods == nil {
		return forecast.Forecast{}, false
	}
	res, err := apply.Patch(ctx, c, w, apply.Options{DryRun: apply.DryRunClient}, change, nil)
	if err != nil {
		return forecast.Forecast{}, false
	}
	fc, err := forecast.Of(s, res.After, false, f.Clock.Now())
	return fc, err == nil && fc.Verdict != forecast.NoChange
}

// SPDX-License-Identifier: Apache-2.0

// Package why says what holds a Pod or a workload back: `kruisectl why` and
// `kruisectl inplace`.
package why

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/cli/rollout"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	inplace := &cobra.Command{
		Use:     "inplace",
		Short:   "Look at in-place updates",
		Example: "  kruisectl inplace status web-x7k9w\n  kruisectl inplace preview -f web.yaml",
	}
	preview := rollout.NewPreview(f)
	preview.Example = strings.ReplaceAll(preview.Example, "rollout preview", "inplace preview")
	inplace.AddCommand(newInPlaceStatus(f), preview)
	return []*cobra.Command{newWhy(f), inplace}
}

// whyOptions is one run of `why`.
type whyOptions struct {
	f    *factory.Factory
	live bool
	fail bool
	// only keeps findings of these codes; nil keeps all.
	only   []string
	output out.Output
}

var kinds = append(adapter.Kinds(), target.Pod, target.ImagePullJob, target.ContainerRecreateRequest)

func newWhy(f *factory.Factory) *cobra.Command {
	o := &whyOptions{f: f}
	cmd := &cobra.Command{
		Use:   "why TYPE/NAME",
		Short: "Say why a workload, a pod or a job does not move, and what to do",
		Example: "  kruisectl why cloneset/web\n" +
			"  kruisectl why pod/web-x7k9w\n" +
			"  kruisectl why pod/web-x7k9w --live\n" +
			"  kruisectl why imagepulljob/pull-web-1a2b3\n" +
			"  kruisectl why crr/web-x7k9w-restart-2k4fz",
		ValidArgsFunction: object.Complete(f, kinds),
		Annotations:       map[string]string{out.ExitCodes: "3 with --fail: a blocker was found", out.SeeAlso: "kruisectl rollout status"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), "why", args) },
	}
	o.addTo(cmd)
	fs := cmd.Flags()
	fs.StringSliceVar(&o.only, "code", nil, "show only findings of these codes, e.g. P12")
	return cmd
}

func (o *whyOptions) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&o.live, "live", false, "look again every 2 seconds until nothing blocks")
	fs.BoolVar(&o.fail, "fail", false, "exit code 3 when a blocker is found")
	out.Group(fs, "Wait", "live", "fail")
	o.output.AddTo(fs)
}

// inPlaceCodes are the findings about an in-place update.
var inPlaceCodes = []string{"P02", "P03", "P04", "P07", "P08", "P09", "P10", "P11", "P12", "P13", "P14", "P15", "P17", "P18"}

func newInPlaceStatus(f *factory.Factory) *cobra.Command {
	o := &whyOptions{f: f, only: inPlaceCodes}
	cmd := &cobra.Command{
		Use:               "status POD",
		Short:             "Say what the in-place update of a pod waits for",
		Example:           "  kruisectl inplace status web-x7k9w\n  kruisectl inplace status pod/web-x7k9w -o json",
		ValidArgsFunction: object.Complete(f, []*target.Kind{target.Pod}),
		Annotations:       map[string]string{out.ExitCodes: "3 with --fail: a blocker was found", out.SeeAlso: "kruisectl why"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !strings.Contains(args[0], "/") && len(target.Lookup(args[0])) == 0 {
				args = []string{"pod/" + args[0]}
			}
			return o.run(cmd.Context(), "inplace status", args)
		},
	}
	o.addTo(cmd)
	return cmd
}

func (o *whyOptions) run(ctx context.Context, command string, args []string) error {
	v := target.Verb{Command: command, Kinds: kinds}
	if command != "why" {
		v.Kinds = []*target.Kind{target.Pod}
	}
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	names, err := object.Names(o.f, v, args, nil)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return out.Usagef("%s looks at one object; %d are named", command, len(names))
	}
	for {
		objects, err := object.Resolve(ctx, o.f, v, names)
		if err != nil {
			return err
		}
		d, err := o.diagnose(ctx, objects[0])
		if err != nil {
			return object.Failure(o.f, "explain", objects[0], err, "")
		}
		if err := o.print(d, format); err != nil {
			return err
		}
		if !o.live || !d.report.Blocked() {
			if o.fail && d.report.Blocked() {
				return out.Silent(out.CodeFailed)
			}
			return nil
		}
		if err := o.f.Sleep(ctx, 2*time.Second); err != nil {
			return err
		}
		fmt.Fprintln(o.f.Out)
	}
}

// diagnosis is a report with what it is about.
type diagnosis struct {
	obj    target.Object
	kind   string // of its document
	report diagnose.Report
	hidden []string
	snap   diagnose.Snapshot
}

func (o *whyOptions) diagnose(ctx context.Context, obj target.Object) (diagnosis, error) {
	d := diagnosis{obj: obj, kind: "WorkloadDiagnosis"}
	var err error
	switch obj.Kind {
	case target.Pod:
		d.kind = "PodDiagnosis"
		err = o.pod(ctx, &d)
	case target.ImagePullJob, target.ContainerRecreateRequest:
		d.kind = "JobDiagnosis"
		err = o.job(ctx, &d)
	default:
		err = o.workload(ctx, &d)
	}
	if o.only != nil {
		d.report.Findings = slices.DeleteFunc(d.report.Findings, func(f verdict.Finding) bool { return !slices.Contains(o.only, f.Code) })
	}
	return d, err
}

// job diagnoses an image job or a restart request.
func (o *whyOptions) job(ctx context.Context, d *diagnosis) error {
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	now := o.f.Clock.Now()
	if d.obj.Kind == target.ContainerRecreateRequest {
		s, hidden, err := fetch.Recreate(ctx, c, d.obj)
		if err != nil {
			return err
		}
		d.report, d.hidden = diagnose.Recreate(s, now), hidden
		return nil
	}
	s, hidden, err := fetch.PullJob(ctx, c, d.obj)
	if err != nil {
		return err
	}
	d.report, d.hidden = diagnose.PullJob(s, now), hidden
	return nil
}

func (o *whyOptions) workload(ctx context.Context, d *diagnosis) error {
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	w, err := adapter.Wrap(d.obj)
	if err != nil {
		return err
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Everything)
	if err != nil {
		return err
	}
	d.report, d.hidden, d.snap = diagnose.Workload(s, o.f.Clock.Now()), s.Hidden, s
	return nil
}

// pod diagnoses one Pod together with the workload that controls it; a Pod of another
// owner is looked at alone.
func (o *whyOptions) pod(ctx context.Context, d *diagnosis) error {
	p := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.obj.Live.Object, p); err != nil {
		return fmt.Errorf("reading pod %s: %w", d.obj.Live.GetName(), err)
	}
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	s := diagnose.Snapshot{Gates: diagnose.DefaultGates(), Pods: []*corev1.Pod{p}}
	if w, ok := o.owner(ctx, p); ok {
		if s, err = fetch.Snapshot(ctx, c, w, fetch.Everything); err != nil {
			return err
		}
	} else if s.Events, err = fetch.PodEvents(ctx, c, p); err != nil {
		return err
	}
	d.report, d.hidden, d.snap = diagnose.Pod(s, p, o.f.Clock.Now()), s.Hidden, s
	return nil
}

// owner reads the workload that controls p, if this tool has a row for its kind.
func (o *whyOptions) owner(ctx context.Context, p *corev1.Pod) (adapter.Workload, bool) {
	ref := metav1.GetControllerOf(p)
	if ref == nil {
		return adapter.Workload{}, false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return adapter.Workload{}, false
	}
	for _, k := range adapter.Kinds() {
		if k.GroupKind != (schema.GroupKind{Group: gv.Group, Kind: ref.Kind}) {
			continue
		}
		c, err := o.f.Client()
		if err != nil {
			return adapter.Workload{}, false
		}
		obj, err := fetch.Object(ctx, c, target.Verb{Command: "why", Kinds: kinds}, target.Name{Kinds: []*target.Kind{k}, Name: ref.Name}, p.Namespace)
		if err != nil || obj.Live.GetUID() != ref.UID {
			return adapter.Workload{}, false
		}
		w, err := adapter.Wrap(obj)
		return w, err == nil
	}
	return adapter.Workload{}, false
}

var marks = map[verdict.Severity]out.State{verdict.Blocker: out.Failed, verdict.Cause: out.Warning, verdict.Note: out.Unknown}

func (o *whyOptions) print(d diagnosis, format out.Format) error {
	if !format.People() {
		return format.Write(o.f.Out, d.document(o.f))
	}
	style := o.f.OutStyle()
	head := out.OK
	switch {
	case d.report.Blocked():
		head = out.Failed
	case len(d.report.Findings) > 0 && d.report.Findings[0].Severity == verdict.Cause:
		head = out.Waiting
	}
	fmt.Fprintf(o.f.Out, "%s %s\n", style.Symbol(head), style.Bold(d.report.Headline))
	now := o.f.Clock.Now()
	for _, f := range d.report.Findings {
		fmt.Fprintf(o.f.Out, "\n%s %s %s: %s\n", style.Paint(marks[f.Severity], fmt.Sprintf("%-7s", strings.ToUpper(string(f.Severity)))), f.Code, f.Name, f.Message)
		for _, k := range slices.Sorted(maps.Keys(f.Evidence)) {
			fmt.Fprintf(o.f.Out, "        %s = %s\n", k, f.Evidence[k])
		}
		if f.Since != nil {
			fmt.Fprintf(o.f.Out, "        since %s (%s ago)\n", f.Since.UTC().Format(time.RFC3339), out.Age(now.Sub(*f.Since)))
		}
		if f.Next != "" {
			fmt.Fprintf(o.f.Out, "        next: %s\n", object.Next(o.f, f.Next))
		}
	}
	if len(d.hidden) > 0 {
		o.f.Note("details hidden: %s", strings.Join(d.hidden, ", "))
	}
	return nil
}

func (d diagnosis) document(f *factory.Factory) map[string]any {
	doc := out.Envelope(d.kind, f.ContextName())
	u := d.obj.Live
	doc["object"] = map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "namespace": u.GetNamespace(), "name": u.GetName(), "uid": string(u.GetUID())}
	doc["headline"], doc["blocked"] = d.report.Headline, d.report.Blocked()
	findings := d.report.Findings
	if findings == nil {
		findings = []verdict.Finding{}
	}
	for i := range findings {
		findings[i].Next = object.Next(f, findings[i].Next)
	}
	doc["findings"], doc["hidden"] = findings, append([]string{}, d.hidden...)
	return doc
}

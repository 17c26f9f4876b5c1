// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// scaledownOptions is one run of `scaledown`.
type scaledownOptions struct {
	f             *factory.Factory
	pods          []string
	podSelector   string
	node          string
	keepReplicas  bool
	reserve       bool
	ignoreMissing bool
	cleanup       bool
	write         object.Write
	wait          bool
	timeout       time.Duration
	output        out.Output
}

var shrinkable = []*target.Kind{target.CloneSet, target.StatefulSet}

func newScaledown(f *factory.Factory) *cobra.Command {
	o := &scaledownOptions{f: f}
	cmd := &cobra.Command{
		Use:   "scaledown (NAME | TYPE/NAME) --pods POD,...",
		Short: "Remove chosen pods and shrink the workload by their number",
		Long: "Remove chosen pods and shrink the workload by their number. A CloneSet takes\n" +
			"them by name; an Advanced StatefulSet gives up their ordinals (--reserve).",
		Example: "  kruisectl scaledown web --pods web-a,web-b\n" +
			"  kruisectl scaledown cloneset/web --node node-7 --dry-run\n" +
			"  kruisectl scaledown asts/db --pods db-1 --reserve --yes",
		ValidArgsFunction: object.Complete(f, shrinkable),
		Annotations: map[string]string{
			out.ExitCodes: "4 --timeout passed · 9 a confirmation is missing, nothing was changed",
			out.SeeAlso:   "kruisectl scale, kruisectl why",
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&o.pods, "pods", nil, "names of pods, comma separated (repeat)")
	fs.StringVar(&o.podSelector, "pod-selector", "", "labels of pods to remove")
	fs.StringVar(&o.node, "node", "", "remove the pods on this node")
	fs.BoolVar(&o.ignoreMissing, "ignore-missing", false, "leave out named pods that are not there")
	out.Group(fs, "Target", "pods", "pod-selector", "node", "ignore-missing")
	fs.BoolVar(&o.keepReplicas, "keep-replicas", false, "replace the pods instead of shrinking")
	fs.BoolVar(&o.reserve, "reserve", false, "give up the ordinals of the pods (Advanced StatefulSet)")
	fs.BoolVar(&o.cleanup, "cleanup", false, "also drop names from podsToDelete whose pods are gone")
	out.Group(fs, "Change", "keep-replicas", "reserve", "cleanup")
	o.write.AddTo(fs)
	fs.BoolVar(&o.wait, "wait", false, "wait until the pods are gone")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "wait", "timeout")
	o.output.AddTo(fs, "name")
	_ = cmd.RegisterFlagCompletionFunc("pods", completePods(f))
	return cmd
}

// typedName gives a bare name the type that it means.
func typedName(args []string) []string {
	if len(args) == 1 && !strings.Contains(args[0], "/") && len(target.Lookup(args[0])) == 0 {
		return []string{target.CloneSet.Singular + "/" + args[0]}
	}
	return args
}

// names are the Pods of --pods: blanks trimmed, empty ones dropped, each once.
func (o *scaledownOptions) names() []string {
	var list []string
	for _, arg := range o.pods {
		for _, w := range strings.Split(arg, ",") {
			if w = strings.TrimSpace(w); w != "" && !slices.Contains(list, w) {
				list = append(list, w)
			}
		}
	}
	return list
}

func (o *scaledownOptions) run(ctx context.Context, args []string) error {
	v := target.Verb{Command: "scaledown", Kinds: shrinkable, Mutates: true, Because: because}
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if len(o.names()) == 0 && o.podSelector == "" && o.node == "" {
		return out.UsageNext(o.f.Name()+" scaledown NAME --pods POD,...", errors.New("choose the pods: --pods, --pod-selector or --node"))
	}
	chosen, err := labels.Parse(o.podSelector)
	if err != nil {
		return out.Usage(fmt.Errorf("--pod-selector %q: %w", o.podSelector, err))
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	names, err := object.Names(o.f, v, typedName(args), nil)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return out.Usagef("scaledown works on one object; %d are named", len(names))
	}
	return object.Each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		return o.one(ctx, w, chosen, opts, format)
	})
}

func (o *scaledownOptions) one(ctx context.Context, w adapter.Workload, chosen labels.Selector, opts apply.Options, format out.Format) error {
	fail := func(err error, next string) error { return object.Failure(o.f, "scaledown", w.Object, err, next) }
	if err := o.write.Guard(o.f, "scaledown", w.Object, false); err != nil {
		return err
	}
	if w.Kind == target.StatefulSet && !o.reserve {
		return fail(errors.New("pods of an Advanced StatefulSet have fixed names: removing one for good means to reserve its ordinal (spec.reserveOrdinals)"),
			"scaledown "+w.Short()+" --pods "+strings.Join(o.names(), ",")+" --reserve")
	}
	if w.Kind == target.CloneSet && o.reserve {
		return out.Usagef("--reserve is about ordinals, and pods of a cloneset have none")
	}
	if w.Kind == target.StatefulSet && (o.keepReplicas || o.cleanup) {
		return out.Usagef("--keep-replicas and --cleanup are for clonesets")
	}
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true})
	if err != nil {
		return fail(err, "")
	}
	if s.Pods == nil {
		return fail(fmt.Errorf("its pods cannot be read: %s", s.Hidden[0]), "")
	}
	pods, err := o.choose(s, chosen)
	if err != nil {
		return fail(err, "kubectl get pods -n "+w.Live.GetNamespace())
	}
	if len(pods) == 0 {
		return object.Done(o.f.Out, format, opts, w.Object, "unchanged: no pod was chosen")
	}
	change, to, err := o.change(s, pods)
	if err != nil {
		return fail(err, "")
	}
	if err := o.plan(s, pods, to); err != nil {
		return err
	}
	hpaNote(ctx, o.f, c, w.Object)
	if opts.DryRun == apply.DryRunNone {
		if err := o.f.Confirm(ctx, "scale down "+w.Title(), fmt.Sprintf("Remove %s of %s%s?", out.Plural(len(pods), "pod"), w.Title(), o.f.ContextWords())); err != nil {
			return err
		}
	}
	res, err := apply.Patch(ctx, c, w, opts, change, nil)
	if err != nil {
		return fail(err, "")
	}
	sentence := fmt.Sprintf("scaled down from %d to %d", s.Facts.Desired, to)
	if o.keepReplicas {
		sentence = out.Plural(len(pods), "pod") + " marked to be replaced"
	}
	if !res.Changed {
		sentence = "unchanged"
	}
	if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
		return err
	}
	if !o.wait || opts.DryRun != apply.DryRunNone {
		return nil
	}
	return o.until(ctx, res.After, pods)
}

// choose finds the Pods that are to go. Every Pod that was named has to be an active one of
// the workload; all that are not are listed.
func (o *scaledownOptions) choose(s diagnose.Snapshot, chosen labels.Selector) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	var bad []string
	for _, name := range o.names() {
		i := slices.IndexFunc(s.Pods, func(p *corev1.Pod) bool { return p.Name == name })
		switch {
		case i >= 0:
			pods = append(pods, s.Pods[i])
		case o.ignoreMissing:
			o.f.Note("pod %s is no active pod of %s and is left out", name, s.Workload.Short())
		default:
			bad = append(bad, name)
		}
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("not found among its active pods: %s; nothing is changed", strings.Join(bad, ", "))
	}
	for _, p := range s.Pods {
		by := o.podSelector != "" && chosen.Matches(labels.Set(p.Labels)) || o.node != "" && p.Spec.NodeName == o.node
		if by && !slices.Contains(pods, p) {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// change is the patch: replicas tested and lowered, and which Pods. It is refused when the
// number of replicas changed since the plan was made.
func (o *scaledownOptions) change(s diagnose.Snapshot, pods []*corev1.Pod) (apply.Change, int64, error) {
	was := int64(s.Facts.Desired)
	to := was - int64(len(pods))
	var names []string
	var ordinals []int64
	for _, p := range pods {
		names = append(names, p.Name)
		if s.Workload.Kind == target.StatefulSet {
			n, err := apply.OrdinalOf(p.Name)
			if err != nil {
				return nil, 0, err
			}
			ordinals = append(ordinals, n)
		}
	}
	if o.keepReplicas {
		to = was
	}
	if to < 0 {
		return nil, 0, fmt.Errorf("%d pods are chosen, and it wants only %d", len(pods), was)
	}
	alive := map[string]bool{}
	for _, p := range append(slices.Clone(s.Pods), s.Inactive...) {
		alive[p.Name] = true
	}
	return func(w adapter.Workload) ([]apply.Op, error) {
		if now := int64(replicasOf(w.Object)); now != was {
			return nil, fmt.Errorf("it was scaled from %d to %d meanwhile; look at its pods again", was, now)
		}
		if w.Kind == target.StatefulSet {
			return apply.Reserve(w, ordinals, to)
		}
		return apply.DeletePods(w, names, to, func(name string) bool { return !o.cleanup || alive[name] }), nil
	}, to, nil
}

// plan prints what is going to happen, on stderr.
func (o *scaledownOptions) plan(s diagnose.Snapshot, pods []*corev1.Pod, to int64) error {
	if o.f.Global.Quiet {
		return nil
	}
	t := out.Table{Columns: []out.Column{
		{Name: "POD"}, {Name: "NODE", Drop: 1}, {Name: "READY"}, {Name: "REVISION"}, {Name: "AGE", Drop: 2}, {Name: "CLAIMS", Drop: 3}, {Name: "HOOK", Drop: 4},
	}}
	now := o.f.Clock.Now()
	preDelete := preDeleteOf(s.Workload)
	revisions := map[string]int{}
	for _, p := range pods {
		hash := p.Labels["controller-revision-hash"]
		hash = hash[strings.LastIndex(hash, "-")+1:]
		revisions[hash]++
		var claims []string
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				claims = append(claims, v.PersistentVolumeClaim.ClaimName)
			}
		}
		hook := ""
		if lifecycle.HookedAny(preDelete, p) {
			hook = "waits in PreparingDelete"
		}
		ready := "no"
		if diagnose.PodReady(p) {
			ready = "yes"
		}
		t.Rows = append(t.Rows, []string{p.Name, p.Spec.NodeName, ready, hash, out.Age(now.Sub(p.CreationTimestamp.Time)), strings.Join(claims, ","), hook})
	}
	if err := t.Print(o.f.ErrOut, o.f.ErrStyle(), false); err != nil {
		return err
	}
	if o.keepReplicas {
		o.f.Note("plan: %s of %s are replaced", out.Plural(len(pods), "pod"), s.Workload.Title())
	} else {
		o.f.Note("plan: these leave, and %s shrinks from %d to %d", s.Workload.Title(), s.Facts.Desired, to)
	}
	if s.Facts.UnderWay() && len(revisions) > 0 {
		var parts []string
		for _, h := range sortedKeys(revisions) {
			parts = append(parts, fmt.Sprintf("%d of revision %s", revisions[h], h))
		}
		o.f.Note("a rollout is under way; the pods are %s", strings.Join(parts, ", "))
	}
	if others := apply.PodsToDelete(s.Workload); len(others) > 0 {
		o.f.Note("podsToDelete holds already: %s", strings.Join(others, ", "))
	}
	for _, p := range s.Pods {
		if p.Labels[v1beta1.LifecycleStateLabel] == string(v1beta1.LifecyclePreparingDelete) {
			o.f.Note("pod %s is in PreparingDelete already", p.Name)
		}
	}
	return nil
}

func preDeleteOf(w adapter.Workload) *v1beta1.LifecycleHook {
	if l := w.Lifecycle(); l != nil {
		return l.PreDelete
	}
	return nil
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// until waits until the Pods are gone and the status has the new number.
func (o *scaledownOptions) until(ctx context.Context, w adapter.Workload, pods []*corev1.Pod) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	uids := map[types.UID]bool{}
	for _, p := range pods {
		uids[p.UID] = true
	}
	p := o.f.Progress(false, factory.Heartbeat)
	defer p.Finish()
	return poll(ctx, o.f, c, w.Object, func(now target.Object) (bool, string) {
		w.Object = now
		s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true})
		if err != nil || s.Pods == nil {
			return false, "its pods cannot be read"
		}
		left := 0
		for _, pod := range append(s.Pods, s.Inactive...) {
			if uids[pod.UID] {
				left++
			}
		}
		text := fmt.Sprintf("%d of %d pods gone", len(uids)-left, len(uids))
		p.Update(text)
		return left == 0 && s.Facts.ObservedGeneration >= s.Facts.Generation && s.Facts.Total == s.Facts.Desired, text
	})
}

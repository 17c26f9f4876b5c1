// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/container"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// restartOptions is one run of `rollout restart`.
type restartOptions struct {
	f           *factory.Factory
	method      string
	maxParallel int
	containers  []string
	envName     string
	waitGiven   bool
	files       object.Files
	sel         object.Select
	write       object.Write
	wait        waitFlags
	output      out.Output
}

func newRestart(f *factory.Factory) *cobra.Command {
	o := &restartOptions{f: f}
	cmd := &cobra.Command{
		Use:   "restart (TYPE NAME | TYPE/NAME...)",
		Short: "Restart every pod of a workload once, a few at a time",
		Long: "Restart every pod of a workload once, a few at a time.\n\n" +
			"  template  changes the template, which makes a new revision\n" +
			"  pods      marks the pods to be replaced, in waves; no new revision\n" +
			"            (cloneset, asts)\n" +
			"  containers  restarts the containers in their pods, which keep IP and node\n" +
			"  auto      pods where it works and the update policy is in place, else\n" +
			"            template",
		Example: "  kruisectl rollout restart cloneset/web\n" +
			"  kruisectl rollout restart cloneset/web --method=pods --max-parallel=2 --wait\n" +
			"  kruisectl rollout restart cloneset/a cloneset/b --method=template",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations:       map[string]string{out.ExitCodes: "3 a pod did not come back · 4 --timeout passed · 8 several objects, of which some failed", out.SeeAlso: "kruisectl rollout status"},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.waitGiven = cmd.Flags().Changed("wait")
			return o.run(cmd.Context(), args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.method, "method", "auto", "auto, template, pods or containers")
	fs.IntVar(&o.maxParallel, "max-parallel", 0, "pods at a time (methods pods and containers); 0 is maxUnavailable")
	fs.StringSliceVar(&o.containers, "containers", nil, "containers to restart (method containers); all app containers without")
	fs.StringVar(&o.envName, "env-name", "RESTARTED_AT", "variable set under an in-place policy (method template)")
	out.Group(fs, "Change", "method", "max-parallel", "containers", "env-name")
	o.files.AddTo(fs, "restart")
	o.sel.AddTo(fs, false)
	o.write.AddTo(fs)
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	return cmd
}

func (o *restartOptions) validate() error {
	switch o.method {
	case "auto", "template", "pods", "containers":
	default:
		return out.Usagef("--method is %q: use auto, template, pods or containers", o.method)
	}
	if len(o.containers) > 0 && o.method != "containers" {
		return out.Usagef("--containers goes with --method=containers")
	}
	if o.maxParallel < 0 {
		return out.Usagef("--max-parallel %d is negative", o.maxParallel)
	}
	return nil
}

func (o *restartOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout restart", true, adapter.Kinds())
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	names, err := object.Targets(ctx, o.f, v, args, &o.files, &o.sel)
	if err != nil {
		return err
	}
	if err := o.sel.Confirm(ctx, o.f, v, names, opts.DryRun != apply.DryRunNone); err != nil {
		return err
	}
	if o.wait.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.wait.timeout, errTimeout)
		defer cancel()
	}
	return each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		if err := o.write.Guard(o.f, "restart", w.Object, true); err != nil {
			return err
		}
		method := o.method
		if method == "auto" {
			method = "template"
			if w.Marks && !w.RecreatesOnly() {
				method = "pods"
			}
		}
		switch method {
		case "pods":
			return o.pods(ctx, w, opts, format)
		case "containers":
			return o.inPlace(ctx, w, opts, format)
		}
		return o.template(ctx, w, opts, format)
	})
}

// inPlace restarts containers with a request for each Pod; the template stays.
func (o *restartOptions) inPlace(ctx context.Context, w adapter.Workload, opts apply.Options, format out.Format) error {
	facts, err := w.Facts()
	if err != nil {
		return failure(o.f, "restart", w.Object, err, "")
	}
	atOnce := o.maxParallel
	if atOnce == 0 {
		atOnce = max(1, facts.MaxUnavailable)
	}
	err = container.Rollout(ctx, o.f, w.Object, o.containers, atOnce, opts, o.wait.wait, o.waitGiven, o.wait.timeout, format)
	return failure(o.f, "restart", w.Object, err, "")
}

func (o *restartOptions) template(ctx context.Context, w adapter.Workload, opts apply.Options, format out.Format) error {
	facts, err := w.Facts()
	if err != nil {
		return failure(o.f, "restart", w.Object, err, "")
	}
	if facts.Partition.Keep > 0 || facts.UnderWay() {
		next := "rollout restart " + w.Short() + " --method=pods"
		if !w.Marks {
			next = "rollout status " + w.Short() + " --full"
		}
		return failure(o.f, "restart", w.Object,
			errors.New("a rollout is under way; a changed template would mix in a third revision"), next)
	}
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	res, err := apply.Patch(ctx, c, w, opts, apply.RestartTemplate(o.f.Clock.Now(), o.envName), nil)
	if err != nil {
		next := ""
		if w.Marks {
			next = "rollout restart " + w.Short() + " --method=pods"
		}
		return failure(o.f, "restart", w.Object, err, next)
	}
	if err := object.Done(o.f.Out, format, opts, res.After.Object, "restarted"); err != nil {
		return err
	}
	if facts.Manual {
		o.f.Note("the update strategy is OnDelete: each pod is restarted when it is deleted")
	}
	return o.wait.follow(ctx, o.f, res.After, opts)
}

// refusesMarks says why marked Pods of this workload would not be replaced; nil when they
// would.
func refusesMarks(w adapter.Workload, s diagnose.Snapshot, now time.Time) error {
	if !w.Marks {
		return out.Usagef("--method pods works on cloneset and asts: the controller of %s does not look at marked pods; use template", w.Kind.Word())
	}
	if w.Kind != target.StatefulSet {
		return nil
	}
	switch {
	case s.Facts.Manual:
		return errors.New("under OnDelete its controller does not replace marked pods; delete them by hand, or use --method=template")
	case s.Facts.Paused:
		return errors.New("it is paused, and then its controller does not replace marked pods; resume it first")
	case w.Ordered():
		for _, p := range s.Pods {
			if !diagnose.Available(p, 0, now) {
				return fmt.Errorf("pod %s is not available, and a set that keeps the order (OrderedReady) replaces no pod before all are", p.Name)
			}
		}
	}
	return nil
}

// pods marks the Pods there are, wave by wave, to be deleted and replaced.
func (o *restartOptions) pods(ctx context.Context, w adapter.Workload, opts apply.Options, format out.Format) error {
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true})
	if err != nil {
		return failure(o.f, "restart", w.Object, err, "")
	}
	if s.Pods == nil {
		return failure(o.f, "restart", w.Object, fmt.Errorf("its pods cannot be read: %s", s.Hidden[0]), "")
	}
	if err := refusesMarks(w, s, o.f.Clock.Now()); err != nil {
		return failure(o.f, "restart", w.Object, err, "why "+w.Short())
	}
	size := o.maxParallel
	if size == 0 {
		size = max(1, s.Facts.MaxUnavailable)
	}
	todo := s.Pods
	p := o.f.Progress(false, factory.Heartbeat)
	defer p.Finish()
	for wave := 1; len(todo) > 0; wave++ {
		now := todo[:min(size, len(todo))]
		todo = todo[len(now):]
		for _, pod := range now {
			if err := mark(ctx, c, pod, opts); err != nil {
				return failure(o.f, "restart", w.Object, fmt.Errorf("marking pod %s: %w", pod.Name, err), "")
			}
		}
		if opts.DryRun != apply.DryRunNone {
			p.Note(fmt.Sprintf("wave %d: %s", wave, names(now)))
			continue
		}
		if o.waitGiven && !o.wait.wait {
			if len(todo) > 0 {
				o.f.Note("only the first wave is marked (--wait=false); %s left: run it again when these are back", out.Plural(len(todo), "pod"))
			}
			break
		}
		p.Update(fmt.Sprintf("wave %d: %s; %d of %d pods restarted", wave, names(now), len(s.Pods)-len(todo)-len(now), len(s.Pods)))
		if err := o.back(ctx, c, w, now); err != nil {
			return err
		}
	}
	p.Finish()
	return object.Done(o.f.Out, format, opts, w.Object, "restarted")
}

func names(pods []*corev1.Pod) string {
	var words []string
	for _, p := range pods {
		words = append(words, p.Name)
	}
	return enumerate.Some(words, 5)
}

// mark labels one Pod, unless it is marked already.
func mark(ctx context.Context, c client.Client, pod *corev1.Pod, opts apply.Options) error {
	if _, ok := pod.Labels[v1beta1.SpecifiedDeleteLabel]; ok || opts.DryRun == apply.DryRunClient {
		return nil
	}
	changed := pod.DeepCopy()
	if changed.Labels == nil {
		changed.Labels = map[string]string{}
	}
	changed.Labels[v1beta1.SpecifiedDeleteLabel] = "true"
	po := []client.PatchOption{client.FieldOwner(opts.FieldManager)}
	if opts.DryRun == apply.DryRunServer {
		po = append(po, client.DryRunAll)
	}
	// Only this very Pod: one of the same name that came meanwhile is new enough.
	return client.IgnoreNotFound(c.Patch(ctx, changed, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}), po...))
}

// back waits until the marked Pods are gone and as many are available as are wanted.
func (o *restartOptions) back(ctx context.Context, c client.Client, w adapter.Workload, marked []*corev1.Pod) error {
	uids := map[string]bool{}
	for _, p := range marked {
		uids[string(p.UID)] = true
	}
	for {
		obj, err := fetch.Again(ctx, c, w.Object)
		if err == nil {
			w.Object = obj
			var s diagnose.Snapshot
			if s, err = fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true}); err == nil && restartedAll(s, uids, o.f.Clock.Now()) {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			return failure(o.f, "restart", w.Object, err, "")
		}
		if err := o.f.Sleep(ctx, time.Second); err != nil {
			if errors.Is(err, errTimeout) {
				return &out.Failure{Doing: doing("restart", w.Object), Cause: errors.New("--timeout passed before its pods were back"),
					Next: o.f.Name() + " why " + w.Short(), Code: out.CodeTimeout, Object: w.Short()}
			}
			return err
		}
	}
}

func restartedAll(s diagnose.Snapshot, uids map[string]bool, now time.Time) bool {
	available := 0
	for _, p := range s.Pods {
		if uids[string(p.UID)] {
			return false
		}
		if diagnose.Available(p, 0, now) {
			available++
		}
	}
	for _, p := range s.Inactive {
		if uids[string(p.UID)] {
			return false
		}
	}
	return available >= s.Facts.Desired
}

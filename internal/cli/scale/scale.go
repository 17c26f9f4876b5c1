// SPDX-License-Identifier: Apache-2.0

// Package scale changes how many Pods a workload has: the commands `kruisectl scale` and
// `kruisectl scaledown` (cli.md 9).
package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	return []*cobra.Command{newScale(f), newScaledown(f)}
}

// scalable are the kinds with a scale subresource.
func scalable() []*target.Kind {
	var ks []*target.Kind
	for _, k := range adapter.Kinds() {
		if adapter.Of(k).Scale {
			ks = append(ks, k)
		}
	}
	for _, word := range []string{"deployments.apps", "statefulsets.apps", "replicasets.apps"} {
		ks = append(ks, target.Lookup(word)...)
	}
	return ks
}

// because says why a kind has no number of replicas.
func because(k *target.Kind) string {
	switch k.Kind {
	case "DaemonSet":
		return "it runs one pod on each node that fits; change its node selector or tolerations instead"
	case "SidecarSet":
		return "it has no pods of its own"
	case "BroadcastJob":
		return "it runs one pod on each node that fits"
	}
	return ""
}

// scaleOptions is one run of `scale`.
type scaleOptions struct {
	f               *factory.Factory
	replicas        int32
	currentReplicas int32
	resourceVersion string
	files           object.Files
	sel             object.Select
	write           object.Write
	wait            bool
	timeout         time.Duration
	output          out.Output
}

func newScale(f *factory.Factory) *cobra.Command {
	o := &scaleOptions{f: f}
	kinds := scalable()
	cmd := &cobra.Command{
		Use:   "scale (TYPE NAME | TYPE/NAME...) --replicas N",
		Short: "Set the number of pods of a workload",
		Example: "  kruisectl scale cloneset/web --replicas 5\n" +
			"  kruisectl scale asts/db --replicas 3 --current-replicas 5 --wait\n" +
			"  kruisectl scale -f web.yaml --replicas 0 --dry-run=server",
		ValidArgsFunction: object.Complete(f, kinds),
		Annotations: map[string]string{
			out.ExitCodes: "4 --timeout passed · 8 several objects, of which some failed",
			out.SeeAlso:   "kruisectl scaledown, kruisectl rollout status",
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("replicas") {
				return out.UsageNext(f.Name()+" scale cloneset/NAME --replicas 5", errors.New("--replicas is missing"))
			}
			return o.run(cmd.Context(), kinds, args)
		},
	}
	fs := cmd.Flags()
	fs.Int32Var(&o.replicas, "replicas", 0, "wanted number of pods")
	fs.Int32Var(&o.currentReplicas, "current-replicas", -1, "change nothing unless this is the present number; -1 is any")
	fs.StringVar(&o.resourceVersion, "resource-version", "", "change nothing unless this is the present version of the object")
	out.Group(fs, "Change", "replicas", "current-replicas", "resource-version")
	o.files.AddTo(fs, "scale")
	o.sel.AddTo(fs, false)
	o.write.AddTo(fs)
	fs.BoolVar(&o.wait, "wait", false, "wait until the pods are there and available, or gone")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "wait", "timeout")
	o.output.AddTo(fs, "name")
	return cmd
}

func (o *scaleOptions) run(ctx context.Context, kinds []*target.Kind, args []string) error {
	v := target.Verb{Command: "scale", Kinds: kinds, Mutates: true, Because: because}
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.replicas < 0 || o.currentReplicas < -1 {
		return out.Usagef("a number of replicas is not negative")
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
	return object.EachObject(ctx, o.f, v, names, func(ctx context.Context, obj target.Object) error {
		return o.one(ctx, obj, opts, format)
	})
}

func (o *scaleOptions) one(ctx context.Context, obj target.Object, opts apply.Options, format out.Format) error {
	if err := o.write.Guard(o.f, "scale", obj, false); err != nil {
		return err
	}
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	was := replicasOf(obj)
	if err := o.precondition(obj, was); err != nil {
		return object.Failure(o.f, "scale", obj, err, "")
	}
	if was == o.replicas {
		return object.Done(o.f.Out, format, opts, obj, "unchanged")
	}
	after, err := o.send(ctx, c, obj, opts)
	if err != nil {
		return object.Failure(o.f, "scale", obj, err, "")
	}
	sentence := "scaled"
	if format.People() {
		sentence = fmt.Sprintf("scaled from %d to %d", was, o.replicas)
	}
	if err := object.Done(o.f.Out, format, opts, after, sentence); err != nil {
		return err
	}
	hpaNote(ctx, o.f, c, obj)
	ordinalsNote(o.f, after)
	if !o.wait || opts.DryRun != apply.DryRunNone {
		return nil
	}
	return o.until(ctx, c, after)
}

func replicasOf(obj target.Object) int32 {
	n, ok, err := unstructured.NestedInt64(obj.Live.Object, "spec", "replicas")
	if err != nil || !ok {
		return 1
	}
	return int32(n)
}

func (o *scaleOptions) precondition(obj target.Object, was int32) error {
	if o.currentReplicas >= 0 && was != o.currentReplicas {
		return fmt.Errorf("precondition: --current-replicas is %d, and it has %d", o.currentReplicas, was)
	}
	if rv := obj.Live.GetResourceVersion(); o.resourceVersion != "" && rv != o.resourceVersion {
		return fmt.Errorf("precondition: --resource-version is %s, and it is at %s", o.resourceVersion, rv)
	}
	return nil
}

// attempts bounds the retries after somebody else's write.
const attempts = 5

// send patches the scale subresource, tested against the number that was read. After a
// write of somebody else the preconditions are looked at again.
func (o *scaleOptions) send(ctx context.Context, c client.Client, obj target.Object, opts apply.Options) (target.Object, error) {
	if opts.DryRun == apply.DryRunClient {
		obj.Live = obj.Live.DeepCopy()
		return obj, unstructured.SetNestedField(obj.Live.Object, int64(o.replicas), "spec", "replicas")
	}
	po := []client.SubResourcePatchOption{client.FieldOwner(opts.FieldManager)}
	if opts.DryRun == apply.DryRunServer {
		po = append(po, client.DryRunAll)
	}
	for attempt := 1; ; attempt++ {
		patch, err := json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/resourceVersion", "value": obj.Live.GetResourceVersion()},
			{"op": "add", "path": "/spec/replicas", "value": o.replicas},
		})
		if err != nil {
			return obj, fmt.Errorf("encoding the patch: %w", err)
		}
		err = c.SubResource("scale").Patch(ctx, obj.Live.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), po...)
		if err == nil {
			if opts.DryRun == apply.DryRunServer {
				obj.Live = obj.Live.DeepCopy()
				return obj, unstructured.SetNestedField(obj.Live.Object, int64(o.replicas), "spec", "replicas")
			}
			return fetch.Again(ctx, c, obj)
		}
		fresh, gerr := fetch.Again(ctx, c, obj)
		if gerr != nil || attempt >= attempts || !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) ||
			fresh.Live.GetResourceVersion() == obj.Live.GetResourceVersion() || fresh.Live.GetUID() != obj.Live.GetUID() {
			return obj, fmt.Errorf("patching the scale of %s: %w", obj, err)
		}
		if err := o.precondition(fresh, replicasOf(fresh)); err != nil {
			return obj, err
		}
		obj = fresh
	}
}

var errTimeout = errors.New("--timeout passed")

// until waits for the wanted number of Pods, all of them available.
func (o *scaleOptions) until(ctx context.Context, c client.Client, obj target.Object) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	p := o.f.Progress(false, factory.Heartbeat)
	defer p.Finish()
	return poll(ctx, o.f, c, obj, func(now target.Object) (bool, string) {
		count := func(field string) int64 {
			n, _, _ := unstructured.NestedInt64(now.Live.Object, "status", field)
			return n
		}
		text := fmt.Sprintf("%d of %d pods, %d available", count("replicas"), o.replicas, count("availableReplicas"))
		p.Update(text)
		want := int64(o.replicas)
		return count("observedGeneration") >= now.Live.GetGeneration() && count("replicas") == want && count("availableReplicas") == want, text
	})
}

// poll reads obj once a second until done; what done says last is in the error of a timeout.
func poll(ctx context.Context, f *factory.Factory, c client.Client, obj target.Object, done func(target.Object) (bool, string)) error {
	uid := obj.Live.GetUID()
	for text := ""; ; {
		now, err := fetch.Again(ctx, c, obj)
		switch {
		case apierrors.IsNotFound(err) || err == nil && now.Live.GetUID() != uid:
			return &out.Failure{Doing: "scale " + obj.Title(), Why: "it was deleted meanwhile", Code: out.CodeGone, Object: obj.Short()}
		case err == nil:
			var ok bool
			if ok, text = done(now); ok {
				return nil
			}
		case ctx.Err() == nil:
			return object.Failure(f, "scale", obj, err, "")
		}
		if err := f.Sleep(ctx, time.Second); err != nil {
			if errors.Is(err, errTimeout) {
				return &out.Failure{Doing: "scale " + obj.Title(), Cause: errors.New("--timeout passed: " + text),
					Next: f.Name() + " why " + obj.Short(), Code: out.CodeTimeout, Object: obj.Short()}
			}
			return err
		}
	}
}

// hpaNote says that an autoscaler sets the number, too. Without permission it says nothing.
func hpaNote(ctx context.Context, f *factory.Factory, c client.Client, obj target.Object) {
	var l autoscalingv2.HorizontalPodAutoscalerList
	if c.List(ctx, &l, client.InNamespace(obj.Live.GetNamespace())) != nil {
		return
	}
	for _, h := range l.Items {
		ref := h.Spec.ScaleTargetRef
		if ref.Kind == obj.GVK.Kind && ref.Name == obj.Live.GetName() && groupOf(ref.APIVersion) == obj.GVK.Group {
			f.Note("autoscaler %s (HorizontalPodAutoscaler) sets the number, too, and may set it back", h.Name)
		}
	}
}

// ordinalsNote says which Pods a StatefulSet with reserved ordinals has now.
func ordinalsNote(f *factory.Factory, obj target.Object) {
	if obj.Kind != target.StatefulSet {
		return
	}
	set, err := adapter.StatefulSet(obj.Live)
	if err != nil || len(set.Spec.ReserveOrdinals) == 0 {
		return
	}
	var names []string
	r := statefulset.Ordinals(set, diagnose.DefaultGates().StatefulSet)
	for n := range r.Walk() {
		if len(names) == 10 {
			names = append(names, fmt.Sprintf("... %s", statefulset.PodName(set.Name, r.End()-1)))
			break
		}
		names = append(names, statefulset.PodName(set.Name, n))
	}
	f.Note("with the reserved ordinals left out its pods are %s", strings.Join(names, ", "))
}

func groupOf(apiVersion string) string {
	for i := range apiVersion {
		if apiVersion[i] == '/' {
			return apiVersion[:i]
		}
	}
	return ""
}

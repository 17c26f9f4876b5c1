// SPDX-License-Identifier: Apache-2.0

// Package set changes Pod templates: the commands `kruisectl set …`.
package set

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/cli/rollout"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Change the pod template of a workload",
		Example: "  kruisectl set image cloneset/web app=repo/web:2\n" +
			"  kruisectl set env asts/db MODE=fast",
	}
	cmd.AddCommand(newImage(f), newEnv(f), newResources(f))
	return []*cobra.Command{cmd}
}

const waitCodes = "with --wait those of rollout status: 3 stalled or blocked · 4 timeout · 5 paused · 6 superseded or deleted; 8 several objects, of which some failed"

// options are the flags that every command of this package has.
type options struct {
	f       *factory.Factory
	command string
	files   object.Files
	sel     object.Select
	local   bool
	write   object.Write
	wait    bool
	timeout time.Duration
	output  out.Output
}

func (o *options) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	o.files.AddTo(fs, "change")
	o.sel.AddTo(fs, false)
	fs.BoolVar(&o.local, "local", false, "change the objects of -f and -k, print them and ask no server")
	out.Group(fs, "Safety", "local")
	o.write.AddTo(fs)
	o.write.AddReason(fs)
	fs.BoolVar(&o.wait, "wait", false, "wait for the rollout to end")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "wait", "timeout")
	o.output.AddTo(fs, "name")
}

func (o *options) verb(mutates bool) target.Verb {
	return target.Verb{Command: o.command, Kinds: adapter.Kinds(), Mutates: mutates, Elsewhere: func(k *target.Kind) string {
		if k.Native() {
			return "kubectl " + o.command
		}
		return ""
	}}
}

// edit is what a command does to each object.
type edit struct {
	change apply.Change
	// done is the sentence of a change.
	done string
	// first does what must be done before the change, or stops it; nil does nothing.
	first func(ctx context.Context, w adapter.Workload, opts apply.Options) error
	// before may refuse or note things about the object as it was read; nil does nothing.
	before func(w adapter.Workload) error
	// after notes what was done to it; nil does nothing.
	after func(before adapter.Workload)
}

func (o *options) run(ctx context.Context, objects []string, e edit) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.local {
		return o.locally(ctx, objects, e, format)
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	v := o.verb(true)
	names, err := object.Targets(ctx, o.f, v, objects, &o.files, &o.sel)
	if err != nil {
		return err
	}
	if err := o.sel.Confirm(ctx, o.f, v, names, opts.DryRun != apply.DryRunNone); err != nil {
		return err
	}
	return object.Each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		return o.one(ctx, w, e, opts, format)
	})
}

func (o *options) one(ctx context.Context, w adapter.Workload, e edit, opts apply.Options, format out.Format) error {
	if err := o.write.Guard(o.f, o.command, w.Object, true); err != nil {
		return err
	}
	if e.before != nil {
		if err := e.before(w); err != nil {
			return object.Failure(o.f, o.command, w.Object, err, "")
		}
	}
	if e.first != nil {
		if err := e.first(ctx, w, opts); err != nil {
			return object.Failure(o.f, o.command, w.Object, err, "")
		}
	}
	c, err := o.f.Client()
	if err != nil {
		return err
	}
	res, err := apply.Patch(ctx, c, w, opts, e.change, nil)
	if err != nil {
		return object.Failure(o.f, o.command, w.Object, err, "")
	}
	sentence := e.done
	if !res.Changed {
		sentence = "unchanged"
	}
	if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
		return err
	}
	if e.after != nil {
		e.after(res.Before)
	}
	if res.Changed {
		if text := rollout.Effect(ctx, o.f, w, e.change); text != "" {
			o.f.Note("%s", text)
		}
	}
	if !o.wait || opts.DryRun != apply.DryRunNone || !res.Changed {
		return nil
	}
	return rollout.Wait(ctx, o.f, res.After, o.timeout)
}

// locally changes manifests and prints them; objects that have no template pass unchanged.
func (o *options) locally(ctx context.Context, objects []string, e edit, format out.Format) error {
	if len(objects) > 0 || !o.files.Given() || o.sel.Given() {
		return out.UsageNext(o.f.Name()+" "+o.command+" -f FILE --local …", errors.New("--local works on the objects of -f and -k, and on nothing else"))
	}
	infos, err := o.files.Infos(o.f)
	if err != nil {
		return err
	}
	if format.People() {
		format.Name = "yaml" // there is no other result
	}
	opts := apply.Options{DryRun: apply.DryRunClient}
	var all []target.Object
	found := 0
	for _, info := range infos {
		u, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		w, known := fromManifest(u)
		if known {
			found++
			if e.before != nil {
				if err := e.before(w); err != nil {
					return object.Failure(o.f, o.command, w.Object, err, "")
				}
			}
			res, err := apply.Patch(ctx, nil, w, opts, e.change, nil)
			if err != nil {
				return object.Failure(o.f, o.command, w.Object, err, "")
			}
			w = res.After
		}
		all = append(all, w.Object)
	}
	if found == 0 {
		return out.Usagef("the given files hold no %s", target.List(adapter.Kinds()))
	}
	return object.List(o.f.Out, format, all)
}

// fromManifest finds the row of an object that was read from a file; false leaves it to be
// printed as it is.
func fromManifest(u *unstructured.Unstructured) (adapter.Workload, bool) {
	gvk := u.GroupVersionKind()
	for _, k := range adapter.Kinds() {
		if k.GroupKind != gvk.GroupKind() {
			continue
		}
		w, err := adapter.Wrap(target.Object{Kind: k, GVK: gvk, Live: u})
		return w, err == nil
	}
	return adapter.Workload{Object: target.Object{Kind: target.Pod, GVK: gvk, Live: u}}, false
}

// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/forecast"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// shownNames bounds the Pods of one line unless -o wide asks for all.
const shownNames = 8

// printBatches prints the whole rollout: what changes together, in order, and then what
// stays and by which rule.
func (p *preview) printBatches(f *factory.Factory, wide bool) error {
	t := out.Table{Columns: []out.Column{{Name: "BATCH"}, {Name: "PODS"}, {Name: "ACTION"}, {Name: "NAMES"}}}
	shown := shownNames
	if wide {
		shown = len(p.Pods)
	}
	for i, rows := range p.AllBatches() {
		for _, g := range byAction(rows) {
			t.Rows = append(t.Rows, []string{strconv.Itoa(i + 1), strconv.Itoa(len(g.rows)), g.name, enumerate.Some(rowNames(g.rows), shown)})
		}
	}
	var kept []forecast.Row
	for _, r := range p.Pods {
		if r.Batch == 0 {
			kept = append(kept, r)
		}
	}
	for _, g := range byAction(kept) {
		t.Rows = append(t.Rows, []string{"", strconv.Itoa(len(g.rows)), g.name, enumerate.Some(rowNames(g.rows), shown)})
	}
	return t.Print(f.Out, f.OutStyle(), wide)
}

// actionGroup are Pods of one batch to which the same happens.
type actionGroup struct {
	name string
	rows []forecast.Row
}

// byAction groups rows, in the order in which the actions come first.
func byAction(rows []forecast.Row) []actionGroup {
	var groups []actionGroup
	for _, r := range rows {
		name := r.Action
		switch {
		case r.Batch == 0 && r.HeldBy != "":
			name += ": " + r.HeldBy
		case r.Batch == 0 && r.Way == "":
			name += ": up to date"
		}
		i := slices.IndexFunc(groups, func(g actionGroup) bool { return g.name == name })
		if i < 0 {
			groups = append(groups, actionGroup{name: name})
			i = len(groups) - 1
		}
		groups[i].rows = append(groups[i].rows, r)
	}
	return groups
}

// rowNames are the Pods of rows; a node without a Pod stands for the one it gets.
func rowNames(rows []forecast.Row) []string {
	list := []string{}
	for _, r := range rows {
		list = append(list, cmp.Or(r.Pod, "node "+r.Node))
	}
	return list
}

// offline previews with what files hold, and asks no server.
func (o *previewOptions) offline(ctx context.Context, v target.Verb, args []string, edit apply.Change, format out.Format) error {
	saved := object.Files{Filenames: o.present}
	infos, err := saved.Infos(o.f)
	if err != nil {
		return err
	}
	var objects []*unstructured.Unstructured
	for _, info := range infos {
		if u, ok := info.Object.(*unstructured.Unstructured); ok {
			objects = append(objects, u)
		}
	}
	var gates *features.Set
	if o.gates != "" {
		gates = features.New()
		if err := gates.Set(o.gates); err != nil {
			return out.Usage(fmt.Errorf("--feature-gates: %w", err))
		}
	}
	ns := ""
	if o.f.NamespaceGiven() {
		if ns, err = o.f.Namespace(); err != nil {
			return err
		}
	}
	one := func(k *target.Kind, ns, name, apiVersion string, change apply.Change) error {
		w, err := fetch.Saved(objects, k, ns, name)
		if err == nil && apiVersion != "" && apiVersion != w.Live.GetAPIVersion() {
			err = fmt.Errorf("the manifest is written for %s, and the present object for %s", apiVersion, w.Live.GetAPIVersion())
		}
		if err != nil {
			return &out.Failure{Doing: "preview " + target.Short(k, name), Cause: err, Next: savedWith(k)}
		}
		return o.simulate(ctx, w, objects, gates, change, format)
	}
	if o.files.Given() {
		if len(args) > 0 {
			return out.Usagef("give the object either as an argument or with -f and -k, not both")
		}
		return o.eachFile(v, func(u *unstructured.Unstructured, k *target.Kind) error {
			in, err := object.NamespaceOf(o.f, u.GetName(), u.GetNamespace())
			if err != nil {
				return err
			}
			return one(k, cmp.Or(in, ns), u.GetName(), u.GetAPIVersion(), both(forecast.FromManifest(u), edit))
		})
	}
	names, err := object.Names(o.f, v, args, nil)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return out.Usagef("--present works on one object; %d are named", len(names))
	}
	var last error
	for _, k := range names[0].Kinds {
		if !slices.Contains(v.Kinds, k) {
			continue
		}
		if last = one(k, ns, names[0].Name, "", edit); last == nil || out.ExitCode(last) == out.CodeFailed {
			return last
		}
	}
	return last
}

// savedWith is the command that saves what --present needs.
func savedWith(k *target.Kind) string {
	kinds := []string{k.Spelling(), "pods", "controllerrevisions"}
	if k == target.DaemonSet {
		kinds = append(kinds, "nodes")
	}
	return "kubectl get " + strings.Join(kinds, ",") + " -o yaml > now.yaml"
}

func (o *previewOptions) simulate(ctx context.Context, w adapter.Workload, objects []*unstructured.Unstructured, gates *features.Set, change apply.Change, format out.Format) error {
	s, err := fetch.Offline(w, objects, gates)
	if err != nil {
		return failure(o.f, "rollout preview", w.Object, err, "")
	}
	if len(s.Stored) == 0 && len(s.Pods) > 0 {
		o.f.Note("no controllerrevision of it is among the present objects: every pod counts as made from an unknown template")
	}
	if !s.Gates.Known {
		o.f.Note("the defaults of the feature gates are assumed; say others with --feature-gates")
	}
	res, err := apply.Patch(ctx, nil, w, apply.Options{DryRun: apply.DryRunClient}, change, func(adapter.Workload) error { return nil })
	if err != nil {
		return failure(o.f, "rollout preview", w.Object, err, "")
	}
	fc, err := forecast.Of(s, res.After, true, o.f.Clock.Now())
	if err != nil {
		return failure(o.f, "rollout preview", w.Object, err, savedWith(w.Kind))
	}
	return o.show(&preview{Forecast: fc, w: w, s: s}, format)
}

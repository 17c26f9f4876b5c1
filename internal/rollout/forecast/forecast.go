// SPDX-License-Identifier: Apache-2.0

// Package forecast says beforehand what a new template does to each Pod of a workload
// (cli.md 5.12). It decides nothing itself: revisions, comparison and plan come from the
// packages that the controller uses.
package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
)

// Verdict is what a change comes to, the worst over all Pods.
type Verdict string

// The verdicts, from harmless to refused.
const (
	NoChange     Verdict = "NoChange"
	MetadataOnly Verdict = "MetadataOnly"
	InPlace      Verdict = "InPlace"
	Recreate     Verdict = "Recreate"
	Refused      Verdict = "Refused"
)

// Words is the verdict as people read it.
func (v Verdict) Words() string {
	switch v {
	case NoChange:
		return "NO CHANGE"
	case MetadataOnly:
		return "METADATA ONLY"
	case InPlace:
		return "IN PLACE"
	case Recreate:
		return "RECREATE"
	}
	return "REFUSED"
}

// Change is one field of the template that differs.
type Change struct {
	// Path is the field as users write it, containers by name.
	Path string `json:"path"`
	// Op is add, remove or replace; for images old and new.
	Op string `json:"op"`
	// Effect says what the field does to a Pod.
	Effect string `json:"effect"`
}

// Row is one Pod, or for a DaemonSet also a node that has none.
type Row struct {
	// Pod is "" for a node without one.
	Pod      string `json:"pod"`
	Node     string `json:"node"`
	Revision string `json:"revision"`
	// Action is InPlace, Recreate, Keep, Blocked, Delete or Create; Way is how it would be
	// updated if it were not kept.
	Action string `json:"action"`
	Way    string `json:"way"`
	// Batch counts from 1; 0 for Pods that do not change.
	Batch int `json:"batch"`
	// Why is one sentence, HeldBy the rule behind it as the controllers name it, "" when
	// none holds the Pod; Fields are the fields that force recreation.
	Why    string           `json:"why"`
	HeldBy string           `json:"heldBy"`
	Fields []inplace.Reason `json:"fields"`
}

// Forecast is what a change does.
type Forecast struct {
	Verdict Verdict
	// Message is one sentence, Batches the pace; "" when nothing moves.
	Message, Batches string
	// Policy is the update policy after the change.
	Policy string
	// Update and Current are names of revisions; New: Update is not stored yet.
	Update, Current string
	New             bool
	Changes         []Change
	Pods            []Row
	// Counts of Pods by action, and the number of the last batch.
	InPlace, Recreated, Blocked, Kept, Deleted, Created, LastBatch int

	// policyText is "podUpdatePolicy is ReCreate".
	policyText string
}

// AllBatches groups the Pods that change by batch, in order; the rows of one batch are in the
// order of Pods.
func (f Forecast) AllBatches() [][]Row {
	batches := make([][]Row, f.LastBatch)
	for _, r := range f.Pods {
		if r.Batch > 0 {
			batches[r.Batch-1] = append(batches[r.Batch-1], r)
		}
	}
	return batches
}

// FromManifest is the change that brings a workload to what a manifest says. Parts of
// spec that the manifest leaves out stay as they are.
func FromManifest(u *unstructured.Unstructured) apply.Change {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	return func(w adapter.Workload) ([]apply.Op, error) {
		var ops []apply.Op
		for _, key := range slices.Sorted(maps.Keys(spec)) {
			ops = append(ops, apply.Set(w, adapter.Path{"spec", key}, spec[key])...)
		}
		return ops, nil
	}
}

// Of computes the forecast for the workload of s when it becomes after. localDefaults
// fills in what a server would have.
func Of(s diagnose.Snapshot, after adapter.Workload, localDefaults bool, now time.Time) (Forecast, error) {
	run, err := simulate(s, after, localDefaults, now)
	if err != nil {
		return Forecast{}, err
	}
	policy := after.Policy()
	if policy == "" {
		policy = after.DefaultPolicy
	}
	f := Forecast{
		Policy: policy, policyText: after.PolicyText(), Update: run.update.Name, New: run.isNew,
	}
	if run.current != nil {
		f.Current = run.current.Name
	}
	// What the template changes from; when it does not change, what the Pods change from.
	from, same := run.was, run.was.Name == run.update.Name
	if same && run.current != nil {
		from = run.current
	}
	cmp := inplace.Compare(from, run.update, run.options)
	old, err := revision.Template(from)
	if err != nil {
		return Forecast{}, fmt.Errorf("reading revision %s: %w", from.Name, err)
	}
	f.Changes = changes(old, run.template, cmp)
	f.rows(run.rows)
	f.judge(run, cmp, same)
	return f, nil
}

func (f *Forecast) rows(rows []Row) {
	f.Pods = make([]Row, 0, len(rows))
	for _, row := range rows {
		if row.Fields == nil {
			row.Fields = []inplace.Reason{}
		}
		if row.Why == "" && row.Action != inPlace || row.Action == blocked {
			row.Why = reasons(row.Fields)
		}
		if row.Why == "" && row.Way == recreate {
			row.Why = f.policyText
		}
		switch row.Action {
		case inPlace:
			f.InPlace++
		case recreate:
			f.Recreated++
		case blocked:
			f.Blocked++
		case keep:
			f.Kept++
		case remove:
			f.Deleted++
		case create:
			f.Created++
		}
		f.LastBatch = max(f.LastBatch, row.Batch)
		f.Pods = append(f.Pods, row)
	}
}

func reasons(list []inplace.Reason) string {
	var texts []string
	for _, r := range list {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, "; ")
}

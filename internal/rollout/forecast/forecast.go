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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/poddefaults"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
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

// Row is one Pod.
type Row struct {
	Pod      string `json:"pod"`
	Node     string `json:"node"`
	Revision string `json:"revision"`
	// Action is InPlace, Recreate, Keep, Blocked or Delete; Way is how it would be
	// updated if it were not kept.
	Action string `json:"action"`
	Way    string `json:"way"`
	// Batch counts from 1; 0 for Pods that do not change.
	Batch int `json:"batch"`
	// Why is one sentence; Fields are the fields that force recreation.
	Why    string           `json:"why"`
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
	InPlace, Recreated, Blocked, Kept, LastBatch int
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
	live, err := adapter.CloneSet(s.Workload.Live)
	if err != nil {
		return Forecast{}, err
	}
	next, err := adapter.CloneSet(after.Live)
	if err != nil {
		return Forecast{}, err
	}
	next.Status = live.Status
	v1beta1.SetDefaultsCloneSet(next, defaultsLike(live, localDefaults))
	was, err := revision.Find(revision.OfCloneSet(live), s.Stored)
	if err != nil {
		return Forecast{}, fmt.Errorf("computing the present revision: %w", err)
	}
	found, err := revision.Find(revision.OfCloneSet(next), s.Stored)
	if err != nil {
		return Forecast{}, fmt.Errorf("computing the new revision: %w", err)
	}
	snap := cloneset.Snapshot{
		Set: next, Pods: cloneset.Sorted(s.Pods), Inactive: s.Inactive,
		Revisions: withRevision(s.Stored, found.Update), Update: found.Update, Current: found.Current,
		Gates: s.Gates.Plan, InPlace: s.Gates.InPlace,
	}
	f := Forecast{
		Policy: string(cloneset.Policy(next)), Update: found.Update.Name, Current: found.Current.Name,
		New: found.Action == revision.ActionCreate,
	}
	// What the template changes from; when it does not change, what the Pods change from.
	from, same := was.Update, was.Update.Name == found.Update.Name
	if same {
		from = found.Current
	}
	cmp := inplace.Compare(from, found.Update, snap.EngineOptions())
	old, err := revision.Template(from)
	if err != nil {
		return Forecast{}, fmt.Errorf("reading revision %s: %w", from.Name, err)
	}
	f.Changes = changes(old, &next.Spec.Template, cmp)
	f.rows(snap, cloneset.Preview(snap, now))
	f.judge(next, cmp, same)
	return f, nil
}

// defaultsLike fills in template defaults only where the live template has them, too:
// elsewhere the server does not set them, and they would look like changes.
func defaultsLike(live *v1beta1.CloneSet, local bool) v1beta1.DefaultOptions {
	template := func(t *corev1.PodTemplateSpec) { poddefaults.Template(t, poddefaults.Options{}) }
	had := live.Spec.Template.DeepCopy()
	template(had)
	if !local || !adapter.SameTemplate(had, &live.Spec.Template) {
		return v1beta1.DefaultOptions{}
	}
	return v1beta1.DefaultOptions{Template: template}
}

func withRevision(stored []*appsv1.ControllerRevision, r *appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	list := slices.DeleteFunc(slices.Clone(stored), func(s *appsv1.ControllerRevision) bool { return s.Name == r.Name })
	return append(list, r)
}

func (f *Forecast) rows(snap cloneset.Snapshot, pods []cloneset.PodPreview) {
	f.Pods = make([]Row, 0, len(pods))
	for i, p := range pods {
		pod := snap.Pods[i]
		row := Row{
			Pod: p.Pod, Node: pod.Spec.NodeName, Revision: revision.ShortHash(pod.Labels[appsv1.ControllerRevisionHashLabelKey]),
			Action: string(p.Action), Way: string(p.Way), Batch: p.Batch, Fields: p.Reasons, Why: p.Held,
		}
		if row.Fields == nil {
			row.Fields = []inplace.Reason{}
		}
		if row.Why == "" && p.Action != cloneset.PodInPlace || p.Action == cloneset.PodBlocked {
			row.Why = reasons(p.Reasons)
		}
		if row.Why == "" && p.Way == cloneset.PodRecreate {
			row.Why = "podUpdatePolicy is " + f.Policy
		}
		switch p.Action {
		case cloneset.PodInPlace:
			f.InPlace++
		case cloneset.PodRecreate:
			f.Recreated++
		case cloneset.PodBlocked:
			f.Blocked++
		case cloneset.PodKeep:
			f.Kept++
		}
		f.LastBatch = max(f.LastBatch, p.Batch)
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

// ways counts how Pods that are not at the update revision get there, whether or not
// they may now.
func (f *Forecast) ways() map[string]int {
	n := map[string]int{}
	for _, r := range f.Pods {
		if r.Way != "" {
			n[r.Way]++
		}
	}
	return n
}

func (f *Forecast) judge(set *v1beta1.CloneSet, cmp inplace.Comparison, same bool) {
	n := f.ways()
	policy := cloneset.Policy(set)
	if len(f.Pods) == 0 && !same { // nothing to simulate: the fields alone decide
		switch {
		case cmp.InPlace != nil && policy != v1beta1.RecreatePodUpdatePolicyType:
			n[string(cloneset.PodInPlace)] = 1
		case policy == v1beta1.InPlaceOnlyPodUpdatePolicyType:
			n[string(cloneset.PodBlocked)] = 1
		default:
			n[string(cloneset.PodRecreate)] = 1
		}
	}
	first := f.firstReason(cmp)
	switch {
	case n[string(cloneset.PodBlocked)] > 0:
		f.Verdict = Refused
		f.Message = "podUpdatePolicy InPlaceOnly forbids recreation, and it is needed for " + f.firstPath(cmp)
	case n[string(cloneset.PodRecreate)] > 0:
		f.Verdict = Recreate
		f.Message = fmt.Sprintf("%s deleted and replaced: %s", areOf(n[string(cloneset.PodRecreate)]), first)
		if k := n[string(cloneset.PodInPlace)]; k > 0 {
			f.Message += fmt.Sprintf("; %s updated in place", areOf(k))
		}
	case n[string(cloneset.PodInPlace)] > 0:
		f.judgeInPlace(n[string(cloneset.PodInPlace)], cmp)
	default:
		f.Verdict, f.Message = NoChange, "every pod is at this template"
		if len(f.Pods) == 0 {
			f.Message = "there is no pod"
		}
		return
	}
	f.pace(set)
}

func (f *Forecast) judgeInPlace(pods int, cmp inplace.Comparison) {
	f.Verdict = InPlace
	var names []string
	if cmp.InPlace != nil {
		names = restarts(cmp.InPlace)
		if len(names)+len(cmp.InPlace.ContainerResources) == 0 {
			f.Verdict = MetadataOnly
			f.Message = keepsOf(pods) + " IP and volumes, no container restarts"
			return
		}
	}
	f.Message = keepsOf(pods) + " IP and volumes"
	switch len(names) {
	case 0:
	case 1:
		f.Message += ", 1 container restarts each: " + names[0]
	default:
		f.Message += fmt.Sprintf(", %d containers restart each: %s", len(names), strings.Join(names, ", "))
	}
}

// firstPath is the first field that forces recreation.
func (f *Forecast) firstPath(cmp inplace.Comparison) string {
	for _, r := range cmp.Recreate {
		if r.Path != "" {
			return r.Path
		}
	}
	return f.firstReason(cmp)
}

func (f *Forecast) firstReason(cmp inplace.Comparison) string {
	if len(cmp.Recreate) > 0 {
		return cmp.Recreate[0].String()
	}
	for _, r := range f.Pods {
		if len(r.Fields) > 0 {
			return r.Fields[0].String()
		}
	}
	return "podUpdatePolicy is " + f.Policy
}

// firstHeld is why the first kept Pod that is to be updated waits.
func (f *Forecast) firstHeld() string {
	for _, r := range f.Pods {
		if r.Way != "" && r.Why != "" {
			return r.Why
		}
	}
	return "nothing is to be updated"
}

// pace says how many Pods change at a time and what holds the rest.
func (f *Forecast) pace(set *v1beta1.CloneSet) {
	if f.Verdict == Refused {
		return
	}
	if cloneset.OnDelete(set) {
		f.Batches = "none: the update strategy is OnDelete, a pod changes when it is deleted"
		return
	}
	l := cloneset.LimitsOf(set)
	raw, part := "20%", "0"
	if ru := set.Spec.UpdateStrategy.RollingUpdate; ru != nil {
		if ru.MaxUnavailable != nil {
			raw = ru.MaxUnavailable.String()
		}
		if ru.Partition != nil {
			part = ru.Partition.String()
		}
	}
	f.Batches = fmt.Sprintf("%d, up to %d at a time (maxUnavailable %s), partition %s", f.LastBatch, max(1, l.MaxUnavailable), raw, part)
	if l.Partition > 0 {
		f.Batches += fmt.Sprintf(" keeps %d", l.Partition)
	}
	if f.LastBatch == 0 {
		f.Batches = "none now: " + f.firstHeld()
	}
	if cloneset.Paused(set) {
		f.Batches = "none: it is paused"
	}
}

func areOf(n int) string {
	if n == 1 {
		return "1 pod is"
	}
	return fmt.Sprintf("%d pods are", n)
}

func keepsOf(n int) string {
	if n == 1 {
		return "1 pod keeps"
	}
	return fmt.Sprintf("%d pods keep", n)
}

func restarts(u *inplace.UpdateSpec) []string {
	names := map[string]bool{}
	for n := range u.ContainerImages {
		names[n] = true
	}
	for n := range u.ContainerRefMetadata {
		names[n] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// changes lists what differs between the templates, each with what it does to a Pod.
func changes(was, now *corev1.PodTemplateSpec, cmp inplace.Comparison) []Change {
	list := []Change{}
	reads := map[string][]string{}
	if cmp.InPlace != nil {
		for name, ref := range cmp.InPlace.ContainerRefMetadata {
			for k := range ref.Labels {
				reads["labels/"+k] = append(reads["labels/"+k], name)
			}
			for k := range ref.Annotations {
				reads["annotations/"+k] = append(reads["annotations/"+k], name)
			}
		}
	}
	for _, c := range now.Spec.Containers {
		for _, o := range was.Spec.Containers {
			if o.Name == c.Name && o.Image != c.Image {
				list = append(list, Change{
					Path: "spec.template.spec.containers[" + c.Name + "].image", Op: o.Image + " -> " + c.Image,
					Effect: fmt.Sprintf("in place: container %q restarts", c.Name),
				})
			}
		}
	}
	list = append(list, metadata("labels", was.Labels, now.Labels, reads)...)
	list = append(list, metadata("annotations", was.Annotations, now.Annotations, reads)...)
	if cmp.InPlace != nil {
		for _, name := range slices.Sorted(maps.Keys(cmp.InPlace.ContainerResources)) {
			list = append(list, Change{Path: "spec.template.spec.containers[" + name + "].resources", Op: "replace", Effect: "in place: resized"})
		}
	}
	for _, r := range cmp.Recreate {
		if r.Code != inplace.MissingRevision {
			list = append(list, Change{Path: r.Path, Op: "", Effect: "recreate: " + r.Message})
		}
	}
	return list
}

func metadata(field string, was, now map[string]string, reads map[string][]string) []Change {
	var list []Change
	keys := map[string]bool{}
	for k := range was {
		keys[k] = true
	}
	for k := range now {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, had := was[k]
		b, has := now[k]
		op := "replace"
		switch {
		case had && has && a == b:
			continue
		case !had:
			op = "add"
		case !has:
			op = "remove"
		}
		effect := "in place: no restart"
		if names := reads[field+"/"+k]; len(names) > 0 {
			slices.Sort(names)
			effect = fmt.Sprintf("in place: %s restart, env reads it", strings.Join(names, ", "))
		}
		list = append(list, Change{Path: "spec.template.metadata." + field + "[" + k + "]", Op: op, Effect: effect})
	}
	return list
}

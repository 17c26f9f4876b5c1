// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/poddefaults"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// The actions of rows; the planners of all kinds use these words.
const (
	inPlace  = string(cloneset.PodInPlace)
	recreate = string(cloneset.PodRecreate)
	keep     = string(cloneset.PodKeep)
	blocked  = string(cloneset.PodBlocked)
	remove   = string(cloneset.PodDelete)
	create   = string(daemonset.PodCreate)
)

// run is what the planner of a kind says about a whole rollout.
type run struct {
	// was is the revision of the live template, update that of the new one, and isNew that
	// it is not stored; current is where old Pods are, nil when nobody knows.
	was, update, current *appsv1.ControllerRevision
	isNew                bool
	// template is the new one with its defaults.
	template *corev1.PodTemplateSpec
	options  inplace.Options
	rows     []Row

	manual, paused bool
	// atOnce Pods may change together because of limit, e.g. "maxUnavailable 20%"; keep
	// Pods stay back because of partition.
	atOnce, keep     int
	limit, partition string
}

// simulate asks the planner of the workload's kind.
func simulate(s diagnose.Snapshot, after adapter.Workload, local bool, now time.Time) (run, error) {
	switch s.Workload.Kind {
	case target.CloneSet:
		return cloneSetRun(s, after, local, now)
	case target.StatefulSet:
		return statefulSetRun(s, after, local, now)
	case target.DaemonSet:
		return daemonSetRun(s, after, now)
	}
	return run{}, fmt.Errorf("%s cannot be previewed", s.Workload.Kind.Word())
}

// value is a field of the object as text, absent when it is not there.
func value(w adapter.Workload, p adapter.Path, absent string) string {
	if v, ok := w.Value(p); ok && v != nil {
		return fmt.Sprint(v)
	}
	return absent
}

// defaultsLike fills in template defaults only where the live template has them, too:
// elsewhere the server does not set them, and they would look like changes.
func defaultsLike(live *corev1.PodTemplateSpec, local bool) v1beta1.DefaultOptions {
	template := func(t *corev1.PodTemplateSpec) { poddefaults.Template(t, poddefaults.Options{}) }
	had := live.DeepCopy()
	template(had)
	if !local || !adapter.SameTemplate(had, live) {
		return v1beta1.DefaultOptions{}
	}
	return v1beta1.DefaultOptions{Template: template}
}

func withRevision(stored []*appsv1.ControllerRevision, r *appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	list := slices.DeleteFunc(slices.Clone(stored), func(s *appsv1.ControllerRevision) bool { return s.Name == r.Name })
	return append(list, r)
}

// placed adds to a row what its Pod says.
func placed(row Row, pods map[string]*corev1.Pod) Row {
	if p := pods[row.Pod]; p != nil {
		row.Node = daemonset.TargetNode(p)
		row.Revision = revision.ShortHash(p.Labels[appsv1.ControllerRevisionHashLabelKey])
	}
	return row
}

func byName(lists ...[]*corev1.Pod) map[string]*corev1.Pod {
	m := map[string]*corev1.Pod{}
	for _, l := range lists {
		for _, p := range l {
			m[p.Name] = p
		}
	}
	return m
}

func revisionsOf(live, next revision.Owner, stored []*appsv1.ControllerRevision) (was, found revision.Found, err error) {
	if was, err = revision.Find(live, stored); err != nil {
		return was, found, fmt.Errorf("computing the present revision: %w", err)
	}
	if found, err = revision.Find(next, stored); err != nil {
		return was, found, fmt.Errorf("computing the new revision: %w", err)
	}
	return was, found, nil
}

func cloneSetRun(s diagnose.Snapshot, after adapter.Workload, local bool, now time.Time) (run, error) {
	live, err := adapter.CloneSet(s.Workload.Live)
	if err != nil {
		return run{}, err
	}
	next, err := adapter.CloneSet(after.Live)
	if err != nil {
		return run{}, err
	}
	next.Status = live.Status
	v1beta1.SetDefaultsCloneSet(next, defaultsLike(&live.Spec.Template, local))
	was, found, err := revisionsOf(revision.OfCloneSet(live), revision.OfCloneSet(next), s.Stored)
	if err != nil {
		return run{}, err
	}
	snap := cloneset.Snapshot{
		Set: next, Pods: cloneset.Sorted(s.Pods), Inactive: s.Inactive,
		Revisions: withRevision(s.Stored, found.Update), Update: found.Update, Current: found.Current,
		Gates: s.Gates.Plan, InPlace: s.Gates.InPlace,
	}
	limits := cloneset.LimitsOf(next)
	r := run{
		was: was.Update, update: found.Update, current: found.Current, isNew: found.Action == revision.ActionCreate,
		template: &next.Spec.Template, options: snap.EngineOptions(),
		manual: cloneset.OnDelete(next), paused: cloneset.Paused(next),
		atOnce: limits.MaxUnavailable, limit: "maxUnavailable " + value(after, after.At.MaxUnavailable, "20%"),
		keep: limits.Partition, partition: value(after, after.At.Partition, "0"),
	}
	pods := byName(s.Pods)
	for _, p := range cloneset.Preview(snap, now) {
		r.rows = append(r.rows, placed(Row{Pod: p.Pod, Action: string(p.Action), Way: string(p.Way), Batch: p.Batch,
			Why: p.Held, HeldBy: string(p.HeldBy), Fields: p.Reasons}, pods))
	}
	return r, nil
}

func statefulSetRun(s diagnose.Snapshot, after adapter.Workload, local bool, now time.Time) (run, error) {
	live, err := adapter.StatefulSet(s.Workload.Live)
	if err != nil {
		return run{}, err
	}
	next, err := adapter.StatefulSet(after.Live)
	if err != nil {
		return run{}, err
	}
	next.Status = live.Status
	defaults := defaultsLike(&live.Spec.Template, local)
	defaults.AutoDeletePVC, defaults.AutoResizePVC = s.Gates.StatefulSet.AutoDeletePVC, s.Gates.StatefulSet.AutoResizePVC
	v1beta1.SetDefaultsStatefulSet(next, defaults)
	was, found, err := revisionsOf(revision.OfStatefulSet(live), revision.OfStatefulSet(next), s.Stored)
	if err != nil {
		return run{}, err
	}
	snap := diagnose.StatefulSetSnapshot(s)
	snap.Set, snap.Update, snap.Current = next, found.Update, found.Current
	snap.Revisions = withRevision(s.Stored, found.Update)
	limits := statefulset.LimitsOf(next)
	r := run{
		was: was.Update, update: found.Update, current: found.Current, isNew: found.Action == revision.ActionCreate,
		template: &next.Spec.Template, options: snap.EngineOptions(),
		manual: statefulset.OnDelete(next), paused: statefulset.Paused(next),
		atOnce: limits.MaxUnavailable, limit: "maxUnavailable " + value(after, after.At.MaxUnavailable, "1"),
		keep: limits.Partition, partition: value(after, after.At.Partition, "0"),
	}
	pods := byName(s.Pods, s.Inactive)
	for _, p := range statefulset.Preview(snap, now) {
		row := placed(Row{Pod: p.Pod, Action: string(p.Action), Way: string(p.Way), Batch: p.Batch,
			Why: p.Held, HeldBy: string(p.HeldBy), Fields: p.Reasons}, pods)
		for _, c := range p.Expands {
			if row.Why != "" {
				row.Why += "; "
			}
			row.Why += "claim " + c + " grows"
		}
		r.rows = append(r.rows, row)
	}
	return r, nil
}

func daemonSetRun(s diagnose.Snapshot, after adapter.Workload, now time.Time) (run, error) {
	live, err := adapter.DaemonSet(s.Workload.Live)
	if err != nil {
		return run{}, err
	}
	next, err := adapter.DaemonSet(after.Live)
	if err != nil {
		return run{}, err
	}
	snap, known := diagnose.DaemonSetSnapshot(s)
	if !known {
		return run{}, fmt.Errorf("the nodes of the cluster cannot be read, and its pods depend on them")
	}
	next.Status = live.Status
	v1beta1.SetDefaultsDaemonSet(next, v1beta1.DefaultOptions{})
	was, err := revision.FindDaemonSet(live, s.Stored)
	if err != nil {
		return run{}, fmt.Errorf("computing the present revision: %w", err)
	}
	found, err := revision.FindDaemonSet(next, s.Stored)
	if err != nil {
		return run{}, fmt.Errorf("computing the new revision: %w", err)
	}
	snap.Set, snap.Update, snap.Revisions = next, found.Update, withRevision(s.Stored, found.Update)
	desired := 0
	eligible := daemonset.EligibilityOf(&next.Spec.Template)
	for _, n := range snap.Nodes {
		if should, _ := eligible.On(n); should {
			desired++
		}
	}
	limits := daemonset.LimitsOf(next, desired)
	r := run{
		was: was.Update, update: found.Update, isNew: found.Action == revision.ActionCreate,
		template: &next.Spec.Template, options: snap.EngineOptions(),
		manual: daemonset.OnDelete(next), paused: daemonset.Paused(next),
		atOnce: limits.MaxUnavailable, limit: "maxUnavailable " + value(after, after.At.MaxUnavailable, "1"),
		keep: min(limits.Partition, desired), partition: value(after, after.At.Partition, "0"),
	}
	if limits.MaxSurge > 0 {
		r.atOnce, r.limit = limits.MaxSurge, fmt.Sprintf("maxSurge %d", limits.MaxSurge)
	}
	pods := byName(s.Pods, s.Inactive)
	for _, p := range daemonset.Preview(snap, now) {
		row := placed(Row{Pod: p.Pod, Node: p.Node, Action: string(p.Action), Way: string(p.Way), Batch: p.Batch,
			Why: p.Held, HeldBy: string(p.HeldBy), Fields: p.Reasons}, pods)
		r.rows = append(r.rows, row)
		if r.current == nil && p.Way != "" {
			r.current = storedAs(s.Stored, row.Revision)
		}
	}
	return r, nil
}

// storedAs finds the revision that Pods with this hash are at.
func storedAs(list []*appsv1.ControllerRevision, hash string) *appsv1.ControllerRevision {
	for _, r := range list {
		if hash != "" && revision.SameRevision(hash, revision.DaemonSetHashOf(r)) {
			return r
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

func newPlan() Plan {
	return Plan{Known: true, Held: map[string]Hold{}, Missing: map[string]Hold{}}
}

// stored finds the revisions that the status names; current is update where it names none.
func stored(s Snapshot, updateName, currentName string) (update, current *appsv1.ControllerRevision) {
	for _, r := range s.Stored {
		if updateName != "" && revision.SameRevision(updateName, r.Name) {
			update = r
		}
		if currentName != "" && revision.SameRevision(currentName, r.Name) {
			current = r
		}
	}
	if current == nil {
		current = update
	}
	return update, current
}

func cloneSetPlan(s Snapshot, now time.Time) Plan {
	set, err := adapter.CloneSet(s.Workload.Live)
	if err != nil {
		return Plan{}
	}
	snap := cloneset.Snapshot{
		Set: set, Pods: cloneset.Sorted(s.Pods), Inactive: s.Inactive, Revisions: s.Stored,
		Gates: s.Gates.Plan, InPlace: s.Gates.InPlace,
	}
	if snap.Update, snap.Current = stored(s, set.Status.UpdateRevision, set.Status.CurrentRevision); snap.Update == nil {
		return Plan{}
	}
	p := cloneset.Decide(snap, now)
	plan := newPlan()
	plan.Create, plan.CreateLimit = p.Create.Total(), p.Limited
	for _, h := range p.Held {
		plan.Held[h.Pod] = Hold{Pod: h.Pod, Why: string(h.Why), Detail: h.Detail, Reasons: h.Reasons}
	}
	for _, b := range p.Blocked() {
		plan.Blocked = append(plan.Blocked, plan.Held[b.Pod])
	}
	for _, u := range p.Update {
		plan.Next = append(plan.Next, u.Pod)
	}
	return plan
}

// StatefulSetSnapshot is the planner's view of s, without the set and its revisions.
func StatefulSetSnapshot(s Snapshot) statefulset.Snapshot {
	return statefulset.Snapshot{
		Pods: all(s), Claims: s.Claims, Revisions: s.Stored, StorageClasses: s.StorageClasses,
		Gates: s.Gates.StatefulSet, InPlace: s.Gates.InPlace,
	}
}

func statefulSetPlan(s Snapshot, now time.Time) Plan {
	set, err := adapter.StatefulSet(s.Workload.Live)
	if err != nil {
		return Plan{}
	}
	snap := StatefulSetSnapshot(s)
	snap.Set = set
	if snap.Update, snap.Current = stored(s, set.Status.UpdateRevision, set.Status.CurrentRevision); snap.Update == nil {
		return Plan{}
	}
	p := statefulset.Decide(snap, now)
	plan := newPlan()
	plan.Create, plan.CreateLimit = len(p.Create), p.Limited
	hold := func(h statefulset.Step) Hold {
		return Hold{Pod: h.Pod, Why: string(h.Why), Detail: h.Detail, Reasons: h.Reasons}
	}
	alive := names(s)
	for _, h := range p.Held {
		if alive[h.Pod] {
			plan.Held[h.Pod] = hold(h)
		} else {
			plan.Missing[h.Pod] = hold(h)
		}
	}
	for _, c := range p.Create {
		plan.Making = append(plan.Making, Hold{Pod: c.Pod, Why: string(statefulset.ReasonMissing), Detail: c.Detail})
	}
	for _, b := range p.Blocked() {
		plan.Blocked = append(plan.Blocked, hold(b))
	}
	for _, u := range p.Update {
		plan.Next = append(plan.Next, u.Pod)
	}
	return plan
}

// DaemonSetSnapshot is the planner's view of s, without the set and its revision; false
// when the nodes are not known, without which nothing can be said.
func DaemonSetSnapshot(s Snapshot) (daemonset.Snapshot, bool) {
	snap := daemonset.Snapshot{Pods: all(s), Revisions: s.Stored, Gates: s.Gates.DaemonSet, InPlace: s.Gates.InPlace}
	for _, n := range s.Nodes {
		snap.Nodes = append(snap.Nodes, n)
	}
	slices.SortFunc(snap.Nodes, func(a, b *corev1.Node) int { return compare(a.Name, b.Name) })
	return snap, s.AllNodes
}

func daemonSetPlan(s Snapshot, now time.Time) Plan {
	set, err := adapter.DaemonSet(s.Workload.Live)
	if err != nil {
		return Plan{}
	}
	snap, known := DaemonSetSnapshot(s)
	snap.Set = set
	if snap.Update, _ = stored(s, s.Workload.UpdateRevision(), ""); snap.Update == nil || !known {
		return Plan{}
	}
	p := daemonset.Decide(snap, now)
	plan := newPlan()
	plan.Create = len(p.Create)
	for _, h := range p.Held {
		hold := Hold{Pod: h.Pod, Why: string(h.Why), Detail: h.Detail, Reasons: h.Reasons}
		if h.Pod != "" {
			plan.Held[h.Pod] = hold
		} else {
			plan.Missing[h.Node] = hold
		}
	}
	for _, c := range p.Create {
		if c.Why == daemonset.ReasonMissing {
			plan.Making = append(plan.Making, Hold{Pod: c.Node, Why: string(c.Why), Detail: c.Detail})
		}
	}
	for _, steps := range [][]daemonset.Step{p.Update, p.Delete} {
		for _, u := range steps {
			if u.Why == daemonset.ReasonOldRevision || u.Why == daemonset.ReasonUnavailable {
				plan.Next = append(plan.Next, u.Pod)
			}
		}
	}
	return plan
}

// all are the Pods of s in any state.
func all(s Snapshot) []*corev1.Pod { return slices.Concat(s.Pods, s.Inactive) }

func names(s Snapshot) map[string]bool {
	m := map[string]bool{}
	for _, p := range all(s) {
		m[p.Name] = true
	}
	return m
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Plan is what the controller would do next with the workload as it was read.
type Plan struct {
	// Known is false when the kind has no planner or the controller has not spoken yet.
	Known bool
	// Held are the Pods that have to wait, by name.
	Held map[string]Hold
	// Next are the Pods that the next step updates, in order.
	Next []string
	// Blocked are Pods that the policy forbids to update at all.
	Blocked []Hold
	// Create is how many Pods are made now, CreateLimit how many may be unavailable while
	// that goes on; nil when nothing limits it.
	Create      int
	CreateLimit *int
}

// Hold is one waiting Pod and the rule that makes it wait.
type Hold struct {
	Pod string
	// Why is the rule's stable name, Detail the sentence with the numbers.
	Why, Detail string
	// Reasons are the fields that forbid an in-place update.
	Reasons []inplace.Reason
}

// PlanOf asks the planner that the controller uses. It is pure.
func PlanOf(s Snapshot, now time.Time) Plan {
	snap, ok := CloneSetSnapshot(s)
	if !ok {
		return Plan{}
	}
	p := cloneset.Decide(snap, now)
	plan := Plan{Known: true, Held: map[string]Hold{}, Create: p.Create.Total(), CreateLimit: p.Limited}
	for _, h := range p.Held {
		hold := Hold{Pod: h.Pod, Why: string(h.Why), Detail: h.Detail, Reasons: h.Reasons}
		plan.Held[h.Pod] = hold
	}
	for _, b := range p.Blocked() {
		plan.Blocked = append(plan.Blocked, plan.Held[b.Pod])
	}
	for _, u := range p.Update {
		plan.Next = append(plan.Next, u.Pod)
	}
	return plan
}

// CloneSetSnapshot is the planner's view of a CloneSet; false when s is no CloneSet or
// its Pods or revisions are not known.
func CloneSetSnapshot(s Snapshot) (cloneset.Snapshot, bool) {
	if s.Workload.Kind != target.CloneSet || s.Pods == nil {
		return cloneset.Snapshot{}, false
	}
	set, err := adapter.CloneSet(s.Workload.Live)
	if err != nil {
		return cloneset.Snapshot{}, false
	}
	snap := cloneset.Snapshot{
		Set: set, Pods: cloneset.Sorted(s.Pods), Inactive: s.Inactive, Revisions: s.Stored,
		Gates: s.Gates.Plan, InPlace: s.Gates.InPlace,
	}
	for _, r := range s.Stored {
		if r.Name == set.Status.UpdateRevision {
			snap.Update = r
		}
		if r.Name == set.Status.CurrentRevision {
			snap.Current = r
		}
	}
	if snap.Current == nil {
		snap.Current = snap.Update
	}
	return snap, snap.Update != nil
}

// InPlaceSteps tells for each stored revision but the first whether a Pod gets there in
// place from the revision before it: "yes" or "no".
func InPlaceSteps(s Snapshot) map[string]string {
	steps := map[string]string{}
	var before *appsv1.ControllerRevision
	for _, r := range s.Stored {
		if before != nil {
			steps[r.Name] = "no"
			if inplace.Compare(before, r, s.Gates.InPlace).InPlace != nil {
				steps[r.Name] = "yes"
			}
		}
		before = r
	}
	return steps
}

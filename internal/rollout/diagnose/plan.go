// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Plan is what the controller would do next with the workload as it was read.
type Plan struct {
	// Known is false when the kind has no planner or the controller has not spoken yet.
	Known bool
	// Held are the Pods that have to wait, by name.
	Held map[string]Hold
	// Missing are Pods that do not exist and have to wait, by the name of the Pod or, for a
	// DaemonSet, of the node.
	Missing map[string]Hold
	// Making are Pods that the next step makes, named in the same way, in order.
	Making []Hold
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

// Planned returns s with its plan at now, for callers that ask about many Pods: the plan is
// not computed again for each of them. It is lost when s changes.
func Planned(s Snapshot, now time.Time) Snapshot {
	s.planned = nil
	p := PlanOf(s, now)
	s.planned, s.plannedAt = &p, now
	return s
}

// PlanOf asks the planner that the controller uses. It is pure.
func PlanOf(s Snapshot, now time.Time) Plan {
	if s.planned != nil && s.plannedAt.Equal(now) {
		return *s.planned
	}
	if s.Pods == nil {
		return Plan{}
	}
	switch s.Workload.Kind {
	case target.CloneSet:
		return cloneSetPlan(s, now)
	case target.StatefulSet:
		return statefulSetPlan(s, now)
	case target.DaemonSet:
		return daemonSetPlan(s, now)
	}
	return Plan{}
}

// EngineOptions are the options that the workload's controller compares revisions with.
func EngineOptions(s Snapshot) inplace.Options {
	switch s.Workload.Kind {
	case target.StatefulSet:
		if set, err := adapter.StatefulSet(s.Workload.Live); err == nil {
			snap := statefulset.Snapshot{Set: set, Gates: s.Gates.StatefulSet, InPlace: s.Gates.InPlace}
			return snap.EngineOptions()
		}
	case target.DaemonSet:
		if set, err := adapter.DaemonSet(s.Workload.Live); err == nil {
			snap := daemonset.Snapshot{Set: set, Gates: s.Gates.DaemonSet, InPlace: s.Gates.InPlace}
			return snap.EngineOptions()
		}
	}
	return s.Gates.InPlace
}

// InPlaceSteps tells for each stored revision but the first whether a Pod gets there in
// place from the revision before it: "yes" or "no".
func InPlaceSteps(s Snapshot) map[string]string {
	steps := map[string]string{}
	options := EngineOptions(s)
	var before *appsv1.ControllerRevision
	for _, r := range s.Stored {
		if before != nil {
			steps[r.Name] = "no"
			if inplace.Compare(before, r, options).InPlace != nil {
				steps[r.Name] = "yes"
			}
		}
		before = r
	}
	return steps
}

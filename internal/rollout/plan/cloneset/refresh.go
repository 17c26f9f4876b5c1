// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"strings"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// refresh lets every Pod's in-place update and lifecycle go on (cloneset.md 12.1, step
// 1), also while paused and under OnDelete: it is what lets new Pods become ready. It
// only finishes what was begun, so it may share a pass with scaling and updating: a Pod
// counts as it was observed, which is never more available than it will be.
func (d *decider) refresh() {
	takesBack := d.takesBack()
	for _, v := range d.views {
		if v.touched || d.settled(v) {
			continue
		}
		next := inplace.Next(v.pod, d.engine, d.now)
		d.plan.wish(next.After)
		complete := next.Action == inplace.Done || next.Action == inplace.Ready
		t, moves := lifecycle.OnRefresh(v.pod, d.s.Set.Spec.Lifecycle, lifecycle.Facts{Complete: complete, AtUpdateRevision: v.updated && !takesBack})
		step := Step{Pod: v.pod.Name, Do: Refresh, Why: ReasonRefresh, Detail: string(next.Action)}
		if moves {
			step.Transition, step.Why, step.Detail = t, ReasonLifecycle, t.String()
		}
		switch {
		case next.Action == inplace.Ready && !moves && d.awaitsNode(v):
			// The condition can wait for the node and go in one write with state Normal:
			// the Pod cannot run before that anyway.
			continue
		case moves && !complete:
			step.Do = Move
		case moves, next.Action != inplace.Done && next.Action != inplace.Wait:
		case v.pod.Labels[v1beta1.PodTemplateHashLabel] == "" && v.pod.Labels["controller-revision-hash"] != "":
			step.Why, step.Detail = ReasonTemplateHash, "label pod-template-hash is missing"
		default:
			continue
		}
		v.touched = true
		d.plan.Refresh = append(d.plan.Refresh, step)
	}
}

// takesBack tells whether updated Pods go back to the current revision. One that is
// PreparingUpdate then is on its way, and not at the end of a rollback; see letGo for those
// that are not chosen.
func (d *decider) takesBack() bool {
	if !d.situation.PartitionRollback || d.situation.SameRevision || OnDelete(d.s.Set) || Paused(d.s.Set) {
		return false
	}
	return Compute(d.situation, d.facts(func(v *view) bool { return v.updated })).UpdateNum < 0
}

// settled: nothing is to be refreshed; most Pods are, most of the time.
func (d *decider) settled(v *view) bool {
	return v.state == v1beta1.LifecycleNormal && inplace.Settled(v.pod) && v.pod.Labels[v1beta1.PodTemplateHashLabel] != ""
}

// awaitsNode: a new Pod that becomes Normal as soon as it is scheduled.
func (d *decider) awaitsNode(v *view) bool {
	lc := d.s.Set.Spec.Lifecycle
	return v.state == v1beta1.LifecyclePreparingNormal && v.pod.Spec.NodeName == "" && (lc == nil || lc.PreNormal == nil)
}

// reasonsText joins reasons into one sentence.
func reasonsText(reasons []inplace.Reason) string {
	var texts []string
	for _, r := range reasons {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, "; ")
}

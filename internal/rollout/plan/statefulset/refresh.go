// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// keep returns Pods from PreparingDelete that are wanted again: scaled in and out before
// their hook let go, or outdated no more. OpenKruise leaves them unhealthy for ever.
func (d *decider) keep() {
	for _, v := range d.slots {
		if v.pod == nil || v.terminating || v.state != v1beta1.LifecyclePreparingDelete || d.wantsDeletion(v) {
			continue
		}
		d.add(&d.plan.Refresh, v, Step{
			Do: Move, Why: ReasonWanted, Detail: "the Pod is wanted again",
			Transition: lifecycle.Transition{
				Rule: "T11", From: v1beta1.LifecyclePreparingDelete, To: v1beta1.LifecyclePreparingNormal,
				// Unlike a CloneSet, which makes another Pod instead, this one must come back
				// also when hooks mark Pods not ready: nobody else has its name.
				Release: []podready.Holder{podready.PreDeleteHook, podready.PreUpdateHook},
			},
		})
	}
}

// refresh lets every Pod's in-place update and lifecycle go on (statefulset.md 8), also
// while paused, under OnDelete and behind Pods that are not available: it only finishes
// what was begun, so it may share a pass with the rest. A Pod counts as it was observed,
// which is never more available than it will be.
func (d *decider) refresh() {
	for _, v := range d.pods {
		if v.touched || v.terminating || v.terminal {
			continue
		}
		next := v.next
		if next == nil {
			if v.state == v1beta1.LifecycleNormal {
				continue // the most frequent case
			}
			next = &inplace.Step{Action: inplace.Done}
		}
		d.plan.wish(next.After)
		facts := lifecycle.Facts{Complete: v.complete, AtUpdateRevision: v.updated}
		if v.state == v1beta1.LifecyclePreparingUpdate {
			// An update that is not wanted any more lets the Pod go, like one that is done.
			facts.AtUpdateRevision = v.updated || !d.wantsUpdate(v)
		}
		t, moves := lifecycle.OnRefresh(v.pod, d.s.Set.Spec.Lifecycle, facts)
		step := Step{Do: Refresh, Why: ReasonRefresh, Detail: string(next.Action)}
		if moves {
			step.Transition, step.Why, step.Detail = t, ReasonLifecycle, t.String()
		}
		switch {
		case moves && !v.complete:
			step.Do = Move
		case moves, next.Action != inplace.Done && next.Action != inplace.Wait:
		default:
			continue
		}
		d.add(&d.plan.Refresh, v, step)
	}
}

// repair labels Pods that lack their name; those are adopted ones.
func (d *decider) repair() {
	for _, v := range d.pods {
		if !v.touched && !v.terminating && !v.terminal && v.pod.Labels[appsv1.StatefulSetPodNameLabel] != v.name {
			d.add(&d.plan.Refresh, v, Step{Do: Repair, Why: ReasonIdentity, Detail: "label " + appsv1.StatefulSetPodNameLabel + " is not the Pod's name"})
		}
	}
}

// reasonsText joins reasons into one sentence.
func reasonsText(reasons []inplace.Reason) string {
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = r.String()
	}
	return strings.Join(texts, "; ")
}

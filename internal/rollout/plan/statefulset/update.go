// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"slices"

	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// update is the update pass of statefulset.md 7.9 to 7.11.
func (d *decider) update() {
	if d.onDelete || d.paused {
		return
	}
	if d.specified() {
		return
	}
	for _, v := range d.inOrder() {
		if v.terminating || v.terminal || !d.hasWork(v) {
			continue
		}
		switch {
		case v.held, v.leaving:
		case v.touched:
			d.hold(v, HeldRefreshing, "its lifecycle or in-place state is written first")
		case !v.inUnavailable() && d.unavailable >= d.limits.MaxUnavailable:
			d.holdBudget(v)
		default:
			d.advance(v)
		}
		if !d.parallel && (v.touched || v.held) {
			d.stopAt("Pod %s comes first", v.name)
			return // the ones below wait for it
		}
	}
}

// inOrder are the candidates in the order in which they get what budget there is. With
// Parallel those that do not serve come first: they cost nothing, and a set whose first
// Pods are broken could never be repaired otherwise.
func (d *decider) inOrder() []*view {
	if !d.parallel {
		return d.order
	}
	sorted := slices.Clone(d.order)
	slices.SortStableFunc(sorted, func(a, b *view) int {
		switch {
		case a.inUnavailable() == b.inUnavailable():
			return 0
		case a.inUnavailable():
			return -1
		}
		return 1
	})
	return sorted
}

// hasWork tells whether a candidate or its claims are not as the spec wants them.
func (d *decider) hasWork(v *view) bool {
	return v.due() || v.restart || len(v.growing) > 0 || v.forbidden != nil
}

// specified deletes marked Pods, highest first, as far as maxUnavailable allows
// (statefulset.md 7.10). It reports whether the pass ends here.
func (d *decider) specified() (ends bool) {
	for _, v := range slices.Backward(d.slots) {
		if v.pod == nil || !v.specified || v.terminating || v.touched || v.held {
			continue
		}
		if !v.down && d.down >= d.limits.MaxUnavailable || !v.inUnavailable() && d.unavailable >= d.limits.MaxUnavailable {
			d.holdBudget(v)
			continue
		}
		d.remove(&d.plan.Update, v, d.deletion(v))
		if !d.parallel {
			d.stopAt("Pod %s is deleted first", v.name)
			return true
		}
	}
	return false
}

// holdBudget holds a Pod that would exceed maxUnavailable.
func (d *decider) holdBudget(v *view) {
	text := fmt.Sprintf("maxUnavailable is %d of %d Pods, and %d are unavailable or being updated", d.limits.MaxUnavailable, d.limits.Replicas, d.down)
	if n := d.unavailable - d.down; n > 0 {
		text += fmt.Sprintf(", and %d have a claim that is being expanded", n)
	}
	if d.missing > 0 {
		text += fmt.Sprintf(" (%d of them do not exist)", d.missing)
	}
	d.hold(v, HeldMaxUnavailable, "%s", text)
}

// advance takes one candidate, whose turn it is, a step on: its claims first, then the
// Pod. What it may not do yet is in Held.
func (d *decider) advance(v *view) {
	if !d.expandClaims(v) || !v.due() && !v.restart {
		return
	}
	if !v.down && d.down >= d.limits.MaxUnavailable {
		// It is among the unavailable ones for its claims only, and serves.
		d.holdBudget(v)
		return
	}
	if !v.due() {
		d.remove(&d.plan.Update, v, d.deletion(v))
		return
	}
	switch w := d.wayOf(v); {
	case w.inPlace != nil:
		d.inPlace(v, w)
	case w.blocked:
		d.holdStep(v, Step{
			Why: HeldInPlaceOnly, Reasons: w.reasons,
			Detail: fmt.Sprintf("Pod %s cannot be updated in place, and podUpdatePolicy is InPlaceOnly: %s", v.name, reasonsText(w.reasons)),
		})
	default:
		d.remove(&d.plan.Update, v, d.deletion(v))
	}
}

// inPlace is the table of statefulset.md 7.11.
func (d *decider) inPlace(v *view, w way) {
	step := Step{Why: ReasonOldRevision, Target: d.s.Update.Name}
	switch decision := lifecycle.OnUpdate(v.pod, d.s.Set.Spec.Lifecycle); decision.Verdict {
	case lifecycle.Go:
		step.Do, step.Spec, step.Transition = UpdateInPlace, w.inPlace, lifecycle.Updating(v.pod)
	case lifecycle.Patch:
		step.Do, step.Transition = Move, decision.Transition
	case lifecycle.Wait:
		d.hold(v, HeldUpdateHook, "%s", decision.Message)
		return
	default:
		d.hold(v, HeldRefreshing, "%s", decision.Message)
		return
	}
	d.setDown(v)
	d.add(&d.plan.Update, v, step)
}

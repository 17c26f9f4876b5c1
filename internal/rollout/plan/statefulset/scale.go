// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"slices"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// scaleOrdered is the scale pass of OrderedReady (statefulset.md 7.7 and 7.8): one Pod at
// a time, and each waits for those below it. It stops the pass unless every Pod in range
// is available and none is out of range.
func (d *decider) scaleOrdered() {
	for _, v := range d.slots {
		switch {
		case v.pod == nil:
			if d.create(v); v.touched {
				d.stopAt("Pod %s is created first", v.name)
			} else {
				d.stopAt("Pod %s cannot be created yet", v.name)
			}
			return
		case v.terminating:
			d.stopAt("Pod %s is being deleted", v.name)
			return
		case v.terminal:
			d.remove(&d.plan.Scale, v, d.deletion(v))
			d.stopAt("Pod %s has ended and is replaced first", v.name)
			return
		case !v.available:
			d.progress()
			d.stopAt("%s", d.notAvailable(v))
			return
		}
	}
	if len(d.condemned) > 0 {
		d.condemnOrdered()
	}
}

// notAvailable says of a Pod in one sentence why others must wait for it.
func (d *decider) notAvailable(v *view) string {
	switch {
	case v.availableIn > 0:
		return fmt.Sprintf("Pod %s is ready, but not yet for minReadySeconds %d", v.name, MinReadySeconds(d.s.Set))
	case v.ready:
		return fmt.Sprintf("Pod %s is in state %s", v.name, v.state)
	}
	return fmt.Sprintf("Pod %s is not ready", v.name)
}

// progress takes one Pod that waited for a hook one step on, although Pods below are not
// available: it is not available itself, and OpenKruise lets it wait for ever.
func (d *decider) progress() {
	for _, v := range d.slots {
		if v.pod == nil || v.terminating || v.terminal || v.touched {
			continue
		}
		switch v.state {
		case v1beta1.LifecyclePreparingDelete: // keep has returned those that are not wanted gone
			if d.paused {
				continue
			}
			d.remove(&d.plan.Update, v, d.deletion(v))
		case v1beta1.LifecyclePreparingUpdate, v1beta1.LifecycleUpdated:
			if !d.paused && d.wantsUpdate(v) {
				d.advance(v)
			}
		}
		if v.touched {
			return
		}
	}
	for _, v := range slices.Backward(d.condemned) {
		if v.state == v1beta1.LifecyclePreparingDelete && !v.terminating {
			d.condemn(v)
			return
		}
	}
}

// condemnOrdered removes the highest Pod out of range. It must be available, or the lowest
// of all that are not: a set is not taken down while it is unwell. Pods that have ended
// never get well, so nothing waits for them, nor do they wait.
func (d *decider) condemnOrdered() {
	v := d.condemned[len(d.condemned)-1]
	var first *view // the lowest unhealthy one; all Pods in range are healthy here
	for _, c := range slices.Backward(d.condemned) {
		if !c.healthy() && !c.terminal {
			first = c
		}
	}
	switch {
	case v.terminating:
		d.stopAt("Pod %s is being deleted", v.name)
		return
	case v.state == v1beta1.LifecyclePreparingDelete, v.terminal, v == first, v.available:
		d.condemn(v)
	case v.availableIn > 0:
		d.hold(v, HeldMinReady, "the Pod is ready, but not yet for minReadySeconds %d", MinReadySeconds(d.s.Set))
	case first != nil:
		d.hold(v, HeldUnavailable, "the Pod is not available and neither is %s below it: OrderedReady removes no Pod of a set that is unwell", first.name)
	}
	d.stopAt("Pod %s is removed first", v.name)
}

// scaleParallel is the scale pass of Parallel: nothing waits for health, but creation for
// scaleStrategy.maxUnavailable. Each Pod is charged once.
func (d *decider) scaleParallel() {
	left := -1
	if d.limits.ScaleMaxUnavailable != nil {
		left = *d.limits.ScaleMaxUnavailable
	}
	for i, v := range d.slots {
		if left == 0 {
			d.scaleLimited(d.slots[i:])
			break
		}
		switch {
		case v.pod == nil:
			if d.create(v); !v.touched {
				continue // held by a claim: nothing is charged
			}
		case v.terminal && !v.terminating:
			d.remove(&d.plan.Scale, v, d.deletion(v))
		case v.available && !v.terminating:
			continue
		}
		left--
	}
	for _, v := range slices.Backward(d.condemned) {
		if !v.terminating {
			d.condemn(v)
		}
	}
}

// scaleLimited notes what the limit holds back.
func (d *decider) scaleLimited(rest []*view) {
	for _, v := range rest {
		if v.pod == nil || v.terminal && !v.terminating {
			d.plan.Limited = d.limits.ScaleMaxUnavailable
			d.hold(v, HeldScaleLimit, "scaleStrategy.maxUnavailable is %d, and so many Pods below are not available", *d.limits.ScaleMaxUnavailable)
		}
	}
}

// condemn removes a Pod that is out of range.
func (d *decider) condemn(v *view) {
	if v.owning {
		d.hold(v, HeldClaimOwners, "owners of its claims are written before the Pod is deleted")
		return
	}
	d.remove(&d.plan.Scale, v, Step{Why: ReasonCondemned, Detail: fmt.Sprintf("%d Pods are wanted, at ordinals %s", d.limits.Replicas, d.ordinals)})
}

// remove deletes a Pod, or begins to, as far as its preDelete hook lets go.
func (d *decider) remove(list *[]Step, v *view, s Step) {
	switch decision := lifecycle.OnDelete(v.pod, d.s.Set.Spec.Lifecycle); decision.Verdict {
	case lifecycle.Go:
		s.Do = Delete
	case lifecycle.Patch:
		s.Do, s.Transition = Move, decision.Transition
	default:
		d.hold(v, HeldDeleteHook, "%s", decision.Message)
		return
	}
	v.leaving = true
	d.setDown(v)
	d.add(list, v, s)
}

// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/updatesort"
)

// scale is the scale pass of cloneset.md 10.2. It stops after the first of its steps that
// changes something.
func (d *decider) scale() {
	var leaving int // specified or PreparingDelete
	for _, v := range d.views {
		if v.specified || v.preparingDelete() {
			leaving++
		}
	}
	if d.takeBack(leaving); d.plan.scales() {
		return
	}
	n := Compute(d.situation, d.facts(func(v *view) bool { return v.isNew }))
	d.plan.Numbers = n
	if n.ScaleUp > 0 {
		if d.create(n); !d.plan.scales() {
			// A Pod in PreparingDelete may be what uses up scaleStrategy.maxUnavailable;
			// OpenKruise waits for ever when such Pods do not count as replicas.
			d.removeReleased()
		}
		return
	}
	if d.removeReleased(); d.plan.scales() {
		return
	}
	d.roomy = n.UpdateMaxUnavailable >= d.unavailable()
	budget := min(n.DeleteReadyLimit, n.UpdateMaxUnavailable-d.unavailable())
	for _, v := range d.views {
		if v.specified && !v.preparingDelete() {
			d.removeWithin(v, ReasonSpecified, &budget)
		}
	}
	if d.plan.scales() || n.ScaleDown == 0 || leaving > 0 {
		return // planned deletions are finished before others are chosen
	}
	for _, v := range d.victims(n) {
		d.removeWithin(v, ReasonSurplus, &budget)
	}
}

// removeReleased deletes Pods in PreparingDelete whose hook has let go.
func (d *decider) removeReleased() {
	for _, v := range d.views {
		if v.preparingDelete() {
			d.remove(v, ReasonHookReleased)
		}
	}
}

// takeBack returns Pods from PreparingDelete that are wanted again.
func (d *decider) takeBack(leaving int) {
	wanted := d.situation.Replicas - len(d.views) + leaving
	for _, v := range d.views {
		if wanted <= 0 {
			return
		}
		if !v.preparingDelete() || v.specified {
			continue
		}
		t, ok := lifecycle.OnKeep(v.pod, d.s.Set.Spec.Lifecycle)
		if !ok {
			continue
		}
		d.scaleStep(v, Step{Do: Move, Why: ReasonScaleInReverted, Transition: t, Detail: "the Pod is wanted again"})
		wanted--
	}
}

func (d *decider) scaleStep(v *view, s Step) {
	s.Pod, v.touched = v.pod.Name, true
	d.plan.Scale = append(d.plan.Scale, s)
}

// create decides how many Pods to make, and with which ids. Names that are held by Pods
// in a terminal phase are freed first; names of terminating Pods are waited for, because
// other ids would leave their claims behind.
func (d *decider) create(n Numbers) {
	if n.ScaleUp > n.ScaleUpLimit {
		d.plan.Limited = d.situation.ScaleMaxUnavailable
	}
	free, taken := d.freeIDs()
	total := n.ScaleUpLimit
	if fresh := total - len(free); fresh > 0 {
		waiting := min(fresh, len(taken))
		for _, p := range taken[:waiting] {
			v := &view{pod: p}
			if p.DeletionTimestamp != nil {
				d.hold(v, ReasonNameTaken, "its name and claims are used again once it is gone")
				continue
			}
			d.scaleStep(v, Step{Do: Delete, Why: ReasonNameTaken, Detail: "phase " + string(p.Status.Phase) + ", and its name and claims are to be used again"})
		}
		total -= waiting
	}
	if total <= 0 {
		return
	}
	current := min(n.ScaleUpOld, total)
	d.plan.Create = Creation{Current: current, Update: total - current, IDs: free[:min(len(free), total)]}
}

// remove deletes a Pod, or begins to, as far as its preDelete hook lets go.
func (d *decider) remove(v *view, why Reason) {
	switch decision := lifecycle.OnDelete(v.pod, d.s.Set.Spec.Lifecycle); decision.Verdict {
	case lifecycle.Go:
		d.scaleStep(v, Step{Do: Delete, Why: why, Free: d.free(v)})
	case lifecycle.Patch:
		d.scaleStep(v, Step{Do: Move, Why: why, Transition: decision.Transition, Free: d.free(v)})
	default:
		d.hold(v, HeldDeleteHook, "%s", decision.Message)
	}
}

// free tells whether a step on v is right only while v is unavailable: too few Pods serve
// already, so that v must not be taken away if it has begun to.
func (d *decider) free(v *view) bool { return !v.available && !d.roomy }

// unavailable counts the Pods that do not serve now. The arithmetic leaves out those that
// are specified to be deleted; deleting available ones beside them would exceed the limit.
func (d *decider) unavailable() (n int) {
	for _, v := range d.views {
		if !v.available {
			n++
		}
	}
	return n
}

// removeWithin removes a Pod if that costs no availability or budget is left. Pods that
// are ready but not yet available cost nothing: OpenKruise lets a scale-in hang until
// minReadySeconds are over.
func (d *decider) removeWithin(v *view, why Reason, budget *int) {
	if v.available {
		if *budget <= 0 {
			d.hold(v, HeldDeleteBudget, "%d Pods are unavailable and maxUnavailable is %d: deleting this available Pod must wait",
				d.unavailable(), d.situation.MaxUnavailable)
			return
		}
		*budget--
	}
	d.remove(v, why)
}

// victims chooses the surplus: first from the old Pods, then from the new ones.
func (d *decider) victims(n Numbers) []*view {
	views := make(map[*corev1.Pod]*view, len(d.views))
	var old, updated []*corev1.Pod
	for _, v := range d.views {
		views[v.pod] = v
		if v.isNew {
			updated = append(updated, v.pod)
		} else {
			old = append(old, v.pod)
		}
	}
	order := updatesort.Deletion{
		Among:       d.s.Pods,
		Available:   func(p *corev1.Pod) bool { return views[p].available },
		Constraints: d.s.Set.Spec.Template.Spec.TopologySpreadConstraints,
		NodeLabels:  d.s.NodeLabels,
	}
	fromOld := min(n.ScaleDownOld, n.ScaleDown, len(old))
	fromNew := min(n.ScaleDown-fromOld, len(updated))
	chosen := append(updatesort.ForDeletion(old, order)[:fromOld:fromOld], updatesort.ForDeletion(updated, order)[:fromNew]...)
	out := make([]*view, len(chosen))
	for i, p := range chosen {
		out[i] = views[p]
	}
	return out
}

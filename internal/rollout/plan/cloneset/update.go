// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/updatesort"
)

// update is the update pass of cloneset.md 12.1, steps 2 to 7.
func (d *decider) update() {
	switch {
	case OnDelete(d.s.Set):
		for _, v := range d.views {
			d.letGo(v)
		}
		d.holdOld(HeldOnDelete, "the update strategy is OnDelete: delete the Pod to update it")
		return
	case Paused(d.s.Set):
		d.holdOld(HeldPaused, "spec.updateStrategy.rollingUpdate.paused is true")
		return
	}
	n := Compute(d.situation, d.facts(func(v *view) bool { return v.updated }))
	d.plan.Numbers = n
	target, back := d.s.Update, n.UpdateNum < 0
	if back {
		target = d.s.Current
	}
	var candidates []*view
	for _, v := range d.views {
		if v.updated == back {
			candidates = d.candidate(candidates, v)
		} else if back {
			d.letGo(v)
		}
	}
	d.walk(d.ordered(candidates), target, n)
}

// candidate adds v unless its state rules it out for now.
func (d *decider) candidate(list []*view, v *view) []*view {
	if v.preparingDelete() {
		d.hold(v, HeldPreparingDelete, "the Pod is in state PreparingDelete")
		return list
	}
	if grace, err := inplace.GraceOf(v.pod); (grace != nil || err != nil) && v.state != v1beta1.LifecycleUpdated {
		d.hold(v, HeldGrace, "an in-place update to %s is in its grace period", graceRevision(grace))
		return list
	}
	return append(list, v)
}

func graceRevision(grace *inplace.UpdateSpec) string {
	if grace == nil {
		return "an unknown revision"
	}
	return grace.Revision
}

func (d *decider) ordered(candidates []*view) []*view {
	views := make(map[*corev1.Pod]*view, len(candidates))
	pods, all := make([]*corev1.Pod, len(candidates)), d.s.Pods
	for i, v := range candidates {
		pods[i], views[v.pod] = v.pod, v
	}
	sorted := updatesort.ForUpdate(pods, all, rolling(d.s.Set))
	out := make([]*view, len(sorted))
	for i, p := range sorted {
		out[i] = views[p]
	}
	return out
}

// walk takes candidates in order, as far as the numbers allow, and holds the rest.
func (d *decider) walk(candidates []*view, target *appsv1.ControllerRevision, n Numbers) {
	limit := n.UpdateMaxUnavailable
	unavailable, atTarget := 0, 0
	for _, v := range d.views {
		if !v.available {
			unavailable++
			if v.at(target) {
				atTarget++
			}
		}
	}
	d.roomy = limit >= unavailable
	chosen := 0
	d.plan.Held = slices.Grow(d.plan.Held, len(candidates))
	for i, v := range candidates {
		if i >= abs(n.UpdateNum) {
			d.letGo(v)
			d.holdQuota(v, n)
			continue
		}
		// Missing Pods make the limit negative. An unavailable Pod may move even then:
		// otherwise a bad template could never be repaired while creation is limited too.
		bound := limit
		if !v.available {
			bound = max(limit, 1)
		}
		if atTarget+chosen >= bound || v.available && unavailable >= limit {
			d.holdBudget(v, unavailable, limit)
			continue
		}
		if !d.step(v, target) {
			continue
		}
		chosen++
		if v.available {
			unavailable++
		}
	}
}

// letGo takes a Pod out of PreparingUpdate that is not to be updated any more: the
// partition was raised, the strategy became OnDelete, or a lost Pod was replaced at the
// update revision meanwhile. OpenKruise leaves it unavailable for good. The way out is that
// of a rollback, through Updated, so that the hook's owner takes the Pod back.
func (d *decider) letGo(v *view) {
	if v.touched || v.state != v1beta1.LifecyclePreparingUpdate {
		return
	}
	t, ok := lifecycle.OnRefresh(v.pod, d.s.Set.Spec.Lifecycle, lifecycle.Facts{Complete: inplace.Complete(v.pod, d.engine), AtUpdateRevision: true})
	if !ok {
		return
	}
	v.touched = true
	d.plan.Refresh = append(d.plan.Refresh, Step{Pod: v.pod.Name, Do: Move, Why: ReasonUpdateReverted, Transition: t, Detail: "the Pod is not to be updated any more"})
}

// holdQuota holds a Pod that the partition keeps at its revision. When surplus updated Pods
// are taken back, one that stays is where it is wanted.
func (d *decider) holdQuota(v *view, n Numbers) {
	if n.UpdateNum >= 0 {
		d.hold(v, HeldPartition, d.shared(sentence{why: HeldPartition}, d.quotaText))
	}
}

func (d *decider) quotaText() string {
	if d.s.Current.Name == d.s.Update.Name || d.situation.Partition > 0 {
		return fmt.Sprintf("partition keeps %d of %d Pods at revision %s", d.situation.Partition, d.situation.Replicas, d.s.Current.Name)
	}
	return fmt.Sprintf("%d Pods are at the update revision, which is all that are wanted", d.situation.Replicas)
}

func (d *decider) holdBudget(v *view, unavailable, limit int) {
	d.hold(v, HeldMaxUnavailable, d.shared(sentence{HeldMaxUnavailable, unavailable, limit}, func() string {
		if missing := d.situation.Replicas - len(d.views); missing > 0 && limit <= unavailable {
			return fmt.Sprintf("%d of %d Pods are missing and %d are unavailable, and maxUnavailable is %d",
				missing, d.situation.Replicas, unavailable, d.situation.MaxUnavailable)
		}
		return fmt.Sprintf("%d Pods are unavailable or being updated, and %d may be (maxUnavailable %d of %d replicas, %d Pods exist)",
			unavailable, limit, d.situation.MaxUnavailable, d.situation.Replicas, len(d.views))
	}))
}

// step decides how one chosen Pod is updated (cloneset.md 12.3). It reports whether the
// Pod takes up a place of this round.
func (d *decider) step(v *view, target *appsv1.ControllerRevision) bool {
	switch {
	case v.specified:
		d.hold(v, HeldMarked, "the Pod is marked for deletion; its replacement is made at the revision that is missing")
		return true
	case v.touched:
		d.hold(v, HeldRefreshing, "its lifecycle or in-place state is written first")
		return true
	}
	policy := Policy(d.s.Set)
	step := Step{Pod: v.pod.Name, Why: ReasonOldRevision, Target: target.Name}
	if policy == v1beta1.RecreatePodUpdatePolicyType {
		step.Do, step.Detail = Mark, "podUpdatePolicy is ReCreate"
		d.updateStep(v, step)
		return true
	}
	c := d.compare(v, target.Name)
	if c.InPlace != nil {
		return d.inPlace(v, step, c.InPlace)
	}
	step.Reasons = c.Recreate
	if policy == v1beta1.InPlaceOnlyPodUpdatePolicyType {
		step.Why = HeldInPlaceOnly
		step.Detail = fmt.Sprintf("find Pod %s update strategy is InPlaceOnly but can not update in-place: %s", v.pod.Name, reasonsText(c.Recreate))
		d.plan.Held = append(d.plan.Held, step)
		return false
	}
	step.Do, step.Detail = Mark, "it cannot be updated in place: "+reasonsText(c.Recreate)
	d.updateStep(v, step)
	return true
}

func (d *decider) inPlace(v *view, step Step, spec *inplace.UpdateSpec) bool {
	switch decision := lifecycle.OnUpdate(v.pod, d.s.Set.Spec.Lifecycle); decision.Verdict {
	case lifecycle.Go:
		step.Do, step.Spec, step.Transition = UpdateInPlace, spec, lifecycle.Updating(v.pod)
	case lifecycle.Patch:
		step.Do, step.Transition = Move, decision.Transition
	case lifecycle.Wait:
		d.hold(v, HeldUpdateHook, "%s", decision.Message)
		return true
	default:
		d.hold(v, HeldRefreshing, "%s", decision.Message)
		return false
	}
	d.updateStep(v, step)
	return true
}

func (d *decider) updateStep(v *view, step Step) {
	v.touched = true
	step.Free = d.free(v) && step.Do != Mark
	d.plan.Update = append(d.plan.Update, step)
}

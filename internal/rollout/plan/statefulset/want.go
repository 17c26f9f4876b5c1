// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/updatesort"
)

// chooseRevisions decides the revision of each missing Pod (statefulset.md 7.6). They are
// decided in ascending order: each counts for those above it.
func (d *decider) chooseRevisions() {
	rolling := Rolling(d.s.Set)
	old := 0 // Pods in range, and missing ones decided so far, that are not updated
	for _, v := range d.slots {
		if v.pod != nil && !d.countsUpdated(v) {
			old++
		}
	}
	for _, v := range d.slots {
		if v.pod != nil {
			continue
		}
		switch {
		case d.onDelete:
			v.updated = true
		case rolling == nil: // an object that admission never saw
			v.updated = v.position >= int(d.s.Set.Status.CurrentReplicas)
		case Unordered(d.s.Set) != nil:
			if v.updated = old >= d.limits.Partition; !v.updated {
				old++
			}
		default:
			v.updated = v.position >= d.limits.Partition
		}
	}
}

// countsUpdated is the flavour of "updated" that an unordered update counts with.
func (d *decider) countsUpdated(v *view) bool {
	return v.updated || d.s.Gates.PreparingUpdateAsUpdate && v.state == v1beta1.LifecyclePreparingUpdate
}

// chooseCandidates marks the Pods that the update may reach, all but partition, and puts
// them in their order (statefulset.md 7.9, step 6).
func (d *decider) chooseCandidates() {
	if d.onDelete || d.limits.Partition >= d.limits.Replicas {
		return
	}
	if u := Unordered(d.s.Set); u != nil {
		d.order = d.unordered(u.PriorityStrategy)
	} else {
		for _, v := range slices.Backward(d.slots) {
			if v.pod != nil && v.position >= d.limits.Partition {
				d.order = append(d.order, v)
			}
		}
	}
	for _, v := range d.order {
		v.candidate = true
	}
}

// unordered takes the Pods that are updated or going first: they use up places, and the
// partition is left to the others.
func (d *decider) unordered(strategy *v1beta1.UpdatePriorityStrategy) []*view {
	places := d.limits.Replicas - d.limits.Partition
	var settled, preparing []*view
	var rest []*corev1.Pod
	views := map[*corev1.Pod]*view{}
	slotless := d.missing
	for _, v := range slices.Backward(d.slots) {
		switch {
		case v.pod == nil:
			slotless--
			if v.updated {
				places--
			}
		case v.updated || v.terminating:
			settled = append(settled, v)
		case d.countsUpdated(v):
			preparing = append(preparing, v)
		default:
			rest, views[v.pod] = append(rest, v.pod), v
		}
	}
	order := append(settled, preparing...)
	for _, pod := range updatesort.ByPriority(rest, strategy) {
		order = append(order, views[pod])
	}
	return order[:max(0, min(places-slotless, len(order)))]
}

// way is how a Pod gets to what the spec wants.
type way struct {
	// inPlace is the change; nil when the Pod must be made anew.
	inPlace *inplace.UpdateSpec
	// blocked: it must, and the policy forbids it.
	blocked bool
	reasons []inplace.Reason
}

func (w way) recreates() bool { return w.inPlace == nil && !w.blocked }

func (d *decider) wayOf(v *view) way {
	key := RevisionOf(v.pod) + " " + v.lacks
	w, known := d.ways[key]
	if !known {
		w = d.computeWay(v)
		d.ways[key] = w
	}
	return w
}

func (d *decider) computeWay(v *view) way {
	if d.policy == v1beta1.RecreatePodUpdatePolicyType {
		return way{}
	}
	only := d.policy == v1beta1.InPlaceOnlyPodUpdatePolicyType
	var reasons []inplace.Reason
	if v.lacks != "" {
		reasons = append(reasons, inplace.Reason{
			Code: inplace.VolumeClaimTemplatesChanged, Path: "spec.volumeClaimTemplates[" + v.lacks + "]",
			Message: "added; a running Pod gets no new volumes",
		})
	}
	if v.updated || v.lacks != "" && !only {
		return way{blocked: only, reasons: reasons}
	}
	c := inplace.Compare(d.s.find(RevisionOf(v.pod)), d.s.Update, d.engine)
	if c.InPlace != nil {
		return way{inPlace: c.InPlace}
	}
	return way{blocked: only, reasons: append(c.Recreate, reasons...)}
}

// wantsDeletion tells whether a Pod in range is to be deleted and made anew, perhaps
// later.
func (d *decider) wantsDeletion(v *view) bool {
	switch {
	case v.terminal:
		return true
	case d.onDelete:
		return false
	case v.specified, v.restart:
		return true
	}
	return d.wantsUpdate(v) && d.wayOf(v).recreates()
}

// wantsUpdate tells whether a Pod is to be updated, now or later, and nothing forbids it.
func (d *decider) wantsUpdate(v *view) bool {
	return v.candidate && v.due() && v.forbidden == nil && !d.wayOf(v).blocked
}

// deletion is the step that deletes a Pod in range, but for the action.
func (d *decider) deletion(v *view) Step {
	switch {
	case v.terminal:
		return Step{Why: ReasonFailed, Detail: "phase " + string(v.pod.Status.Phase) + ": the Pod is made anew"}
	case v.specified:
		return Step{Why: ReasonSpecified, Detail: "label " + v1beta1.SpecifiedDeleteLabel}
	case !v.due():
		return Step{Why: ReasonResizeRestart, Detail: "a volume has grown, and its file system follows when the Pod starts anew"}
	}
	s := Step{Why: ReasonOldRevision, Target: d.s.Update.Name, Reasons: d.wayOf(v).reasons, Detail: "podUpdatePolicy is ReCreate"}
	if v.updated {
		s.Why = ReasonVolumes
		s.Detail = "the Pod has no volume for claim template " + v.lacks
	} else if len(s.Reasons) > 0 {
		s.Detail = "it cannot be updated in place: " + reasonsText(s.Reasons)
	}
	return s
}

// newState is the lifecycle state of a Pod to be created: PreparingNormal while a
// preNormal hook waits for its handlers.
func (d *decider) newState(updated bool) v1beta1.LifecycleState {
	lc := d.s.Set.Spec.Lifecycle
	if lc == nil || lc.PreNormal == nil {
		return v1beta1.LifecycleNormal
	}
	if state, known := d.states[updated]; known {
		return state
	}
	template := &d.s.Set.Spec.Template
	if !updated {
		if t, err := revision.Template(d.s.Current); err == nil {
			template = t
		}
	}
	d.states[updated] = v1beta1.LifecyclePreparingNormal
	if lifecycle.HookedAll(lc.PreNormal, &corev1.Pod{ObjectMeta: template.ObjectMeta}) {
		d.states[updated] = v1beta1.LifecycleNormal
	}
	return d.states[updated]
}

// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// roll is the rolling update (daemonset.md 7.5).
func (d *decider) roll() {
	switch {
	case OnDelete(d.s.Set):
		d.holdOld(HeldOnDelete, "updateStrategy.type is OnDelete: the Pod is updated when somebody deletes it")
	case d.plan.Manages:
		d.holdOld(HeldManageFirst, "Pods are created or deleted first")
	case Paused(d.s.Set):
		d.holdOld(HeldPaused, "updateStrategy.rollingUpdate.paused is true")
	default:
		considered := d.considered()
		if d.limits.MaxSurge > 0 {
			d.surge(considered)
		} else {
			d.replace(considered)
		}
	}
}

// considered are the nodes that the update looks at, in its order: updated ones first, then
// those that are being updated, then the rest that the update selector matches, each in
// descending order of their names; of these as many as partition leaves.
func (d *decider) considered() []*place {
	var updated, updating, rest []*place
	selected := d.selector()
	all := 0
	for _, p := range slices.Backward(d.places) {
		if p.node == nil || !p.run && (d.s.Gates.PruneIneligibleNodes || len(p.pods) == 0) {
			d.holdPlace(p, HeldIneligible, "node %s takes no part in updates", p.name)
			continue
		}
		all++
		newPod, oldPod, excess := p.pair()
		switch {
		case newPod != nil || excess:
			updated = append(updated, p)
		case oldPod == nil || oldPod.preparing:
			updating = append(updating, p)
		case selected != nil && !selected.Matches(labels.Set(p.node.Labels)):
			d.holdPlace(p, HeldSelector, "updateStrategy.rollingUpdate.selector does not match node %s", p.name)
		default:
			rest = append(rest, p)
		}
	}
	list := slices.Concat(updated, updating, rest)
	room := max(0, min(all-d.limits.Partition, len(list)))
	for _, p := range list[room:] {
		d.holdPlace(p, HeldPartition, "partition keeps %d of %d nodes at the old revision", d.limits.Partition, all)
	}
	return list[:room]
}

// selector is the update selector; nil is none. One that cannot be read matches nothing.
func (d *decider) selector() labels.Selector {
	r := rolling(d.s.Set)
	if r.Selector == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(r.Selector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// holdPlace holds the old Pods of a node.
func (d *decider) holdPlace(p *place, why Reason, detail string, args ...any) {
	for _, v := range p.pods {
		if !v.terminating && !v.isNew {
			d.hold(p, v, why, detail, args...)
		}
	}
}

// replace takes old Pods away within maxUnavailable, in place or by deletion. Old Pods that
// serve nobody go at once and cost nothing, as in Kubernetes: more than maxUnavailable Pods
// may thus be away, though none by our doing.
func (d *decider) replace(list []*place) {
	unavailable := 0
	var free, candidates []wanted
	for _, p := range list {
		newPod, oldPod, excess := p.pair()
		switch {
		case excess:
			unavailable++
			d.holdPlace(p, HeldExcess, "node %s has too many Pods", p.name)
		case newPod.usable() == oldPod.usable():
			unavailable++
		case newPod != nil:
			if !newPod.available {
				unavailable++
			}
			if newPod.preparing {
				unavailable++
			}
		case !oldPod.available:
			free = append(free, wanted{place: p, view: oldPod, why: ReasonUnavailable, detail: "the Pod is old and not available"})
		default:
			candidates = append(candidates, wanted{place: p, view: oldPod, why: ReasonOldRevision})
		}
	}
	d.plan.Numbers.Unavailable = unavailable
	room := max(0, min(d.limits.MaxUnavailable-unavailable, len(candidates)))
	for i := range candidates[:room] {
		candidates[i].detail = fmt.Sprintf("maxUnavailable is %d, %d are unavailable", d.limits.MaxUnavailable, unavailable)
	}
	d.bring(append(free, candidates[:room]...))
	for _, w := range candidates[room:] {
		d.hold(w.place, w.view, HeldMaxUnavailable, "maxUnavailable is %d, %d are or become unavailable", d.limits.MaxUnavailable, unavailable+room)
	}
	d.holdOld(HeldMaxUnavailable, "another Pod of the node comes first")
}

// bring updates Pods in place where that is wanted and possible, and deletes the others.
func (d *decider) bring(list []wanted) {
	var deletes []wanted
	for _, w := range list {
		if !InPlace(d.s.Set) {
			deletes = append(deletes, w)
			continue
		}
		c := d.compare(w.view)
		if c.InPlace == nil {
			w.reasons = c.Recreate
			w.detail = reasonsText(c.Recreate)
			deletes = append(deletes, w)
			continue
		}
		if len(d.plan.Update) >= d.limits.Burst {
			d.hold(w.place, w.view, HeldBurst, "burstReplicas lets %d Pods be updated at once", d.limits.Burst)
			continue
		}
		d.touched[w.view.pod.Name] = true
		d.plan.Update = append(d.plan.Update, Step{
			Pod: w.view.pod.Name, Node: w.place.name, Do: UpdateInPlace, Why: w.why, Detail: w.detail, Spec: c.InPlace,
		})
	}
	d.delete(deletes)
}

// Codes of reasons why a Pod is recreated that only this package has.
const (
	// NoReadinessGate: the Pod lacks the gate InPlaceUpdateReady.
	NoReadinessGate = "NoReadinessGate"
	// PodOver: the Pod has failed or ended.
	PodOver = "PodOver"
)

// compare tells how a Pod gets to the update revision (daemonset.md 7.6).
func (d *decider) compare(v *view) inplace.Comparison {
	refuse := func(code, message string) inplace.Comparison {
		return inplace.Comparison{Recreate: []inplace.Reason{{Code: code, Message: message}}}
	}
	if v.over {
		return refuse(PodOver, "the Pod has ended, so its containers do not start again")
	}
	if !podready.HasGate(v.pod, v1beta1.InPlaceUpdateReady) {
		return refuse(NoReadinessGate, "the Pod has no readiness gate InPlaceUpdateReady: it was made when rollingUpdateType was not InPlaceIfPossible")
	}
	hash := v.pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	c, known := d.comparisons[hash]
	if !known {
		c = inplace.Compare(d.s.find(hash), d.s.Update, d.engine)
		d.comparisons[hash] = c
	}
	return c
}

// reasonsText joins reasons into one sentence.
func reasonsText(reasons []inplace.Reason) string {
	var texts []string
	for _, r := range reasons {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, "; ")
}

// surge makes new Pods beside old ones, within maxSurge, and deletes an old Pod when the new
// one of its node is available. An old Pod that serves nobody is followed at once.
//
// A node whose old Pod is held by a preDelete hook counts as surging while it has two.
func (d *decider) surge(list []*place) {
	surging := 0
	var free, candidates, deletes []wanted
	for _, p := range list {
		newPod, oldPod, excess := p.pair()
		switch {
		case excess:
			surging++
			d.holdPlace(p, HeldExcess, "node %s has too many Pods", p.name)
		case oldPod == nil:
		case oldPod.preparing:
			if newPod != nil {
				surging++
			}
		case newPod == nil && !p.run:
			d.hold(p, oldPod, HeldIneligible, "node %s takes no new Pod", p.name)
		case newPod == nil && !oldPod.available:
			free = append(free, wanted{place: p, view: oldPod, why: ReasonSurge, detail: "the old Pod is not available"})
		case newPod == nil:
			candidates = append(candidates, wanted{place: p, view: oldPod, why: ReasonSurge})
		case !newPod.available || newPod.preparing:
			surging++
			d.hold(p, oldPod, HeldSurging, "%s is not available yet", newPod.pod.Name)
		default:
			deletes = append(deletes, wanted{place: p, view: oldPod, why: ReasonReplaced, detail: newPod.pod.Name + " is available"})
		}
	}
	d.plan.Numbers.Surging = surging
	room := max(0, min(d.limits.MaxSurge-surging, len(candidates)))
	for i := range candidates[:room] {
		candidates[i].detail = fmt.Sprintf("maxSurge is %d, %d nodes have an extra Pod", d.limits.MaxSurge, surging)
	}
	d.delete(deletes)
	d.create(append(free, candidates[:room]...))
	for _, w := range candidates[room:] {
		d.hold(w.place, w.view, HeldMaxSurge, "maxSurge is %d, %d nodes have or get an extra Pod", d.limits.MaxSurge, surging+room)
	}
}

// SPDX-License-Identifier: Apache-2.0

package daemonset

import "fmt"

// manage gives each node the Pods it should have, and takes those away that it must not
// have (daemonset.md 7.4).
func (d *decider) manage() {
	var creates, deletes []wanted
	for _, p := range d.places {
		switch {
		case p.node == nil:
			for _, v := range p.active() {
				if v.pod.Spec.NodeName == "" { // bound Pods are left to the Pod garbage collector
					deletes = append(deletes, wanted{place: p, view: v, why: ReasonNodeGone, detail: "node " + p.name + " does not exist"})
				}
			}
		case p.run && len(p.pods) == 0:
			creates = append(creates, wanted{place: p, why: ReasonMissing, detail: "node " + p.name + " has no Pod"})
		case p.stay:
			create, gone := d.keep(p)
			deletes = append(deletes, gone...)
			if create {
				creates = append(creates, wanted{place: p, why: ReasonMissing, detail: "the Pod of node " + p.name + " is going away"})
			}
		default:
			for _, v := range p.active() {
				deletes = append(deletes, wanted{place: p, view: v, why: ReasonMisplaced, detail: "node " + p.name + " must not run the Pod"})
			}
		}
	}
	d.delete(deletes)
	d.create(d.partitioned(creates))
}

// keep looks at a node whose Pod may stay.
func (d *decider) keep(p *place) (create bool, deletes []wanted) {
	var running []*view
	failed := false
	for _, v := range p.active() {
		switch {
		case v.over:
			failed = true
			if w, now := d.failed(p, v); now {
				deletes = append(deletes, w)
			}
		case v.preparing:
			deletes = append(deletes, wanted{place: p, view: v, why: ReasonHook, detail: "no preDelete hook is left"})
		default:
			running = append(running, v)
		}
	}
	if d.limits.MaxSurge == 0 {
		for i, v := range running {
			if i > 0 {
				deletes = append(deletes, wanted{place: p, view: v, why: ReasonSurplus, detail: "the older Pod " + running[0].pod.Name + " is kept"})
			}
		}
		return false, deletes
	}
	if len(running) == 0 {
		// A failed Pod goes first: while its backoff or a hook holds it, another one would fail
		// as well, and nothing would limit their number.
		return p.run && !failed, deletes
	}
	return false, append(deletes, d.pairUp(p, running)...)
}

// failed is the deletion of a Pod that ended, unless its node is in backoff.
func (d *decider) failed(p *place, v *view) (wanted, bool) {
	w := wanted{place: p, view: v, why: ReasonFailed, detail: fmt.Sprintf("the Pod failed: %s %s", v.pod.Status.Reason, v.pod.Status.Message)}
	if v.pod.Status.Phase == "Succeeded" {
		w.why, w.detail = ReasonSucceeded, "the Pod ended, and Pods of a DaemonSet must go on"
	}
	if left := d.s.Backoffs[p.name].Left(d.now); left > 0 {
		d.plan.wish(left)
		d.hold(p, v, HeldBackoff, "Pods of node %s fail, the next one is deleted in %s", p.name, left)
		return wanted{}, false
	}
	return w, true
}

// pairUp lets a node with surge keep the oldest new and the oldest old Pod, and of these
// only one when the other is of no more use.
func (d *decider) pairUp(p *place, running []*view) (deletes []wanted) {
	var newPod, oldPod *view
	for _, v := range running {
		slot := &oldPod
		if v.isNew {
			slot = &newPod
		}
		if *slot == nil {
			*slot = v
			continue
		}
		deletes = append(deletes, wanted{place: p, view: v, why: ReasonSurplus, detail: "the older Pod " + (*slot).pod.Name + " is kept"})
	}
	if newPod == nil || oldPod == nil {
		return deletes
	}
	switch {
	case !oldPod.ready:
		deletes = append(deletes, wanted{place: p, view: oldPod, why: ReasonReplaced, detail: "the Pod is not ready, and " + newPod.pod.Name + " follows it"})
	case newPod.available:
		deletes = append(deletes, wanted{place: p, view: oldPod, why: ReasonReplaced, detail: newPod.pod.Name + " is available"})
	default:
		d.hold(p, oldPod, HeldSurging, "%s is not available yet", newPod.pod.Name)
	}
	return deletes
}

// partitioned holds creations back that partition forbids: with partitionedScaling as many
// nodes stay without a Pod as would stay at the old revision (daemonset.md 7.4). Others are
// made at the update revision whatever the partition says: old templates are not restored.
func (d *decider) partitioned(creates []wanted) []wanted {
	if OnDelete(d.s.Set) || d.limits.Partition == 0 || !partitionedScaling(d.s.Set) {
		return creates
	}
	updated := 0
	for _, p := range d.places {
		for _, v := range p.pods {
			if p.run && v.isNew {
				updated++
				break
			}
		}
	}
	room := max(d.limits.Desired-updated-min(d.limits.Partition, d.limits.Desired), 0)
	if len(creates) <= room {
		return creates
	}
	for _, w := range creates[room:] {
		d.hold(w.place, nil, HeldPartitionedScaling, "partition %d of %d nodes leaves room for %d updated Pods", d.limits.Partition, d.limits.Desired, updated+room)
	}
	return creates[:room]
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"time"

	"github.com/kruisectl/kruisectl/internal/inplace"
)

// PodAction is what a rollout does to one Pod.
type PodAction string

// The actions of a preview.
const (
	// PodInPlace: the Pod is updated in place and keeps its address.
	PodInPlace PodAction = "InPlace"
	// PodRecreate: the Pod is deleted and made anew, with the same name and claims.
	PodRecreate PodAction = "Recreate"
	// PodKeep: the Pod stays as it is; Held says why when it is not as the spec wants it.
	PodKeep PodAction = "Keep"
	// PodBlocked: the change needs recreation, or claims that cannot be changed, and that is
	// forbidden.
	PodBlocked PodAction = "Blocked"
	// PodDelete: the Pod is out of range and goes.
	PodDelete PodAction = "Delete"
)

// PodPreview is what a rollout will do to one Pod that exists now.
type PodPreview struct {
	Pod    string    `json:"pod"`
	Action PodAction `json:"action"`
	// Way is what an update of the Pod is, or would be if it were not kept: InPlace,
	// Recreate or Blocked; empty for a Pod that is as the spec wants it.
	Way PodAction `json:"way,omitempty"`
	// Batch is 1 for the Pods that are changed first, and so on; 0 for those that are not.
	Batch int `json:"batch,omitempty"`
	// Reasons are the fields that forbid an in-place update.
	Reasons []inplace.Reason `json:"reasons,omitempty"`
	// Expands are the claims that grow, whatever becomes of the Pod.
	Expands []string `json:"expands,omitempty"`
	// Held is why the Pod is kept or blocked, one sentence.
	Held string `json:"held,omitempty"`
	// HeldBy is the stable form of Held.
	HeldBy Reason `json:"heldBy,omitempty"`
}

// maxRounds bounds the simulation; the batches of what is left then are extrapolated.
const maxRounds = 300

// Preview runs the whole rollout of s over a model in which every step succeeds at once:
// Pods become ready, claims grow, hooks let go. It returns one entry per Pod of s that has
// an ordinal, lowest first. A Pod that is not ready now stays so until it is updated.
func Preview(s Snapshot, now time.Time) []PodPreview {
	d := newDecider(&s, now)
	out := make([]PodPreview, len(d.pods))
	index := make(map[string]*PodPreview, len(d.pods))
	for i, v := range d.pods {
		out[i] = PodPreview{Pod: v.name, Action: PodKeep}
		if v.inRange && v.due() {
			out[i].Way, out[i].Reasons = d.wayText(v)
		}
		index[v.name] = &out[i]
	}

	m := newModel(&s, now)
	batch, size, settled := 0, 1, false
	var last Plan
	for range maxRounds {
		last = Decide(m.snapshot, m.now)
		if n := record(index, &last, batch+1); n > 0 {
			batch, size = batch+1, n
		}
		if settled = !m.apply(&last); settled {
			break
		}
	}
	if !settled {
		extrapolate(index, last, newDecider(&m.snapshot, m.now).order, batch, size)
	}
	for _, h := range last.Held {
		if p := index[h.Pod]; p != nil && p.Action == PodKeep {
			p.Held, p.HeldBy = h.Detail, h.Why
		}
	}
	for _, h := range last.Blocked() {
		if p := index[h.Pod]; p != nil && p.Action == PodKeep {
			p.Action = PodBlocked
		}
	}
	return out
}

// AllBatches are the Pods that a preview changes, by batch: those changed at the same time
// are together, the first ones first.
func AllBatches(preview []PodPreview) [][]PodPreview {
	var batches [][]PodPreview
	for _, p := range preview {
		for len(batches) < p.Batch {
			batches = append(batches, nil)
		}
		if p.Batch > 0 {
			batches[p.Batch-1] = append(batches[p.Batch-1], p)
		}
	}
	return batches
}

// wayText is how a Pod gets to the update revision.
func (d *decider) wayText(v *view) (PodAction, []inplace.Reason) {
	w := d.wayOf(v)
	switch {
	case w.inPlace != nil:
		return PodInPlace, nil
	case w.blocked:
		return PodBlocked, w.reasons
	}
	return PodRecreate, w.reasons
}

// extrapolate lets the Pods that wait for their turn follow, size at a time, in the order
// of the update.
func extrapolate(index map[string]*PodPreview, last Plan, order []*view, batch, size int) {
	waits := map[string]bool{}
	for _, h := range last.Held {
		waits[h.Pod] = h.Why == HeldMaxUnavailable || h.Why == HeldOrder
	}
	waiting := 0
	for _, v := range order {
		p := index[v.name]
		if p == nil || p.Batch > 0 || !waits[v.name] || p.Way == PodBlocked || p.Way == "" {
			continue
		}
		p.Action, p.Batch = p.Way, batch+1+waiting/size
		waiting++
	}
}

// record notes what the plan does to Pods for the first time, and returns to how many.
func record(index map[string]*PodPreview, plan *Plan, batch int) (n int) {
	note := func(pod string, action PodAction) {
		if p := index[pod]; p != nil && p.Batch == 0 {
			p.Action, p.Batch = action, batch
			n++
		}
	}
	for _, s := range plan.Update {
		switch {
		case s.Do == UpdateInPlace, s.Do == Move && s.Transition.To != preparingDelete:
			note(s.Pod, PodInPlace)
		default:
			note(s.Pod, PodRecreate)
		}
	}
	for _, s := range plan.Scale {
		if s.Why == ReasonFailed {
			note(s.Pod, PodRecreate)
		} else {
			note(s.Pod, PodDelete)
		}
	}
	for _, c := range plan.Claims {
		if p := index[c.Pod]; p != nil && c.Do == ExpandClaim {
			p.Expands = append(p.Expands, c.Claim)
		}
	}
	return n
}

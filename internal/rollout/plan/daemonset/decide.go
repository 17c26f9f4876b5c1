// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"time"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// decider is one run of Decide.
type decider struct {
	s      *Snapshot
	now    time.Time
	places []*place
	limits Limits
	engine inplace.Options
	plan   Plan
	// touched are Pods that have a step; the value is whether that step writes them. The old
	// Pod of a node that gets a second one has a step and is not written.
	touched map[string]bool
	held    map[string]bool
	// comparisons caches inplace.Compare by the name of the old revision.
	comparisons map[string]inplace.Comparison
}

func newDecider(s *Snapshot, now time.Time) *decider {
	d := &decider{
		s: s, now: now,
		places:      s.places(now),
		engine:      s.EngineOptions(),
		touched:     map[string]bool{},
		held:        map[string]bool{},
		comparisons: map[string]inplace.Comparison{},
	}
	d.limits = LimitsOf(s.Set, desired(d.places))
	d.plan.Numbers.Limits = d.limits
	return d
}

// desired counts the nodes that should have a Pod.
func desired(places []*place) (n int) {
	for _, p := range places {
		if p.run {
			n++
		}
	}
	return n
}

// Decide returns the next step towards s.Set. It cannot fail: a Pod that may not move yet
// is in Held, with the reason. A set that is being deleted gets the zero Plan: its Pods
// are left to the garbage collector.
func Decide(s Snapshot, now time.Time) Plan {
	if s.Set.DeletionTimestamp != nil {
		return Plan{}
	}
	d := newDecider(&s, now)
	d.manage()
	d.plan.Manages = len(d.plan.Create)+len(d.plan.Delete) > 0
	d.roll()
	d.refresh()
	d.wishes()
	return d.plan
}

// hold puts a Pod, or a node without one, into Held, with the first reason that is found.
func (d *decider) hold(p *place, v *view, why Reason, detail string, args ...any) {
	step := Step{Node: p.name, Why: why}
	key := "node " + p.name
	if v != nil {
		step.Pod, key = v.pod.Name, v.pod.Name
	}
	if _, touched := d.touched[key]; touched || d.held[key] {
		return
	}
	d.held[key] = true
	step.Detail = fmt.Sprintf(detail, args...)
	d.plan.Held = append(d.plan.Held, step)
}

// holdOld holds every Pod that is not at the update revision and has no step.
func (d *decider) holdOld(why Reason, detail string) {
	for _, p := range d.places {
		for _, v := range p.pods {
			if !v.terminating && !v.isNew {
				d.hold(p, v, why, "%s", detail)
			}
		}
	}
}

// wanted is a deletion or creation before limits are looked at.
type wanted struct {
	place   *place
	view    *view
	why     Reason
	detail  string
	reasons []inplace.Reason
}

// delete turns wanted deletions into steps: a Pod that a preDelete hook is on is only
// marked (daemonset.md 8), and no more are deleted at once than burstReplicas says.
func (d *decider) delete(list []wanted) {
	deleted := 0
	for _, w := range list {
		decision := lifecycle.OnDelete(w.view.pod, d.s.Set.Spec.Lifecycle)
		step := Step{Pod: w.view.pod.Name, Node: w.place.name, Do: Delete, Why: w.why, Detail: w.detail, Reasons: w.reasons}
		switch {
		case decision.Verdict == lifecycle.Patch:
			step.Do, step.Transition = Move, decision.Transition
		case decision.Verdict != lifecycle.Go:
			d.hold(w.place, w.view, HeldDeleteHook, "%s", decision.Message)
			continue
		case deleted >= d.limits.Burst:
			d.hold(w.place, w.view, HeldBurst, "burstReplicas lets %d Pods be deleted at once", d.limits.Burst)
			continue
		default:
			deleted++
		}
		d.touched[step.Pod] = true
		d.plan.Delete = append(d.plan.Delete, step)
	}
}

// create turns wanted creations into steps, up to burstReplicas.
func (d *decider) create(list []wanted) {
	for i, w := range list {
		if i >= d.limits.Burst {
			d.hold(w.place, w.view, HeldBurst, "burstReplicas lets %d Pods be created at once", d.limits.Burst)
			continue
		}
		if w.view != nil { // the old Pod of the node waits for no more than that
			d.touched[w.view.pod.Name] = false
		}
		d.plan.Create = append(d.plan.Create, Step{Node: w.place.name, Do: Create, Why: w.why, Detail: w.detail})
	}
}

// refresh lets every Pod's in-place update go on, also while paused and under OnDelete: it
// is what lets new Pods become ready.
func (d *decider) refresh() {
	for _, p := range d.places {
		for _, v := range p.pods {
			if v.terminating || v.over || d.touched[v.pod.Name] {
				continue
			}
			next := inplace.Next(v.pod, d.engine, d.now)
			d.plan.wish(next.After)
			if next.Action == inplace.Done || next.Action == inplace.Wait {
				continue
			}
			d.plan.Refresh = append(d.plan.Refresh, Step{
				Pod: v.pod.Name, Node: p.name, Do: Refresh, Why: ReasonRefresh, Detail: string(next.Action),
			})
		}
	}
}

// wishes asks to look again when a Pod becomes available by the passing of time.
func (d *decider) wishes() {
	for _, p := range d.places {
		for _, v := range p.pods {
			if !v.terminating {
				d.plan.wish(v.availableIn)
			}
		}
	}
}

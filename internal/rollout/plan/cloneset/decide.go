// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// decider is one run of Decide.
type decider struct {
	s         *Snapshot
	now       time.Time
	views     []*view
	situation Situation
	engine    inplace.Options
	plan      Plan
	// roomy: no more Pods are unavailable than may be; see free.
	roomy bool
	// sentences are details that many Pods share, by their numbers.
	sentences map[sentence]string
	// comparisons caches inplace.Compare by old and new revision.
	comparisons map[[2]string]inplace.Comparison
}

func newDecider(s *Snapshot, now time.Time) *decider {
	return &decider{
		s: s, now: now,
		views:       s.views(now),
		situation:   s.situation(),
		engine:      s.EngineOptions(),
		sentences:   map[sentence]string{},
		comparisons: map[[2]string]inplace.Comparison{},
	}
}

// Decide returns the next step towards s.Set. It cannot fail: a Pod that may not move yet
// is in Held, with the reason. A set that is being deleted gets the zero Plan: its Pods
// are left to the garbage collector (cloneset.md 16, no. 11).
func Decide(s Snapshot, now time.Time) Plan {
	if s.Set.DeletionTimestamp != nil {
		return Plan{}
	}
	d := newDecider(&s, now)
	d.situation.InPlace = d.allInPlace()
	d.claims()
	d.scale()
	d.refresh()
	if d.plan.scales() {
		d.holdOld(HeldScaleFirst, "Pods are created or deleted first")
	} else {
		d.update()
	}
	d.staleNames()
	d.wishes()
	return d.plan
}

// hold puts a Pod into Held, with the first reason that is found.
func (d *decider) hold(v *view, why Reason, detail string, args ...any) {
	if v.held {
		return
	}
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	v.held = true
	d.plan.Held = append(d.plan.Held, Step{Pod: v.pod.Name, Why: why, Detail: detail})
}

// sentence is a reason and the numbers in its detail that vary within one decision.
type sentence struct {
	why  Reason
	a, b int
}

// shared is the detail that many Pods are held with, written once.
func (d *decider) shared(key sentence, write func() string) string {
	text, ok := d.sentences[key]
	if !ok {
		text = write()
		d.sentences[key] = text
	}
	return text
}

// holdOld holds every Pod that is not at the update revision and has no step.
func (d *decider) holdOld(why Reason, detail string) {
	for _, v := range d.views {
		if !v.updated && !v.touched {
			d.hold(v, why, detail)
		}
	}
}

// allInPlace tells whether every Pod gets to its revision in place.
func (d *decider) allInPlace() bool {
	if d.situation.MaxSurge == 0 || Policy(d.s.Set) == v1beta1.RecreatePodUpdatePolicyType {
		return false
	}
	for _, v := range d.views {
		if !v.updated && d.compare(v, d.s.Update.Name).InPlace == nil {
			return false
		}
		if d.situation.PartitionRollback && v.updated && !d.situation.SameRevision && d.compare(v, d.s.Current.Name).InPlace == nil {
			return false
		}
	}
	return true
}

// facts feeds the arithmetic, in the flavour of the scale or of the update pass.
func (d *decider) facts(isNew func(*view) bool) []PodFacts {
	facts := make([]PodFacts, len(d.views))
	for i, v := range d.views {
		facts[i] = PodFacts{New: isNew(v), PreparingDelete: v.preparingDelete(), Specified: v.specified, Available: v.available}
	}
	return facts
}

// staleNames finds entries of podsToDelete whose Pod is gone or not ours.
func (d *decider) staleNames() {
	for _, name := range d.s.Set.Spec.ScaleStrategy.PodsToDelete {
		if !slices.ContainsFunc(d.views, func(v *view) bool { return v.pod.Name == name }) {
			d.plan.StaleNames = append(d.plan.StaleNames, name)
		}
	}
}

// wishes asks to be called again when a Pod becomes available. Deadlines are part of the
// status; see Deadline.
func (d *decider) wishes() {
	for _, v := range d.views {
		d.plan.wish(v.availableIn)
	}
}

// claims decides about claims whose Pod went away by other hands, when they are not kept
// for the next Pod (cloneset.md 8.4).
func (d *decider) claims() {
	if d.s.Set.Spec.ScaleStrategy.EnablePVCReuse || len(d.s.Claims) == 0 {
		return
	}
	active, inactive := byInstance(d.s.Pods), byInstance(d.s.Inactive)
	for _, c := range d.s.Claims {
		id := c.Labels[v1beta1.InstanceIDLabel]
		switch owner := inactive[id]; {
		case active[id] != nil:
		case owner != nil:
			d.plan.Claims = append(d.plan.Claims, ClaimStep{Claim: c.Name, Owner: owner.Name})
		default:
			d.plan.Claims = append(d.plan.Claims, ClaimStep{Claim: c.Name})
		}
	}
}

func byInstance(pods []*corev1.Pod) map[string]*corev1.Pod {
	m := make(map[string]*corev1.Pod, len(pods))
	for _, p := range pods {
		if id := p.Labels[v1beta1.InstanceIDLabel]; id != "" {
			m[id] = p
		}
	}
	return m
}

// freeIDs are the instance ids of kept claims without an active Pod, sorted; those whose
// Pod name is still taken by an inactive Pod are in taken.
func (d *decider) freeIDs() (free []string, taken []*corev1.Pod) {
	if !d.s.Set.Spec.ScaleStrategy.EnablePVCReuse || len(d.s.Claims) == 0 {
		return nil, nil
	}
	active, inactive := byInstance(d.s.Pods), byInstance(d.s.Inactive)
	seen := map[string]bool{}
	for _, c := range d.s.Claims {
		id := c.Labels[v1beta1.InstanceIDLabel]
		if id == "" || seen[id] || active[id] != nil {
			continue
		}
		seen[id] = true
		if p := inactive[id]; p != nil {
			taken = append(taken, p)
		} else {
			free = append(free, id)
		}
	}
	slices.Sort(free)
	return free, taken
}

// compare tells how a Pod with this revision label gets to target.
func (d *decider) compare(v *view, target string) inplace.Comparison {
	from := revision.ShortHash(v.pod.Labels["controller-revision-hash"])
	key := [2]string{from, target}
	if c, ok := d.comparisons[key]; ok {
		return c
	}
	var old = d.s.find(from)
	c := inplace.Compare(old, d.s.find(revision.ShortHash(target)), d.engine)
	d.comparisons[key] = c
	return c
}

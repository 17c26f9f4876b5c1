// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/ordinal"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// burst is how many Pods one pass creates at most.
const burst = 500

// decider is one run of Decide.
type decider struct {
	s        *Snapshot
	now      time.Time
	limits   Limits
	ordinals ordinal.Range
	engine   inplace.Options
	policy   v1beta1.PodUpdatePolicyType
	parallel bool
	onDelete bool
	paused   bool
	expands  bool
	claims   claimIndex

	pods      []*view // with a Pod, lowest ordinal first
	slots     []*view // in range, lowest first: Pods, and the first of the missing ones
	condemned []*view // out of range, lowest first
	missing   int     // ordinals without a Pod, also those that have no slot
	// down counts the ordinals in range that do not serve, or will not once the plan is
	// carried out; unavailable adds those with a claim that is being expanded.
	down, unavailable int
	order             []*view // candidates of the update, first one first
	ways              map[string]way
	states            map[bool]v1beta1.LifecycleState // of new Pods, by whether they are updated

	plan Plan
	// stop says why the rest must wait, once something stopped a pass of OrderedReady.
	stop string
}

func newDecider(s *Snapshot, now time.Time) *decider {
	d := &decider{
		s: s, now: now,
		limits:   LimitsOf(s.Set),
		ordinals: Ordinals(s.Set, s.Gates),
		engine:   s.EngineOptions(),
		policy:   Policy(s.Set),
		parallel: Parallel(s.Set),
		onDelete: OnDelete(s.Set),
		paused:   Paused(s.Set),
		expands:  ExpandsClaims(s.Set, s.Gates),
		claims:   claimIndex{},
		ways:     map[string]way{},
		states:   map[bool]v1beta1.LifecycleState{},
	}
	if len(s.Set.Spec.VolumeClaimTemplates) > 0 {
		d.claims = indexClaims(s.Claims)
	}
	d.plan.Parallel = d.parallel
	d.pods = s.views(d.ordinals, now)
	d.fill()
	d.inspect()
	d.count()
	d.chooseRevisions()
	d.chooseCandidates()
	return d
}

// Decide returns the next step towards s.Set. It cannot fail: a Pod that may not move yet
// is in Held, with the reason. A set that is being deleted gets the zero Plan.
func Decide(s Snapshot, now time.Time) Plan {
	if s.Set.DeletionTimestamp != nil {
		return Plan{}
	}
	d := newDecider(&s, now)
	d.keep()
	d.settleClaims()
	if d.parallel {
		d.scaleParallel()
	} else {
		d.scaleOrdered()
	}
	d.refresh()
	if d.stop == "" || d.parallel {
		d.update()
	}
	d.repair()
	d.account()
	for _, v := range d.pods {
		d.plan.wish(v.availableIn)
	}
	return d.plan
}

// fill divides the Pods into those in range and those out of it, and adds a view for each
// of the first missing ordinals.
func (d *decider) fill() {
	next, room := 0, burst
	gap := func(until int) {
		d.missing += until - next
		for ; next < until && room > 0; next, room = next+1, room-1 {
			n := d.ordinals.At(next)
			d.slots = append(d.slots, &view{ordinal: n, name: PodName(d.s.Set.Name, n), inRange: true, position: next, down: true})
		}
	}
	for _, v := range d.pods {
		if !v.inRange {
			d.condemned = append(d.condemned, v)
			continue
		}
		gap(v.position)
		d.slots = append(d.slots, v)
		next = v.position + 1
	}
	gap(d.ordinals.Count())
}

// inspect completes the views of Pods: in-place updates, volumes and claims.
func (d *decider) inspect() {
	for _, v := range d.pods {
		v.complete = !v.terminating && !v.terminal
		if v.complete && !updatesSettled(v) {
			if next := inplace.Next(v.pod, d.engine, d.now); next.Action != inplace.Done {
				v.next, v.complete = &next, next.Action == inplace.Ready
			}
		}
		v.down = !v.healthy() || !v.available || !v.complete
		v.lacks = missingVolume(d.s.Set, v.pod)
		if d.expands && v.inRange {
			d.inspectClaims(v)
		}
	}
}

// updatesSettled tells without reading the Pod's annotations that no in-place update is in
// progress: the last step of each is to make the condition True, and then the Pod Normal.
// Large sets have the annotations of their last update on every Pod.
func updatesSettled(v *view) bool {
	if v.state != v1beta1.LifecycleNormal || !podready.HasGate(v.pod, v1beta1.InPlaceUpdateReady) {
		return false
	}
	for _, key := range []string{v1beta1.InPlaceUpdateGraceAnnotation, v1beta1.InPlaceUpdateGraceAnnotationOld} {
		if _, grace := v.pod.Annotations[key]; grace {
			return false
		}
	}
	c := podready.Condition(v.pod, v1beta1.InPlaceUpdateReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// hold puts a Pod into Held, with the first reason that is found.
func (d *decider) hold(v *view, why Reason, detail string, args ...any) {
	d.holdStep(v, Step{Why: why, Detail: fmt.Sprintf(detail, args...)})
}

func (d *decider) holdStep(v *view, s Step) {
	if v.held {
		return
	}
	v.held = true
	s.Pod, s.Ordinal, s.Do = v.name, v.ordinal, Wait
	d.plan.Held = append(d.plan.Held, s)
}

// add puts a step of a Pod into a list of the plan.
func (d *decider) add(list *[]Step, v *view, s Step) {
	v.touched = true
	s.Pod, s.Ordinal = v.name, v.ordinal
	*list = append(*list, s)
}

// stopAt ends a pass of OrderedReady: what comes after must wait.
func (d *decider) stopAt(detail string, args ...any) {
	if d.stop == "" {
		d.stop = fmt.Sprintf(detail, args...)
	}
}

// setDown notes that a Pod does not serve once the plan is carried out.
func (d *decider) setDown(v *view) {
	if v.inRange && !v.down {
		d.down++
		if !v.expanding {
			d.unavailable++
		}
	}
	v.down = true
}

// setExpanding notes that a claim of a Pod is being expanded.
func (d *decider) setExpanding(v *view) {
	if !v.inUnavailable() {
		d.unavailable++
	}
	v.expanding = true
}

// count takes the numbers that the plan starts from.
func (d *decider) count() {
	d.down, d.unavailable = d.missing, d.missing
	n := Numbers{Limits: d.limits, Missing: d.missing}
	for _, v := range d.slots {
		switch {
		case v.pod == nil:
			continue
		case v.down:
			d.down, d.unavailable = d.down+1, d.unavailable+1
		case v.expanding:
			d.unavailable++
		}
		if v.updated {
			n.Updated++
		}
	}
	n.Unavailable, n.Expanding = d.down, d.unavailable-d.down
	if !d.onDelete {
		n.Wanted = d.limits.Replicas - d.limits.Partition
	}
	d.plan.Numbers = n
}

// account gives a reason to all that has something to be done and no step.
func (d *decider) account() {
	for _, v := range d.slots {
		switch {
		case v.touched || v.held:
		case v.pod == nil:
			d.hold(v, HeldOrder, "%s", d.stop)
		case v.due() || v.specified && !v.terminating:
			d.accountUpdate(v)
		}
	}
	for _, v := range d.condemned {
		if !v.touched && !v.held && !v.terminating {
			d.hold(v, HeldOrder, "%s", d.stop)
		}
	}
}

func (d *decider) accountUpdate(v *view) {
	switch {
	case v.terminating:
		d.hold(v, HeldTerminating, "the Pod is being deleted; the next one is made when it is gone")
	case d.onDelete:
		d.hold(v, HeldOnDelete, "the update strategy is OnDelete: delete the Pod to update it")
	case d.paused:
		d.hold(v, HeldPaused, "spec.updateStrategy.rollingUpdate.paused is true")
	case !v.candidate && !v.specified:
		d.hold(v, HeldPartition, "partition keeps %d of %d Pods at revision %s", d.limits.Partition, d.limits.Replicas, d.s.Current.Name)
	case d.stop != "":
		d.hold(v, HeldOrder, "%s", d.stop)
	default:
		d.holdBudget(v)
	}
}

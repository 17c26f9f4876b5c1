// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// checkPlan holds a plan to what the spec promises of every single step, whatever the
// situation. It reads Pods anew, and counts in its own way.
func checkPlan(fail func(string, ...any), s Snapshot, now time.Time, p Plan) {
	c := &promises{fail: fail, s: s, now: now, plan: p, pods: map[string]*corev1.Pod{}}
	for _, pod := range s.Pods {
		c.pods[pod.Name] = pod
	}
	c.onceEach()
	c.oneAtATime()
	c.availability()
	c.partition()
	c.causes()
	c.hooks()
	c.creations()
	c.claims()
	c.accounted()
}

type promises struct {
	fail func(string, ...any)
	s    Snapshot
	now  time.Time
	plan Plan
	pods map[string]*corev1.Pod
}

func (c *promises) steps() []Step { return slices.Concat(c.plan.Refresh, c.plan.Scale, c.plan.Update) }

func (c *promises) inRange(n int) bool { return Ordinals(c.s.Set, c.s.Gates).Contains(n) }

// serving: what a user of the set would call available.
func (c *promises) serving(name string) bool {
	p := c.pods[name]
	if p == nil || p.DeletionTimestamp != nil || IsTerminal(p) {
		return false
	}
	ok, _ := Available(p, MinReadySeconds(c.s.Set), c.now)
	next := inplace.Next(p, c.s.EngineOptions(), c.now).Action
	return ok && (next == inplace.Done || next == inplace.Ready)
}

func (c *promises) updated(name string) bool {
	return c.pods[name] != nil && inplace.SameRevision(RevisionOf(c.pods[name]), c.s.Update.Name)
}

// onceEach: no object is in two steps, none with a step is held, and all have reasons.
func (c *promises) onceEach() {
	seen := map[string]bool{}
	once := func(name string) {
		if seen[name] {
			c.fail("%s is in two steps of %+v", name, c.plan)
		}
		seen[name] = true
	}
	for _, s := range c.steps() {
		once(s.Pod)
		if s.Why == "" || s.Do == Wait || s.Detail == "" && s.Do == Delete {
			c.fail("step without reason or action: %+v", s)
		}
		if p := c.pods[s.Pod]; p == nil || p.DeletionTimestamp != nil {
			c.fail("%s of a Pod that is not there or going", s)
		}
	}
	for _, s := range c.plan.Create {
		once(s.Pod)
		if c.pods[s.Pod] != nil || !c.inRange(s.Ordinal) {
			c.fail("creates %+v, which exists or is out of range", s)
		}
	}
	for _, s := range c.plan.Refresh {
		delete(seen, s.Pod) // it may wait for something else as well
	}
	for _, h := range c.plan.Held {
		once(h.Pod)
		if h.Why == "" || h.Detail == "" || h.Do != Wait {
			c.fail("held without a reason: %+v", h)
		}
	}
	for _, s := range c.plan.Claims {
		once(s.Claim)
		if s.Why == "" || s.Detail == "" {
			c.fail("claim step without reason: %+v", s)
		}
	}
}

// oneAtATime: OrderedReady changes one Pod, and only when all below are available.
func (c *promises) oneAtATime() {
	if c.plan.Parallel {
		return
	}
	if n := len(c.plan.Create) + len(c.plan.Scale) + len(c.plan.Update); n > 1 {
		c.fail("OrderedReady, and %d Pods are changed at once: %+v", n, c.plan)
	}
	state := func(name string) v1beta1.LifecycleState { return lifecycle.State(c.pods[name]) }
	for n := range Ordinals(c.s.Set, c.s.Gates).Walk() {
		name := PodName(c.s.Set.Name, n)
		ok := c.pods[name] != nil && c.pods[name].DeletionTimestamp == nil && !IsTerminal(c.pods[name])
		if ok {
			ok, _ = Available(c.pods[name], MinReadySeconds(c.s.Set), c.now)
		}
		if ok {
			continue
		}
		for _, created := range c.plan.Create {
			if created.Ordinal > n {
				c.fail("creates %s although %s is not available", created.Pod, name)
			}
		}
		for _, step := range slices.Concat(c.plan.Scale, c.plan.Update) {
			released := state(step.Pod) == v1beta1.LifecyclePreparingDelete || state(step.Pod) == v1beta1.LifecyclePreparingUpdate || state(step.Pod) == v1beta1.LifecycleUpdated
			replaced := step.Why == ReasonFailed && step.Ordinal <= n
			if !replaced && !released {
				c.fail("%s although %s is not available", step, name)
			}
		}
	}
	for _, step := range c.plan.Scale {
		for _, p := range c.s.Pods {
			n, _ := OrdinalOf(c.s.Set.Name, p.Name)
			if !c.inRange(step.Ordinal) && !c.inRange(n) && n > step.Ordinal && state(step.Pod) != v1beta1.LifecyclePreparingDelete {
				c.fail("removes %s before %s", step.Pod, p.Name)
			}
		}
	}
}

// availability: what the plan takes out of service is within maxUnavailable, together with
// what was out of service before; and so it is with claims that are being expanded.
func (c *promises) availability() {
	takes := map[string]bool{}
	for _, step := range c.plan.Update {
		takes[step.Pod] = true
	}
	for _, step := range c.plan.Scale {
		if c.inRange(step.Ordinal) && c.serving(step.Pod) {
			c.fail("scaling takes %s out of service", step.Pod)
		}
	}
	grows := map[int]bool{}
	for _, step := range c.plan.Claims {
		if step.Do == ExpandClaim {
			grows[step.Ordinal] = true
		}
	}
	before, after, busyBefore, busyAfter := 0, 0, 0, 0
	for n := range Ordinals(c.s.Set, c.s.Gates).Walk() {
		name := PodName(c.s.Set.Name, n)
		serves := c.serving(name)
		busy := !serves || c.expanding(n)
		count(&before, !serves)
		count(&after, !serves || takes[name])
		count(&busyBefore, busy)
		count(&busyAfter, busy || takes[name] || grows[n])
	}
	if limit := MaxUnavailable(c.s.Set); after > max(before, limit) || busyAfter > max(busyBefore, limit) {
		c.fail("%d (%d with claims) are unavailable after the step, %d (%d) were, %d may be: %+v", after, busyAfter, before, busyBefore, limit, c.plan)
	}
}

func count(n *int, one bool) {
	if one {
		*n++
	}
}

func (c *promises) expanding(n int) bool {
	return ExpandsClaims(c.s.Set, c.s.Gates) && slices.ContainsFunc(c.s.Claims, func(claim *corev1.PersistentVolumeClaim) bool {
		for _, t := range c.s.Set.Spec.VolumeClaimTemplates {
			asks, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
			if claim.Name == ClaimName(t.Name, c.s.Set.Name, n) && claim.DeletionTimestamp == nil && has.Cmp(asks) < 0 {
				return true
			}
		}
		return false
	})
}

// partition: so many Pods stay at the old revision as the partition says, and in order it
// is those with the lowest ordinals.
func (c *promises) partition() {
	limits, r := LimitsOf(c.s.Set), Ordinals(c.s.Set, c.s.Gates)
	if OnDelete(c.s.Set) || Paused(c.s.Set) {
		if len(c.plan.Update) > 0 {
			c.fail("updates although paused or OnDelete: %v", c.plan.Update)
		}
		return
	}
	moves := map[string]bool{}
	for _, step := range c.plan.Update {
		if step.Why != ReasonSpecified {
			moves[step.Pod] = true
			if Unordered(c.s.Set) == nil && r.Position(step.Ordinal) < limits.Partition {
				c.fail("%s although partition is %d", step, limits.Partition)
			}
		}
	}
	wasUpdated, updated := 0, 0
	for n := range r.Walk() {
		name := PodName(c.s.Set.Name, n)
		count(&wasUpdated, c.updated(name))
		count(&updated, c.updated(name) || moves[name])
	}
	for _, created := range c.plan.Create {
		count(&updated, created.Revision == c.s.Update.Name)
		if position := r.Position(created.Ordinal); Unordered(c.s.Set) == nil && Rolling(c.s.Set) != nil && c.s.Current != c.s.Update &&
			(created.Revision == c.s.Update.Name) != (position >= limits.Partition) {
			c.fail("creates %s at %s, partition %d", created.Pod, created.Revision, limits.Partition)
		}
	}
	if Unordered(c.s.Set) != nil && c.s.Current != c.s.Update && updated > max(wasUpdated, limits.Replicas-limits.Partition) {
		c.fail("%d Pods are updated, %d were, %d of %d may be: %+v", updated, wasUpdated, limits.Replicas-limits.Partition, limits.Replicas, c.plan)
	}
}

// causes: no Pod is deleted without need.
func (c *promises) causes() {
	for _, step := range c.steps() {
		p := c.pods[step.Pod]
		if step.Do != Delete {
			continue
		}
		_, specified := p.Labels[v1beta1.SpecifiedDeleteLabel]
		candidate := !c.updated(step.Pod) || !Covers(c.s.Set, p) || step.Why == ReasonResizeRestart && c.expanding(step.Ordinal)
		if c.inRange(step.Ordinal) && !IsTerminal(p) && !specified && !candidate {
			c.fail("%s, and nothing asks for it", step)
		}
		from := c.s.find(RevisionOf(p))
		if step.Why == ReasonOldRevision && Policy(c.s.Set) != v1beta1.RecreatePodUpdatePolicyType && Covers(c.s.Set, p) &&
			inplace.Compare(from, c.s.Update, c.s.EngineOptions()).InPlace != nil {
			c.fail("%s, and it can be updated in place", step)
		}
		if (step.Why == ReasonOldRevision || step.Why == ReasonVolumes) && Policy(c.s.Set) == v1beta1.InPlaceOnlyPodUpdatePolicyType {
			c.fail("%s, and the policy is InPlaceOnly", step)
		}
	}
}

// hooks: a Pod that a hook holds is neither deleted nor changed.
func (c *promises) hooks() {
	lc := c.s.Set.Spec.Lifecycle
	if lc == nil {
		return
	}
	for _, step := range c.steps() {
		p := c.pods[step.Pod]
		if step.Do == Delete && lifecycle.HookedAny(lc.PreDelete, p) {
			c.fail("%s although its preDelete hook holds it", step)
		}
		if step.Do == UpdateInPlace && lifecycle.HookedAny(lc.InPlaceUpdate, p) && lifecycle.State(p) != v1beta1.LifecycleUpdating {
			c.fail("%s although its inPlaceUpdate hook holds it", step)
		}
	}
}

// creations: a Pod is not made with a claim that is going, and within the limit.
func (c *promises) creations() {
	going := map[string]bool{}
	for _, claim := range c.s.Claims {
		going[claim.Name] = claim.DeletionTimestamp != nil
	}
	for _, created := range c.plan.Create {
		for _, t := range c.s.Set.Spec.VolumeClaimTemplates {
			if going[ClaimName(t.Name, c.s.Set.Name, created.Ordinal)] {
				c.fail("creates %s with a claim that is being deleted", created.Pod)
			}
		}
	}
	limit := LimitsOf(c.s.Set).ScaleMaxUnavailable
	if limit == nil || !c.plan.Parallel {
		return
	}
	if len(c.plan.Create) > *limit {
		c.fail("creates %d Pods, scaleStrategy.maxUnavailable is %d", len(c.plan.Create), *limit)
	}
}

// claims: no Pod in range owns a claim, and nothing grows where the partition keeps Pods.
func (c *promises) claims() {
	for _, step := range c.plan.Claims {
		switch {
		case c.pods[step.Pod] == nil:
			c.fail("%s of an ordinal without a Pod", step)
		case step.Do == OwnClaim && (step.PodOwns && c.inRange(step.Ordinal) || step.SetOwns && step.PodOwns || !c.s.Gates.AutoDeletePVC):
			c.fail("wrong owners: %+v", step)
		case step.Do == ExpandClaim && !ExpandsClaims(c.s.Set, c.s.Gates):
			c.fail("expands a claim although it must not: %+v", step)
		case step.Do == ExpandClaim && Unordered(c.s.Set) == nil && Ordinals(c.s.Set, c.s.Gates).Position(step.Ordinal) < Partition(c.s.Set):
			c.fail("expands a claim behind the partition: %+v", step)
		}
	}
	for _, step := range c.plan.Scale {
		for _, claim := range c.plan.Claims {
			if claim.Pod == step.Pod && claim.Do == OwnClaim {
				c.fail("%s before its claims have their owners", step)
			}
		}
	}
}

// accounted: a Pod that is not as the spec wants it has a step, or a reason why not.
func (c *promises) accounted() {
	known := map[string]bool{}
	for _, s := range slices.Concat(c.steps(), c.plan.Held) {
		known[s.Pod] = true
	}
	for _, s := range c.plan.Create {
		known[s.Pod] = true
	}
	for n := range Ordinals(c.s.Set, c.s.Gates).Walk() {
		name := PodName(c.s.Set.Name, n)
		p := c.pods[name]
		if (p == nil || !c.updated(name) || !Covers(c.s.Set, p)) && !known[name] {
			c.fail("Pod %s is missing or old, and nobody says why: %+v", name, c.plan)
		}
	}
	for _, p := range c.s.Pods {
		n, ok := OrdinalOf(c.s.Set.Name, p.Name)
		if ok && !c.inRange(n) && p.DeletionTimestamp == nil && !known[p.Name] {
			c.fail("Pod %s is out of range, and nobody says why it stays: %+v", p.Name, c.plan)
		}
		if _, wait := Available(p, MinReadySeconds(c.s.Set), c.now); wait > 0 && (c.plan.Requeue == 0 || c.plan.Requeue > wait) {
			c.fail("Pod %s is available in %s, and the plan looks again in %s", p.Name, wait, c.plan.Requeue)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// The examples of daemonset.md 7.5: nodes a to e, b is already new.
func TestConsideredNodes(t *testing.T) {
	set := agent()
	label := func(names string) []fixture.NodeBuilder {
		list := nodes("abcde")
		for i, n := range list {
			for _, picked := range names {
				if n.Obj().Name == string(picked) {
					list[i] = n.Label("zone", "canary")
				}
			}
		}
		return list
	}
	for name, c := range map[string]struct {
		set   fixture.DaemonSetBuilder
		nodes []fixture.NodeBuilder
		want  string
	}{
		"partition 0":                          {set, nodes("abcde"), "bedca"},
		"partition 3":                          {set.Partition("3"), nodes("abcde"), "be"},
		"partition 3, selector for a, c and d": {set.Partition("3").OnNodes("zone", "canary"), label("acd"), "bd"},
		"partition 1, selector for a":          {set.Partition("1").OnNodes("zone", "canary"), label("a"), "ba"},
		"partition 5":                          {set.Partition("5"), nodes("abcde"), ""},
		"partition 50% rounds down":            {set.Partition("50%"), nodes("abcde"), "bed"},
		"a partition that cannot be read":      {set.Partition("many"), nodes("abcde"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := situation{old: c.set, set: c.set.Image("app:2"), nodes: c.nodes, pods: join(oldOn(set, "acde"), newOn(set, "b"))}
			s := in.snapshot()
			d := newDecider(&s, now)
			got := ""
			for _, p := range d.considered() {
				got += p.name
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestRollingUpdate(t *testing.T) {
	set := agent().MaxUnavailable("2")
	one, inPlace := agent().MaxUnavailable("1"), agent().InPlace().MaxUnavailable("2")
	hooked := one.Lifecycle(v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}})
	hook := func(p fixture.PodBuilder) fixture.PodBuilder { return p.Label("hook", "on") }
	needsRecreate := func(c situation) situation { c.set = c.set.Env("A", "1"); return c }
	withGate := func(c situation) situation { c.gates.PruneIneligibleNodes = true; return c }
	taint := func(c situation, i int) situation {
		c.nodes[i] = c.nodes[i].Taint("t", corev1.TaintEffectNoSchedule)
		return c
	}
	for name, c := range map[string]planCase{
		"old Pods go within maxUnavailable, in descending order of nodes": {
			update(set, "abc", oldOn(set, "abc")...), "Delete c-old: OldRevision\nDelete b-old: OldRevision\nheld a-old: MaxUnavailable"},
		"a percentage of maxUnavailable is rounded up": {
			update(agent().MaxUnavailable("34%"), "abc", oldOn(set, "abc")...), "Delete c-old: OldRevision\nDelete b-old: OldRevision\nheld a-old: MaxUnavailable"},
		"without any limit one goes": {
			update(agent().MaxUnavailable("0"), "ab", oldOn(set, "ab")...), "Delete b-old: OldRevision\nheld a-old: MaxUnavailable"},
		"a node without Pod is unavailable, and its Pod comes first": {
			update(one, "ab", oldOn(set, "a")...), "Create on b: Missing\nheld a-old: ManageFirst"},
		"a terminating Pod is unavailable": {
			update(one, "ab", join(oldOn(set, "a"), each(oldOn(set, "b"), terminating))...), "held a-old: MaxUnavailable"},
		"a new Pod that is not available counts": {
			update(one, "ab", join(oldOn(set, "a"), each(newOn(set, "b"), notReady))...), "held a-old: MaxUnavailable"},
		"a new Pod counts until minReadySeconds are over": {
			update(one.MinReadySeconds(60), "ab", join(oldOn(set, "a"), each(newOn(set, "b"), func(p fixture.PodBuilder) fixture.PodBuilder { return p.Ready(now.Add(-20 * time.Second)) }))...),
			"held a-old: MaxUnavailable\nagain in 40s"},
		"an old Pod that is not available goes for free": {
			update(one, "abc", join(oldOn(set, "a"), each(oldOn(set, "bc"), notReady))...),
			"Delete c-old: Unavailable\nDelete b-old: Unavailable\nDelete a-old: OldRevision"},
		"a new Pod that prepares deletion counts": {
			update(hooked, "ab", join(oldOn(set, "a"), each(each(newOn(set, "b"), hook), preparing))...), "held b-new: PreDeleteHook\nheld a-old: MaxUnavailable"},
		"a hook lets one Pod prepare": {
			update(hooked, "ab", each(oldOn(set, "ab"), hook)...), "Move b-old: OldRevision\nheld a-old: MaxUnavailable"},
		"the others wait for the Pod that prepares": {
			update(hooked, "ab", join(each(oldOn(set, "a"), hook), each(each(oldOn(set, "b"), hook), preparing))...),
			"held b-old: PreDeleteHook\nheld a-old: MaxUnavailable"},
		"a paused update": {update(set.Paused(), "ab", oldOn(set, "ab")...), "held a-old: Paused\nheld b-old: Paused"},
		"OnDelete":        {update(agent().OnDelete(), "ab", oldOn(set, "ab")...), "held a-old: OnDelete\nheld b-old: OnDelete"},
		"partition":       {update(set.Partition("2"), "abc", oldOn(set, "abc")...), "Delete c-old: OldRevision\nheld b-old: Partition\nheld a-old: Partition"},
		"selector":        {update(set.OnNodes("zone", "canary"), "ab", oldOn(set, "ab")...), "held b-old: Selector\nheld a-old: Selector"},
		"burstReplicas": {
			update(agent().MaxUnavailable("3").Burst("1"), "abc", oldOn(set, "abc")...), "Delete c-old: OldRevision\nheld b-old: BurstReplicas\nheld a-old: BurstReplicas"},
		"in place": {
			update(inPlace, "abc", oldOn(inPlace, "abc")...), "UpdateInPlace c-old: OldRevision\nUpdateInPlace b-old: OldRevision\nheld a-old: MaxUnavailable"},
		"in place up to burstReplicas": {
			update(inPlace.Burst("1"), "abc", oldOn(inPlace, "abc")...), "UpdateInPlace c-old: OldRevision\nheld b-old: BurstReplicas\nheld a-old: MaxUnavailable"},
		"a change that is not possible in place": {
			needsRecreate(update(inPlace, "abc", oldOn(inPlace, "abc")...)), "Delete c-old: OldRevision\nDelete b-old: OldRevision\nheld a-old: MaxUnavailable"},
		"Pods without the readiness gate are recreated": {
			update(inPlace, "ab", join(oldOn(set, "b"), oldOn(inPlace, "a"))...), "Delete b-old: OldRevision\nUpdateInPlace a-old: OldRevision"},
		"a Pod of a revision that is gone is recreated": {
			update(inPlace, "a", each(oldOn(inPlace, "a"), func(p fixture.PodBuilder) fixture.PodBuilder {
				return p.Label("controller-revision-hash", "lost")
			})...), "Delete a-old: OldRevision"},
		"a node with two old Pods counts as unavailable": {
			update(one, "ab", join(oldOn(set, "ab"), each(oldOn(set, "b"), func(p fixture.PodBuilder) fixture.PodBuilder {
				return p.With(func(p *corev1.Pod) { p.Name = "b-second" })
			}))...), "Delete b-second: Surplus\nheld a-old: ManageFirst\nheld b-old: ManageFirst"},
		"nodes that admit no Pod take part while the gate is off": {
			taint(update(one, "ab", join(oldOn(set, "ab"))...), 1), "Delete b-old: OldRevision\nheld a-old: MaxUnavailable"},
		"nodes that admit no Pod take no part with the gate": {
			withGate(taint(update(one, "ab", oldOn(set, "ab")...), 1)), "Delete a-old: OldRevision\nheld b-old: Ineligible"},
		"Pods stuck on such nodes block the rollout while the gate is off": {
			taint(update(one, "ab", join(oldOn(set, "a"), each(oldOn(set, "b"), terminating))...), 1), "held a-old: MaxUnavailable"},
		"and do not with the gate": {
			withGate(taint(update(one, "ab", join(oldOn(set, "a"), each(oldOn(set, "b"), terminating))...), 1)), "Delete a-old: OldRevision"},
		"Pods of nodes that are gone take no part": {
			update(one, "a", join(oldOn(set, "a"), oldOn(set, "x"))...), "Delete a-old: OldRevision\nheld x-old: Ineligible"},
		"an unfinished in-place update goes on": {
			update(inPlace.Paused(), "a", each(newOn(inPlace, "a"), func(p fixture.PodBuilder) fixture.PodBuilder {
				return p.Condition(v1beta1.InPlaceUpdateReady, corev1.ConditionFalse, now)
			})...), "Refresh a-new: Refresh"},
		"everything is new": {update(set, "ab", newOn(set, "ab")...), ""},
	} {
		t.Run(name, c.run)
	}
}

func TestRollingUpdateWithSurge(t *testing.T) {
	set := agent().MaxSurge("1")
	hooked := set.Lifecycle(v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}})
	hook := func(p fixture.PodBuilder) fixture.PodBuilder { return p.Label("hook", "on") }
	for name, c := range map[string]planCase{
		"a new Pod comes beside the old one": {
			update(set, "ab", oldOn(set, "ab")...), "Create on b: Surge\nheld a-old: MaxSurge"},
		"a percentage of maxSurge is rounded up": {
			update(agent().MaxSurge("50%"), "abc", oldOn(set, "abc")...), "Create on c: Surge\nCreate on b: Surge\nheld a-old: MaxSurge"},
		"a node that surges counts until the new Pod is available": {
			update(set, "ab", join(oldOn(set, "ab"), each(newOn(set, "b"), notReady))...), "held b-old: Surging\nheld a-old: MaxSurge"},
		"the old Pod goes when the new one is available": {
			update(set, "ab", join(oldOn(set, "ab"), newOn(set, "b"))...), "Delete b-old: Replaced\nheld a-old: ManageFirst"},
		"an old Pod that is not available is followed for free": {
			update(set, "abc", join(oldOn(set, "a"), each(oldOn(set, "bc"), notReady))...), "Create on c: Surge\nCreate on b: Surge\nCreate on a: Surge"},
		"a node whose old Pod a hook holds counts while it has two": {
			update(hooked, "ab", join(oldOn(set, "a"), each(each(oldOn(set, "b"), hook), preparing), newOn(set, "b"))...), "held b-old: PreDeleteHook\nheld a-old: MaxSurge"},
		"no Pod is made on a node that admits none": {
			situation{old: set, set: set.Image("app:2"), nodes: []fixture.NodeBuilder{fixture.Node("a").Taint("t", corev1.TaintEffectNoSchedule)}, pods: oldOn(set, "a")},
			"held a-old: Ineligible"},
		"burstReplicas": {
			update(agent().MaxSurge("100%").Burst("1"), "ab", oldOn(set, "ab")...), "Create on b: Surge\nheld a-old: BurstReplicas"},
	} {
		t.Run(name, c.run)
	}
}

func TestStatus(t *testing.T) {
	set := agent().InPlace().MinReadySeconds(10)
	in := update(set, "abcdef", join(
		newOn(set, "a"),
		each(newOn(set, "b"), func(p fixture.PodBuilder) fixture.PodBuilder { return p.Ready(now.Add(-5 * time.Second)) }),
		each(oldOn(set, "c"), notReady),
		each(oldOn(set, "d"), func(p fixture.PodBuilder) fixture.PodBuilder {
			return p.Condition(v1beta1.InPlaceUpdateReady, corev1.ConditionFalse, now)
		}),
		each(oldOn(set, "e"), terminating),
		oldOn(set, "xz"),
	)...)
	in.nodes = append(in.nodes, fixture.Node("z").Taint("t", corev1.TaintEffectNoSchedule))
	s := in.snapshot()
	s.Set.Generation, s.Set.Status.CollisionCount = 7, new(int32(2))
	want := v1beta1.DaemonSetStatus{
		ObservedGeneration: 7, UpdateRevision: s.Hash(), CollisionCount: new(int32(2)),
		DesiredNumberScheduled: 6, CurrentNumberScheduled: 5, NumberMisscheduled: 1,
		UpdatedNumberScheduled: 2, NumberReady: 4, NumberAvailable: 2, NumberUnavailable: 4,
	}
	assert.Empty(t, cmp.Diff(want, Status(s, now)))
}

func TestLimits(t *testing.T) {
	base := agent()
	for name, c := range map[string]struct {
		set  fixture.DaemonSetBuilder
		want Limits
	}{
		"the defaults":                        {base, Limits{Desired: 3, MaxUnavailable: 1, Burst: 250}},
		"unavailable and surge round up":      {base.MaxUnavailable("10%"), Limits{Desired: 3, MaxUnavailable: 1, Burst: 250}},
		"surge":                               {base.MaxSurge("50%"), Limits{Desired: 3, MaxSurge: 2, Burst: 250}},
		"partition and burst round down":      {base.Partition("50%").Burst("50%"), Limits{Desired: 3, Partition: 1, MaxUnavailable: 1, Burst: 1}},
		"a percentage of burst is not zero":   {base.Burst("10%"), Limits{Desired: 3, MaxUnavailable: 1, Burst: 1}},
		"burst zero is one":                   {base.Burst("0"), Limits{Desired: 3, MaxUnavailable: 1, Burst: 1}},
		"a burst that cannot be read":         {base.Burst("abc"), Limits{Desired: 3, MaxUnavailable: 1, Burst: 250}},
		"both limits zero":                    {base.MaxUnavailable("0%"), Limits{Desired: 3, MaxUnavailable: 1, Burst: 250}},
		"a limit that cannot be read is zero": {base.MaxUnavailable("abc"), Limits{Desired: 3, MaxUnavailable: 1, Burst: 250}},
		"OnDelete has no limits but burst":    {base.OnDelete(), Limits{Desired: 3, Burst: 250}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, LimitsOf(c.set.Obj(), 3))
		})
	}
}

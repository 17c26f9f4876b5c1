// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

type planCase struct {
	in   situation
	want string
}

func (c planCase) run(t *testing.T) {
	t.Helper()
	got := Decide(c.in.snapshot(), now)
	assert.Empty(t, cmp.Diff(strings.TrimSpace(c.want), brief(got)))
	for _, h := range got.Held {
		assert.NotEmpty(t, h.Detail)
		assert.NotContains(t, h.Detail, "%!", "a sentence lacks a value")
	}
}

// steady is a situation without an update.
func steady(set fixture.DaemonSetBuilder, names string, pods ...fixture.PodBuilder) situation {
	return situation{old: set, set: set, nodes: nodes(names), pods: pods}
}

func TestManage(t *testing.T) {
	set := agent()
	surge := set.MaxSurge("1")
	hooked := set.Lifecycle(v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}})
	on := func(names string) []fixture.PodBuilder { return oldOn(set, names) }
	gone := func(p fixture.PodBuilder) fixture.PodBuilder { return p.Node("") }
	hook := func(p fixture.PodBuilder) fixture.PodBuilder { return p.Label("hook", "on") }
	younger := func(p fixture.PodBuilder) fixture.PodBuilder {
		return p.Created(fixture.Created.Add(time.Minute)).With(func(p *corev1.Pod) { p.Name += "-2" })
	}
	tainted := func(effect corev1.TaintEffect) []fixture.NodeBuilder {
		return []fixture.NodeBuilder{fixture.Node("a").Taint("t", effect)}
	}
	with := func(c situation, change func(*situation)) situation { change(&c); return c }
	for name, c := range map[string]planCase{
		"a node without Pod gets one": {steady(set, "ba"), "Create on a: Missing\nCreate on b: Missing"},
		"a node whose Pod terminates waits for its end": {
			steady(set, "a", each(on("a"), terminating)...), ""},
		"with surge a node whose Pod terminates gets one at once": {
			steady(surge, "a", each(oldOn(surge, "a"), terminating)...), "Create on a: Missing"},
		"a Pod on a node that must not run it is deleted, terminating ones are not again": {
			with(steady(set.NodeSelector("color", "blue"), "ab", join(on("a"), each(on("b"), terminating))...), func(*situation) {}),
			"Delete a-old: Misplaced"},
		"a NoSchedule taint lets the Pod stay but admits none": {
			with(steady(set, "a", on("a")...), func(c *situation) { c.nodes = tainted(corev1.TaintEffectNoSchedule) }), ""},
		"a NoSchedule taint admits no new Pod": {
			with(steady(set, "a"), func(c *situation) { c.nodes = tainted(corev1.TaintEffectNoSchedule) }), ""},
		"a NoExecute taint drives the Pod away": {
			with(steady(set, "a", on("a")...), func(c *situation) { c.nodes = tainted(corev1.TaintEffectNoExecute) }), "Delete a-old: Misplaced"},
		"a failed Pod is deleted": {
			steady(set, "a", each(on("a"), failed)...), "Delete a-old: Failed"},
		"a Pod that ended is deleted": {
			steady(set, "a", each(on("a"), func(p fixture.PodBuilder) fixture.PodBuilder { return p.Phase(corev1.PodSucceeded) })...),
			"Delete a-old: Succeeded"},
		"a failed Pod of a node in backoff waits": {
			with(steady(set, "a", each(on("a"), failed)...), func(c *situation) {
				c.backoffs = map[string]Backoff{"a": {Since: now.Add(-time.Second), Delay: 4 * time.Second}}
			}), "held a-old: Backoff\nagain in 3s"},
		"a failed Pod whose backoff is over goes": {
			with(steady(set, "a", each(on("a"), failed)...), func(c *situation) {
				c.backoffs = map[string]Backoff{"a": {Since: now.Add(-4 * time.Second), Delay: 4 * time.Second}}
			}), "Delete a-old: Failed"},
		"with surge no Pod is made beside a failed one in backoff": {
			with(steady(surge, "a", each(oldOn(surge, "a"), failed)...), func(c *situation) {
				c.backoffs = map[string]Backoff{"a": {Since: now, Delay: time.Second}}
			}), "held a-old: Backoff\nagain in 1s"},
		"with surge a failed Pod goes before the next one comes": {
			steady(surge, "a", each(oldOn(surge, "a"), failed)...), "Delete a-old: Failed"},
		"with surge no Pod is made beside a failed one that a hook holds": {
			steady(hooked.MaxSurge("1"), "a", each(each(each(oldOn(surge, "a"), hook), preparing), failed)...), "held a-old: PreDeleteHook"},
		"of two Pods the older stays": {
			steady(set, "a", join(each(on("a"), younger), on("a"))...), "Delete a-old-2: Surplus"},
		"a scheduled Pod stays before an older one that is not": {
			steady(set, "a", join(each(on("a"), gone), each(on("a"), younger))...), "Delete a-old: Surplus"},
		"an unscheduled Pod of a node that is gone is deleted": {
			steady(set, "a", join(on("a"), each(on("x"), gone))...), "Delete x-old: NodeGone"},
		"a scheduled one is left to the garbage collector": {
			steady(set, "a", join(on("a"), on("x"))...), ""},
		"a Pod bound for no node counts nowhere": {
			steady(set, "a", join(on("a"), each(on("b"), func(p fixture.PodBuilder) fixture.PodBuilder {
				return p.Node("").With(func(p *corev1.Pod) { p.Spec.Affinity = nil })
			}))...), ""},
		"a hook holds a misplaced Pod back": {
			with(steady(hooked.NodeSelector("color", "blue"), "a", each(on("a"), hook)...), func(*situation) {}), "Move a-old: Misplaced"},
		"a Pod that prepares waits for its hook": {
			steady(hooked, "a", each(each(on("a"), hook), preparing)...), "held a-old: PreDeleteHook"},
		"a Pod that prepares goes when its hook is released": {
			steady(hooked, "a", each(on("a"), preparing)...), "Delete a-old: HookReleased"},
		"a Pod that prepares goes when the hook is no longer in the spec": {
			steady(set, "a", each(each(on("a"), hook), preparing)...), "Delete a-old: HookReleased"},
		"burstReplicas limits creation": {
			steady(set.Burst("2"), "abcd"), "Create on a: Missing\nCreate on b: Missing\nheld c: BurstReplicas\nheld d: BurstReplicas"},
		"burstReplicas limits deletion, and a percentage is never nothing": {
			steady(set.Burst("1%").NodeSelector("color", "blue"), "ab", on("ab")...), "Delete a-old: Misplaced\nheld b-old: BurstReplicas"},
		"burstReplicas does not limit what hooks hold": {
			steady(hooked.Burst("1").NodeSelector("color", "blue"), "ab", each(on("ab"), hook)...), "Move a-old: Misplaced\nMove b-old: Misplaced"},
		"an absurd burstReplicas freezes nothing": {
			steady(set.Burst("-3"), "ab"), "Create on a: Missing\nheld b: BurstReplicas"},
		"creation is not limited by partition alone": {
			steady(set.Partition("8"), "ab"), "Create on a: Missing\nCreate on b: Missing"},
		"OnDelete creates too, whatever partitionedScaling says": {
			steady(set.PartitionedScaling().Partition("8").OnDelete(), "a"), "Create on a: Missing"},
		"a paused set creates and deletes": {
			steady(set.Paused(), "ab", join(on("a"), each(on("x"), gone))...), "Create on b: Missing\nDelete x-old: NodeGone"},
	} {
		t.Run(name, c.run)
	}
}

// The examples of daemonset.md 7.4.
func TestPartitionedScaling(t *testing.T) {
	set := agent().PartitionedScaling()
	created := func(p Plan) (names string) {
		for _, s := range p.Create {
			names += s.Node
		}
		return names
	}
	for name, c := range map[string]struct {
		in   situation
		want string
	}{
		"partition 8 of 8 nodes makes none":           {steady(set.Partition("8"), "abcdefgh"), ""},
		"partition 100% makes none in the first pass": {steady(set.Partition("100%"), "abcdefgh"), ""},
		"partition 6 makes two":                       {steady(set.Partition("6"), "abcdefgh"), "ab"},
		"three more nodes make three more":            {steady(set.Partition("6"), "abcdefghijk", oldOn(set, "ab")...), "cde"},
		"without partitionedScaling all are made":     {steady(agent().Partition("6"), "abcdefgh"), "abcdefgh"},
		"partition 0 makes all":                       {steady(set, "abcdefgh"), "abcdefgh"},
		"a terminating Pod keeps its place":           {steady(set.Partition("6"), "abcdefgh", join(oldOn(set, "a"), each(oldOn(set, "b"), terminating))...), ""},
		"half of eight by percentage":                 {steady(set.Partition("50%"), "abcdefgh"), "abcd"},
		"a partition beyond all nodes":                {steady(set.Partition("20"), "abc"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in.snapshot(), now)
			assert.Equal(t, c.want, created(plan))
			assert.Equal(t, len(c.in.nodes)-len(c.in.pods), len(plan.Create)+len(plan.Held), "every node without Pod is accounted for")
		})
	}
}

// Nodes with surge may have two Pods while one of them takes over.
func TestManageWithSurge(t *testing.T) {
	set := agent().MaxSurge("1").MinReadySeconds(10)
	readySince := func(d time.Duration) func(fixture.PodBuilder) fixture.PodBuilder {
		return func(p fixture.PodBuilder) fixture.PodBuilder { return p.Ready(now.Add(-d)) }
	}
	second := func(p fixture.PodBuilder) fixture.PodBuilder {
		return p.Created(fixture.Created.Add(time.Minute)).With(func(p *corev1.Pod) { p.Name += "-2" })
	}
	both := func(old, young func(fixture.PodBuilder) fixture.PodBuilder) []fixture.PodBuilder {
		return join(each(oldOn(set, "a"), old), each(newOn(set, "a"), young))
	}
	for name, c := range map[string]planCase{
		"the new Pod is not ready yet": {
			update(set, "a", both(readySince(time.Hour), notReady)...), "held a-old: Surging"},
		"the new Pod is ready but not for long enough": {
			update(set, "a", both(readySince(time.Hour), readySince(4*time.Second))...), "held a-old: Surging\nagain in 6s"},
		"the new Pod is available": {
			update(set, "a", both(readySince(time.Hour), readySince(10*time.Second))...), "Delete a-old: Replaced"},
		"the old Pod is not ready": {
			update(set, "a", both(notReady, notReady)...), "Delete a-old: Replaced"},
		"of each kind the oldest stays": {
			update(set, "a", join(both(readySince(time.Hour), notReady), each(newOn(set, "a"), second), each(oldOn(set, "a"), second))...),
			"Delete a-new-2: Surplus\nDelete a-old-2: Surplus\nheld a-old: Surging"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in.snapshot(), now)
			lines := strings.Split(brief(plan), "\n")
			got := strings.Join(lines, "\n")
			assert.Empty(t, cmp.Diff(c.want, got))
		})
	}
}

func TestBackoffDoubles(t *testing.T) {
	var b Backoff
	at := now
	var delays []time.Duration
	for range 12 {
		assert.Zero(t, b.Left(at))
		b = b.Next(at)
		delays = append(delays, b.Delay)
		at = at.Add(b.Delay)
	}
	s := time.Second
	assert.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 512 * s, 900 * s, 900 * s}, delays)
	assert.Equal(t, s, b.Next(at.Add(time.Hour)).Delay, "a quiet node starts anew")
}

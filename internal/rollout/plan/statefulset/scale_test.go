// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/fixture"
)

func TestScaleOrderedReady(t *testing.T) {
	three, one := ordered(3), ordered(1)
	slow := ordered(3).MinReadySeconds(10)
	runTable(t, map[string]row{
		"the first Pod comes first": {web(three), `
			create web-0 new
			held web-1: OrderedReady
			held web-2: OrderedReady`},
		"the next one when the first is available": {web(three).new(0), `
			create web-1 new
			held web-2: OrderedReady`},
		"not while the first is unready": {web(three).with(unready(three, 0)), `
			held web-1: OrderedReady
			held web-2: OrderedReady`},
		"a missing lower one is made although a higher one is unready": {web(ordered(2)).with(unready(three, 1)), `
			create web-0 new`},
		"a Pod that is ready for too short holds up the next one, and time alone goes on": {web(slow).with(young(slow, 0)), `
			held web-1: OrderedReady
			held web-2: OrderedReady
			again in 8s`},
		"a terminating Pod ends the pass": {web(three).with(going(three, 0)).new(1), `
			held web-2: OrderedReady`},
		"a failed Pod is replaced first": {web(three).new(0).with(failed(three, 1)), `
			delete web-1: PodEnded
			held web-2: OrderedReady`},
		"one that succeeded, too": {web(one).with(unready(one, 0).Phase(corev1.PodSucceeded)), `
			delete web-0: PodEnded`},
		"a failed one that is going is waited for": {web(one).with(failed(one, 0).Terminating(now)), ``},
		"nothing to do": {web(three).new(0, 1, 2), ``},
		"scaled in, the highest goes first": {web(one).new(0, 1, 2), `
			delete web-2: OutOfRange
			held web-1: OrderedReady`},
		"one at a time": {web(one).new(0, 1).with(going(one, 2)), `
			held web-1: OrderedReady`},
		"scale-in to none keeps three unready Pods": {web(ordered(0)).with(unready(three, 0), unready(three, 1), unready(three, 2)), `
			held web-2: Unavailable
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"the lowest unready one may go": {web(ordered(0)).with(unready(three, 0)), `
			delete web-0: OutOfRange`},
		"the highest may go when it is the only unready one": {web(one).new(0, 1).with(unready(one, 2)), `
			delete web-2: OutOfRange
			held web-1: OrderedReady`},
		"a Pod that is ready for too short is waited for, and time alone goes on": {web(slow.Replicas(1)).new(0).with(young(slow, 1)), `
			held web-1: MinReadySeconds
			again in 8s`},
		"nothing is removed while a Pod in range is unready": {web(one).with(unready(one, 0)).new(1), `
			held web-1: OrderedReady`},
		"a failed Pod out of range waits for nobody": {web(ordered(0)).with(unready(three, 0), failed(three, 1)), `
			delete web-1: OutOfRange
			held web-0: OrderedReady`},
		"nobody waits for a failed Pod out of range": {web(ordered(0)).with(failed(three, 0), unready(three, 1)), `
			delete web-1: OutOfRange
			held web-0: OrderedReady`},
		"a reserved ordinal is left out, and its Pod goes once the others are there": {web(ordered(3).Reserve("1")).new(0, 1, 2), `
			create web-3 new
			held web-1: OrderedReady`},
		"the Pod of a reserved ordinal goes": {web(ordered(3).Reserve("1")).new(0, 1, 2, 3), `
			delete web-1: OutOfRange`},
		"a start that moved up makes Pods first, then removes from the top": {web(ordered(3).Start(2)).new(0, 1, 2, 3, 4), `
			delete web-1: OutOfRange
			held web-0: OrderedReady`},
		"two thousand million reserved ordinals": {web(ordered(1).Reserve("0-2000000000")), `
			create web-2000000001 new`},
		"the start counts only with its gate": {web(ordered(1).Start(2)).gate(func(g *Gates) { g.StartOrdinal = false }), `
			create web-0 new`},
		"Pods that are not those of an ordinal are ignored": {web(one).new(0).with(fixture.Pod("web-x"), fixture.Pod("web-007"), fixture.Pod("webshop-1"), fixture.Pod("web--1")), ``},
		"an adopted Pod gets the label with its name": {web(one).with(pod(one, 0).With(func(p *corev1.Pod) { delete(p.Labels, "statefulset.kubernetes.io/pod-name") })), `
			repair web-0: IdentityLabels`},
		"a new Pod gets its first condition": {web(one).with(unready(one, 0).With(func(p *corev1.Pod) { p.Status.Conditions = nil })), `
			refresh web-0: Refresh`},
	})
}

func TestScaleParallel(t *testing.T) {
	three, limited := parallel(3), parallel(5).ScaleMaxUnavailable("2")
	runTable(t, map[string]row{
		"all at once": {web(three), `
			create web-0 new
			create web-1 new
			create web-2 new`},
		"health is not waited for": {web(three).with(unready(three, 0)), `
			create web-1 new
			create web-2 new`},
		"nor is it when scaling in": {web(parallel(1)).with(unready(three, 0), unready(three, 1)).new(2), `
			delete web-2: OutOfRange
			delete web-1: OutOfRange`},
		"Pods come and go at the same time": {web(three.Reserve("0")).new(0, 1), `
			create web-2 new
			create web-3 new
			delete web-0: OutOfRange`},
		"a terminating Pod out of range is left alone": {web(parallel(1)).new(0, 1).with(going(three, 2)), `
			delete web-1: OutOfRange`},
		"a Pod stuck in terminating stops no other ordinal": {web(three).with(going(three, 0)), `
			create web-1 new
			create web-2 new`},
		"failed Pods are replaced": {web(three).with(failed(three, 0)).new(1, 2), `
			delete web-0: PodEnded`},
		"creation in steps of two": {web(limited), `
			create web-0 new
			create web-1 new
			held web-2: ScaleMaxUnavailable
			held web-3: ScaleMaxUnavailable
			held web-4: ScaleMaxUnavailable`},
		"Pods that are not available use the steps up": {web(limited).new(0).with(unready(limited, 1)), `
			create web-2 new
			held web-3: ScaleMaxUnavailable
			held web-4: ScaleMaxUnavailable`},
		"a terminating unready Pod is charged once": {web(limited).with(unready(limited, 0).Terminating(now)), `
			create web-1 new
			held web-2: ScaleMaxUnavailable
			held web-3: ScaleMaxUnavailable
			held web-4: ScaleMaxUnavailable`},
		"with a limit of one a failed Pod is still replaced": {web(parallel(2).ScaleMaxUnavailable("1")).with(failed(three, 0)), `
			delete web-0: PodEnded
			held web-1: ScaleMaxUnavailable`},
		"the limit does not stop scaling in": {web(parallel(1).ScaleMaxUnavailable("1")).with(unready(three, 0)).new(1, 2), `
			delete web-2: OutOfRange
			delete web-1: OutOfRange`},
		"a percentage of the limit is rounded down, at least one": {web(parallel(3).ScaleMaxUnavailable("50%")), `
			create web-0 new
			held web-1: ScaleMaxUnavailable
			held web-2: ScaleMaxUnavailable`},
	})
}

func TestNewPodsComeInBursts(t *testing.T) {
	for name, reserve := range map[string][]string{"none reserved": nil, "many reserved": {"0-2000000000"}} {
		t.Run(name, func(t *testing.T) {
			s := web(parallel(1000000000).Reserve(reserve...)).snapshot()
			plan := Decide(s, now)
			if len(plan.Create) != burst || plan.Numbers.Missing != 1000000000 {
				t.Errorf("creates %d, %d missing", len(plan.Create), plan.Numbers.Missing)
			}
		})
	}
}

// TestRevisionOfMissingPods is statefulset.md 7.6.
func TestRevisionOfMissingPods(t *testing.T) {
	four := func(partition int32) situation {
		base := parallel(4).Partition(partition)
		return changed(base, base.Image("app:2"))
	}
	free := func(partition int32) situation {
		base := parallel(4).Partition(partition).Unordered(nil)
		return changed(base, base.Image("app:2"))
	}
	onDelete := parallel(2).OnDelete()
	runTable(t, map[string]row{
		"in order, the first ones are kept old": {four(2), `
			create web-0 old
			create web-1 old
			create web-2 new
			create web-3 new`},
		"a partition beyond the replicas keeps all old": {four(9), `
			create web-0 old
			create web-1 old
			create web-2 old
			create web-3 old`},
		"by position, also with reserved ordinals and a start": {func() situation {
			base := parallel(3).Partition(2).Start(2).Reserve("3")
			return changed(base, base.Image("app:2"))
		}(), `
			create web-2 old
			create web-4 old
			create web-5 new`},
		"OnDelete: new": {changed(onDelete, onDelete.Image("app:2")), `
			create web-0 new
			create web-1 new`},
		"unordered: old while fewer old ones than the partition are left": {free(2).old(0).new(1, 2), `
			create web-3 old
			held web-0: Partition`},
		"unordered: new when enough old ones are left": {free(2).old(0, 3).new(1), `
			create web-2 new
			held web-0: Partition
			held web-3: Partition`},
		"unordered: those decided earlier count, missing higher ones do not": {free(1).new(2), `
			create web-0 old
			create web-1 new
			create web-3 new`},
		"an object that admission never saw goes by currentReplicas": {func() situation {
			base := parallel(3)
			s := changed(base, base.Image("app:2"))
			s.set = s.set.With(withoutRolling)
			return s
		}(), `
			create web-0 old
			create web-1 old
			create web-2 new`},
	})
}

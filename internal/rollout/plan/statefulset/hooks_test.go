// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// TestHooks is statefulset.md 8 and the deadlocks of 14, no. 1, 2 and 7.
func TestHooks(t *testing.T) {
	lc := v1beta1.Lifecycle{PreDelete: hook(false), InPlaceUpdate: hook(false)}
	three := ordered(3).TemplateLabel(hookLabel, "on").Lifecycle(lc)
	free := parallel(3).TemplateLabel(hookLabel, "on").Lifecycle(lc)
	in := func(b fixture.StatefulSetBuilder, n int, s v1beta1.LifecycleState) fixture.PodBuilder {
		return pod(b, n).State(s)
	}
	released := func(b fixture.StatefulSetBuilder, n int, s v1beta1.LifecycleState) fixture.PodBuilder {
		return in(b, n, s).Label(hookLabel, "off")
	}
	const (
		preparingUpdate = v1beta1.LifecyclePreparingUpdate
		updating        = v1beta1.LifecycleUpdating
		updated         = v1beta1.LifecycleUpdated
	)
	preNormal := ordered(1).Lifecycle(v1beta1.Lifecycle{PreNormal: hook(false)})
	runTable(t, map[string]row{
		"a Pod that is to be updated in place is prepared first": {newImage(inPlace(three)).old(0, 1, 2), `
			move web-2 to PreparingUpdate: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"its hook is waited for": {newImage(inPlace(three)).old(0, 1).with(in(three, 2, preparingUpdate)), `
			held web-2: InPlaceUpdateHook
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"OrderedReady: once it lets go the update goes on": {newImage(inPlace(three)).old(0, 1).with(released(three, 2, preparingUpdate)), `
			updateinplace web-2 to Updating: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"also behind a Pod that is not available": {newImage(inPlace(three)).with(unready(three, 0)).old(1).with(released(three, 2, preparingUpdate)), `
			updateinplace web-2 to Updating: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"Parallel: once it lets go the update goes on": {newImage(inPlace(free)).old(0, 1).with(released(free, 2, preparingUpdate)), `
			updateinplace web-2 to Updating: OldRevision
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"a rollback lets a prepared Pod go": {web(inPlace(three)).new(0, 1).with(in(three, 2, preparingUpdate)), `
			refresh web-2 to Updated: Lifecycle`},
		"an update that is complete is told to the hook's owner": {web(inPlace(three)).new(0, 1).with(in(three, 2, updating)), `
			refresh web-2 to Updated: Lifecycle`},
		"who takes the Pod back": {web(inPlace(three)).new(0, 1).with(released(three, 2, updated)), ``},
		"and then it is Normal": {web(inPlace(three)).new(0, 1).with(in(three, 2, updated)), `
			refresh web-2 to Normal: Lifecycle`},
		"a newer revision takes it again at once": {newImage(inPlace(three)).old(0, 1).with(released(three, 2, updated)), `
			move web-2 to PreparingUpdate: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"paused: a released Pod waits": {newImage(inPlace(three).Paused()).old(0, 1).with(released(three, 2, preparingUpdate)), `
			held web-0: Paused
			held web-1: Paused
			held web-2: Paused`},
		"a Pod that is to be recreated is prepared first": {newImage(three).old(0, 1, 2), `
			move web-2 to PreparingDelete: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"OrderedReady: once preDelete lets go it is deleted": {newImage(three).old(0, 1).with(released(three, 2, preparingDelete)), `
			delete web-2: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"OrderedReady: so is a marked one": {web(three).new(0, 1).with(released(three, 2, preparingDelete).SpecifiedDelete()), `
			delete web-2: SpecifiedDelete`},
		"OrderedReady: a marked one that is still hooked is waited for": {web(three).new(0, 1).with(in(three, 2, preparingDelete).SpecifiedDelete()), `
			held web-2: PreDeleteHook`},
		"scale-in by two prepares one": {web(three.Replicas(1)).new(0, 1, 2), `
			move web-2 to PreparingDelete: OutOfRange
			held web-1: OrderedReady`},
		"waits for it": {web(three.Replicas(1)).new(0, 1).with(in(three, 2, preparingDelete)), `
			held web-2: PreDeleteHook
			held web-1: OrderedReady`},
		"and deletes it": {web(three.Replicas(1)).new(0, 1).with(released(three, 2, preparingDelete)), `
			delete web-2: OutOfRange
			held web-1: OrderedReady`},
		"also when two were prepared by an earlier release": {web(three.Replicas(1)).new(0).with(in(three, 1, preparingDelete), released(three, 2, preparingDelete)), `
			delete web-2: OutOfRange
			held web-1: OrderedReady`},
		"also when a Pod in range is not available": {web(three.Replicas(2)).new(1).with(unready(three, 0), released(three, 2, preparingDelete)), `
			delete web-2: OutOfRange`},
		"Parallel prepares all": {web(free.Replicas(1)).new(0, 1, 2), `
			move web-2 to PreparingDelete: OutOfRange
			move web-1 to PreparingDelete: OutOfRange`},
		"Parallel: one that waits for its hook does not stop the other": {web(free.Replicas(1)).new(0).with(released(free, 1, preparingDelete), in(free, 2, preparingDelete)), `
			delete web-1: OutOfRange
			held web-2: PreDeleteHook`},
		"scaled out again, the Pod comes back": {web(three).new(0, 1).with(in(three, 2, preparingDelete)), `
			move web-2 to PreparingNormal: DeletionReverted`},
		"and becomes Normal": {web(three).new(0, 1).with(in(three, 2, v1beta1.LifecyclePreparingNormal)), `
			refresh web-2 to Normal: Lifecycle`},
		"scaled out with a new image it comes back, too, and is then updated in place": {newImage(inPlace(three)).old(0, 1).with(in(three, 2, preparingDelete)), `
			move web-2 to PreparingNormal: DeletionReverted
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"one that the partition keeps now comes back": {newImage(three.Partition(3)).old(0, 1).with(in(three, 2, preparingDelete)), `
			move web-2 to PreparingNormal: DeletionReverted
			held web-0: Partition
			held web-1: Partition`},
		"a paused update keeps it prepared": {newImage(three.Paused()).old(0, 1).with(released(three, 2, preparingDelete)), `
			held web-0: Paused
			held web-1: Paused
			held web-2: Paused`},
		"under OnDelete it comes back": {newImage(three.OnDelete()).old(0, 1).with(in(three, 2, preparingDelete)), `
			move web-2 to PreparingNormal: DeletionReverted
			held web-0: OnDelete
			held web-1: OnDelete`},
		"Parallel: a Pod waiting in PreparingDelete does not stop a second update of others in U": {newImage(free).with(unready(free, 0)).old(1).with(released(free, 2, preparingDelete)), `
			delete web-2: OldRevision
			move web-0 to PreparingDelete: OldRevision
			held web-1: MaxUnavailable`},
		"a failed Pod goes by the hook, too": {web(three).new(0, 1).with(failed(three, 2)), `
			move web-2 to PreparingDelete: PodEnded`},
		"a new Pod waits for preNormal": {web(preNormal), `
			create web-0 new PreparingNormal`},
		"unless its template has all the hook wants": {web(preNormal.TemplateLabel(hookLabel, "on")), `
			create web-0 new`},
		"PreparingNormal stays until all handlers are there": {web(preNormal).with(in(preNormal, 0, v1beta1.LifecyclePreparingNormal)), ``},
		"then it is Normal": {web(preNormal).with(in(preNormal, 0, v1beta1.LifecyclePreparingNormal).Label(hookLabel, "on")), `
			refresh web-0 to Normal: Lifecycle`},
		"a Pod without a state is Normal": {newImage(inPlace(parallel(1))).with(pod(parallel(1), 0).With(func(p *corev1.Pod) { delete(p.Labels, v1beta1.LifecycleStateLabel) })), `
			updateinplace web-0 to Updating: OldRevision`},
	})
}

// TestComingBackReleasesTheHolds: unlike a CloneSet's, a Pod comes back also when the hook
// marks Pods not ready.
func TestComingBackReleasesTheHolds(t *testing.T) {
	set := ordered(1).TemplateLabel(hookLabel, "on").Lifecycle(v1beta1.Lifecycle{PreDelete: hook(true)})
	held := pod(set, 0).With(func(p *corev1.Pod) {
		p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: v1beta1.KruisePodReady})
		podready.Initialize(p, now)
		decision := lifecycle.OnDelete(p, &v1beta1.Lifecycle{PreDelete: hook(true)})
		decision.Transition.Apply(p, now)
	})
	p := held.Obj()
	assert.Equal(t, []podready.Holder{podready.PreDeleteHook}, podready.Holders(p))
	plan := Decide(web(set).with(held).snapshot(), now)
	plan.Refresh[0].Transition.Apply(p, now)
	assert.Empty(t, podready.Holders(p))
	assert.Equal(t, v1beta1.LifecyclePreparingNormal, lifecycle.State(p))
}

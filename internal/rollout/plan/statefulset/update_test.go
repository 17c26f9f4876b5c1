// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

func newImage(b fixture.StatefulSetBuilder) situation { return changed(b, b.Image("app:2")) }

func newEnv(b fixture.StatefulSetBuilder) situation { return changed(b, b.Env("A", "1")) }

func TestUpdateInOrder(t *testing.T) {
	three, four := ordered(3), parallel(4).MaxUnavailable("2")
	runTable(t, map[string]row{
		"the highest first, one at a time": {newImage(three).old(0, 1, 2), `
			delete web-2: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"the next when that is available": {newImage(three).old(0, 1).new(2), `
			delete web-1: OldRevision
			held web-0: OrderedReady`},
		"not while it is unready": {newImage(three).old(0, 1).with(unready(three.Image("app:2"), 2)), `
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"a broken revision waits for the user in OrderedReady": {newImage(three).old(0, 1).with(unready(three, 2)), `
			held web-0: OrderedReady
			held web-1: OrderedReady
			held web-2: OrderedReady`},
		"in place": {newImage(inPlace(three)).old(0, 1, 2), `
			updateinplace web-2 to Updating: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"what cannot be done in place is recreated": {newEnv(inPlace(three)).old(0, 1, 2), `
			delete web-2: OldRevision
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"InPlaceOnly never deletes, and the ones below wait": {newEnv(three.Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType)).old(0, 1, 2), `
			held web-2: InPlaceOnly
			held web-0: OrderedReady
			held web-1: OrderedReady`},
		"InPlaceOnly holds only the Pod itself in Parallel": {newEnv(parallel(2).Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType)).old(0, 1), `
			held web-1: InPlaceOnly
			held web-0: InPlaceOnly`},
		"a revision that is gone is no way in place": {newImage(inPlace(parallel(1))).with(pod(inPlace(parallel(1)), 0).Label("controller-revision-hash", "web-gone")), `
			delete web-0: OldRevision`},
		"two at a time": {newImage(four).old(0, 1, 2, 3), `
			delete web-3: OldRevision
			delete web-2: OldRevision
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"unavailable Pods anywhere use the budget up": {newImage(four).old(1, 2, 3).with(unready(four.Image("app:2"), 0)), `
			delete web-3: OldRevision
			held web-2: MaxUnavailable
			held web-1: MaxUnavailable`},
		"missing Pods do, too": {newImage(four).old(0, 1, 2), `
			create web-3 new
			delete web-2: OldRevision
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"so does a Pod stuck in terminating": {newImage(four).old(0, 1, 2).with(going(four, 3)), `
			delete web-2: OldRevision
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable
			held web-3: Terminating`},
		"the fix reaches a broken first Pod": {newImage(parallel(4)).with(unready(four, 0)).old(1, 2, 3), `
			delete web-0: OldRevision
			held web-3: MaxUnavailable
			held web-2: MaxUnavailable
			held web-1: MaxUnavailable`},
		"a set that is all unready is still updated": {newImage(inPlace(parallel(3))).with(unready(three, 0), unready(three, 1), unready(three, 2)), `
			updateinplace web-2 to Updating: OldRevision
			updateinplace web-1 to Updating: OldRevision
			updateinplace web-0 to Updating: OldRevision`},
		"a Pod that is ready for too short counts, and time alone goes on": {newImage(parallel(2).MinReadySeconds(10)).old(0).with(young(parallel(2).Image("app:2"), 1)), `
			held web-0: MaxUnavailable
			again in 8s`},
		"a percentage of the replicas, rounded down": {newImage(parallel(4).MaxUnavailable("70%")).old(0, 1, 2, 3), `
			delete web-3: OldRevision
			delete web-2: OldRevision
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"Pods out of range are not updated": {newImage(parallel(1)).old(0, 1), `
			delete web-1: OutOfRange
			delete web-0: OldRevision`},
		"paused": {newImage(three.Paused()).old(0, 1, 2), `
			held web-0: Paused
			held web-1: Paused
			held web-2: Paused`},
		"scaling goes on while paused": {newImage(three.Paused()).old(0, 1), `
			create web-2 new
			held web-0: Paused
			held web-1: Paused`},
		"OnDelete": {newImage(three.OnDelete()).old(0, 1, 2), `
			held web-0: OnDelete
			held web-1: OnDelete
			held web-2: OnDelete`},
	})
}

func TestASetThatGoesIsLeftAlone(t *testing.T) {
	s := newImage(ordered(3)).old(0).snapshot()
	s.Set.DeletionTimestamp = &metav1.Time{Time: now}
	assert.Equal(t, Plan{}, Decide(s, now))
}

func TestPartition(t *testing.T) {
	three := parallel(3).MaxUnavailable("100%")
	runTable(t, map[string]row{
		"as many as the replicas: nothing": {newImage(three.Partition(3)).old(0, 1, 2), `
			held web-0: Partition
			held web-1: Partition
			held web-2: Partition`},
		"two kept": {newImage(three.Partition(2)).old(0, 1, 2), `
			delete web-2: OldRevision
			held web-0: Partition
			held web-1: Partition`},
		"it counts Pods and not ordinals": {newImage(three.Partition(1).Start(5).Reserve("6")).old(5, 7, 8), `
			delete web-8: OldRevision
			delete web-7: OldRevision
			held web-5: Partition`},
		"the ones above that are updated stay when it is raised": {newImage(three.Partition(2)).old(0).new(1, 2), `
			held web-0: Partition`},
		"a Pod in PreparingUpdate that it keeps now is let go": {newImage(inPlace(three).Partition(3).Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook(true)})).old(0, 1).
			with(pod(three, 2).State(v1beta1.LifecyclePreparingUpdate).Label(hookLabel, "on")), `
			refresh web-2 to Updated: Lifecycle
			held web-0: Partition
			held web-1: Partition`},
	})
}

func TestUnorderedUpdate(t *testing.T) {
	weight := &v1beta1.UpdatePriorityStrategy{WeightPriority: []v1beta1.UpdatePriorityWeightTerm{
		{Weight: 20, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"zone": "b"}}},
		{Weight: 10, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}},
	}}
	order := &v1beta1.UpdatePriorityStrategy{OrderPriority: []v1beta1.UpdatePriorityOrderTerm{{OrderedKey: "rank"}}}
	base := parallel(4)
	labelled := func(n int, key, value string) fixture.PodBuilder { return pod(base, n).Label(key, value) }
	runTable(t, map[string]row{
		"by ordinal without priorities": {newImage(base.Unordered(nil)).old(0, 1, 2, 3), `
			delete web-3: OldRevision
			held web-2: MaxUnavailable
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"the heaviest first": {newImage(base.Unordered(weight)).old(0, 3).with(labelled(1, "canary", "yes"), labelled(2, "zone", "b")), `
			delete web-2: OldRevision
			held web-1: MaxUnavailable
			held web-3: MaxUnavailable
			held web-0: MaxUnavailable`},
		"Pods without a key first, then the largest number": {newImage(base.Unordered(order)).old(0).with(labelled(1, "rank", "r-1"), labelled(2, "rank", "r-2"), labelled(3, "rank", "r-10")), `
			delete web-0: OldRevision
			held web-3: MaxUnavailable
			held web-2: MaxUnavailable
			held web-1: MaxUnavailable`},
		"the partition keeps the last of the order": {newImage(base.Unordered(order).Partition(2)).old(0).with(labelled(1, "rank", "r-1"), labelled(2, "rank", "r-2"), labelled(3, "rank", "r-10")), `
			delete web-0: OldRevision
			held web-3: MaxUnavailable
			held web-1: Partition
			held web-2: Partition`},
		"updated and terminating Pods use up places": {newImage(base.Unordered(nil).Partition(2)).old(1, 2).with(going(base, 0)).new(3), `
			held web-0: Terminating
			held web-1: Partition
			held web-2: Partition`},
		"with its gate a Pod in PreparingUpdate counts as updated": {newImage(inPlace(base).Unordered(nil).Partition(3)).old(0, 1, 3).
			with(pod(base, 2).State(v1beta1.LifecyclePreparingUpdate)).gate(func(g *Gates) { g.PreparingUpdateAsUpdate = true }), `
			updateinplace web-2 to Updating: OldRevision
			held web-0: Partition
			held web-1: Partition
			held web-3: Partition`},
		"without it the highest is taken, and that Pod is let go": {newImage(inPlace(base).Unordered(nil).Partition(3)).old(0, 1, 3).
			with(pod(base, 2).State(v1beta1.LifecyclePreparingUpdate)), `
			refresh web-2 to Normal: Lifecycle
			held web-3: MaxUnavailable
			held web-0: Partition
			held web-1: Partition`},
	})
}

func TestSpecifiedDeletion(t *testing.T) {
	three := parallel(3)
	marked := func(b fixture.StatefulSetBuilder, n int) fixture.PodBuilder { return pod(b, n).SpecifiedDelete() }
	runTable(t, map[string]row{
		"deleted, the highest first, within maxUnavailable": {web(three).new(0).with(marked(three, 1), marked(three, 2)), `
			delete web-2: SpecifiedDelete
			held web-1: MaxUnavailable`},
		"any value of the label counts": {web(three).new(0, 1).with(pod(three, 2).Label(v1beta1.SpecifiedDeleteLabel, "")), `
			delete web-2: SpecifiedDelete`},
		"a Pod that does not serve costs nothing, and is not held up by one that does": {web(three).new(1).with(unready(three, 0).SpecifiedDelete(), marked(three, 2)), `
			delete web-0: SpecifiedDelete
			held web-2: MaxUnavailable`},
		"one that is going is left alone": {web(three).new(0, 1).with(marked(three, 2).Terminating(now)), ``},
		"not limited by the partition": {newImage(three.Partition(3)).old(1, 2).with(marked(three, 0)), `
			delete web-0: SpecifiedDelete
			held web-1: Partition
			held web-2: Partition`},
		"before the update, which waits": {newImage(three).old(1, 2).with(marked(three, 0)), `
			delete web-0: SpecifiedDelete
			held web-2: MaxUnavailable
			held web-1: MaxUnavailable`},
		"not while paused": {web(three.Paused()).new(0, 1).with(marked(three, 2)), `
			held web-2: Paused`},
		"nor under OnDelete": {web(three.OnDelete()).new(0, 1).with(marked(three, 2)), `
			held web-2: OnDelete`},
		"OrderedReady waits until all are available": {web(ordered(3)).with(unready(three, 0), marked(ordered(3), 2)).new(1), `
			held web-2: OrderedReady`},
		"OrderedReady deletes one at a time": {web(ordered(3)).new(0).with(marked(ordered(3), 1), marked(ordered(3), 2)), `
			delete web-2: SpecifiedDelete
			held web-1: OrderedReady`},
		"one that comes back old is kept old": {newImage(ordered(3).Partition(2)).old(0).new(2), `
			create web-1 old
			held web-0: Partition`},
	})
}

func TestInPlaceProgress(t *testing.T) {
	base := inPlace(parallel(2))
	state := func(begin time.Time) string {
		return `{"revision":"` + fixture.StatefulSetRevision(base.Image("app:2"), 2).Name + `","updateTimestamp":"` + begin.Format(time.RFC3339) +
			`","lastContainerStatuses":{"app":{"imageID":"id-of-app:1"}},"updateImages":true}`
	}
	updating := pod(base.Image("app:2"), 1).State(v1beta1.LifecycleUpdating).Annotation(v1beta1.InPlaceUpdateStateAnnotation, state(now))
	stale := updating.With(func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Image, p.Status.ContainerStatuses[0].ImageID = "app:1", "id-of-app:1"
	})
	runTable(t, map[string]row{
		"a Pod whose update is under way counts as unavailable": {newImage(base).old(0).with(stale), `
			held web-0: MaxUnavailable`},
		"when it is complete the Pod becomes Normal first": {newImage(base).old(0).with(updating), `
			refresh web-1 to Normal: Lifecycle
			held web-0: MaxUnavailable`},
		"a newer revision goes over a Pod that is Updating": {changed(base.Image("app:2"), base.Image("app:3")).old(0).with(stale), `
			updateinplace web-1 to Updating: OldRevision
			held web-0: MaxUnavailable`},
		"a grace period is waited for": {newImage(base).old(0).with(stale.Annotation(v1beta1.InPlaceUpdateGraceAnnotation,
			`{"revision":"`+fixture.StatefulSetRevision(base.Image("app:2"), 2).Name+`","containerImages":{"app":"app:2"},"graceSeconds":30}`)), `
			held web-0: MaxUnavailable
			again in 30s`},
	})
}

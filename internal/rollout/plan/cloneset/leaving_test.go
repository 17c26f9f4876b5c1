// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// What whole rollouts through chaos have found, one situation each.
func TestPodsThatAreOnTheirWayAndNotWantedThereAnyMore(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}
	web := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).
		Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook, PreDelete: hook}).Replicas(2).MaxUnavailable("1")
	v2 := web.Image("app:2")
	old := func(n string) fixture.PodBuilder { return fixture.PodOf(web, n) }
	upd := func(n string) fixture.PodBuilder { return fixture.PodOf(v2, n) }
	preparing := func(b fixture.PodBuilder) fixture.PodBuilder { return b.State(v1beta1.LifecyclePreparingUpdate) }
	rollback := func(s Snapshot) Snapshot { s.Gates.PartitionRollback = true; return s }
	cases := map[string]struct {
		snapshot Snapshot
		want     string
	}{
		"a partition that was raised releases PreparingUpdate": {
			situationOf(web, v2.Partition("2"), preparing(old("a")), old("b")),
			"Move a T9: UpdateReverted\nheld a: Partition\nheld b: Partition"},
		"so do replacements at the update revision": {
			situationOf(web, v2.Partition("1"), preparing(old("a")), upd("b")),
			"Move a T9: UpdateReverted\nheld a: Partition"},
		"so does OnDelete": {
			situationOf(web, v2.OnDelete(), preparing(old("a")), old("b")),
			"Move a T9: UpdateReverted\nheld b: OnDelete"},
		"a Pod that is still to be updated stays": {
			situationOf(web, v2.Partition("1"), preparing(old("a").Label("hook", "on")), old("b")),
			"held a: InPlaceUpdateHook\nheld b: Partition"},
		"paused, it waits": {
			situationOf(web, v2.Paused(), preparing(old("a")), old("b")),
			"held a: Paused\nheld b: Paused"},
		"a template that was rolled back releases it at once": {
			situationOf(web, web, preparing(old("a")), old("b")), "Refresh a T9: Lifecycle"},
		"a Pod on its way back is not at the end of a rollback": {
			rollback(situationOf(web, v2.Partition("2"), preparing(upd("a").Label("hook", "on")), old("b"))),
			"held a: InPlaceUpdateHook"},
		"and is updated back when its hook lets go": {
			rollback(situationOf(web, v2.Partition("2"), preparing(upd("a")), old("b"))),
			"UpdateInPlace a T4: OldRevision"},
		"one more on its way back than needed is released": {
			rollback(situationOf(web, v2.Partition("1"), preparing(upd("a").Label("hook", "on")), preparing(upd("b").Label("hook", "on")))),
			"Move b T9: UpdateReverted\nheld a: InPlaceUpdateHook"},
		"an old one while others go back is released": {
			rollback(situationOf(web, v2.Replicas(3).Partition("3"), preparing(old("a")), upd("b"), old("c"))),
			"Move a T9: UpdateReverted\nheld b: MaxUnavailable"},
		"an excluded Pod in PreparingDelete does not use up the limit of creation for ever": {
			situationOf(web, web.ScaleMaxUnavailable("1").ExcludePreparingDelete(), old("a"), old("b").State(v1beta1.LifecyclePreparingDelete).SpecifiedDelete()),
			"Delete b: HookReleased\nlimited to 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, brief(Decide(tc.snapshot, now))); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// A step that is right only because its Pod was unavailable says so.
func TestFreeStepsAreThoseOfUnavailablePodsBeyondTheLimit(t *testing.T) {
	web := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).Replicas(3).MaxUnavailable("1")
	up := func(n string) fixture.PodBuilder { return fixture.PodOf(web, n) }
	down := func(n string) fixture.PodBuilder { return up(n).NotReady(fixture.Created) }
	free := func(steps []Step) (names string) {
		for _, s := range steps {
			if s.Free {
				names += s.Pod
			}
		}
		return names
	}
	cases := map[string]struct {
		snapshot Snapshot
		want     string
	}{
		"an update beyond the limit":     {situationOf(web, web.Image("app:2"), down("a"), down("b"), up("c")), "a"},
		"an update within the limit":     {situationOf(web, web.Image("app:2"), down("a"), up("b"), up("c")), ""},
		"a mark takes nothing away":      {situationOf(web, web.Env("A", "1"), down("a"), down("b"), up("c")), ""},
		"deletions beyond the limit":     {situationOf(web, web, down("a").SpecifiedDelete(), down("b").SpecifiedDelete(), up("c")), "ab"},
		"deletions within the limit":     {situationOf(web, web, down("a").SpecifiedDelete(), up("b"), up("c")), ""},
		"all may go":                     {situationOf(web, web.Replicas(0), down("a"), down("b"), up("c")), ""},
		"a surplus while too few are up": {situationOf(web, web, down("a"), down("b"), down("c"), up("d")), "a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			plan := Decide(tc.snapshot, now)
			if got := free(plan.Update) + free(plan.Scale); got != tc.want {
				t.Errorf("free are %q, want %q: %v", got, tc.want, plan)
			}
		})
	}
}

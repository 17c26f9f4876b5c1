// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/inplace"
)

// situationOf is a snapshot in which old is at the current revision and set at the update
// revision.
func situationOf(old, set fixture.CloneSetBuilder, pods ...fixture.PodBuilder) Snapshot {
	current, next := fixture.Revision(old, 1), fixture.Revision(set, 2)
	if current.Name == next.Name {
		next = current
	}
	s := Snapshot{
		Set: set.Status(current.Name, next.Name).Obj(), Current: current, Update: next,
		Revisions: []*appsv1.ControllerRevision{current, next}, InPlace: inplace.Options{EnvFromMetadata: true},
	}
	for _, p := range pods {
		s.Pods = append(s.Pods, p.Obj())
	}
	s.Pods = Sorted(s.Pods)
	return s
}

// hooked adds a preDelete hook to the set of the snapshot.
func (s Snapshot) hooked(hook *v1beta1.LifecycleHook) Snapshot {
	s.Set.Spec.Lifecycle = &v1beta1.Lifecycle{PreDelete: hook}
	return s
}

// brief is a plan as one line per step.
func brief(p Plan) string {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if p.Create.Total() > 0 {
		line("create %d current, %d update %v", p.Create.Current, p.Create.Update, p.Create.IDs)
	}
	for _, c := range p.Claims {
		line("claim %s to %q", c.Claim, c.Owner)
	}
	for _, list := range [][]Step{p.Refresh, p.Scale, p.Update} {
		for _, s := range list {
			rule := s.Transition.Rule
			if rule != "" {
				rule = " " + rule
			}
			line("%s %s%s: %s", s.Do, s.Pod, rule, s.Why)
		}
	}
	for _, h := range p.Held {
		line("held %s: %s", h.Pod, h.Why)
	}
	if p.Limited != nil {
		line("limited to %d", *p.Limited)
	}
	for _, n := range p.StaleNames {
		line("stale name %s", n)
	}
	if p.Requeue > 0 {
		line("again in %s", p.Requeue)
	}
	return strings.Join(lines, "\n")
}

func TestDecide(t *testing.T) {
	web := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
	v2 := func(b fixture.CloneSetBuilder) fixture.CloneSetBuilder { return b.Image("app:2") }
	r3 := web.Replicas(3).MaxUnavailable("1")
	old, upd := func(n string) fixture.PodBuilder { return fixture.PodOf(web, n) }, func(n string) fixture.PodBuilder { return fixture.PodOf(v2(web), n) }
	label := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}
	hooked := func(b fixture.CloneSetBuilder) fixture.CloneSetBuilder {
		return b.Lifecycle(v1beta1.Lifecycle{PreDelete: label, InPlaceUpdate: label})
	}
	claim := func(id string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Name, c.Labels = "data-web-"+id, map[string]string{"apps.kruise.io/cloneset-instance-id": id}
		return c
	}
	reuse := func(b fixture.CloneSetBuilder) fixture.CloneSetBuilder {
		return b.With(func(c *v1beta1.CloneSet) { c.Spec.ScaleStrategy.EnablePVCReuse = true })
	}
	id := func(p fixture.PodBuilder, id string) fixture.PodBuilder {
		return p.Label("apps.kruise.io/cloneset-instance-id", id)
	}
	with := func(s Snapshot, change func(*Snapshot)) Snapshot { change(&s); return s }
	claims := func(ids ...string) func(*Snapshot) {
		return func(s *Snapshot) {
			for _, i := range ids {
				s.Claims = append(s.Claims, claim(i))
			}
		}
	}

	cases := map[string]struct {
		snapshot Snapshot
		want     string
	}{
		"nothing to do": {situationOf(r3, r3, old("a"), old("b"), old("c")), ""},
		"missing Pods are created at the update revision": {
			situationOf(r3, v2(r3), old("a"), old("b")), "create 0 current, 1 update []\nheld a: ScaleFirst\nheld b: ScaleFirst"},
		"partition makes missing Pods old": {
			situationOf(r3.Partition("3"), v2(r3.Partition("3")), old("a")), "create 2 current, 0 update []\nheld a: ScaleFirst"},
		"available Pods share the budget": {
			situationOf(r3, v2(r3), old("a"), old("b"), old("c")),
			"UpdateInPlace a T3: OldRevision\nheld b: MaxUnavailable\nheld c: MaxUnavailable"},
		"an unavailable Pod goes first and costs no budget": {
			situationOf(r3, v2(r3), old("a"), old("b").NotReady(fixture.Created), old("c")),
			"UpdateInPlace b T3: OldRevision\nheld a: MaxUnavailable\nheld c: MaxUnavailable"},
		"unavailable Pods go one after the other, too": {
			situationOf(r3, v2(r3), old("a").NotReady(fixture.Created), old("b").NotReady(fixture.Created), old("c")),
			"UpdateInPlace a T3: OldRevision\nheld b: MaxUnavailable\nheld c: MaxUnavailable"},
		"unavailable old Pods use up the budget of available ones": {
			situationOf(r3.MaxUnavailable("2"), v2(r3.MaxUnavailable("2")), old("a").NotReady(fixture.Created), old("b").NotReady(fixture.Created).SpecifiedDelete().Label("hook", "on").State(v1beta1.LifecyclePreparingDelete), old("c")).hooked(label),
			"UpdateInPlace a T3: OldRevision\nheld b: PreDeleteHook\nheld c: MaxUnavailable"},
		"a Pod that is refreshed is not updated in the same pass": {
			situationOf(r3, v2(r3), old("a").State(v1beta1.LifecyclePreparingNormal), old("b"), old("c")),
			"Refresh a T1: Lifecycle\nheld a: Refreshing\nheld b: MaxUnavailable\nheld c: MaxUnavailable"},
		"a Pod that is deleted is not refreshed": {
			situationOf(r3, r3, old("a").State(v1beta1.LifecyclePreparingNormal).SpecifiedDelete(), old("b"), old("c")), "Delete a: SpecifiedDelete"},
		"an updated Pod that is not ready uses up the budget": {
			situationOf(r3, v2(r3), upd("a").NotReady(fixture.Created), old("b"), old("c")),
			"held b: MaxUnavailable\nheld c: MaxUnavailable"},
		"partition holds the rest": {
			situationOf(r3.Partition("2"), v2(r3.Partition("2")), upd("a"), old("b"), old("c")),
			"held b: Partition\nheld c: Partition"},
		"paused holds all": {
			situationOf(r3, v2(r3.Paused()), old("a"), old("b"), upd("c")), "held a: Paused\nheld b: Paused"},
		"OnDelete holds all": {
			situationOf(r3, v2(r3.OnDelete()), old("a"), old("b"), old("c")), "held a: OnDelete\nheld b: OnDelete\nheld c: OnDelete"},
		"what cannot be done in place is marked for deletion": {
			situationOf(r3, r3.Env("A", "1"), old("a"), old("b"), old("c")),
			"Mark a: OldRevision\nheld b: MaxUnavailable\nheld c: MaxUnavailable"},
		"InPlaceOnly refuses instead": {
			situationOf(r3, r3.Env("A", "1").Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType), old("a"), old("b"), old("c")),
			"held a: InPlaceOnly\nheld b: InPlaceOnly\nheld c: InPlaceOnly"},
		"a marked Pod is deleted, and the update waits": {
			situationOf(r3, v2(r3), old("a").SpecifiedDelete(), old("b"), old("c")),
			"Delete a: SpecifiedDelete\nheld b: ScaleFirst\nheld c: ScaleFirst"},
		"an available marked Pod waits for the budget, an unavailable one does not": {
			situationOf(r3, r3, old("a").SpecifiedDelete(), old("b").NotReady(fixture.Created), old("c").SpecifiedDelete().NotReady(fixture.Created)),
			"Delete c: SpecifiedDelete\nheld a: DeleteBudget"},
		"a Pod named in podsToDelete is deleted, other names are stale": {
			situationOf(r3, r3.PodsToDelete("b", "gone"), old("a"), old("b"), old("c")), "Delete b: SpecifiedDelete\nstale name gone"},
		"surplus goes by deletion order": {
			situationOf(r3, r3, old("a"), old("b"), old("c"), old("d").Annotation("controller.kubernetes.io/pod-deletion-cost", "-1")), "Delete d: Surplus"},
		"Pods that are ready but not available yet need no budget to go": {
			situationOf(r3, r3.MinReadySeconds(86400), old("a"), old("b"), old("c"), old("d"), old("e")), "Delete a: Surplus\nDelete b: Surplus\nagain in 23h0m1s"},
		"a preDelete hook makes it PreparingDelete first": {
			situationOf(r3, hooked(r3), old("a").SpecifiedDelete().Label("hook", "on"), old("b"), old("c")), "Move a T10: SpecifiedDelete"},
		"the hook holds a PreparingDelete Pod": {
			situationOf(r3, hooked(r3.Replicas(2)), old("a").State(v1beta1.LifecyclePreparingDelete).Label("hook", "on"), old("b"), old("c")), "held a: PreDeleteHook"},
		"without the hook it is deleted": {
			situationOf(r3, hooked(r3.Replicas(2)), old("a").State(v1beta1.LifecyclePreparingDelete), old("b"), old("c")), "Delete a: HookReleased"},
		"a PreparingDelete Pod that is wanted again is taken back": {
			situationOf(r3, hooked(r3), old("a").State(v1beta1.LifecyclePreparingDelete).Label("hook", "on"), old("b"), old("c")), "Move a T11: ScaleInReverted"},
		"but not one that was specified": {
			situationOf(r3, hooked(r3), old("a").SpecifiedDelete().State(v1beta1.LifecyclePreparingDelete).Label("hook", "on"), old("b"), old("c")), "held a: PreDeleteHook"},
		"an inPlaceUpdate hook makes it PreparingUpdate first": {
			situationOf(r3, v2(hooked(r3)), old("a").Label("hook", "on"), old("b"), old("c")), "Move a T2: OldRevision\nheld b: MaxUnavailable\nheld c: MaxUnavailable"},
		"a held PreparingUpdate Pod uses up the budget": {
			situationOf(r3, v2(hooked(r3)), old("b").State(v1beta1.LifecyclePreparingUpdate).Label("hook", "on"), old("a"), old("c")),
			"held b: InPlaceUpdateHook\nheld a: MaxUnavailable\nheld c: MaxUnavailable"},
		"a released PreparingUpdate Pod is updated": {
			situationOf(r3, v2(hooked(r3)), old("b").State(v1beta1.LifecyclePreparingUpdate), old("a"), old("c")),
			"UpdateInPlace b T4: OldRevision\nheld a: MaxUnavailable\nheld c: MaxUnavailable"},
		"a new Pod becomes Normal once it is scheduled": {
			situationOf(r3, r3, old("a").State(v1beta1.LifecyclePreparingNormal), old("b"), old("c")), "Refresh a T1: Lifecycle"},
		"an unscheduled one is left alone": {
			situationOf(r3, r3, old("a").State(v1beta1.LifecyclePreparingNormal).Node("").With(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }), old("b"), old("c")), ""},
		"a Pod without pod-template-hash gets it": {
			situationOf(r3, r3, old("a").With(func(p *corev1.Pod) { delete(p.Labels, "pod-template-hash") }), old("b"), old("c")), "Refresh a: TemplateHashMissing"},
		"a Pod in its grace period waits": {
			situationOf(r3, v2(r3), old("a").State(v1beta1.LifecycleUpdating).
				Annotation("apps.kruise.io/inplace-update-grace", `{"revision":"`+fixture.Revision(web, 1).Name+`","graceSeconds":7200}`).
				Annotation("apps.kruise.io/inplace-update-state", `{"revision":"`+fixture.Revision(web, 1).Name+`","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":null}`), old("b"), old("c")),
			"held a: GracePeriod\nheld b: MaxUnavailable\nheld c: MaxUnavailable\nagain in 1h0m0s"},
		"creation is limited by scale maxUnavailable, and the rest of the update goes on": {
			situationOf(r3, v2(r3.ScaleMaxUnavailable("1").Replicas(4)), old("a").NotReady(fixture.Created), old("b"), old("c")),
			"UpdateInPlace a T3: OldRevision\nheld b: MaxUnavailable\nheld c: MaxUnavailable\nlimited to 1"},
		"missing Pods and limited creation do not stop the repair of an unavailable Pod": {
			situationOf(r3, v2(r3.ScaleMaxUnavailable("1").Replicas(6)), old("a").NotReady(fixture.Created), old("b"), old("c")),
			"UpdateInPlace a T3: OldRevision\nheld b: MaxUnavailable\nheld c: MaxUnavailable\nlimited to 1"},
		"surge comes first when recreating": {
			situationOf(r3, v2(r3.Policy(v1beta1.RecreatePodUpdatePolicyType).MaxSurge("1").MaxUnavailable("0")), old("a"), old("b"), old("c")),
			"create 0 current, 1 update []\nheld a: ScaleFirst\nheld b: ScaleFirst\nheld c: ScaleFirst"},
		"no surge is spent on Pods that are updated in place": {
			situationOf(r3, v2(r3.MaxSurge("1")), old("a"), old("b"), old("c")),
			"UpdateInPlace a T3: OldRevision\nheld b: MaxUnavailable\nheld c: MaxUnavailable"},
		"ids of kept claims are used first": {
			with(situationOf(r3, reuse(r3), id(old("web-aaaaa"), "aaaaa")), claims("aaaaa", "ccccc", "bbbbb")), "create 0 current, 2 update [bbbbb ccccc]"},
		"a claim whose Pod terminates is waited for": {
			with(situationOf(r3, reuse(r3), id(old("web-aaaaa"), "aaaaa"), id(old("web-ccccc"), "ccccc")), func(s *Snapshot) {
				claims("aaaaa", "bbbbb", "ccccc")(s)
				s.Inactive = append(s.Inactive, id(old("web-bbbbb"), "bbbbb").Terminating(fixture.Created).Obj())
			}), "held web-bbbbb: NameTaken"},
		"a failed Pod that holds a name is deleted": {
			with(situationOf(r3, reuse(r3), id(old("web-aaaaa"), "aaaaa"), id(old("web-ccccc"), "ccccc")), func(s *Snapshot) {
				claims("aaaaa", "bbbbb", "ccccc")(s)
				s.Inactive = append(s.Inactive, id(old("web-bbbbb"), "bbbbb").Phase(corev1.PodFailed).Obj())
			}), "Delete web-bbbbb: NameTaken"},
		"without reuse claims go with their Pod, or go": {
			with(situationOf(r3, r3, id(old("web-aaaaa"), "aaaaa"), old("b"), old("c")), func(s *Snapshot) {
				claims("aaaaa", "bbbbb", "ccccc")(s)
				s.Inactive = append(s.Inactive, id(old("web-bbbbb"), "bbbbb").Terminating(fixture.Created).Obj())
			}), "claim data-web-bbbbb to \"web-bbbbb\"\nclaim data-web-ccccc to \"\""},
		"a Pod that becomes available in a while": {
			situationOf(r3, r3.MinReadySeconds(10), old("a"), old("b"), old("c").Ready(now.Add(-4*time.Second))), "again in 6s"},
		"a set that is being deleted is left alone": {
			situationOf(r3, r3.With(func(c *v1beta1.CloneSet) { c.DeletionTimestamp = new(c.CreationTimestamp) })), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, brief(Decide(tc.snapshot, now))); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDetailsSayTheNumbersAndTheField(t *testing.T) {
	web := fixture.CloneSet("web").Replicas(3).MaxUnavailable("1").Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType)
	pods := []fixture.PodBuilder{fixture.PodOf(web, "a"), fixture.PodOf(web, "b"), fixture.PodOf(web, "c")}
	blocked := Decide(situationOf(web, web.Env("A", "1"), pods...), now)
	assert.Contains(t, blocked.Blocked()[0].Detail, "find Pod a update strategy is InPlaceOnly but can not update in-place: spec.template.spec.containers[app].env")
	held := Decide(situationOf(web, web.Image("app:2"), pods...), now).Held
	assert.Equal(t, "1 Pods are unavailable or being updated, and 1 may be (maxUnavailable 1 of 3 replicas, 3 Pods exist)", held[0].Detail)
	parted := Decide(situationOf(web, web.Image("app:2").Partition("3"), pods...), now).Held
	assert.Equal(t, "partition keeps 3 of 3 Pods at revision "+fixture.Revision(web, 1).Name, parted[0].Detail)
}

func TestPreparingUpdateAsUpdateReplacesAtTheCurrentRevision(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}
	web := fixture.CloneSet("web").Replicas(2).Partition("99%").MaxUnavailable("50%").
		Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook})
	s := situationOf(web, web.Image("app:2"), fixture.PodOf(web, "a").State(v1beta1.LifecyclePreparingUpdate).Label("hook", "on"))
	s.Gates.PreparingUpdateAsUpdate = true
	assert.Equal(t, Creation{Current: 1}, Decide(s, now).Create)
	s.Gates.PreparingUpdateAsUpdate = false
	assert.Equal(t, Creation{Update: 1}, Decide(s, now).Create)
}

// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/property"
)

// drawSet draws a CloneSet with numbers as limits, so that tests can hold Decide to them.
func drawSet(t *rapid.T) fixture.CloneSetBuilder {
	replicas := rapid.IntRange(1, 6).Draw(t, "replicas")
	surge := rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "maxSurge")
	lowest := 1
	if surge > 0 {
		lowest = 0
	}
	policy := rapid.SampledFrom([]v1beta1.PodUpdatePolicyType{
		v1beta1.RecreatePodUpdatePolicyType, v1beta1.InPlaceIfPossiblePodUpdatePolicyType, v1beta1.InPlaceIfPossiblePodUpdatePolicyType,
	}).Draw(t, "policy")
	return fixture.CloneSet("web").Replicas(int32(replicas)).Policy(policy).
		MaxUnavailable(fmt.Sprint(rapid.IntRange(lowest, 3).Draw(t, "maxUnavailable"))).
		MaxSurge(fmt.Sprint(surge)).
		Partition(fmt.Sprint(rapid.IntRange(0, replicas).Draw(t, "partition"))).
		Grace(int32(rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "grace"))).
		MinReadySeconds(int32(rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "minReadySeconds")))
}

// TestRolloutsKeepTheirPromises lets users, controller, cache and kubelets act in an order
// that rapid draws: caches lag, writes fail and conflict. The world checks at each write
// that maxUnavailable and maxSurge hold; here the end is checked. rapid keeps the seeds
// that fail in testdata/rapid.
func TestRolloutsKeepTheirPromises(t *testing.T) {
	property.Many(t, 1200, func(t *rapid.T) {
		set := drawSet(t)
		w := newWorld(set, t.Fatalf)
		w.gates.PreparingUpdateAsUpdate = rapid.Bool().Draw(t, "preparingUpdateAsUpdate")
		w.settle()
		first := w.names()
		replicas, partition := Replicas(w.set), Partition(w.set)

		needsRecreate := rapid.Bool().Draw(t, "needsRecreate")
		if needsRecreate {
			w.change("env A=1", env("1"))
		} else {
			w.change("image app:2", image("app:2"))
		}
		// How many Pods may be updated in the end. A raised partition takes none back.
		least, most := replicas-partition, replicas-partition
		act(t, w, rapid.IntRange(0, 120).Draw(t, "ticks"))
		if rapid.Bool().Draw(t, "changePartition") {
			n := rapid.IntRange(0, replicas).Draw(t, "newPartition")
			w.change(fmt.Sprintf("partition %d", n), func(c *v1beta1.CloneSet) {
				c.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.FromInt32(int32(n)))
			})
			act(t, w, rapid.IntRange(0, 60).Draw(t, "moreTicks"))
			least, most = replicas-n, max(most, replicas-n)
			if n <= partition {
				most = replicas - n
			}
		}
		w.settle()
		w.checkEnd(t, least, most)

		rolling := set.Obj().Spec.UpdateStrategy.RollingUpdate
		inPlace := rolling.PodUpdatePolicy == v1beta1.InPlaceIfPossiblePodUpdatePolicyType && !needsRecreate
		if inPlace && (rolling.MaxSurge.IntVal == 0 || rolling.MaxUnavailable.IntVal > 0) {
			if len(w.deleted)+len(w.marked) > 0 || !slices.Equal(first, w.names()) {
				t.Fatalf("Pods that can be updated in place were deleted: %v %v\n%s", w.deleted, w.marked, strings.Join(w.story, "\n"))
			}
		}
	})
}

// act draws who does what next.
func act(t *rapid.T, w *world, ticks int) {
	fails := func() bool { return rapid.IntRange(0, 9).Draw(t, "fails") == 0 }
	for range ticks {
		names := w.names()
		pick := func() string {
			if len(names) == 0 {
				return ""
			}
			return rapid.SampledFrom(names).Draw(t, "pod")
		}
		switch rapid.IntRange(0, 9).Draw(t, "who") {
		case 0, 1, 2:
			w.reconcile(fails)
		case 3, 4, 5:
			w.kubelet(pick())
		case 6, 7:
			w.sync(pick())
		case 8:
			w.syncAll()
		case 9:
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second)
		}
	}
}

// updated counts the active Pods that are labelled with the newest revision.
func (w *world) updated() (n int) {
	s := w.snapshot()
	for _, v := range s.views(w.now) {
		if v.updated {
			n++
		}
	}
	return n
}

// checkEnd: all Pods that should be updated are, no more, all serve, nothing is left to do.
func (w *world) checkEnd(t *rapid.T, least, most int) {
	story := strings.Join(w.story, "\n")
	if got := w.updated(); got < least || got > most {
		t.Fatalf("%d Pods are updated in the end, want %d to %d\n%s", got, least, most, story)
	}
	if w.available() != Replicas(w.set) || len(w.pods) != Replicas(w.set) {
		t.Fatalf("%d Pods, %d available, want %d\n%s", len(w.pods), w.available(), Replicas(w.set), story)
	}
	s := w.snapshot()
	if plan := Decide(s, w.now); !plan.Idle() {
		t.Fatalf("the fixed point has a plan: %+v\n%s", plan, story)
	}
	if status := Status(s, w.now); StatusDiffers(&w.set.Status, &status) {
		t.Fatalf("the fixed point has another status: %+v\n%s", status, story)
	}
	for _, p := range w.pods {
		if want := w.revisionOf(p); !strings.HasPrefix(want, p.Spec.Containers[0].Image) {
			t.Fatalf("Pod %s is labelled %s and runs %s", p.Name, want, p.Spec.Containers[0].Image)
		}
	}
}

// shelf holds what drawn snapshots have in common, made once: building it costs more than
// a decision does.
type shelf struct {
	current, image, env *appsv1.ControllerRevision
	old, updated, mixed *corev1.Pod // ready Pods at the revisions
}

var theShelf = sync.OnceValue(func() shelf {
	web := fixture.CloneSet("web")
	made := web.Image("app:2")
	pod := func(b fixture.CloneSetBuilder) *corev1.Pod { return fixture.PodOf(b, "web").Obj() }
	return shelf{
		current: fixture.Revision(web, 1), image: fixture.Revision(made, 2), env: fixture.Revision(made.Env("A", "1"), 2),
		old: pod(web), updated: pod(made), mixed: pod(made.Env("A", "1")),
	}
})

var drawnStates = []v1beta1.LifecycleState{
	v1beta1.LifecycleNormal, v1beta1.LifecycleNormal, v1beta1.LifecycleNormal, v1beta1.LifecyclePreparingNormal,
	v1beta1.LifecyclePreparingUpdate, v1beta1.LifecycleUpdating, v1beta1.LifecycleUpdated, v1beta1.LifecyclePreparingDelete,
}

// drawSnapshot draws any situation, also ones that no rollout leads to.
func drawSnapshot(t *rapid.T) Snapshot {
	from := theShelf()
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}
	set := drawSet(t).Image("app:2").Obj()
	if rapid.Bool().Draw(t, "hooks") {
		set.Spec.Lifecycle = &v1beta1.Lifecycle{PreDelete: hook, InPlaceUpdate: hook}
	}
	next, updated := from.image, from.updated
	if rapid.Bool().Draw(t, "needsRecreate") {
		next, updated = from.env, from.mixed
	}
	set.Status.CurrentRevision, set.Status.UpdateRevision = from.current.Name, next.Name
	s := Snapshot{Set: set, Update: next, Current: from.current, Revisions: []*appsv1.ControllerRevision{from.current, next}}
	s.Gates.PartitionRollback = rapid.Bool().Draw(t, "rollback")
	s.Gates.PreparingUpdateAsUpdate = rapid.Bool().Draw(t, "preparingUpdateAsUpdate")
	set.Spec.UpdateStrategy.RollingUpdate.Paused = rapid.IntRange(0, 4).Draw(t, "paused") == 0
	for i := range rapid.IntRange(0, 9).Draw(t, "pods") {
		p := from.old.DeepCopy()
		if rapid.Bool().Draw(t, "updated") {
			p = updated.DeepCopy()
		}
		p.Name = fmt.Sprintf("web-%d", i)
		p.Labels[v1beta1.LifecycleStateLabel] = string(rapid.SampledFrom(drawnStates).Draw(t, "state"))
		c := podready.Condition(p, corev1.PodReady)
		switch rapid.IntRange(0, 4).Draw(t, "ready") {
		case 0:
			c.Status = corev1.ConditionFalse
		case 1:
			c.LastTransitionTime = metav1.NewTime(now.Add(-time.Second))
		}
		if rapid.IntRange(0, 5).Draw(t, "specified") == 0 {
			p.Labels[v1beta1.SpecifiedDeleteLabel] = "true"
		}
		if rapid.Bool().Draw(t, "hooked") {
			p.Labels["hook"] = "on"
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

var now = fixture.Created.Add(time.Hour)

// after counts what is left when the plan is carried out and nothing else happens. Old
// are the Pods that a partition keeps: one in PreparingDelete is not among them, one that
// is deleted because a user marked it still is, for its successor has the same revision.
func after(s Snapshot, p Plan) (available, total, old int) {
	gone, surplus, down, moved := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, step := range slices.Concat(p.Scale, p.Update) {
		switch step.Do {
		case Delete:
			gone[step.Pod] = true
			surplus[step.Pod] = step.Why == ReasonSurplus
		case Move, UpdateInPlace:
			down[step.Pod] = true
		}
		if step.Do == UpdateInPlace {
			moved[step.Pod] = step.Target
		}
	}
	for _, v := range s.views(now) {
		target, ok := moved[v.pod.Name]
		updated := ok && target == s.Update.Name || !ok && v.isNew
		if !updated && !v.preparingDelete() && !surplus[v.pod.Name] {
			old++
		}
		if gone[v.pod.Name] {
			continue
		}
		total++
		if v.available && !down[v.pod.Name] {
			available++
		}
	}
	return available, total + p.Create.Total(), old + p.Create.Current
}

func TestOneStepFromAnywhereKeepsTheLimits(t *testing.T) {
	property.Many(t, 40000, func(t *rapid.T) {
		s := drawSnapshot(t)
		rolling := s.Set.Spec.UpdateStrategy.RollingUpdate
		replicas, unavailable := int(*s.Set.Spec.Replicas), int(rolling.MaxUnavailable.IntVal)
		surge, partition := int(rolling.MaxSurge.IntVal), int(rolling.Partition.IntVal)
		plan := Decide(s, now)
		wasAvailable, wasTotal, wasOld := after(s, Plan{})
		available, total, left := after(s, plan)
		if available < min(wasAvailable, replicas-unavailable) {
			t.Fatalf("%d Pods are available after the step, %d were before, at least %d must be: %v", available, wasAvailable, replicas-unavailable, plan)
		}
		if total > max(wasTotal, replicas+surge) {
			t.Fatalf("%d Pods after the step, %d before, at most %d may be: %v", total, wasTotal, replicas+surge, plan)
		}
		if left < min(wasOld, partition) {
			t.Fatalf("%d Pods are at the old revision after the step, %d before, partition %d: %v", left, wasOld, partition, plan)
		}
		if total < min(wasTotal, replicas) && plan.Create.Total() == 0 && !onlyPlanned(plan) {
			t.Fatalf("%d Pods are left of %d, none of them marked: %v", total, replicas, plan)
		}
		checkDisjoint(t.Fatalf, plan)
		accounted(t, s, plan)
	})
}

// onlyPlanned tells whether every deletion is of a Pod that was marked or preparing.
func onlyPlanned(p Plan) bool {
	for _, step := range p.Scale {
		if step.Do == Delete && step.Why == ReasonSurplus {
			return false
		}
	}
	return true
}

// accounted: a Pod that is not at the update revision has a step, or a reason why not.
func accounted(t *rapid.T, s Snapshot, p Plan) {
	known := map[string]bool{}
	for _, step := range slices.Concat(p.Refresh, p.Scale, p.Update, p.Held) {
		if step.Why == "" || (step.Do == Wait && step.Detail == "") {
			t.Fatalf("a step without a reason: %+v", step)
		}
		known[step.Pod] = true
	}
	for _, v := range s.views(now) {
		if !v.updated && !known[v.pod.Name] && p.Numbers.UpdateNum >= 0 {
			t.Fatalf("Pod %s is old, and nobody says why: %+v", v.pod.Name, p)
		}
	}
}

// TestDecideOnlyReads: a snapshot may be shared with a cache.
func TestDecideOnlyReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		set, pods := s.Set.DeepCopy(), make([]*corev1.Pod, len(s.Pods))
		for i, p := range s.Pods {
			pods[i] = p.DeepCopy()
		}
		Decide(s, now)
		Status(s, now)
		Preview(s, now)
		if !equality.Semantic.DeepEqual(set, s.Set) {
			t.Fatal("the CloneSet was changed")
		}
		for i := range pods {
			if !podsEqual(pods[i], s.Pods[i]) {
				t.Fatalf("Pod %s was changed", pods[i].Name)
			}
		}
	})
}

// TestPreviewTellsWhatHappens: what the preview says of each Pod is what the rollout does.
func TestPreviewTellsWhatHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := drawSet(t)
		if rolling := set.Obj().Spec.UpdateStrategy.RollingUpdate; rolling.MaxUnavailable.IntVal == 0 {
			t.Skip("which old Pods go as surplus in the end depends on how fast Pods become ready")
		}
		w := newWorld(set, t.Fatalf)
		w.settle()
		if rapid.Bool().Draw(t, "needsRecreate") {
			w.change("env A=1", env("1"))
		} else {
			w.change("image app:2", image("app:2"))
		}
		w.syncAll()
		uids := map[string]bool{}
		for name := range w.pods {
			uids[name] = true
		}
		said := Preview(w.snapshot(), w.now)
		w.settle()
		target := w.snapshot().Update.Name
		for _, p := range said {
			live, kept := w.pods[p.Pod]
			updated := kept && (&view{pod: live}).at(w.snapshot().Update)
			var want PodAction
			switch {
			case !kept:
				want = PodRecreate
			case updated:
				want = PodInPlace
			default:
				want = PodKeep
			}
			if p.Action == PodDelete {
				p.Action = PodRecreate // surge: the last old Pods go as surplus
			}
			if p.Action != want {
				t.Fatalf("Pod %s: said %+v, was %s at %s\n%s", p.Pod, p, want, target, strings.Join(w.story, "\n"))
			}
			if (p.Batch == 0) != (p.Action == PodKeep) || p.Action == PodKeep && p.Held == "" {
				t.Fatalf("Pod %s: %+v", p.Pod, p)
			}
		}
	})
}

func podsEqual(a, b *corev1.Pod) bool { return equality.Semantic.DeepEqual(a, b) }

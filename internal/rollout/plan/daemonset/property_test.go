// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/property"
)

// checkPlan holds what is true of every plan against one, given what it was made of.
func checkPlan(fail func(string, ...any), s Snapshot, p Plan, at time.Time) {
	seen := map[string]bool{}
	known := map[string]bool{}
	for _, step := range slices.Concat(p.Delete, p.Update, p.Refresh) {
		if seen[step.Pod] {
			fail("Pod %s has two steps in %s", step.Pod, brief(p))
		}
		seen[step.Pod] = true
	}
	for _, step := range slices.Concat(p.Create, p.Delete, p.Update, p.Held) {
		if step.Why == "" || step.Detail == "" {
			fail("a step without a reason: %+v", step)
		}
		known[step.Pod+"/"+step.Node], known["/"+step.Node] = true, true
	}
	if p.Manages && len(p.Update) > 0 {
		fail("one plan gives nodes Pods and updates: %s", brief(p))
	}
	limits := p.Numbers.Limits
	if len(p.Create) > limits.Burst || len(p.Update) > limits.Burst {
		fail("more than burstReplicas: %s", brief(p))
	}
	taken := map[string]Step{}
	for _, step := range slices.Concat(p.Delete, p.Update) {
		taken[step.Pod] = step
	}
	old, left := 0, 0
	for _, place := range s.places(at) {
		if place.run && len(place.pods) == 0 && !known["/"+place.name] {
			fail("node %s has no Pod, and nobody says why: %s", place.name, brief(p))
		}
		surged := slices.ContainsFunc(p.Create, func(c Step) bool { return c.Node == place.name && c.Why == ReasonSurge })
		newPod, oldPod, _ := place.pair()
		if place.node != nil && oldPod.usable() && newPod == nil {
			old++
			if step := taken[oldPod.pod.Name]; !surged && step.Why != ReasonOldRevision && step.Why != ReasonUnavailable {
				left++
			}
		}
		for _, v := range place.pods {
			step, gone := taken[v.pod.Name]
			if v.terminating && gone {
				fail("a terminating Pod is deleted again: %s", step)
			}
			if step.Why == ReasonReplaced && v.ready && !slices.ContainsFunc(place.pods, func(o *view) bool { return o.isNew && o.available && !o.terminating }) {
				fail("an old Pod goes before its follower is available: %s", step)
			}
			if gone && v.isNew && !v.over && !v.preparing && place.stay && step.Why != ReasonSurplus {
				fail("a Pod that is as it should be is taken away: %s", step)
			}
			if !v.isNew && !v.terminating && !gone && !surged && !known[v.pod.Name+"/"+place.name] && s.Set.DeletionTimestamp == nil {
				fail("Pod %s is old, and nobody says why: %s", v.pod.Name, brief(p))
			}
		}
	}
	if left < min(old, limits.Partition) {
		fail("%d nodes are left at the old revision, partition is %d: %s", left, limits.Partition, brief(p))
	}
}

func drawSet(t *rapid.T) fixture.DaemonSetBuilder {
	set := fixture.DaemonSet("agent").MinReadySeconds(int32(rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "minReadySeconds")))
	switch rapid.IntRange(0, 3).Draw(t, "type") {
	case 0:
		set = set.MaxSurge(fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "maxSurge")))
	case 1:
		set = set.MaxUnavailable(fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "maxUnavailable")))
	default:
		set = set.InPlace().MaxUnavailable(fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "maxUnavailable")))
	}
	if rapid.IntRange(0, 2).Draw(t, "hook") == 0 {
		set = set.TemplateLabel("hook", "on").Lifecycle(v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: hook}})
	}
	return set.Burst(rapid.SampledFrom([]string{"1", "2", "50%", "250"}).Draw(t, "burst"))
}

// drawSpec is a change of the spec by the user.
func drawSpec(t *rapid.T) (string, func(*v1beta1.DaemonSet)) {
	rolling := func(change func(*v1beta1.RollingUpdateDaemonSet)) func(*v1beta1.DaemonSet) {
		return func(d *v1beta1.DaemonSet) { change(d.Spec.UpdateStrategy.RollingUpdate) }
	}
	switch rapid.IntRange(0, 7).Draw(t, "spec") {
	case 0, 1:
		v := rapid.SampledFrom([]string{"app:1", "app:2", "bad:3"}).Draw(t, "image")
		return "image " + v, image(v)
	case 2:
		v := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "env")
		return "env A=" + v, env(v)
	case 3:
		v := rapid.SampledFrom([]string{"0", "1", "2", "50%"}).Draw(t, "partition")
		return "partition " + v, rolling(func(r *v1beta1.RollingUpdateDaemonSet) { r.Partition = new(intstr.Parse(v)) })
	case 4:
		v := rapid.Bool().Draw(t, "paused")
		return fmt.Sprint("paused ", v), rolling(func(r *v1beta1.RollingUpdateDaemonSet) { r.Paused = v })
	case 5:
		return "selector zone=canary", rolling(func(r *v1beta1.RollingUpdateDaemonSet) {
			r.Selector = fixture.DaemonSet("x").OnNodes("zone", "canary").Obj().Spec.UpdateStrategy.RollingUpdate.Selector
		})
	case 6:
		return "no selector", rolling(func(r *v1beta1.RollingUpdateDaemonSet) { r.Selector = nil })
	}
	on := rapid.Bool().Draw(t, "partitionedScaling")
	return fmt.Sprint("partitionedScaling ", on), func(d *v1beta1.DaemonSet) {
		d.Spec.ScaleStrategy = &v1beta1.DaemonSetScaleStrategy{PartitionedScaling: on}
	}
}

// disturb is one event of any kind, in any order.
func disturb(t *rapid.T, w *world) {
	names := append(w.names(), "a", "b", "c", "d", "e")
	name := func() string { return rapid.SampledFrom(names).Draw(t, "name") }
	node := func() string { return rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "node") }
	switch rapid.IntRange(0, 21).Draw(t, "event") {
	case 0, 1, 2, 3:
		w.reconcile(func() bool { return false })
	case 4:
		w.reconcile(func() bool { return rapid.Bool().Draw(t, "fails") })
	case 5, 6, 7, 8:
		w.sync(name())
	case 9:
		w.syncAll()
	case 10, 11, 12, 13:
		for _, n := range w.names() {
			w.kubelet(n)
		}
	case 14:
		w.kubelet(name())
	case 15:
		w.change(drawSpec(t))
	case 16:
		w.release(name())
	case 17:
		w.remove(name())
	case 18:
		w.end(name())
	case 19:
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second)
	case 20:
		moveNode(t, w, node())
	case 21:
		w.restart()
	}
	w.notice()
}

// moveNode makes a node join, leave, or change.
func moveNode(t *rapid.T, w *world, name string) {
	b := fixture.Node(name)
	switch rapid.IntRange(0, 4).Draw(t, "change") {
	case 0:
		delete(w.nodes, name)
		w.tell("node %s leaves", name)
		return
	case 1:
		b = b.Taint("t", corev1.TaintEffectNoSchedule)
	case 2:
		b = b.Taint("t", corev1.TaintEffectNoExecute)
	case 3:
		b = b.Label("zone", "canary")
	}
	w.nodes[name] = b.Obj()
	w.tell("node %s is %v with %v", name, w.nodes[name].Labels, w.nodes[name].Spec.Taints)
}

// TestWholeRollouts: whatever happens, in whatever order, with a cache that lags and writes
// that fail, no promise is broken, and once it calms down the goal is reached.
func TestWholeRollouts(t *testing.T) {
	property.Many(t, 1500, func(t *rapid.T) {
		w := newWorld(drawSet(t), "abc", t.Fatalf)
		w.gates.PruneIneligibleNodes = rapid.Bool().Draw(t, "prune")
		if rapid.Bool().Draw(t, "from rest") {
			w.settle()
		}
		for range rapid.IntRange(10, 60).Draw(t, "events") {
			disturb(t, w)
		}
		w.calm()
		w.settle()
		w.checkGoal()
	})
}

// calm ends what would keep the goal from being reached.
func (w *world) calm() {
	w.change("the last word", func(d *v1beta1.DaemonSet) {
		r := d.Spec.UpdateStrategy.RollingUpdate
		r.Paused, r.Selector, r.Partition = false, nil, nil
		if strings.HasPrefix(d.Spec.Template.Spec.Containers[0].Image, "bad") {
			d.Spec.Template.Spec.Containers[0].Image = "app:4"
		}
	})
	for name, n := range w.nodes {
		if !w.gates.PruneIneligibleNodes { // else Pods on such nodes may block the update
			n = n.DeepCopy()
			n.Spec.Taints = nil
			w.nodes[name] = n
		}
	}
}

// drawSnapshot is a cluster in any state, also one that no controller could have made.
func drawSnapshot(t *rapid.T) Snapshot {
	set := drawSet(t)
	if what, edit := drawSpec(t); !strings.Contains(what, "image") {
		set = set.With(edit)
	}
	c := update(set, "abcde")
	c.gates.PruneIneligibleNodes = rapid.Bool().Draw(t, "prune")
	for i, n := range c.nodes {
		switch rapid.IntRange(0, 6).Draw(t, "node") {
		case 0:
			c.nodes[i] = n.Taint("t", corev1.TaintEffectNoSchedule)
		case 1:
			c.nodes[i] = n.Taint("t", corev1.TaintEffectNoExecute)
		case 2:
			c.nodes[i] = n.Label("zone", "canary")
		}
	}
	for i := range rapid.IntRange(0, 9).Draw(t, "pods") {
		from := set
		if rapid.Bool().Draw(t, "new") {
			from = set.Image("app:2")
		}
		node := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "x"}).Draw(t, "on")
		p := fixture.PodOfDaemonSet(from, node).With(func(p *corev1.Pod) { p.Name = fmt.Sprintf("%s-%d", node, i) }).
			Created(fixture.Created.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "age")) * time.Minute))
		switch rapid.IntRange(0, 7).Draw(t, "state") {
		case 0:
			p = notReady(p)
		case 1:
			p = terminating(p)
		case 2:
			p = failed(p)
		case 3:
			p = preparing(p)
		case 4:
			p = p.Node("").Phase(corev1.PodPending).With(func(p *corev1.Pod) { p.Status.Conditions = nil })
		case 5:
			p = p.Ready(now.Add(-time.Second))
		}
		c.pods = append(c.pods, p)
	}
	return c.snapshot()
}

// TestOneStepFromAnywhereKeepsTheLimits also takes snapshots that nothing leads to.
func TestOneStepFromAnywhereKeepsTheLimits(t *testing.T) {
	property.Many(t, 32000, func(t *rapid.T) {
		s := drawSnapshot(t)
		p := Decide(s, now)
		checkPlan(t.Fatalf, s, p, now)
		taken, surged := 0, 0
		for _, step := range slices.Concat(p.Delete, p.Update) {
			if step.Why == ReasonOldRevision {
				taken++
			}
		}
		served := map[string]bool{}
		for _, pod := range s.Pods {
			if ok, _ := Available(pod, s.Set.Spec.MinReadySeconds, now); ok && pod.DeletionTimestamp == nil {
				served[TargetNode(pod)] = true
			}
		}
		for _, step := range p.Create {
			if step.Why == ReasonSurge && served[step.Node] {
				surged++
			}
		}
		r := s.Set.Spec.UpdateStrategy.RollingUpdate
		if surge := r.MaxSurge.IntVal; surged > int(surge) || surge > 0 && taken > 0 {
			t.Fatalf("%d Pods are taken and %d nodes surge: %s", taken, surged, brief(p))
		}
		if taken > int(r.MaxUnavailable.IntVal) {
			t.Fatalf("%d Pods are taken, maxUnavailable is %s: %s", taken, r.MaxUnavailable, brief(p))
		}
		if again := Decide(s, now); brief(again) != brief(p) {
			t.Fatalf("another answer to the same question: %s\n%s", brief(again), brief(p))
		}
		slices.Reverse(s.Pods)
		slices.Reverse(s.Nodes)
		if again := Decide(s, now); brief(again) != brief(p) {
			t.Fatalf("the order of the cache matters: %s\n%s", brief(again), brief(p))
		}
	})
}

// TestDecideOnlyReads: a snapshot may be shared with a cache.
func TestDecideOnlyReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		set, pods := s.Set.DeepCopy(), make([]*corev1.Pod, len(s.Pods))
		for i, p := range s.Pods {
			pods[i] = p.DeepCopy()
		}
		nodes := make([]*corev1.Node, len(s.Nodes))
		for i, n := range s.Nodes {
			nodes[i] = n.DeepCopy()
		}
		Decide(s, now)
		Status(s, now)
		Preview(s, now)
		if !equality.Semantic.DeepEqual(set, s.Set) || !equality.Semantic.DeepEqual(pods, s.Pods) || !equality.Semantic.DeepEqual(nodes, s.Nodes) {
			t.Fatal("the snapshot was changed")
		}
	})
}

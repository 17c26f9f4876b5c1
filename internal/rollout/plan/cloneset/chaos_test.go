// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/property"
)

// notice lets the controller's cache see what just happened to a Pod. What it cannot know
// it cannot take into account: a Pod that dies unseen while another one is drained is
// nobody's fault.
func (w *world) notice(p *corev1.Pod) {
	w.store(p)
	w.sync(p.Name)
}

// kill is a deletion by hand, past every hook.
func (w *world) kill(name string) {
	if live := w.pods[name]; live != nil && live.DeletionTimestamp == nil {
		p := live.DeepCopy()
		p.DeletionTimestamp = new(metav1.NewTime(w.now))
		w.tell("user: delete Pod %s", name)
		w.notice(p)
	}
}

// evict leaves the Pod in phase Failed.
func (w *world) evict(name string) {
	if live := w.pods[name]; live != nil && IsActive(live) {
		p := live.DeepCopy()
		p.Status.Phase = corev1.PodFailed
		w.setReady(p, false)
		w.tell("node: evict %s", name)
		w.notice(p)
	}
}

// crash restarts the Pod's container.
func (w *world) crash(name string) {
	live := w.pods[name]
	if live == nil || !IsActive(live) || len(live.Status.ContainerStatuses) == 0 {
		return
	}
	p := live.DeepCopy()
	s := &p.Status.ContainerStatuses[0]
	s.RestartCount++
	s.ContainerID, s.Ready = fmt.Sprintf("c://%s/%d", name, s.RestartCount), false
	w.setReady(p, false)
	w.tell("node: the container of %s crashes", name)
	w.notice(p)
}

// mark is a user's wish that the Pod be replaced.
func (w *world) mark(name string) {
	if live := w.pods[name]; live != nil && live.DeletionTimestamp == nil {
		p := live.DeepCopy()
		setLabel(p, v1beta1.SpecifiedDeleteLabel, "")
		w.tell("user: mark %s for deletion", name)
		w.notice(p)
	}
}

// operator is the owner of the hooks: it lets a Pod go that waits for it, and takes it
// back after the update.
func (w *world) operator(name string) {
	live, lc := w.pods[name], w.set.Spec.Lifecycle
	if live == nil || lc == nil || !w.operated {
		return
	}
	p := live.DeepCopy()
	switch lifecycle.State(p) {
	case v1beta1.LifecyclePreparingUpdate:
		lifecycle.Unhook(lc.InPlaceUpdate, p)
	case v1beta1.LifecyclePreparingDelete:
		lifecycle.Unhook(lc.PreDelete, p)
	case v1beta1.LifecycleUpdated:
		lifecycle.Rehook(lc.InPlaceUpdate, p)
	}
	if len(p.Labels) != len(live.Labels) {
		w.tell("operator: %s in state %s", name, lifecycle.State(p))
		w.store(p)
	}
}

// bad tells whether some Pod can never run.
func (w *world) bad() (any bool) {
	for _, p := range w.pods {
		any = any || strings.HasPrefix(w.revisionOf(p), "bad")
	}
	return any
}

func (w *world) rolling() *v1beta1.RollingUpdateCloneSetStrategy {
	return w.set.Spec.UpdateStrategy.RollingUpdate
}

// restart is the manager's: the new one knows nothing of the writes of the old one, and
// lists everything anew.
func (w *world) restart() {
	w.tell("manager: restart")
	w.written, w.expected, w.cache = map[string]int{}, map[string]bool{}, map[string]*corev1.Pod{}
	w.syncAll()
}

// drawChaos draws a CloneSet with everything that interferes with a rollout.
func drawChaos(t *rapid.T) fixture.CloneSetBuilder {
	set := drawSet(t)
	if rapid.IntRange(0, 2).Draw(t, "hooks") == 0 {
		hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}, MarkPodNotReady: rapid.Bool().Draw(t, "markPodNotReady")}
		set = set.TemplateLabel("hook", "on").Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook, PreDelete: hook})
	}
	if rapid.IntRange(0, 3).Draw(t, "limitScaling") == 0 {
		set = set.ScaleMaxUnavailable(fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "scaleMaxUnavailable")))
	}
	if rapid.IntRange(0, 3).Draw(t, "exclude") == 0 {
		set = set.With(func(c *v1beta1.CloneSet) { c.Spec.ScaleStrategy.ExcludePreparingDelete = true })
	}
	return set
}

// befall draws one thing that happens to a rollout from outside.
func befall(t *rapid.T, w *world, pick func() string) {
	strategy := func(what string, edit func(r *v1beta1.RollingUpdateCloneSetStrategy)) {
		w.change(what, func(c *v1beta1.CloneSet) { edit(c.Spec.UpdateStrategy.RollingUpdate) })
	}
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		w.kill(pick())
	case 1:
		w.evict(pick())
	case 2, 3:
		w.crash(pick())
	case 4:
		w.mark(pick())
	case 5:
		w.restart()
	case 6:
		n := rapid.IntRange(1, 6).Draw(t, "scale")
		w.change(fmt.Sprintf("replicas %d", n), func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(n)) })
	case 7:
		n := rapid.IntRange(0, 6).Draw(t, "partition")
		strategy(fmt.Sprintf("partition %d", n), func(r *v1beta1.RollingUpdateCloneSetStrategy) { r.Partition = new(intstr.FromInt32(int32(n))) })
	case 8:
		name := rapid.SampledFrom([]string{"app:1", "app:2", "app:3", "bad:1"}).Draw(t, "image")
		w.change("image "+name, image(name))
	case 9:
		paused := rapid.Bool().Draw(t, "paused")
		strategy(fmt.Sprintf("paused %t", paused), func(r *v1beta1.RollingUpdateCloneSetStrategy) { r.Paused = paused })
	}
}

// TestRolloutsThroughChaosReachTheirGoal lets users change their minds, Pods die, nodes
// evict, operators dawdle and managers restart in the middle of rollouts. The promises hold
// at each write of the controller, and when the chaos ends the last wish is fulfilled.
func TestRolloutsThroughChaosReachTheirGoal(t *testing.T) {
	property.Many(t, 1000, func(t *rapid.T) {
		w := newWorld(drawChaos(t), t.Fatalf)
		w.gates = Gates{
			PreparingUpdateAsUpdate: rapid.Bool().Draw(t, "preparingUpdateAsUpdate"),
			PartitionRollback:       rapid.Bool().Draw(t, "partitionRollback"),
		}
		w.operated = true
		w.tell("replicas %d, surge %s, unavailable %s, partition %s, scale %v", Replicas(w.set), w.rolling().MaxSurge, w.rolling().MaxUnavailable, w.rolling().Partition, w.set.Spec.ScaleStrategy)
		w.settle()
		w.change("image app:2", image("app:2"))
		w.cut = func() bool { return rapid.IntRange(0, 9).Draw(t, "cut") == 0 }
		for range rapid.IntRange(1, 6).Draw(t, "blows") {
			act(t, w, rapid.IntRange(0, 30).Draw(t, "ticks"))
			befall(t, w, func() string {
				if len(w.pods) == 0 {
					return ""
				}
				return rapid.SampledFrom(w.names()).Draw(t, "pod")
			})
		}
		w.cut = nil
		w.change("resume with a good image", func(c *v1beta1.CloneSet) {
			c.Spec.UpdateStrategy.RollingUpdate.Paused = false
			if w.bad() { // a partition would keep such Pods as they are
				c.Spec.UpdateStrategy.RollingUpdate.Partition = nil
			}
			if strings.HasPrefix(c.Spec.Template.Spec.Containers[0].Image, "bad") {
				c.Spec.Template.Spec.Containers[0].Image = "app:4"
			}
		})
		w.settle()
		w.checkEnd(t, Replicas(w.set)-Partition(w.set), Replicas(w.set))
	})
}

// TestManyPods is one rollout of more Pods than the drawn ones have, with the cache and the
// kubelets taking turns.
func TestManyPods(t *testing.T) {
	set := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).Replicas(60).MaxUnavailable("7").MinReadySeconds(2)
	w := newWorld(set, t.Fatalf)
	w.settle()
	first := w.names()
	w.change("image app:2", image("app:2"))
	w.settle()
	if w.updated() != 60 || len(w.deleted) > 0 || fmt.Sprint(first) != fmt.Sprint(w.names()) {
		t.Fatalf("%d updated, %d deleted", w.updated(), len(w.deleted))
	}
	if limit := 9 * (2 + 8) * time.Second; w.now.Sub(fixture.Created) > 3*limit {
		t.Fatalf("it took %s", w.now.Sub(fixture.Created))
	}
}

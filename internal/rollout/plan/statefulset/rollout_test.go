// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/property"
)

// TestRolloutsReachTheirGoal lets users, controller, cache, kubelets, volumes and owners of
// hooks act in an order that rapid draws: caches lag, events get lost, writes fail and
// conflict, Pods restart and fail. The world checks every step; here the end is checked.
func TestRolloutsReachTheirGoal(t *testing.T) {
	property.Many(t, 1000, func(t *rapid.T) {
		w := newWorld(drawSet(t), t.Fatalf)
		w.gates.PreparingUpdateAsUpdate = rapid.Bool().Draw(t, "preparingUpdateAsUpdate")
		w.offline = rapid.IntRange(0, 4).Draw(t, "offline") == 0
		if rapid.Bool().Draw(t, "settledAtFirst") {
			w.settle()
		}
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			edit(t, w)
			act(t, w, rapid.IntRange(0, 40).Draw(t, "ticks"))
		}
		calm(w)
		w.settle()
		w.checkGoal()
	})
}

// calm ends what the user would have to end: a pause, and a strategy that updates nothing.
func calm(w *world) {
	w.change("go on", func(s *v1beta1.StatefulSet) {
		if s.Spec.UpdateStrategy.RollingUpdate == nil {
			s.Spec.UpdateStrategy = v1beta1.StatefulSetUpdateStrategy{}
			v1beta1.SetDefaultsStatefulSet(s, v1beta1.DefaultOptions{AutoDeletePVC: true})
		}
		s.Spec.UpdateStrategy.RollingUpdate.Paused = false
	})
}

// act draws who does what next.
func act(t *rapid.T, w *world, ticks int) {
	fails := func() bool { return rapid.IntRange(0, 9).Draw(t, "fails") == 0 }
	pick := func(names []string) string {
		if len(names) == 0 {
			return ""
		}
		return rapid.SampledFrom(names).Draw(t, "name")
	}
	for range ticks {
		pods := w.pods.names()
		switch rapid.IntRange(0, 15).Draw(t, "who") {
		case 0, 1, 2, 3:
			w.reconcile(fails)
		case 4, 5, 6:
			w.kubelet(pick(pods))
		case 7:
			w.hooks(pick(pods))
		case 8:
			w.volumes(pick(w.claims.names()))
		case 9, 10:
			name := pick(pods)
			w.pods.sync(name)
		case 11:
			w.seen = w.set
			w.claims.syncAll()
		case 12, 13:
			w.syncAll()
		case 14:
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second)
		case 15:
			disturb(t, w, pick(pods))
		}
	}
}

// disturb is what happens to Pods past the controller.
func disturb(t *rapid.T, w *world, pod string) {
	switch rapid.IntRange(0, 6).Draw(t, "disturbance") {
	case 0, 1:
		w.crash(pod, false)
	case 2:
		w.crash(pod, true)
	case 3:
		w.userDeletes(pod)
	case 4:
		w.userMarks(pod)
	}
}

// edit draws a change of the spec.
func edit(t *rapid.T, w *world) {
	number := func(from, to int) int { return rapid.IntRange(from, to).Draw(t, "number") }
	rolling := func(change func(*v1beta1.RollingUpdateStatefulSetStrategy)) func(*v1beta1.StatefulSet) {
		return func(s *v1beta1.StatefulSet) {
			if r := s.Spec.UpdateStrategy.RollingUpdate; r != nil {
				change(r)
			}
		}
	}
	switch rapid.IntRange(0, 17).Draw(t, "edit") {
	case 0, 1:
		n := number(0, 6)
		w.change(fmt.Sprintf("replicas %d", n), func(s *v1beta1.StatefulSet) { s.Spec.Replicas = new(int32(n)) })
	case 2, 3, 4:
		name := fmt.Sprintf("app:%d", number(1, 3))
		w.change("image "+name, func(s *v1beta1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = name })
	case 5, 6:
		value := fmt.Sprint(number(0, 2))
		w.change("env A="+value, func(s *v1beta1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: value}}
		})
	case 7:
		n := number(0, 4)
		w.change(fmt.Sprintf("partition %d", n), rolling(func(r *v1beta1.RollingUpdateStatefulSetStrategy) { r.Partition = new(int32(n)) }))
	case 8:
		list := drawReserved(t)
		w.change(fmt.Sprintf("reserve %v", list), func(s *v1beta1.StatefulSet) { s.Spec.ReserveOrdinals = list })
	case 9:
		n := number(0, 2)
		w.change(fmt.Sprintf("start %d", n), func(s *v1beta1.StatefulSet) { s.Spec.Ordinals.Start = int32(n) })
	case 10:
		on := rapid.Bool().Draw(t, "paused")
		w.change(fmt.Sprintf("paused %t", on), rolling(func(r *v1beta1.RollingUpdateStatefulSetStrategy) { r.Paused = on }))
	case 11:
		gigabytes := int64(number(1, 3))
		w.change(fmt.Sprintf("claims of %dGi", gigabytes), func(s *v1beta1.StatefulSet) {
			for i := range s.Spec.VolumeClaimTemplates {
				s.Spec.VolumeClaimTemplates[i].Spec.Resources.Requests = size(gigabytes)
			}
		})
	case 12:
		name := fmt.Sprintf("data%d", number(0, 3))
		w.change("one more or less claim template "+name, func(s *v1beta1.StatefulSet) {
			for i := range s.Spec.VolumeClaimTemplates {
				if s.Spec.VolumeClaimTemplates[i].Name == name {
					s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates[:i:i], s.Spec.VolumeClaimTemplates[i+1:]...)
					return
				}
			}
			s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, claimTemplate(name))
		})
	case 13:
		policy := drawRetention(t)
		w.change(fmt.Sprintf("retention %s/%s", policy.WhenScaled, policy.WhenDeleted), func(s *v1beta1.StatefulSet) { s.Spec.PersistentVolumeClaimRetentionPolicy = policy })
	case 14:
		policy := rapid.SampledFrom([]v1beta1.PodUpdatePolicyType{v1beta1.RecreatePodUpdatePolicyType, v1beta1.InPlaceIfPossiblePodUpdatePolicyType}).Draw(t, "policy")
		w.change("policy "+string(policy), rolling(func(r *v1beta1.RollingUpdateStatefulSetStrategy) { r.PodUpdatePolicy = policy }))
	case 15:
		w.change("OnDelete", func(s *v1beta1.StatefulSet) {
			s.Spec.UpdateStrategy = v1beta1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		})
	case 16:
		lc := drawLifecycle(t)
		w.change("hooks", func(s *v1beta1.StatefulSet) { s.Spec.Lifecycle = lc })
	case 17:
		n := number(1, 3)
		w.change(fmt.Sprintf("maxUnavailable %d", n), rolling(func(r *v1beta1.RollingUpdateStatefulSetStrategy) {
			if Parallel(w.set) {
				r.MaxUnavailable = new(intstr.FromInt32(int32(n)))
			}
		}))
	}
}

// checkGoal: the Pods of the range exist, serve, and are updated as far as the partition
// allows; their claims are as the spec wants them; nothing is left to do.
func (w *world) checkGoal() {
	s := w.snapshot()
	limits, r := LimitsOf(s.Set), Ordinals(s.Set, s.Gates)
	updated := 0
	for n := range r.Walk() {
		p := w.pods.live[PodName(s.Set.Name, n)]
		if p == nil || !w.serves(p, s.Set) || lifecycle.State(p) != v1beta1.LifecycleNormal {
			w.fail("ordinal %d has no Pod that serves in the end\n%s", n, w.tale())
			return
		}
		is := (&view{pod: p}).at(s.Update)
		if is {
			updated++
		}
		candidate := Unordered(s.Set) == nil && r.Position(n) >= limits.Partition
		if candidate && (!is || !Covers(s.Set, p)) {
			w.fail("Pod %s is not updated in the end\n%s", p.Name, w.tale())
		}
		if text := w.revisionOf(p); !startsWith(text, p.Spec.Containers[0].Image) {
			w.fail("Pod %s is labelled %s and runs %s\n%s", p.Name, text, p.Spec.Containers[0].Image, w.tale())
		}
		w.checkClaims(s, p, n, candidate)
	}
	if len(w.pods.live) != limits.Replicas || updated < limits.Replicas-limits.Partition {
		w.fail("%d Pods, %d updated, partition %d of %d\n%s", len(w.pods.live), updated, limits.Partition, limits.Replicas, w.tale())
	}
	plan := Decide(s, w.now)
	if !plan.Idle() {
		w.fail("the fixed point has a plan: %+v\n%s", plan, w.tale())
	}
	for _, h := range plan.Held {
		if h.Why != HeldPartition {
			w.fail("the fixed point holds %s\n%s", h, w.tale())
		}
	}
	status := Status(s, w.now)
	if StatusDiffers(&w.set.Status, &status) || int(status.AvailableReplicas) != limits.Replicas || status.ObservedGeneration != w.set.Generation {
		w.fail("the fixed point has another status: %+v\n%s", status, w.tale())
	}
	if limits.Partition == 0 && status.CurrentRevision != status.UpdateRevision {
		w.fail("the rollout is over and not complete: %+v\n%s", status, w.tale())
	}
}

func startsWith(text, start string) bool {
	return len(text) >= len(start) && text[:len(start)] == start
}

func (w *world) checkClaims(s Snapshot, p *corev1.Pod, n int, candidate bool) {
	for i := range s.Set.Spec.VolumeClaimTemplates {
		t := &s.Set.Spec.VolumeClaimTemplates[i]
		name := ClaimName(t.Name, s.Set.Name, n)
		claim := w.claims.live[name]
		if !mounts(p, t.Name, name) {
			continue // the template is newer than the Pod, which the partition keeps
		}
		if claim == nil || claim.DeletionTimestamp != nil {
			w.fail("claim %s is missing or going in the end\n%s", name, w.tale())
			return
		}
		if f := fitOf(claim, t); candidate && ExpandsClaims(s.Set, s.Gates) && (!f.compatible() || !f.ready) {
			w.fail("claim %s is not expanded in the end: %+v\n%s", name, f, w.tale())
		}
		setOwns, podOwns := Retention(s.Set, true)
		if ownedBy(claim, s.Set) != setOwns || ownedBy(claim, p) != podOwns {
			w.fail("claim %s has owners %v in the end\n%s", name, claim.OwnerReferences, w.tale())
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/property"
)

// TestOneStepFromAnywhereKeepsThePromises: whatever the situation, also one that no
// rollout leads to.
func TestOneStepFromAnywhereKeepsThePromises(t *testing.T) {
	property.Many(t, 32000, func(t *rapid.T) {
		s := drawSnapshot(t)
		checkPlan(t.Fatalf, s, now, Decide(s, now))
	})
}

// TestEverySituationComesToRest: when every step succeeds, hooks let go and Pods become
// ready, nothing is left to do in the end but what a policy forbids.
func TestEverySituationComesToRest(t *testing.T) {
	property.Many(t, 2000, func(t *rapid.T) {
		s := drawSnapshot(t)
		m := newModel(&s, now)
		for _, p := range m.snapshot.Pods {
			m.trusted[p.Name] = !IsTerminal(p)
		}
		m.settle()
		var plan Plan
		for range 200 {
			plan = Decide(m.snapshot, m.now)
			checkPlan(t.Fatalf, m.snapshot, m.now, plan)
			if !m.apply(&plan) {
				break
			}
		}
		if !plan.Idle() {
			t.Fatalf("no fixed point: %+v", plan)
		}
		for _, h := range plan.Held {
			switch h.Why {
			case HeldPartition, HeldPaused, HeldOnDelete, HeldInPlaceOnly, HeldClaimShape, HeldNotExpandable, HeldStaleClaim, HeldClaimTerminating, HeldExpanding:
			case HeldOrder, HeldMaxUnavailable, HeldScaleLimit, HeldDeleteHook:
				if len(plan.Blocked()) == 0 && !stuck(plan) {
					t.Fatalf("held for no lasting reason: %+v in %+v", h, plan)
				}
			default:
				t.Fatalf("held for no lasting reason: %+v in %+v", h, plan)
			}
		}
	})
}

// stuck: the model has no garbage collector, driver or user that would let this go on.
func stuck(p Plan) bool {
	for _, h := range p.Held {
		switch h.Why {
		case HeldStaleClaim, HeldClaimTerminating, HeldExpanding, HeldPaused:
			return true
		}
	}
	return false
}

// TestDecideOnlyReads: a snapshot may be shared with a cache.
func TestDecideOnlyReads(t *testing.T) {
	property.Many(t, 300, func(t *rapid.T) {
		s := drawSnapshot(t)
		set, pods, claims := s.Set.DeepCopy(), make([]*corev1.Pod, len(s.Pods)), make([]*corev1.PersistentVolumeClaim, len(s.Claims))
		for i, p := range s.Pods {
			pods[i] = p.DeepCopy()
		}
		for i, c := range s.Claims {
			claims[i] = c.DeepCopy()
		}
		plan := Decide(s, now)
		Status(s, now)
		Preview(s, now)
		if again := Decide(s, now); !equality.Semantic.DeepEqual(plan.Held, again.Held) || !equality.Semantic.DeepEqual(plan.Create, again.Create) {
			t.Fatalf("two decisions about the same differ: %+v %+v", plan, again)
		}
		if !equality.Semantic.DeepEqual(set, s.Set) {
			t.Fatal("the StatefulSet was changed")
		}
		if !equality.Semantic.DeepEqual(pods, s.Pods) || !equality.Semantic.DeepEqual(claims, s.Claims) {
			t.Fatal("a Pod or a claim was changed")
		}
	})
}

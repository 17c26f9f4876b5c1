// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// Transition is one change of the lifecycle state, as data: one write of the Pod.
type Transition struct {
	// Rule is the row of the table in cloneset.md 7.1: T1 to T11.
	Rule     string
	From, To v1beta1.LifecycleState
	// Rehook holds the handlers to put back on the Pod in the same write; nil is none.
	Rehook *v1beta1.LifecycleHook
	// Hold and Release change who keeps the Pod not ready. Releasing what does not hold
	// is nothing.
	Hold, Release []podready.Holder
}

// Apply makes the change on pod, which must be the caller's copy: label and timestamp,
// handlers, holders. It does nothing to a Pod that is no longer in state From: a write
// repeated after a conflict must not undo what another has decided.
func (t Transition) Apply(pod *corev1.Pod, now time.Time) {
	if State(pod) != t.From {
		return
	}
	SetState(pod, t.To, now)
	Rehook(t.Rehook, pod)
	for _, h := range t.Release {
		podready.Release(pod, h, now)
	}
	for _, h := range t.Hold {
		podready.Hold(pod, h, now)
	}
}

// String is the change as a log or a test shows it.
func (t Transition) String() string { return fmt.Sprintf("%s: %s to %s", t.Rule, t.From, t.To) }

// Verdict says what may be done with a Pod now.
type Verdict string

const (
	// Go: no hook holds the Pod; do what was asked.
	Go Verdict = "Go"
	// Patch: write the decision's transition first; what was asked comes in a later pass.
	Patch Verdict = "Patch"
	// Wait: a hook holds the Pod until its owner lets go.
	Wait Verdict = "Wait"
	// Refuse: not possible in this state.
	Refuse Verdict = "Refuse"
)

// Decision is the answer to a wish to update or delete a Pod.
type Decision struct {
	Verdict    Verdict
	Transition Transition // for Patch
	Message    string     // for Wait and Refuse: one sentence for people
}

// OnUpdate decides about a Pod that was chosen for an in-place update: rules T2, T3, T4
// and T7. Go means: run the engine, and write state Updating with it (Updating).
func OnUpdate(pod *corev1.Pod, lc *v1beta1.Lifecycle) Decision {
	hook := updateHook(lc)
	state := State(pod)
	prepare := Transition{From: state, To: v1beta1.LifecyclePreparingUpdate}
	if hook != nil && hook.MarkPodNotReady {
		prepare.Hold = []podready.Holder{podready.PreUpdateHook}
	}
	switch state {
	case v1beta1.LifecycleNormal, v1beta1.LifecyclePreparingNormal:
		if HookedAny(hook, pod) {
			prepare.Rule = "T2"
			return Decision{Verdict: Patch, Transition: prepare}
		}
		return Decision{Verdict: Go}
	case v1beta1.LifecycleUpdated:
		if hook == nil { // the hook was edited away; the Pod would be Normal by now
			return Decision{Verdict: Go}
		}
		prepare.Rule, prepare.Rehook = "T7", hook
		return Decision{Verdict: Patch, Transition: prepare}
	case v1beta1.LifecyclePreparingUpdate:
		if HookedAny(hook, pod) {
			return Decision{Verdict: Wait, Message: "hook inPlaceUpdate holds the Pod in state PreparingUpdate"}
		}
		return Decision{Verdict: Go}
	case v1beta1.LifecycleUpdating:
		return Decision{Verdict: Go}
	default:
		return Decision{Verdict: Refuse, Message: fmt.Sprintf("not allowed to in-place update pod %s in state %s", pod.Name, state)}
	}
}

// Updating is the transition that goes with the engine's own write (T3, T4). Holders
// stay: a Pod that PreparingUpdate made not ready is so until it is Updated.
func Updating(pod *corev1.Pod) Transition {
	t := Transition{Rule: "T3", From: State(pod), To: v1beta1.LifecycleUpdating}
	if t.From == v1beta1.LifecyclePreparingUpdate {
		t.Rule = "T4"
	}
	return t
}

// Facts is what OnRefresh must know besides the Pod.
type Facts struct {
	// Complete: the in-place engine has nothing left to do on the Pod.
	Complete bool
	// AtUpdateRevision: the Pod is at the revision the workload wants.
	AtUpdateRevision bool
}

// OnRefresh returns the transition that a Pod is due on its own, if any: rules T1, T5,
// T6, T8 and T9.
//
// Two flaws of the original are mended (cloneset.md 7.2). A Pod whose update is over goes
// through Updated whenever an inPlaceUpdate hook with handlers is set, also after a
// rollback, so that the hook's owner sees the state that tells it to take the Pod back.
// And every way out of the update states releases the hold of markPodNotReady.
func OnRefresh(pod *corev1.Pod, lc *v1beta1.Lifecycle, f Facts) (Transition, bool) {
	state := State(pod)
	t := Transition{From: state, Release: []podready.Holder{podready.PreUpdateHook}}
	switch state {
	case v1beta1.LifecyclePreparingNormal:
		if hook := preNormalHook(lc); hook == nil && pod.Spec.NodeName == "" || !HookedAll(hook, pod) {
			return Transition{}, false
		}
		t.Rule, t.To, t.Release = "T1", v1beta1.LifecycleNormal, nil
	case v1beta1.LifecyclePreparingUpdate:
		if !f.Complete || !f.AtUpdateRevision {
			return Transition{}, false
		}
		t.Rule, t.To = "T9", afterUpdate(lc)
	case v1beta1.LifecycleUpdating:
		if !f.Complete {
			return Transition{}, false
		}
		t.Rule, t.To = "T5", afterUpdate(lc)
		if t.To == v1beta1.LifecycleNormal {
			t.Rule = "T6"
		}
	case v1beta1.LifecycleUpdated:
		if !HookedAll(updateHook(lc), pod) {
			return Transition{}, false
		}
		t.Rule, t.To = "T8", v1beta1.LifecycleNormal
	default:
		return Transition{}, false
	}
	return t, true
}

// afterUpdate is the state of a Pod whose update is complete.
func afterUpdate(lc *v1beta1.Lifecycle) v1beta1.LifecycleState {
	switch {
	case lc == nil:
		return v1beta1.LifecycleNormal
	case lc.InPlaceUpdate == nil, !empty(lc.InPlaceUpdate):
		return v1beta1.LifecycleUpdated
	default:
		return v1beta1.LifecycleNormal // a hook without handlers: everything is on the Pod
	}
}

// OnDelete decides about a Pod that the controller wants to delete: rules T10 and T12.
// Go means: delete it.
func OnDelete(pod *corev1.Pod, lc *v1beta1.Lifecycle) Decision {
	var hook *v1beta1.LifecycleHook
	if lc != nil {
		hook = lc.PreDelete
	}
	if !HookedAny(hook, pod) {
		return Decision{Verdict: Go}
	}
	state := State(pod)
	if state == v1beta1.LifecyclePreparingDelete {
		return Decision{Verdict: Wait, Message: "hook preDelete holds the Pod in state PreparingDelete"}
	}
	t := Transition{Rule: "T10", From: state, To: v1beta1.LifecyclePreparingDelete}
	if hook.MarkPodNotReady {
		t.Hold = []podready.Holder{podready.PreDeleteHook}
	}
	return Decision{Verdict: Patch, Transition: t}
}

// OnKeep returns the transition of a Pod whose deletion was taken back: rule T11. There
// is none outside PreparingDelete, nor while a hook of the set marks Pods not ready.
// Holds that remain from hooks edited meanwhile are released.
func OnKeep(pod *corev1.Pod, lc *v1beta1.Lifecycle) (Transition, bool) {
	if State(pod) != v1beta1.LifecyclePreparingDelete || MarksNotReady(lc) {
		return Transition{}, false
	}
	return Transition{
		Rule:    "T11",
		From:    v1beta1.LifecyclePreparingDelete,
		To:      v1beta1.LifecyclePreparingNormal,
		Release: []podready.Holder{podready.PreDeleteHook, podready.PreUpdateHook},
	}, true
}

// MarksNotReady tells whether a scale-in cannot be taken back because preDelete or
// inPlaceUpdate sets markPodNotReady (cloneset.md 7.2).
func MarksNotReady(lc *v1beta1.Lifecycle) bool {
	return lc != nil && (lc.PreDelete != nil && lc.PreDelete.MarkPodNotReady || lc.InPlaceUpdate != nil && lc.InPlaceUpdate.MarkPodNotReady)
}

func updateHook(lc *v1beta1.Lifecycle) *v1beta1.LifecycleHook {
	if lc == nil {
		return nil
	}
	return lc.InPlaceUpdate
}

func preNormalHook(lc *v1beta1.Lifecycle) *v1beta1.LifecycleHook {
	if lc == nil {
		return nil
	}
	return lc.PreNormal
}

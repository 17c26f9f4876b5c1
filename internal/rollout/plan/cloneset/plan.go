// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"time"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// Action is what a Step does to its Pod.
type Action string

// The actions of Steps.
const (
	// Delete deletes the Pod and, after it, the claims of its instance id.
	Delete Action = "Delete"
	// Move writes the step's lifecycle transition.
	Move Action = "Move"
	// UpdateInPlace starts the in-place engine with the step's spec.
	UpdateInPlace Action = "UpdateInPlace"
	// Mark labels the Pod for deletion; a later pass deletes and replaces it.
	Mark Action = "Mark"
	// Refresh lets the in-place engine go on, and writes the transition if there is one.
	Refresh Action = "Refresh"
	// Wait does nothing: the Pod is in Held.
	Wait Action = ""
)

// Reason is the rule that put a Pod where it is: stable, for CLI columns, metrics, tests.
type Reason string

// Why something is done.
const (
	ReasonOldRevision     Reason = "OldRevision"         // the Pod is not at the revision it should be at
	ReasonSpecified       Reason = "SpecifiedDelete"     // label specified-delete or podsToDelete
	ReasonSurplus         Reason = "Surplus"             // more Pods than wanted
	ReasonHookReleased    Reason = "HookReleased"        // PreparingDelete, and no preDelete handler is left
	ReasonScaleInReverted Reason = "ScaleInReverted"     // PreparingDelete, but wanted again
	ReasonUpdateReverted  Reason = "UpdateReverted"      // PreparingUpdate, but no longer to be updated
	ReasonRefresh         Reason = "Refresh"             // the in-place update goes on
	ReasonLifecycle       Reason = "Lifecycle"           // a lifecycle transition is due
	ReasonTemplateHash    Reason = "TemplateHashMissing" // the label pod-template-hash is added
	ReasonNameTaken       Reason = "NameTaken"           // a Pod in a terminal phase holds a name that is to be used again
)

// Why a Pod must wait.
const (
	HeldPaused          Reason = "Paused"
	HeldOnDelete        Reason = "OnDelete"
	HeldPartition       Reason = "Partition"
	HeldRollback        Reason = "PartitionRollbackOff" // more Pods updated than the partition allows, and they stay so
	HeldMaxUnavailable  Reason = "MaxUnavailable"
	HeldScaleFirst      Reason = "ScaleFirst" // Pods are created or deleted first
	HeldPreparingDelete Reason = "PreparingDelete"
	HeldGrace           Reason = "GracePeriod"
	HeldRefreshing      Reason = "Refreshing" // a write to this Pod comes first
	HeldUpdateHook      Reason = "InPlaceUpdateHook"
	HeldDeleteHook      Reason = "PreDeleteHook"
	HeldMarked          Reason = "SpecifiedDelete" // will be deleted and replaced
	HeldInPlaceOnly     Reason = "InPlaceOnly"     // the change needs recreation, which the policy forbids
	HeldDeleteBudget    Reason = "DeleteBudget"    // deleting an available Pod would exceed maxUnavailable
)

// Step is one Pod and the rule that put it in its list.
type Step struct {
	Pod string
	Do  Action
	Why Reason
	// Detail is one sentence with the numbers, for people.
	Detail string
	// Transition is the lifecycle change to write; its Rule is empty when there is none.
	Transition lifecycle.Transition
	// Spec is what UpdateInPlace changes.
	Spec *inplace.UpdateSpec
	// Reasons are the fields that force recreation, for Mark and HeldInPlaceOnly.
	Reasons []inplace.Reason
	// Target is the name of the revision an update goes to.
	Target string
	// Free: the Pod was unavailable while more Pods were than may be, so that taking it out
	// of service cost nothing. The step holds only for the version of the Pod that was
	// looked at: on another one it may serve by now, and be needed.
	Free bool
}

// String is the step as logs and test stories show it.
func (s Step) String() string {
	if s.Do == Wait {
		return fmt.Sprintf("%s held by %s: %s", s.Pod, s.Why, s.Detail)
	}
	if s.Transition.Rule != "" {
		return fmt.Sprintf("%s %s (%s) because of %s", s.Do, s.Pod, s.Transition, s.Why)
	}
	return fmt.Sprintf("%s %s because of %s", s.Do, s.Pod, s.Why)
}

// Creation is how many Pods to create, and with which instance ids.
type Creation struct {
	// Current Pods are made at the current revision, and Update Pods at the update
	// revision, in this order.
	Current, Update int
	// IDs are instance ids whose claims are used again, sorted; further ids are random.
	IDs []string
}

// Total is the number of Pods to create.
func (c Creation) Total() int { return c.Current + c.Update }

// ClaimStep is what becomes of one claim whose Pod went away by other hands.
type ClaimStep struct {
	Claim string
	// Owner is the name of the Pod that takes over ownership; empty: the claim is deleted.
	Owner string
}

// Plan is what to do now, as data. The zero Plan means "nothing to do".
type Plan struct {
	// Claims is done first.
	Claims []ClaimStep
	// Refresh is independent of the rest: it only finishes what was begun.
	Refresh []Step
	// Create, Scale and Update never come together: scaling goes before updating.
	Create Creation
	Scale  []Step
	Update []Step
	// Held are Pods that would be changed but must wait.
	Held []Step
	// Limited is set when scaleStrategy.maxUnavailable holds back creation: the limit.
	Limited *int
	// StaleNames are entries of podsToDelete whose Pod is gone.
	StaleNames []string
	// Numbers is the arithmetic the plan follows: of the update pass when it ran.
	Numbers Numbers
	// Requeue is when time alone changes the answer; 0 is never.
	Requeue time.Duration
}

// scales tells whether the scale pass changes something, so that updating must wait.
func (p *Plan) scales() bool { return p.Create.Total() > 0 || len(p.Scale) > 0 }

// Idle tells whether the plan changes nothing.
func (p *Plan) Idle() bool {
	return !p.scales() && len(p.Claims)+len(p.Refresh)+len(p.Update)+len(p.StaleNames) == 0
}

// Blocked returns the held Pods that no passing of time will free: the template asks for
// something that the policy forbids.
func (p *Plan) Blocked() (out []Step) {
	for _, s := range p.Held {
		if s.Why == HeldInPlaceOnly {
			out = append(out, s)
		}
	}
	return out
}

func (p *Plan) wish(d time.Duration) {
	if d > 0 && (p.Requeue == 0 || d < p.Requeue) {
		p.Requeue = d
	}
}

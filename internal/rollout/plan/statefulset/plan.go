// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// Action is what a Step does to its Pod.
type Action string

// The actions of Steps.
const (
	// Delete deletes the Pod, if it still has the UID of the snapshot. A later pass makes
	// the next one of that name.
	Delete Action = "Delete"
	// Move writes the step's lifecycle transition.
	Move Action = "Move"
	// UpdateInPlace starts the in-place engine with the step's spec, and writes the
	// transition with it.
	UpdateInPlace Action = "UpdateInPlace"
	// Refresh lets the in-place engine go on, and writes the transition if there is one.
	Refresh Action = "Refresh"
	// Repair gives the Pod the labels of its identity (Identity).
	Repair Action = "Repair"
	// Wait does nothing: the Pod is in Held.
	Wait Action = ""
)

// Reason is the rule that put a Pod or a claim where it is: stable, for CLI columns,
// metrics, tests.
type Reason string

// Why something is done.
const (
	ReasonMissing       Reason = "Missing"         // the ordinal has no Pod
	ReasonFailed        Reason = "PodEnded"        // phase Failed or Succeeded: the Pod is replaced
	ReasonCondemned     Reason = "OutOfRange"      // scaled in, reserved, or below the start
	ReasonSpecified     Reason = "SpecifiedDelete" // label specified-delete
	ReasonOldRevision   Reason = "OldRevision"     // the Pod is not at the update revision
	ReasonVolumes       Reason = "ClaimTemplateAdded"
	ReasonResizeRestart Reason = "FileSystemResizePending" // the expansion ends only when the Pod is started anew
	ReasonWanted        Reason = "DeletionReverted"        // PreparingDelete, but the Pod is wanted again
	ReasonRefresh       Reason = "Refresh"                 // the in-place update goes on
	ReasonLifecycle     Reason = "Lifecycle"               // a lifecycle transition is due
	ReasonIdentity      Reason = "IdentityLabels"          // label statefulset.kubernetes.io/pod-name is missing
	ReasonClaimMissing  Reason = "ClaimMissing"            // the Pod is pending and its claim is gone
	ReasonRetention     Reason = "RetentionPolicy"         // owners of a claim follow the retention policy
	ReasonExpand        Reason = "ClaimTemplateGrew"       // the claim asks for less than its template
)

// Why a Pod, or an ordinal without one, must wait.
const (
	HeldPaused         Reason = "Paused"
	HeldOnDelete       Reason = "OnDelete"
	HeldPartition      Reason = "Partition"
	HeldMaxUnavailable Reason = "MaxUnavailable"
	// HeldOrder: OrderedReady, and another Pod comes first.
	HeldOrder Reason = "OrderedReady"
	// HeldScaleLimit: scaleStrategy.maxUnavailable is used up.
	HeldScaleLimit  Reason = "ScaleMaxUnavailable"
	HeldTerminating Reason = "Terminating"
	HeldUnavailable Reason = "Unavailable" // not ready, or in a lifecycle state other than Normal
	HeldMinReady    Reason = "MinReadySeconds"
	HeldDeleteHook  Reason = "PreDeleteHook"
	HeldUpdateHook  Reason = "InPlaceUpdateHook"
	HeldRefreshing  Reason = "Refreshing"  // a write to this Pod comes first
	HeldInPlaceOnly Reason = "InPlaceOnly" // the change needs recreation, which the policy forbids
	// HeldStaleClaim: a claim goes with the Pod that had this name before.
	HeldStaleClaim Reason = "StaleClaim"
	// HeldClaimTerminating: a claim is being deleted; the next one has its name.
	HeldClaimTerminating Reason = "ClaimTerminating"
	// HeldClaimOwners: owners of its claims are written before the Pod is deleted.
	HeldClaimOwners Reason = "ClaimOwners"
	HeldExpanding   Reason = "ClaimExpanding"
	// HeldClaimShape: access modes or storage class of a claim are not those of its template.
	HeldClaimShape Reason = "ClaimShapeDiffers"
	// HeldNotExpandable: the storage class of a claim forbids expansion, or is gone.
	HeldNotExpandable Reason = "ClaimNotExpandable"
)

// Step is one Pod and the rule that put it in its list.
type Step struct {
	Pod     string
	Ordinal int
	Do      Action
	Why     Reason
	// Detail is one sentence with the numbers, for people.
	Detail string
	// Transition is the lifecycle change to write; its Rule is empty when there is none.
	Transition lifecycle.Transition
	// Spec is what UpdateInPlace changes.
	Spec *inplace.UpdateSpec
	// Reasons are the fields that force recreation.
	Reasons []inplace.Reason
	// Target is the name of the revision an update goes to.
	Target string
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

// Creation is one Pod to create, after the claims that it lacks.
type Creation struct {
	Pod     string
	Ordinal int
	// Revision is the name of the revision whose template the Pod is made from.
	Revision string
	// State is the lifecycle state to label it with (lifecycle.SetState).
	State v1beta1.LifecycleState
	// Claims are the names of the claim templates whose claim does not exist yet.
	Claims []string
	Detail string
}

// ClaimAction is what a ClaimStep does.
type ClaimAction string

// The actions of ClaimSteps.
const (
	// CreateClaim makes a claim that a pending Pod lacks (NewClaim).
	CreateClaim ClaimAction = "Create"
	// OwnClaim changes the owner references (ClaimStep.Apply).
	OwnClaim ClaimAction = "Own"
	// ExpandClaim writes resources and the annotation owned-by-asts (ClaimStep.Apply).
	ExpandClaim ClaimAction = "Expand"
)

// ClaimStep is what becomes of one claim of one Pod.
type ClaimStep struct {
	Claim    string
	Template string // name of the claim template
	Pod      string
	Ordinal  int
	Do       ClaimAction
	Why      Reason
	Detail   string
	// SetOwns and PodOwns are the owners that the claim has after OwnClaim.
	SetOwns, PodOwns bool
	// Resources are those of the template, for ExpandClaim.
	Resources corev1.VolumeResourceRequirements
}

// String is the step as logs and test stories show it.
func (s ClaimStep) String() string {
	return fmt.Sprintf("%s claim %s because of %s", s.Do, s.Claim, s.Why)
}

// Plan is what to do now, as data: one pass of the controller. The zero Plan means
// "nothing to do". No Pod and no claim is in more than one step.
//
// The lists are independent of each other: a step that fails stops none of the others,
// for each counts what it must wait for as it was observed. They are best executed in the
// order of the fields, all of one list at the same time. With OrderedReady, Create, Scale
// and Update have at most one entry together.
type Plan struct {
	// Refresh finishes what was begun, returns Pods to state Normal and repairs labels.
	Refresh []Step
	// Claims has the changes of claims that exist or that pending Pods lack.
	Claims []ClaimStep
	// Create is in ascending order, at most 500. Pods come up in slow start: one failure of
	// the first few is enough to try no more.
	Create []Creation
	// Scale removes ended Pods and those out of range.
	Scale []Step
	// Update deletes specified Pods, and updates Pods.
	Update []Step
	// Held are Pods, or ordinals without one, that would be changed but must wait.
	Held []Step
	// Parallel is podManagementPolicy Parallel.
	Parallel bool
	// Limited is set when scaleStrategy.maxUnavailable holds back creation: the limit.
	Limited *int
	// Numbers is the arithmetic the plan follows.
	Numbers Numbers
	// Requeue is when time alone changes the answer; 0 is never.
	Requeue time.Duration
}

// Numbers is what the details of a plan speak of.
type Numbers struct {
	Limits
	// Missing ordinals have no Pod; Unavailable counts them and the Pods in range that do
	// not serve; Expanding are further Pods that serve while a claim of theirs expands.
	Missing, Unavailable, Expanding int
	// Updated Pods in range are at the update revision; Wanted is how many shall be.
	Updated, Wanted int
}

// Idle tells whether the plan changes nothing.
func (p *Plan) Idle() bool {
	return len(p.Refresh)+len(p.Claims)+len(p.Create)+len(p.Scale)+len(p.Update) == 0
}

// Blocked returns the held Pods that no passing of time will free: the spec asks for
// something that a policy, a claim or a storage class forbids.
func (p *Plan) Blocked() (out []Step) {
	for _, s := range p.Held {
		switch s.Why {
		case HeldInPlaceOnly, HeldClaimShape, HeldNotExpandable:
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

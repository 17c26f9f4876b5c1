// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"time"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// Action is what a Step does.
type Action string

// The actions of Steps.
const (
	// Create makes a Pod of the update revision for the step's node.
	Create Action = "Create"
	// Delete deletes the Pod.
	Delete Action = "Delete"
	// Move writes the step's lifecycle transition; the Pod is deleted once its hook lets go.
	Move Action = "Move"
	// UpdateInPlace starts the in-place engine with the step's spec.
	UpdateInPlace Action = "UpdateInPlace"
	// Refresh lets the in-place engine go on.
	Refresh Action = "Refresh"
	// Wait does nothing: the Pod is in Held.
	Wait Action = ""
)

// Reason is the rule that put a Pod where it is: stable, for CLI columns, metrics, tests.
type Reason string

// Why something is done.
const (
	ReasonMissing     Reason = "Missing"     // the node should have a Pod
	ReasonSurge       Reason = "Surge"       // a new Pod before the old one goes
	ReasonMisplaced   Reason = "Misplaced"   // the node must not have the Pod
	ReasonNodeGone    Reason = "NodeGone"    // bound for a node that does not exist
	ReasonFailed      Reason = "Failed"      // the Pod failed
	ReasonSucceeded   Reason = "Succeeded"   // the Pod ended without failing
	ReasonSurplus     Reason = "Surplus"     // more Pods than the node should have
	ReasonReplaced    Reason = "Replaced"    // the new Pod of the node has taken over
	ReasonOldRevision Reason = "OldRevision" // the Pod is not at the update revision
	ReasonUnavailable Reason = "Unavailable" // the same, and it serves nobody: that costs nothing
	ReasonHook        Reason = "HookReleased"
	ReasonRefresh     Reason = "Refresh" // the in-place update goes on
)

// Why a Pod, or a node without one, must wait.
const (
	HeldPaused             Reason = "Paused"
	HeldOnDelete           Reason = "OnDelete"
	HeldPartition          Reason = "Partition"
	HeldSelector           Reason = "Selector" // the update selector does not match the node
	HeldMaxUnavailable     Reason = "MaxUnavailable"
	HeldMaxSurge           Reason = "MaxSurge"
	HeldManageFirst        Reason = "ManageFirst" // Pods are created or deleted first
	HeldBurst              Reason = "BurstReplicas"
	HeldBackoff            Reason = "Backoff" // failed, and deleted too often lately
	HeldDeleteHook         Reason = "PreDeleteHook"
	HeldPartitionedScaling Reason = "PartitionedScaling"
	HeldIneligible         Reason = "Ineligible" // the node takes no new Pod
	HeldSurging            Reason = "Surging"    // the new Pod of the node is not available yet
	HeldExcess             Reason = "Excess"     // the node has too many Pods
)

// Step is one Pod, or one node, and the rule that put it in its list.
type Step struct {
	// Pod is empty for Create, and for a node that must wait for its Pod.
	Pod  string
	Node string
	Do   Action
	Why  Reason
	// Detail is one sentence with the numbers, for people.
	Detail string
	// Transition is the lifecycle change that Move writes.
	Transition lifecycle.Transition
	// Spec is what UpdateInPlace changes.
	Spec *inplace.UpdateSpec
	// Reasons are the fields that force recreation.
	Reasons []inplace.Reason
}

// String is the step as logs and test stories show it.
func (s Step) String() string {
	subject := s.Pod
	if subject == "" {
		subject = "Pod on " + s.Node
	}
	if s.Do == Wait {
		return fmt.Sprintf("%s held by %s: %s", subject, s.Why, s.Detail)
	}
	return fmt.Sprintf("%s %s because of %s", s.Do, subject, s.Why)
}

// Numbers is the arithmetic that a rolling update follows.
type Numbers struct {
	Limits
	// Unavailable is how many of the nodes that are considered have no available Pod, or
	// may have none soon.
	Unavailable int
	// Surging is how many of them have an extra Pod.
	Surging int
}

// Plan is what to do now, as data. The zero Plan means "nothing to do".
type Plan struct {
	// Create, Delete and Update are of one pass: either that which gives each node its
	// Pod, or, when nothing is to be done there, the rolling update.
	Create []Step
	Delete []Step
	Update []Step
	// Refresh is independent of the rest: it only finishes what was begun.
	Refresh []Step
	// Held are Pods that would be changed, and nodes that would get a Pod, but must wait.
	Held []Step
	// Manages is set when the plan gives nodes their Pods, so that updating has to wait.
	Manages bool
	// Numbers is complete when the rolling update was considered.
	Numbers Numbers
	// Requeue is when time alone changes the answer; 0 is never.
	Requeue time.Duration
}

// Idle tells whether the plan changes nothing.
func (p *Plan) Idle() bool {
	return len(p.Create)+len(p.Delete)+len(p.Update)+len(p.Refresh) == 0
}

func (p *Plan) wish(d time.Duration) {
	if d > 0 && (p.Requeue == 0 || d < p.Requeue) {
		p.Requeue = d
	}
}

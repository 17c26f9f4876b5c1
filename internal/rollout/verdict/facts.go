// SPDX-License-Identifier: Apache-2.0

// Package verdict says how a rollout stands: one verdict, one reason, one sentence, from
// the numbers of one consistent read (cli.md 3.4). It is pure and total: any subset of
// the facts may be missing.
package verdict

import "time"

// Facts are what the verdict is made of, the same for every kind of workload. An
// adapter fills them in from the object.
type Facts struct {
	// Object is TYPE/NAME as the user types it, for next steps.
	Object string
	// Generation is that of the spec, ObservedGeneration what the status speaks of.
	Generation, ObservedGeneration int64

	// Desired is the wanted number of Pods, R.
	Desired int
	// Total, Ready and Available are over all active Pods.
	Total, Ready, Available int
	// Updated, UpdatedReady and UpdatedAvailable are over Pods at the update revision.
	Updated, UpdatedReady, UpdatedAvailable int

	// Partition is what the spec keeps back.
	Partition Partition
	// MaxUnavailable and MaxSurge are resolved to Pods; MaxUnavailableRaw as written.
	MaxUnavailable    int
	MaxUnavailableRaw string
	MaxSurge          int

	// Paused: the pause field is set. Manual: Pods change only when somebody deletes them.
	Paused, Manual bool
	// InPlaceOnly: the policy forbids recreation.
	InPlaceOnly bool
	// AllAvailable: the rollout also waits for Pods at other revisions to be available, as
	// for a DaemonSet, whose status does not tell the updated ones apart.
	AllAvailable bool
	// HeldNewer counts Pods at a stored revision that was made after the update revision: the
	// template was put back, and the partition holds these. Only for kinds whose status names
	// no current revision.
	HeldNewer int

	// UpdateRevision and CurrentRevision are names from the status; CurrentRevision is empty
	// for kinds that have none.
	UpdateRevision, CurrentRevision string
	// RevisionNumber is that of UpdateRevision; 0 when unknown.
	RevisionNumber int64

	// Deadline is the workload's own progress deadline; nil when it has none.
	Deadline *Deadline
	// Blockers are findings that stop the rollout until the spec changes, found by
	// looking at more than the object. The first one gives the reason.
	Blockers []Finding
}

// UnderWay reports that Pods are, or should be, on their way to another revision.
func (f Facts) UnderWay() bool {
	if f.CurrentRevision == "" || f.Manual {
		return f.Updated < f.Desired
	}
	return f.UpdateRevision != f.CurrentRevision
}

// Partition is what a workload keeps at the old revision.
type Partition struct {
	// Raw is as written in the spec, "" when absent.
	Raw string
	// Keep is the number of Pods that stay, Target how many are to be updated.
	Keep, Target int
	// Selector is the selector on nodes that keeps more Pods back than Raw does; "" when
	// there is none.
	Selector string
}

// By names what keeps Pods back, for a sentence: "partition 70%".
func (p Partition) By() string {
	if p.Selector != "" {
		return "node selector " + p.Selector
	}
	if p.Raw == "" {
		return "partition 0"
	}
	return "partition " + p.Raw
}

// Deadline is the progress condition of a workload.
type Deadline struct {
	// Exceeded: the condition says so. Message and Since are the condition's.
	Exceeded bool
	Message  string
	Since    time.Time
	// Seconds is the spec's value and Field where it is set.
	Seconds int32
	Field   string
}

// Severity ranks findings: blockers first.
type Severity string

// The severities, in order.
const (
	Blocker Severity = "Blocker"
	Cause   Severity = "Cause"
	Note    Severity = "Note"
)

// Finding is one thing that holds a rollout or a Pod, or explains what does. `why`,
// `doctor`, the verdict and the TUI share it.
type Finding struct {
	// Code is stable: "P12", "W09", or a blocked reason such as PartitionHoldsRollback.
	Code string `json:"code"`
	// Name is the word behind a code, e.g. NextBatch.
	Name     string   `json:"name,omitempty"`
	Severity Severity `json:"severity"`
	// Object is TYPE/NAME of what it is about.
	Object string `json:"object"`
	// Message is one sentence for people.
	Message string `json:"message"`
	// Evidence is what was read, key to value.
	Evidence map[string]string `json:"evidence"`
	// Since is when it began; nil when unknown.
	Since *time.Time `json:"since,omitempty"`
	// Next is a command without the program's name, or a sentence; "" when there is
	// nothing to do.
	Next string `json:"next,omitempty"`
}

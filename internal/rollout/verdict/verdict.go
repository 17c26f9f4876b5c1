// SPDX-License-Identifier: Apache-2.0

package verdict

import "fmt"

// Verdict is how a rollout stands.
type Verdict string

// The verdicts of cli.md 3.4.
const (
	NotObserved      Verdict = "NotObserved"
	Progressing      Verdict = "Progressing"
	PartitionReached Verdict = "PartitionReached"
	Paused           Verdict = "Paused"
	Manual           Verdict = "Manual"
	Blocked          Verdict = "Blocked"
	Stalled          Verdict = "Stalled"
	Complete         Verdict = "Complete"
	Superseded       Verdict = "Superseded"
	Gone             Verdict = "Gone"
)

// All lists every verdict, in the order of the spec.
var All = []Verdict{NotObserved, Progressing, PartitionReached, Paused, Manual, Blocked, Stalled, Complete, Superseded, Gone}

// Reasons that a verdict may carry.
const (
	ReasonGeneration             = "GenerationNotObserved"
	ReasonUpdating               = "Updating"
	ReasonAvailability           = "WaitingForAvailability"
	ReasonSurplus                = "SurplusPods"
	ReasonMissing                = "MissingPods"
	ReasonPartition              = "Partition"
	ReasonPaused                 = "Paused"
	ReasonOnDelete               = "OnDelete"
	ReasonDeadline               = "ProgressDeadlineExceeded"
	ReasonUpToDate               = "UpToDate"
	ReasonPartitionHoldsRollback = "PartitionHoldsRollback"
	ReasonMaxUnavailableZero     = "MaxUnavailableZero"
	ReasonInPlaceOnlyImpossible  = "InPlaceOnlyImpossible"
	ReasonNewerRevision          = "NewerRevision"
	ReasonDeleted                = "Deleted"
)

// Result is a verdict with its reason and one sentence.
type Result struct {
	Verdict Verdict
	// Reason is stable, in PascalCase.
	Reason string
	// Message is the sentence; it names no object.
	Message string
	// Blockers back a verdict of Blocked or Stalled; never nil.
	Blockers []Finding
}

// Of returns the verdict of f; the first rule that matches wins.
func Of(f Facts) Result {
	r := of(f)
	if r.Blockers == nil {
		r.Blockers = []Finding{}
	}
	return r
}

func of(f Facts) Result {
	rev := revision(f)
	switch {
	case f.ObservedGeneration < f.Generation:
		return Result{Verdict: NotObserved, Reason: ReasonGeneration,
			Message: fmt.Sprintf("waiting for the controller: it has seen generation %d of %d", f.ObservedGeneration, f.Generation)}
	case f.Deadline != nil && f.Deadline.Exceeded:
		return stalled(f)
	case f.Manual && f.Updated < f.Desired:
		return Result{Verdict: Manual, Reason: ReasonOnDelete,
			Message: fmt.Sprintf("%d of %d pods updated to %s; %s left, each is updated when it is deleted (OnDelete)",
				f.Updated, f.Desired, rev, plural(f.Desired-f.Updated, "pod"))}
	case f.Updated < f.target():
		return updating(f, rev)
	case f.AllAvailable && f.Available < f.Desired:
		return progressing(f, ReasonAvailability, fmt.Sprintf("%d of %s available", f.Available, plural(f.Desired, "pod")))
	case !f.AllAvailable && f.UpdatedAvailable < f.target():
		return progressing(f, ReasonAvailability,
			fmt.Sprintf("%d of %d updated pods available", f.UpdatedAvailable, f.target()))
	case f.Total > f.Desired:
		return progressing(f, ReasonSurplus, fmt.Sprintf("%s to go", plural(f.Total-f.Desired, "surplus pod")))
	case f.Total < f.Desired:
		return progressing(f, ReasonMissing, fmt.Sprintf("%d of %d pods exist; %d missing", f.Total, f.Desired, f.Desired-f.Total))
	case f.target() < f.Desired:
		return held(f, rev)
	}
	return complete(f, rev)
}

// target is T: how many Pods the spec wants at the update revision.
func (f Facts) target() int {
	if f.Manual {
		return f.Desired
	}
	return f.Partition.Target
}

func updating(f Facts, rev string) Result {
	if f.Paused {
		return Result{Verdict: Paused, Reason: ReasonPaused,
			Message: fmt.Sprintf("paused with %d of %d pods updated to %s", f.Updated, f.target(), rev)}
	}
	if len(f.Blockers) > 0 {
		return blocked(f)
	}
	if f.MaxUnavailable <= 0 && f.MaxSurge <= 0 && f.Total >= f.Desired && f.Available >= f.Desired {
		return Result{Verdict: Blocked, Reason: ReasonMaxUnavailableZero,
			Message: fmt.Sprintf("maxUnavailable %s of %d pods is 0 and there is no surge, so no pod may be updated", f.MaxUnavailableRaw, f.Desired),
			Blockers: []Finding{{
				Code: ReasonMaxUnavailableZero, Severity: Blocker, Object: f.Object,
				Message:  "maxUnavailable resolves to 0 and maxSurge is 0",
				Evidence: map[string]string{"maxUnavailable": f.MaxUnavailableRaw, "maxSurge": "0"},
				Next:     "raise maxUnavailable to at least 1",
			}}}
	}
	return progressing(f, ReasonUpdating, fmt.Sprintf("%d of %d updated, %d available", f.Updated, f.target(), f.UpdatedAvailable))
}

// progressing is Progressing unless something found outside the object blocks it.
func progressing(f Facts, reason, message string) Result {
	if len(f.Blockers) > 0 {
		return blocked(f)
	}
	return Result{Verdict: Progressing, Reason: reason, Message: message}
}

func blocked(f Facts) Result {
	first := f.Blockers[0]
	reason := first.Name
	if reason == "" {
		reason = first.Code
	}
	return Result{Verdict: Blocked, Reason: reason, Message: first.Message, Blockers: f.Blockers}
}

func stalled(f Facts) Result {
	d := f.Deadline
	where := ""
	if d.Seconds > 0 {
		where = fmt.Sprintf(" (%s is %d)", d.Field, d.Seconds)
	}
	r := Result{Verdict: Stalled, Reason: ReasonDeadline,
		Message: fmt.Sprintf("the workload's own progress deadline passed%s: %d of %d updated, %d available",
			where, f.Updated, f.target(), f.UpdatedAvailable),
		Blockers: f.Blockers}
	own := Finding{
		Code: ReasonDeadline, Severity: Blocker, Object: f.Object, Message: d.Message,
		Evidence: map[string]string{d.Field: fmt.Sprint(d.Seconds)}, Next: "why " + f.Object,
	}
	if !d.Since.IsZero() {
		own.Since = &d.Since
	}
	r.Blockers = append([]Finding{own}, r.Blockers...)
	return r
}

// held is the case that target Pods are updated and the rest stays on purpose; unless
// the template was put back, and the partition protects the Pods of the bad revision.
func held(f Facts, rev string) Result {
	keep := f.Desired - f.target()
	back := f.UpdateRevision != "" && f.UpdateRevision == f.CurrentRevision
	if f.Updated < f.Desired && (back || f.HeldNewer > 0) {
		msg := fmt.Sprintf("the template is back at the current revision, but %s keeps %s at another one",
			f.Partition.By(), plural(f.Desired-f.Updated, "pod"))
		return Result{Verdict: Blocked, Reason: ReasonPartitionHoldsRollback, Message: msg,
			Blockers: []Finding{{
				Code: ReasonPartitionHoldsRollback, Severity: Blocker, Object: f.Object, Message: msg,
				Evidence: map[string]string{"partition": f.Partition.Raw, "updateRevision": f.UpdateRevision, "currentRevision": f.CurrentRevision},
				Next:     "rollout partition " + f.Object + " 0",
			}}}
	}
	if back || f.CurrentRevision == "" && f.Updated >= f.Desired {
		// Every Pod is at the only revision there is: the partition holds nothing back,
		// so all of them have to be available.
		if f.UpdatedAvailable < f.Desired {
			return progressing(f, ReasonAvailability,
				fmt.Sprintf("%d of %d updated pods available", f.UpdatedAvailable, f.Desired))
		}
		return complete(f, rev)
	}
	return Result{Verdict: PartitionReached, Reason: ReasonPartition,
		Message: fmt.Sprintf("%d of %d pods updated to %s; %d kept by %s", f.Updated, f.Desired, rev, keep, f.Partition.By())}
}

func complete(f Facts, rev string) Result {
	msg := fmt.Sprintf("%s at %s and available", plural(f.Desired, "pod"), rev)
	switch {
	case f.Desired == 0:
		msg = "0 pods wanted"
	case f.Paused:
		msg += " (paused)"
	}
	return Result{Verdict: Complete, Reason: ReasonUpToDate, Message: msg}
}

func revision(f Facts) string {
	if f.RevisionNumber > 0 {
		return fmt.Sprintf("revision %d", f.RevisionNumber)
	}
	if f.UpdateRevision != "" {
		return "revision " + f.UpdateRevision
	}
	return "the update revision"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Final reports that a wait may end with v.
func (v Verdict) Final() bool { return v != NotObserved && v != Progressing }

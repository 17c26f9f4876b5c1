// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// steady is a CloneSet of ten Pods, all at revision 7 and available.
func steady(change ...func(*Facts)) Facts {
	f := Facts{
		Object: "cloneset/web", Generation: 9, ObservedGeneration: 9, Desired: 10, Total: 10, Ready: 10, Available: 10,
		Updated: 10, UpdatedReady: 10, UpdatedAvailable: 10, Partition: Partition{Target: 10},
		MaxUnavailable: 2, MaxUnavailableRaw: "20%", UpdateRevision: "web-b", CurrentRevision: "web-b", RevisionNumber: 7,
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// updated sets the counts of a rollout from revision a to b.
func updated(n, available int) func(*Facts) {
	return func(f *Facts) {
		f.CurrentRevision = "web-a"
		f.Updated, f.UpdatedReady, f.UpdatedAvailable = n, available, available
		f.Available = f.Total - n + available
	}
}

// keep holds back seven Pods, however the spec writes it.
func keep(raw string) func(*Facts) {
	const n = 7
	return func(f *Facts) { f.Partition = Partition{Raw: raw, Keep: n, Target: f.Desired - n} }
}

func TestOf(t *testing.T) {
	cases := map[string]struct {
		facts   Facts
		verdict Verdict
		reason  string
		message string
	}{
		"all Pods updated and available is complete": {
			steady(), Complete, ReasonUpToDate, "10 pods at revision 7 and available"},
		"a new generation that nobody looked at comes before everything": {
			steady(func(f *Facts) { f.Generation = 10; f.Paused = true }), NotObserved, ReasonGeneration, "generation 9 of 10"},
		"an exceeded deadline is stalled, and names where it is set": {
			steady(updated(3, 1), func(f *Facts) {
				f.Deadline = &Deadline{Exceeded: true, Message: "timed out", Seconds: 600, Field: "spec.progressDeadlineSeconds", Since: time.Unix(1, 0)}
			}), Stalled, ReasonDeadline, "spec.progressDeadlineSeconds is 600"},
		"a deadline that is not exceeded changes nothing": {
			steady(func(f *Facts) { f.Deadline = &Deadline{Seconds: 600} }), Complete, ReasonUpToDate, ""},
		"OnDelete with old Pods is manual": {
			steady(updated(1, 1), func(f *Facts) { f.Manual = true }), Manual, ReasonOnDelete, "9 pods left"},
		"OnDelete ignores the partition": {
			steady(keep("70%"), func(f *Facts) { f.Manual = true }), Complete, ReasonUpToDate, ""},
		"fewer updated than wanted is progressing": {
			steady(updated(4, 3)), Progressing, ReasonUpdating, "4 of 10 updated, 3 available"},
		"paused before the target is paused": {
			steady(updated(2, 2), func(f *Facts) { f.Paused = true }), Paused, ReasonPaused, "2 of 10"},
		"paused after the target is complete, and says so": {
			steady(func(f *Facts) { f.Paused = true }), Complete, ReasonUpToDate, "(paused)"},
		"updated Pods that are not available are waited for": {
			steady(updated(10, 8)), Progressing, ReasonAvailability, "8 of 10"},
		"a surplus Pod is waited for": {
			steady(func(f *Facts) { f.Total = 11 }), Progressing, ReasonSurplus, "1 surplus pod"},
		"a missing Pod is waited for": {
			steady(updated(10, 10), func(f *Facts) { f.Total = 9 }), Progressing, ReasonMissing, "1 missing"},
		"a reached partition is an end of its own": {
			steady(updated(3, 3), keep("70%")), PartitionReached, ReasonPartition, "3 of 10 pods updated to revision 7; 7 kept by partition 70%"},
		"a partition with one updated Pod that is not available goes on": {
			steady(updated(3, 2), keep("70%")), Progressing, ReasonAvailability, "2 of 3"},
		"a rollback held by the partition is blocked": {
			steady(updated(7, 7), keep("7"), func(f *Facts) { f.CurrentRevision = f.UpdateRevision }),
			Blocked, ReasonPartitionHoldsRollback, "keeps 3 pods"},
		"a partition of a set with one revision keeps nothing": {
			steady(keep("70%")), Complete, ReasonUpToDate, ""},
		"a partition of a set with one revision still waits for all Pods": {
			steady(keep("70%"), func(f *Facts) { f.UpdatedAvailable = 9 }), Progressing, ReasonAvailability, "9 of 10"},
		"no Pod may be down and none may be added: blocked": {
			steady(updated(0, 0), func(f *Facts) { f.MaxUnavailable, f.MaxUnavailableRaw = 0, "0" }), Blocked, ReasonMaxUnavailableZero, "maxUnavailable 0"},
		"with surge no budget is needed": {
			steady(updated(0, 0), func(f *Facts) { f.MaxUnavailable, f.MaxSurge = 0, 1 }), Progressing, ReasonUpdating, ""},
		"a blocker found in Pods makes progress blocked": {
			steady(updated(0, 0), func(f *Facts) {
				f.Blockers = []Finding{{Code: "W07", Name: "InPlaceOnlyImpossible", Message: "needs recreation"}}
			}), Blocked, "InPlaceOnlyImpossible", "needs recreation"},
		"a blocker does not matter once it is complete": {
			steady(func(f *Facts) { f.Blockers = []Finding{{Code: "W07"}} }), Complete, ReasonUpToDate, ""},
		"no replicas is complete at once": {
			Facts{Generation: 1, ObservedGeneration: 1}, Complete, ReasonUpToDate, "0 pods wanted"},
		"an object without status is not observed": {
			Facts{Generation: 1, Desired: 3, Partition: Partition{Target: 3}}, NotObserved, ReasonGeneration, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Of(tc.facts)
			if got.Verdict != tc.verdict || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("Of() = %s %s %q, want %s %s containing %q", got.Verdict, got.Reason, got.Message, tc.verdict, tc.reason, tc.message)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	cases := map[string]struct {
		q     Question
		codes map[Verdict]int
		waits []Verdict
	}{
		"a wait": {Question{}, map[Verdict]int{Complete: 0, PartitionReached: 0, Paused: 5, Manual: 5, Blocked: 3, Stalled: 3, Superseded: 6, Gone: 6, Progressing: 7, NotObserved: 7},
			[]Verdict{Progressing, NotObserved}},
		"a full wait": {Question{Full: true}, map[Verdict]int{Complete: 0, PartitionReached: 5}, []Verdict{Progressing, NotObserved}},
		"a wait through pauses": {Question{WaitPaused: true}, map[Verdict]int{Complete: 0, Paused: 5},
			[]Verdict{Progressing, NotObserved, Paused}},
		"one look through pauses ends all the same": {Question{WaitPaused: true, Check: true}, map[Verdict]int{Paused: 5}, []Verdict{Progressing, NotObserved}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, v := range All {
				code, ends := tc.q.ExitCode(v)
				if want, ok := tc.codes[v]; ok && code != want {
					t.Errorf("%s: code %d, want %d", v, code, want)
				}
				if ends == slices.Contains(tc.waits, v) {
					t.Errorf("%s: ends = %v", v, ends)
				}
			}
		})
	}
}

// Any numbers, also impossible ones, give a verdict with reason and message, and what is
// called done really is.
func TestVerdictIsTotalAndHonest(t *testing.T) {
	n := rapid.IntRange(0, 20)
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{
			Generation: int64(rapid.IntRange(0, 3).Draw(t, "generation")), ObservedGeneration: int64(rapid.IntRange(0, 3).Draw(t, "observed")),
			Desired: n.Draw(t, "desired"), Total: n.Draw(t, "total"), Available: n.Draw(t, "available"),
			Updated: n.Draw(t, "updated"), UpdatedAvailable: n.Draw(t, "updatedAvailable"),
			MaxUnavailable: rapid.IntRange(-3, 5).Draw(t, "maxUnavailable"), MaxSurge: n.Draw(t, "maxSurge"),
			Paused: rapid.Bool().Draw(t, "paused"), Manual: rapid.Bool().Draw(t, "manual"),
			UpdateRevision:  rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "update"),
			CurrentRevision: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "current"),
		}
		f.Partition.Keep = rapid.IntRange(0, f.Desired).Draw(t, "keep")
		f.Partition.Target = f.Desired - f.Partition.Keep
		if rapid.Bool().Draw(t, "deadline") {
			f.Deadline = &Deadline{Exceeded: rapid.Bool().Draw(t, "exceeded")}
		}
		r := Of(f)
		if r.Reason == "" || r.Message == "" || r.Blockers == nil || !slices.Contains(All, r.Verdict) {
			t.Fatalf("incomplete result %+v", r)
		}
		switch r.Verdict {
		case Complete, PartitionReached:
			if f.ObservedGeneration < f.Generation || f.Total != f.Desired || f.UpdatedAvailable < f.Partition.Target {
				t.Fatalf("%s although it is not there yet: %+v", r.Verdict, f)
			}
		case Blocked, Stalled:
			if len(r.Blockers) == 0 {
				t.Fatalf("%s without a blocker", r.Verdict)
			}
		}
	})
}

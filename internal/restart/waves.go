// SPDX-License-Identifier: Apache-2.0

package restart

import "slices"

// Stage is where one Pod of many stands.
type Stage string

// The stages.
const (
	// Todo: nothing was asked for it yet.
	Todo Stage = "Todo"
	// Working: its request has not ended, or it is not available again.
	Working Stage = "Working"
	// Back: its containers were restarted and it is available.
	Back Stage = "Back"
	// Lost: its request ended otherwise.
	Lost Stage = "Lost"
	// Skipped: it is gone, or was restarted by an earlier run.
	Skipped Stage = "Skipped"
)

// Item is one Pod of a run.
type Item struct {
	Pod   string
	Stage Stage
}

// Step is what a run does next.
type Step struct {
	// Start are the Pods to ask for now, in order.
	Start []string
	// Over: nothing more is to be done or waited for.
	Over bool
	// Stopped: Pods are left undone because one was lost.
	Stopped bool
}

// Next decides the next step of restarting items, in their order, so many at once at most.
// After a Pod was lost no other is begun, unless the run is to keep going; those begun are
// waited for.
func Next(items []Item, atOnce int, keepGoing bool) Step {
	working, todo, lost := 0, []string{}, false
	for _, it := range items {
		switch it.Stage {
		case Working:
			working++
		case Todo:
			todo = append(todo, it.Pod)
		case Lost:
			lost = true
		}
	}
	if lost && !keepGoing {
		return Step{Over: working == 0, Stopped: len(todo) > 0}
	}
	n := max(0, min(max(1, atOnce)-working, len(todo)))
	return Step{Start: slices.Clone(todo[:n]), Over: working == 0 && len(todo) == 0}
}

// StageOf is the stage of a Pod whose request is st: nil when there is none yet. A Pod that
// was asked for is back when it is available again.
func StageOf(st *Status, available bool) Stage {
	switch {
	case st == nil:
		return Todo
	case st.Verdict == Running, st.Verdict == Succeeded && !available:
		return Working
	case st.Verdict == Succeeded:
		return Back
	case st.Verdict == PodGone:
		return Skipped
	}
	return Lost
}

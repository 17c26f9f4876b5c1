// SPDX-License-Identifier: Apache-2.0

package verdict

import "slices"

// Question is what `rollout status` asks (cli.md 5.1).
type Question struct {
	// Full: a partition reached is not the end.
	Full bool
	// WaitPaused: a pause is not the end of a wait.
	WaitPaused bool
	// Check: one look; still in progress has a code of its own.
	Check bool
	// For are the verdicts that end a wait well; empty: those of `rollout status`.
	For []Verdict
}

// ExitCode is the code of `rollout status` for v, and whether a wait ends with it. A
// verdict that a wait goes on with has the code of --check.
func (q Question) ExitCode(v Verdict) (code int, ends bool) {
	if len(q.For) > 0 {
		return q.waited(v)
	}
	switch v {
	case Complete:
		return 0, true
	case PartitionReached:
		if q.Full {
			return 5, true
		}
		return 0, true
	case Paused:
		return 5, q.Check || !q.WaitPaused
	case Manual:
		return 5, true
	case Blocked, Stalled:
		return 3, true
	case Superseded, Gone:
		return 6, true
	}
	return 7, false
}

// waited is the code of `rollout wait` (cli.md 5.11).
func (q Question) waited(v Verdict) (code int, ends bool) {
	switch {
	case slices.Contains(q.For, v):
		return 0, true
	case v == Blocked || v == Stalled:
		return 3, true
	case v == Superseded || v == Gone:
		return 6, true
	}
	return 7, false
}

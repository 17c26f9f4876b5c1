// SPDX-License-Identifier: Apache-2.0

package verdict

// Question is what `rollout status` asks (cli.md 5.1).
type Question struct {
	// Full: a partition reached is not the end.
	Full bool
	// WaitPaused: a pause is not the end of a wait.
	WaitPaused bool
	// Check: one look; still in progress has a code of its own.
	Check bool
}

// ExitCode is the code of `rollout status` for v, and whether a wait ends with it. A
// verdict that a wait goes on with has the code of --check.
func (q Question) ExitCode(v Verdict) (code int, ends bool) {
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

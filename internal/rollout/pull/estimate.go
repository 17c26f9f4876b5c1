// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"slices"
	"time"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Estimate is what the nodes that are done tell about those that are not.
type Estimate struct {
	// Percent is how much of the whole job is done, 0 to 100; a node that failed is done.
	Percent int
	// Median and P95 are how long the nodes took that succeeded; 0 when none has.
	Median, P95 time.Duration
	// Left is when the last node will be done, if all goes on as it went; 0 when unknown.
	Left time.Duration
}

// trusted is the progress, in percent, from which a node's own pace is believed.
const trusted = 10

// EstimateOf extrapolates. Places are taken by the running nodes and given on to the queued
// ones as they become free, as the controller does.
func EstimateOf(st Status, now time.Time) Estimate {
	e := Estimate{Percent: percentDone(st)}
	var took []time.Duration
	for _, r := range st.Rows {
		if r.Succeeded() && !r.Started.IsZero() && !r.Ended.IsZero() {
			took = append(took, r.Took(now))
		}
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		e.Median, e.P95 = took[(n-1)/2], took[(n*95+99)/100-1]
	}
	if st.Verdict != Active {
		return e
	}
	var running []time.Duration // of each running node, what is left
	for _, r := range st.Rows {
		if r.Done() || r.Phase == PhaseQueued {
			continue
		}
		left, known := leftOf(r, e.Median, now)
		if !known {
			return e
		}
		running = append(running, left)
	}
	queued := int(st.Queued)
	slots := Parallelism(st.Job)
	if slots == 0 && queued > 0 || queued > 0 && e.Median == 0 && len(took) == 0 {
		return e
	}
	e.Left = finish(running, queued, slots, e.Median)
	return e
}

// leftOf is what is left of one node: by its own progress, else by the median of others.
func leftOf(r Row, median time.Duration, now time.Time) (time.Duration, bool) {
	elapsed := r.Took(now)
	switch {
	case r.Progress >= trusted && elapsed > 0:
		return elapsed * time.Duration(100-min(r.Progress, 100)) / time.Duration(r.Progress), true
	case median > 0:
		return max(0, median-elapsed), true
	}
	return 0, false
}

// finish is when the last of running and queued tasks ends, with so many places and each
// queued task taking each.
func finish(running []time.Duration, queued, slots int, each time.Duration) time.Duration {
	free := slices.Clone(running) // when each place becomes free
	for len(free) < slots && len(free) < len(running)+queued {
		free = append(free, 0)
	}
	slices.Sort(free)
	last := time.Duration(0)
	for _, d := range running {
		last = max(last, d)
	}
	for range queued {
		if len(free) == 0 {
			break
		}
		end := free[0] + each
		last = max(last, end)
		i, _ := slices.BinarySearch(free[1:], end)
		copy(free, free[1:i+1])
		free[i] = end
	}
	return last
}

func percentDone(st Status) int {
	s := st.Job.Status
	if s.Desired == 0 {
		if st.Verdict == Active {
			return 0
		}
		return 100
	}
	done := 100 * int(s.Succeeded+s.Failed)
	for _, r := range st.Rows {
		if r.Phase == string(v1beta1.ImagePhasePulling) {
			done += int(min(max(r.Progress, 0), 100))
		}
	}
	return min(100, done/int(s.Desired))
}

// SPDX-License-Identifier: Apache-2.0

// Package requeue collects the times at which a workload has to be looked at again.
package requeue

import (
	"sync"
	"time"
)

// Soonest is the smallest positive duration; 0 if there is none.
func Soonest(wishes ...time.Duration) (first time.Duration) {
	for _, w := range wishes {
		if w > 0 && (first == 0 || w < first) {
			first = w
		}
	}
	return first
}

// Wishes keeps the soonest of many times. The zero value has none; it is safe for
// concurrent use and must not be copied.
type Wishes struct {
	mu    sync.Mutex
	first time.Duration
}

// Add notes a wish to look again after d; 0 and less is none.
func (w *Wishes) Add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = Soonest(w.first, d)
}

// First is the soonest wish so far; 0 when there was none.
func (w *Wishes) First() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first
}

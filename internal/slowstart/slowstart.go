// SPDX-License-Identifier: Apache-2.0

// Package slowstart makes many API calls at once, a few at first: when the calls have a
// common reason to fail, one or a few of them tell.
package slowstart

import "sync"

// Patience says when Run gives up.
type Patience int

const (
	// StopAtFirst gives up after a batch with a failure.
	StopAtFirst Patience = iota
	// StopAtAll gives up after a batch in which every call failed: the cause is likely one.
	StopAtAll
	// NeverStop makes all calls.
	NeverStop
)

// Run calls do for 0 … n-1 in batches of 1, 2, 4 … limit calls, the calls of a batch at
// once, and returns all errors in the order of the calls. It returns when all calls have.
func Run(n, limit int, p Patience, do func(i int) error) (errs []error) {
	limit = max(1, limit)
	size := 1
	for from := 0; from < n; from, size = from+size, min(2*size, limit) {
		size = min(size, n-from)
		results := make([]error, size)
		var wg sync.WaitGroup
		for i := range size {
			wg.Go(func() { results[i] = do(from + i) })
		}
		wg.Wait()
		failed := 0
		for _, err := range results {
			if err != nil {
				errs = append(errs, err)
				failed++
			}
		}
		if p == StopAtFirst && failed > 0 || p == StopAtAll && failed == size {
			return errs
		}
	}
	return errs
}

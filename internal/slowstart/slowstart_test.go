// SPDX-License-Identifier: Apache-2.0

package slowstart_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kruisectl/kruisectl/internal/slowstart"
)

func TestRun(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		n, limit int
		patience slowstart.Patience
		fails    []int
		calls    int
		errs     int
	}{
		"nothing to do":                             {0, 8, slowstart.StopAtFirst, nil, 0, 0},
		"all succeed":                               {20, 8, slowstart.StopAtFirst, nil, 20, 0},
		"the first call fails":                      {20, 8, slowstart.StopAtFirst, []int{0}, 1, 1},
		"a call of the third batch fails":           {20, 8, slowstart.StopAtFirst, []int{4}, 7, 1},
		"one failure of many goes on":               {20, 8, slowstart.StopAtAll, []int{4}, 20, 1},
		"a batch that fails altogether ends it":     {20, 8, slowstart.StopAtAll, []int{3, 4, 5, 6}, 7, 4},
		"what must be done for each is done anyway": {20, 8, slowstart.NeverStop, []int{0, 1, 2}, 20, 3},
		"a limit of nothing is one at a time":       {3, 0, slowstart.NeverStop, nil, 3, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var calls []int
			running, most := 0, 0
			errs := slowstart.Run(tc.n, tc.limit, tc.patience, func(i int) error {
				mu.Lock()
				calls = append(calls, i)
				running++
				most = max(most, running)
				mu.Unlock()
				defer func() { mu.Lock(); running--; mu.Unlock() }()
				if slices.Contains(tc.fails, i) {
					return boom
				}
				return nil
			})
			assert.Len(t, calls, tc.calls)
			assert.Len(t, errs, tc.errs)
			assert.LessOrEqual(t, most, max(1, tc.limit))
		})
	}
}

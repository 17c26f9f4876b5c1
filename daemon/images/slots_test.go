// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func granted(t *turn) bool {
	select {
	case <-t.granted:
		return true
	default:
		return false
	}
}

func TestSlotsAreFirstComeFirstServed(t *testing.T) {
	s := newSlots(2, 0)
	turns := []*turn{s.join("a"), s.join("a"), s.join("a"), s.join("a")}
	require.Equal(t, []bool{true, true, false, false}, []bool{granted(turns[0]), granted(turns[1]), granted(turns[2]), granted(turns[3])})
	turns[2].leave() // canceled while queued
	turns[1].leave()
	turns[1].leave()
	require.True(t, granted(turns[3]))
	require.False(t, granted(s.join("a")), "leaving twice frees one slot")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, s.join("a").wait(ctx))
	require.False(t, turns[3].wait(ctx), "who was canceled does not start, even with a slot")
}

func TestASlowRegistryHoldsNobodyElse(t *testing.T) {
	s := newSlots(3, 1)
	first, second, other := s.join("slow"), s.join("slow"), s.join("fast")
	require.Equal(t, []bool{true, false, true}, []bool{granted(first), granted(second), granted(other)})
	first.leave()
	require.True(t, granted(second))
}

// The bounds hold after any steps, nobody waits without need, and who came first goes first.
func TestSlotsKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSlots(rapid.IntRange(0, 3).Draw(t, "total"), rapid.IntRange(0, 2).Draw(t, "each"))
		var turns []*turn
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(turns) == 0 || rapid.Bool().Draw(t, "join") {
				turns = append(turns, s.join(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "registry")))
			} else {
				i := rapid.IntRange(0, len(turns)-1).Draw(t, "who")
				turns[i].leave()
				turns = slices.Delete(turns, i, i+1)
			}
			used, of := 0, map[string]int{}
			waits := map[string]bool{}
			for _, turn := range turns {
				if !granted(turn) {
					waits[turn.registry] = true
					continue
				}
				if waits[turn.registry] {
					t.Fatalf("a later one of registry %s has a slot", turn.registry)
				}
				used++
				of[turn.registry]++
			}
			if s.total > 0 && used > s.total || s.each > 0 && max(of["a"], of["b"]) > s.each {
				t.Fatalf("%d used, %v", used, of)
			}
			for registry := range waits {
				if (s.total <= 0 || used < s.total) && (s.each <= 0 || of[registry] < s.each) {
					t.Fatalf("registry %s waits in vain: %d used, %v", registry, used, of)
				}
			}
		}
	})
}

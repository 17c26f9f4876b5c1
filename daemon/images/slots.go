// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"slices"
	"sync"
)

// slots bounds how many pulls run at once, on the node and for each registry. Whoever comes
// first goes first, except that nobody waits behind a registry that is at its bound.
type slots struct {
	total, each int // 0 or less: no bound

	mu    sync.Mutex
	used  int
	of    map[string]int // by registry
	queue []*turn
}

// turn is a place in the queue, then a slot.
type turn struct {
	slots    *slots
	registry string
	granted  chan struct{} // closed when it is a slot
	left     bool
}

func newSlots(total, each int) *slots { return &slots{total: total, each: each, of: map[string]int{}} }

// join takes the next place. The caller leaves it when done, whether it came to be a slot or not.
func (s *slots) join(registry string) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &turn{slots: s, registry: registry, granted: make(chan struct{})}
	s.queue = append(s.queue, t)
	s.grant()
	return t
}

// grant gives free slots away. The caller holds mu.
func (s *slots) grant() {
	s.queue = slices.DeleteFunc(s.queue, func(t *turn) bool {
		if s.total > 0 && s.used >= s.total || s.each > 0 && s.of[t.registry] >= s.each {
			return false
		}
		s.used++
		s.of[t.registry]++
		close(t.granted)
		return true
	})
}

// wait returns false when ctx ends before there is a slot.
func (t *turn) wait(ctx context.Context) bool {
	select {
	case <-t.granted:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// leave gives up the place or the slot. Further calls do nothing.
func (t *turn) leave() {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	select {
	case <-t.granted:
		s.used--
		if s.of[t.registry]--; s.of[t.registry] == 0 {
			delete(s.of, t.registry)
		}
		s.grant()
	default:
		s.queue = slices.DeleteFunc(s.queue, func(other *turn) bool { return other == t })
	}
}

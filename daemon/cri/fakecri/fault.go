// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Fault makes calls misbehave.
type Fault struct {
	// Call is the beginning of the calls that it hits, as Calls lists them: "ListImages",
	// "StopContainer c1". Empty hits all.
	Call string
	// Times is how many calls it hits; 0 is all, until Heal.
	Times int
	// Delay is how much longer the call takes.
	Delay time.Duration
	// Hang keeps the call until its context ends or Heal lets it go on.
	Hang bool
	// Err is the answer, after Delay; nil lets the call go on. A gRPC status keeps its code.
	Err error
}

// faults are those under way.
type faults struct {
	mu     sync.Mutex
	list   []*Fault
	healed chan struct{}
}

// Inject adds a fault. Of several that fit a call the oldest counts.
func (r *Runtime) Inject(f Fault) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	if f.Times == 0 {
		f.Times = -1
	}
	r.faults.list = append(r.faults.list, &f)
}

// Heal takes all faults away and lets hanging calls go on.
func (r *Runtime) Heal() {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.list = nil
	if r.faults.healed != nil {
		close(r.faults.healed)
		r.faults.healed = nil
	}
}

// next takes the fault of a call, if it has one.
func (f *faults) next(call string) (fault Fault, healed <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, candidate := range f.list {
		if candidate.Times == 0 || !strings.HasPrefix(call, candidate.Call) {
			continue
		}
		if candidate.Times > 0 {
			candidate.Times--
		}
		if f.healed == nil {
			f.healed = make(chan struct{})
		}
		return *candidate, f.healed, true
	}
	return Fault{}, nil, false
}

// enter notes a call, and keeps or fails it if a fault says so or the runtime is down.
func (r *Runtime) enter(ctx context.Context, format string, args ...any) error {
	call := strings.TrimSpace(fmt.Sprintf(format, args...))
	r.mu.Lock()
	r.calls = append(r.calls, call)
	down := r.down
	r.mu.Unlock()
	if down {
		return ErrUnavailable
	}
	fault, healed, ok := r.faults.next(call)
	if !ok {
		return ctx.Err()
	}
	if err := sleep(ctx, fault.Delay); err != nil {
		return err
	}
	if fault.Hang {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-healed:
		}
	}
	return fault.Err
}

// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// interval is the shortest time between two reads.
	interval = 250 * time.Millisecond
	// pollInterval replaces a watch that the user may not open.
	pollInterval = 5 * time.Second
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// Waker says when to read again: after every event of its watches, but at most four times a
// second, and never so often that reading takes more than a fifth of the time. It is made
// for one reader.
type Waker struct {
	c     client.WithWatch
	clock clock.WithTicker
	wake  chan struct{}
	wg    sync.WaitGroup
	// closed ends what was started.
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	lastRead time.Time
	took     time.Duration
}

// NewWaker makes a Waker whose first Wait returns at once. Close it.
func NewWaker(c client.WithWatch, clk clock.WithTicker) *Waker {
	w := &Waker{c: c, clock: clk, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	w.Signal()
	return w
}

// Close ends the watches and waits for them.
func (w *Waker) Close() {
	w.once.Do(func() { close(w.closed) })
	w.wg.Wait()
}

// Signal makes the next Wait return.
func (w *Waker) Signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// After is Signal in d from now.
func (w *Waker) After(ctx context.Context, d time.Duration) {
	w.start(ctx, func(ctx context.Context) {
		if w.sleep(ctx, d) == nil {
			w.Signal()
		}
	})
}

func (w *Waker) start(ctx context.Context, run func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	w.wg.Go(func() {
		defer cancel()
		w.wg.Go(func() {
			select {
			case <-w.closed:
				cancel()
			case <-ctx.Done():
			}
		})
		run(ctx)
	})
}

func (w *Waker) sleep(ctx context.Context, d time.Duration) error {
	t := w.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C():
		return nil
	}
}

// Wait blocks until there is something to read, or ctx ends; beat, when not nil, is called
// about once a second meanwhile.
func (w *Waker) Wait(ctx context.Context, beat func()) error {
	ticker := w.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.wake:
			waiting = false
		case <-ticker.C():
			if beat != nil {
				beat()
			}
		}
	}
	w.mu.Lock()
	last, took := w.lastRead, w.took
	w.mu.Unlock()
	if pause := max(interval, 4*took) - w.clock.Since(last); pause > 0 && !last.IsZero() {
		return w.sleep(ctx, pause)
	}
	return nil
}

// Read times one read, for the pace of Wait.
func (w *Waker) Read(read func() error) error {
	start := w.clock.Now()
	err := read()
	w.mu.Lock()
	w.lastRead = w.clock.Now()
	w.took = w.lastRead.Sub(start)
	w.mu.Unlock()
	return err
}

// Watch keeps a watch open and signals at every event, until ctx ends or Close. Where the
// user may not watch it signals every 5 seconds.
func (w *Waker) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) {
	w.start(ctx, func(ctx context.Context) {
		backoff := firstBackoff
		for ctx.Err() == nil {
			events, err := w.c.Watch(ctx, list, opts...)
			switch {
			case err == nil:
				backoff = firstBackoff
				// What happened between two watches is seen by the read that this causes.
				w.Signal()
				drain(ctx, events, w.Signal)
			case apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err):
				if w.sleep(ctx, pollInterval) != nil {
					return
				}
				w.Signal()
			default:
				if w.sleep(ctx, backoff) != nil {
					return
				}
				backoff = min(2*backoff, lastBackoff)
				w.Signal()
			}
		}
	})
}

func drain(ctx context.Context, w watch.Interface, signal func()) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error {
				return
			}
			if e.Type != watch.Bookmark {
				signal()
			}
		}
	}
}

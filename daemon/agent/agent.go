// SPDX-License-Identifier: Apache-2.0

// Package agent runs the workers of a node agent together and answers for their health. It
// knows nothing of what they do. Rules: daemon.md 1.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Worker is one capability of the agent.
type Worker interface {
	// Name is that of the worker's health check.
	Name() string
	// Run works until ctx ends and returns nil then. Any other return ends the agent. It is
	// called once, at the latest when ctx has ended.
	Run(ctx context.Context) error
	// Ready returns why the worker cannot do its work, or nil. It must not block.
	Ready() error
}

// poll is how often a worker that is not ready is asked again.
const poll = 100 * time.Millisecond

// Run runs each worker from when it is ready for the first time until ctx ends or one of
// them returns. It returns the first error.
func Run(ctx context.Context, workers []Worker) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error {
			// One that never gets ready is run all the same when ctx has ended: it may have
			// something to take down.
			UntilReady(ctx, w)
			if err := w.Run(ctx); err != nil {
				return fmt.Errorf("running %s: %w", w.Name(), err)
			}
			if ctx.Err() == nil {
				return fmt.Errorf("%s ended by itself", w.Name())
			}
			return nil
		})
	}
	return group.Wait()
}

// UntilReady waits until w is ready for the first time. It returns false when ctx ended first.
func UntilReady(ctx context.Context, w Worker) bool {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for w.Ready() != nil {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}

// Checks answers /healthz. Checks may be added and removed while it is served.
type Checks struct {
	mu     sync.Mutex
	order  []string
	checks map[string]func() error
}

// Add adds or replaces a check. It is asked on every request and must not block.
func (c *Checks) Add(name string, check func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checks == nil {
		c.checks = map[string]func() error{}
	}
	if c.checks[name] == nil {
		c.order = append(c.order, name)
	}
	c.checks[name] = check
}

// ServeHTTP answers 200 ok, or 500 with the first check that fails.
func (c *Checks) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if name, err := c.failing(); err != nil {
		http.Error(w, fmt.Sprintf("check %s failed, err: %v", name, err), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok")) // the client may have gone
}

func (c *Checks) failing() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.order {
		if err := c.checks[name](); err != nil {
			return name, err
		}
	}
	return "", nil
}

// Serve serves handler on listener until ctx ends.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", listener.Addr(), err)
	}
	return nil
}

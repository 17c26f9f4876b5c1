// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"time"

	"github.com/kruisectl/kruisectl/internal/rollout/pull"
)

// Pull is one image job at one time, for a screen. Slices in it are shared: do not write.
type Pull struct {
	// Context is the kubeconfig context.
	Context string
	// Typed is the name as commands take it.
	Typed, Namespace, Name string
	// Image is what is pulled.
	Image string
	// Owner is the workload that it is pulled for, as TYPE/NAME; "" when a person asked.
	Owner    string
	Status   pull.Status
	Estimate pull.Estimate
	// Gone: the job was deleted; the rest is what was seen last.
	Gone bool
	// At is when it was read.
	At time.Time
}

// PullSource delivers an image job as it changes. It is made for one reader.
type PullSource interface {
	// Next blocks until something changed since the last call and returns the whole job. The
	// first call returns at once; after a view that is gone it returns io.EOF.
	Next(ctx context.Context) (Pull, error)
	// Lost is since when the server has not answered; zero while it does. It may be called
	// from another goroutine than Next.
	Lost() time.Time
	// Actions are what can be done: "retry" and "cancel".
	Actions(p Pull) []Action
	// Close ends the watches.
	Close()
}

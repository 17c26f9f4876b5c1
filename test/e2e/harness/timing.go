//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import "time"

// Deadlines are minutes, not seconds: the suite must pass on a machine under load, and a
// passing test never waits for a deadline.
const (
	// Short bounds what needs no container to start.
	Short = 2 * time.Minute
	// Long bounds a rollout, or Pods becoming ready.
	Long = 6 * time.Minute
	// poll is the time between two looks at the API server.
	poll = 500 * time.Millisecond
)

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
	// Still is how long a test looks at what must not change.
	Still = 10 * time.Second
	// MinReady is how long Pods must be ready to be available, where a scenario asks for it.
	MinReady = 10 * time.Second
	// SlowPull is how long a slow registry waits before each layer: longer than any time
	// a test gives to one attempt.
	SlowPull = time.Minute
	// SluggishPull is a registry that is slow, but fast enough for a rollout to end.
	SluggishPull = 3 * time.Second
	// poll is the time between two looks at the API server.
	poll = 500 * time.Millisecond
	// steady is how many answers in a row make an API server that works.
	steady = 4
)

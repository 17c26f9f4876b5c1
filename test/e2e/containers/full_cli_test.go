//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// A user restarts a container of a whole workload: one Pod at a time, and no Pod is lost.
func TestAWorkloadIsRestartedThroughKruisectl(t *testing.T) {
	t.Parallel()
	s := newSuite(t, v1beta1Version)
	before := s.web(3)
	watch := s.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})
	s.Kruisectl("container", "restart", "cloneset/web", "-c", "app", "--yes", "--wait", "--timeout", "6m")
	s.WaitAvailable("web", 3)
	watch.Check(s.Env)
	for _, p := range before {
		s.requireRecreated(p, "app")
	}
	list := s.Kruisectl("container", "list", "cloneset/web")
	for _, p := range before {
		require.Contains(t, list.Stdout, p.Name)
	}
}

// What cannot be restarted is said, and nothing is.
func TestKruisectlSaysWhatItCannotRestart(t *testing.T) {
	t.Parallel()
	s := newSuite(t, v1beta1Version)
	pod := s.web(1)[0]
	r := s.Try("container", "restart", pod.Name, "-c", "database", "--wait", "--timeout", "2m")
	require.NotZero(t, r.Code)
	require.Contains(t, r.Text(), "database")
	r = s.Try("container", "restart", "missing", "--wait", "--timeout", "2m")
	require.NotZero(t, r.Code)
	require.Contains(t, r.Text(), "missing")
	require.Zero(t, container(t, s.pod(pod.Name), "app").RestartCount)
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The leader dies in the middle of an update: its successor goes on, and no promise breaks.
func TestLeaderKilledInTheMiddleOfAnUpdate(t *testing.T) {
	s := newSuite(t, beta{}) // not parallel: every controller stops for a while
	s.create(inPlace(1))
	s.waitComplete()
	before := harness.Identities(s.Pods(agentName))
	nodes := len(before)
	watch := s.Observe(agentName, harness.Limits{MinReady: nodes - 1, MaxPods: nodes, KeepPods: true})
	s.change(func(f fields) { container(f).Image = harness.Nginx2 })
	s.Eventually("the update is on its way", harness.Long, func() string {
		if harness.CountImage(s.Pods(agentName), "busybox", harness.Nginx2) == 0 {
			return "no Pod is updated yet"
		}
		return ""
	})
	t.Logf("killed the leader %s", s.KillLeader())
	s.waitComplete()
	watch.Check(s.Env)
	s.RequireSamePods(agentName, before)
	require.Equal(t, nodes, harness.CountImage(s.Pods(agentName), "busybox", harness.Nginx2))
}

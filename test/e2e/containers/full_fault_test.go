//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The tests of this file disturb whole nodes, so they are not parallel: they run before the
// parallel ones start.

// The runtime dies while a hook runs. The container is stopped by a later attempt, or the
// request says that it could not be; the next request works.
func TestRuntimeKilledDuringARecreate(t *testing.T) {
	s := newSuite(t, v1beta1Version)
	pods := s.web(1, preStop(10))
	node := pods[0].Spec.NodeName
	restarts := harness.AgentRestarts(s.Agent(node))
	s.send(recreate("r", pods[0].Name, []string{"app"}))
	s.waitKilling(pods[0].Name, "r")
	s.KillRuntime(node)
	r := s.waitCompleted("r")
	state := r.Status.ContainerRecreateStates[0]
	if state.Phase == v1beta1.RecreateFailed {
		require.True(t, strings.HasPrefix(state.Message, "kill container error: "), "state %+v", state)
		require.Zero(t, container(t, s.pod(pods[0].Name), "app").RestartCount)
		s.send(recreate("again", pods[0].Name, []string{"app"}))
		r = s.waitCompleted("again")
	}
	require.Equal(t, succeeded("app"), r.Status.ContainerRecreateStates)
	s.waitRecreated(pods[0], "app")
	require.Equal(t, restarts, harness.AgentRestarts(s.Agent(node)), "restarts of the agent")
}

// The agent dies at different moments around a stop. Its successor finds out what has
// happened, and no container is stopped twice.
func TestAgentKilledDuringARecreate(t *testing.T) {
	s := newSuite(t, v1beta1Version)
	for i, after := range []time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			s := suite{harness.New(t), s.version}
			pods := s.web(1)
			node := pods[0].Spec.NodeName
			restarts := harness.AgentRestarts(s.Agent(node))
			name := fmt.Sprint("r", i)
			s.send(recreate(name, pods[0].Name, []string{"app", "sidecar"}))
			time.Sleep(after) // when the fault comes, not how long something takes
			s.CrashAgent(node)
			s.WaitAgent(node, restarts)
			for _, state := range s.waitCompleted(name).Status.ContainerRecreateStates {
				// Whoever was killed between the stop and telling of it cannot tell.
				require.Equal(t, v1beta1.RecreateSucceeded, state.Phase, "state %+v", state)
			}
			s.waitRecreated(pods[0], "app", "sidecar")
		})
	}
}

// The agent dies while a hook runs: its successor begins anew with the container, which then
// stops once.
func TestAgentKilledDuringAHook(t *testing.T) {
	s := newSuite(t, v1beta1Version)
	pods := s.web(1, preStop(10))
	node := pods[0].Spec.NodeName
	restarts := harness.AgentRestarts(s.Agent(node))
	s.send(recreate("r", pods[0].Name, []string{"app", "sidecar"}))
	s.waitKilling(pods[0].Name, "r")
	s.CrashAgent(node)
	s.WaitAgent(node, restarts)
	r := s.waitCompleted("r")
	require.Equal(t, succeeded("app", "sidecar"), r.Status.ContainerRecreateStates)
	s.waitRecreated(pods[0], "app", "sidecar")
}

// A node is cut off for a minute while a container is being stopped. The stop goes on, and
// its end is told when the node is back.
func TestNodeCutOffDuringARecreate(t *testing.T) {
	s := newSuite(t, v1beta1Version)
	pods := s.web(1, preStop(10))
	node := pods[0].Spec.NodeName
	restarts := harness.AgentRestarts(s.Agent(node))
	s.send(recreate("r", pods[0].Name, []string{"app", "sidecar"}))
	s.waitKilling(pods[0].Name, "r")
	s.CutOff(node)
	s.Throughout("the request waits for the node", time.Minute, func() string {
		if got := s.read("r", s.version).Status; got.Phase != v1beta1.RecreateRecreating {
			return fmt.Sprintf("status %+v", got)
		}
		return ""
	})
	s.Join(node)
	r := s.waitCompleted("r")
	require.Equal(t, succeeded("app", "sidecar"), r.Status.ContainerRecreateStates)
	s.waitRecreated(pods[0], "app", "sidecar")
	require.Equal(t, restarts, harness.AgentRestarts(s.Agent(node)), "restarts of the agent")
}

// A request comes while the node is cut off: it ends after a minute without an answer, and
// nothing is stopped when the node is back.
func TestNodeCutOffBeforeARecreate(t *testing.T) {
	s := newSuite(t, v1beta1Version)
	pods := s.web(1)
	node := pods[0].Spec.NodeName
	s.CutOff(node)
	s.send(recreate("r", pods[0].Name, []string{"app"}))
	r := s.waitCompleted("r")
	require.Equal(t, "daemon has not responded for a long time", r.Status.Message)
	require.Empty(t, r.Status.ContainerRecreateStates)
	s.Join(node)
	s.Eventually("the Pod is ready again", harness.Long, func() string {
		if !harness.Ready(s.pod(pods[0].Name)) {
			return "not yet"
		}
		return ""
	})
	s.Throughout("nothing is stopped", harness.Still, func() string {
		if n := container(t, s.pod(pods[0].Name), "app").RestartCount; n != 0 {
			return fmt.Sprintf("%d restarts", n)
		}
		return ""
	})
	s.send(recreate("next", pods[0].Name, []string{"app"}))
	require.Equal(t, succeeded("app"), s.waitCompleted("next").Status.ContainerRecreateStates)
}

// The leader dies while a Pod is held not ready. Its successor lets it go.
func TestLeaderKilledDuringARecreate(t *testing.T) {
	s := newSuite(t, v1beta1Version)
	pods := s.web(1, preStop(10))
	s.send(recreate("r", pods[0].Name, []string{"app", "sidecar"}, unreadyGrace(2)))
	s.waitKilling(pods[0].Name, "r")
	t.Logf("killed the leader %s", s.KillLeader())
	r := s.waitCompleted("r")
	require.Equal(t, succeeded("app", "sidecar"), r.Status.ContainerRecreateStates)
	s.waitRecreated(pods[0], "app", "sidecar")
	require.Empty(t, s.read("r", v1beta1Version).Finalizers)
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The tests of this file disturb whole nodes, so they are not parallel: they run before the
// parallel ones start.

// slow is a pull of some 20 s: time enough to break things in the middle.
func (s suite) slow() harness.TestImage {
	s.T.Helper()
	image := s.MakeImage("slow", 2, 200_000)
	s.Spoil(image, harness.Rule{Kind: "blob", BytesPerSecond: 10_000})
	return image
}

// requireNoRestart fails when the agent of a node was restarted meanwhile.
func (s suite) requireNoRestart(node string, before int32) {
	s.T.Helper()
	require.Equal(s.T, before, harness.AgentRestarts(s.Agent(node)), "restarts of the agent on %s", node)
}

// The runtime dies in the middle of a pull, and with it the pull. The agent survives that
// and tries again.
func TestRuntimeKilledDuringAPull(t *testing.T) {
	s := newSuite(t, beta{})
	image := s.slow()
	restarts := harness.AgentRestarts(s.Agent("node1"))
	s.pull("job", image.Ref, parallel(3), attempts(120, 5))
	s.waitPulling(image, "node1")
	s.KillRuntime("node1")
	nodes := s.NodeNames()
	s.waitCompleted("job", len(nodes), 0)
	s.requireNoRestart("node1", restarts)
	for _, n := range []string{"node2", "node3"} {
		require.Equal(t, 1, s.Downloads(image)[n][image.Layers[1]], "downloads of %s, which nobody disturbed", n)
	}
	s.requireDownloaded(image, true, nodes...)
}

// The runtime is away for longer than an attempt may take. That is not held against a job,
// not even against one without retries: the node says what it waits for, and goes on when the
// runtime is back.
func TestRuntimeAwayDuringAJob(t *testing.T) {
	s := newSuite(t, beta{})
	one, two := s.MakeImage("one", 1, 1000), s.MakeImage("two", 1, 1000)
	restarts := harness.AgentRestarts(s.Agent("node1"))
	s.StopRuntime("node1")
	s.pull("strict", one.Ref, on("node1"), attempts(5, 0))
	s.pull("patient", two.Ref, on("node1", "node2"), parallel(2), attempts(30, 30))
	s.Eventually("the other node is done", harness.Long, func() string {
		if got := s.job("patient").status; got.Succeeded != 1 || got.Active != 1 {
			return fmt.Sprintf("status %+v", *got)
		}
		return ""
	})
	s.Throughout("the node is waited for", harness.Still, func() string {
		if got := s.job("strict").status; got.CompletionTime != nil {
			return fmt.Sprintf("status %+v", *got)
		}
		return ""
	})
	st := statusOf(s.nodeImage("node1"), one.Ref)
	require.Equal(t, v1beta1.ImagePhasePulling, st.Phase)
	require.Contains(t, st.Message, "waiting for the container runtime")
	s.StartRuntime("node1")
	s.waitCompleted("strict", 1, 0)
	s.waitCompleted("patient", 2, 0)
	s.RequireDownloadedOnce(one, "node1")
	s.RequireDownloadedOnce(two, "node1", "node2")
	s.requireNoRestart("node1", restarts)
}

// The agent dies in the middle of a pull. Its successor takes the task up again, and leaves
// alone what had ended.
func TestAgentKilledDuringAPull(t *testing.T) {
	s := newSuite(t, beta{})
	done := s.MakeImage("done", 1, 1000)
	s.pull("before", done.Ref, on("node1"), policy(v1beta1.PullAlways))
	s.waitCompleted("before", 1, 0)
	manifests := s.Manifests(done)["node1"]

	image := s.slow()
	s.pull("job", image.Ref, on("node1"), attempts(120, 5))
	s.waitPulling(image, "node1")
	restarts := harness.AgentRestarts(s.Agent("node1"))
	s.CrashAgent("node1")
	s.WaitAgent("node1", restarts)
	s.waitCompleted("job", 1, 0)
	s.requireDownloaded(image, true, "node1")
	for layer, n := range s.Downloads(image)["node1"] {
		require.LessOrEqual(t, n, 2, "downloads of %s: one of each agent", layer)
	}
	require.Equal(t, manifests, s.Manifests(done)["node1"], "what had ended is not pulled again, not even with the policy Always")
}

// The Pod of the agent is deleted in the middle of a pull: another one comes.
func TestAgentReplacedDuringAPull(t *testing.T) {
	s := newSuite(t, beta{})
	image := s.slow()
	s.pull("job", image.Ref, on("node2"), attempts(120, 5))
	s.waitPulling(image, "node2")
	pod := s.Agent("node2")
	require.NoError(t, s.Client.Delete(s.Ctx(), pod))
	s.Eventually("another agent", harness.Long, func() string {
		if next := s.Agent("node2"); next == nil || next.UID == pod.UID || !harness.Ready(next) {
			return "not yet"
		}
		return ""
	})
	s.waitCompleted("job", 1, 0)
	s.requireDownloaded(image, true, "node2")
}

// A node is cut off from the API server for a minute in the middle of a pull. The pull goes
// on, and its result is told when the node is back; nothing is pulled twice.
func TestNodeCutOffDuringAPull(t *testing.T) {
	s := newSuite(t, beta{})
	image := s.slow()
	restarts := harness.AgentRestarts(s.Agent("node3"))
	s.pull("job", image.Ref, parallel(3), attempts(120, 5))
	s.waitPulling(image, "node3")
	cut := time.Now()
	s.CutOff("node3")
	s.Eventually("the others are done, and the node is waited for", harness.Long, func() string {
		if got := s.job("job").status; got.Succeeded != 2 || got.Active != 1 || got.Failed != 0 {
			return fmt.Sprintf("status %+v", *got)
		}
		return ""
	})
	s.Throughout("the node is waited for", time.Until(cut.Add(time.Minute)), func() string {
		if got := s.job("job").status; got.Active != 1 || got.CompletionTime != nil {
			return fmt.Sprintf("status %+v", *got)
		}
		return ""
	})
	s.Join("node3")
	nodes := s.NodeNames()
	s.waitCompleted("job", len(nodes), 0)
	s.RequireDownloadedOnce(image, nodes...)
	s.requireNoRestart("node3", restarts)
}

// A job is created while a node is cut off. The node gets to know of it when it is back.
func TestNodeCutOffBeforeAJob(t *testing.T) {
	s := newSuite(t, beta{})
	image := s.MakeImage("app", 1, 1000)
	cut := time.Now()
	s.CutOff("node3")
	s.pull("job", image.Ref, parallel(3), attempts(60, 2))
	s.Eventually("the others are done", harness.Long, func() string {
		if got := s.job("job").status; got.Succeeded != 2 || got.Active != 1 {
			return fmt.Sprintf("status %+v", *got)
		}
		return ""
	})
	s.Throughout("the node is waited for", time.Until(cut.Add(time.Minute)), func() string {
		if got := s.job("job").status; got.CompletionTime != nil {
			return fmt.Sprintf("status %+v", *got)
		}
		return ""
	})
	s.Join("node3")
	nodes := s.NodeNames()
	s.waitCompleted("job", len(nodes), 0)
	s.RequireDownloadedOnce(image, nodes...)
}

// The leader dies in the middle of a job: its successor goes on, and no node is asked twice.
func TestLeaderKilledDuringAJob(t *testing.T) {
	s := newSuite(t, beta{})
	image := s.slow()
	s.pull("job", image.Ref, parallel(2), attempts(120, 2))
	s.waitPulling(image, "node1")
	t.Logf("killed the leader %s", s.KillLeader())
	nodes := s.NodeNames()
	s.waitCompleted("job", len(nodes), 0)
	s.RequireDownloadedOnce(image, nodes...)
	for _, n := range nodes {
		require.Zero(t, tagOf(s.nodeImage(n), image.Ref).Version, "the task of %s is the first one", n)
	}
}

// The API server is away in the middle of a job.
func TestAPIServerRestartedDuringAJob(t *testing.T) {
	s := newSuite(t, beta{})
	image := s.slow()
	s.pull("job", image.Ref, parallel(2), attempts(120, 2))
	s.waitPulling(image, "node1")
	s.Disturb("restart", "kube-apiserver")
	s.WaitForAPIServer()
	nodes := s.NodeNames()
	s.waitCompleted("job", len(nodes), 0)
	s.RequireDownloadedOnce(image, nodes...)
}

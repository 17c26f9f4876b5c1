//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package probes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// waitMessage waits until condition healthy of each Pod has the status and a message with those words.
func (s suite) waitMessage(status, words string) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("the condition is %s with %q", status, words), harness.Short, func() string {
		for _, p := range s.Pods(setName) {
			if c := condition(p, healthy); string(c.Status) != status || !strings.Contains(c.Message, words) {
				return fmt.Sprintf("%s: %q, message %q", p.Name, c.Status, c.Message)
			}
		}
		return ""
	})
}

// Scenario 2: another message reaches the Pod though the state is the same.
func TestAMessageThatChanges(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.start(func(spec *corev1.PodSpec) {
		spec.Containers = []corev1.Container{{Name: "minecraft", Image: "openkruise/minecraft-demo:probe-v0", ImagePullPolicy: corev1.PullIfNotPresent}}
	})
	s.probe("minecraft", "ready", "game.kruise.io/healthy", shell("bash", "./probe.sh"))
	s.waitMessage("False", "")
	s.waitMessage("True", "data")
	s.waitMessage("True", "gate")
}

// Scenarios 3 to 3c and 4: over the network.
func TestNetworkProbesMarkPods(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(port int) handler{
		"tcp":  tcp,
		"http": func(port int) handler { return get("/", port) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t)
			s.start()
			good := look{label: "healthy", conditions: map[string]string{healthy: "True"}}
			s.probe("nginx", "healthy", healthy, at(80), whenHealthy())
			s.waitPodsLook(good)
			s.waitListed()
			s.change("ppm-nginx", at(8081))
			s.waitPodsLook(look{conditions: map[string]string{healthy: "False"}})
			s.change("ppm-nginx", at(80))
			s.waitPodsLook(good)
			s.scale(1)
			s.waitListed()
			s.scale(len(s.NodeNames()))
			s.waitPodsLook(good)
			s.waitListed()
			s.remove("ppm-nginx")
			require.Empty(t, s.listed())
		})
	}
}

// An answer that is no success, and a path that is none.
func TestAnHTTPProbeLooksAtTheAnswer(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.start()
	s.probe("nginx", "healthy", healthy, get("/version", 80), whenHealthy())
	s.waitPodsLook(look{label: "healthy", conditions: map[string]string{healthy: "True"}})
	s.change("ppm-nginx", get("/missing", 80))
	s.waitPodsLook(look{conditions: map[string]string{healthy: "False"}})
	s.waitMessage("False", "404")
}

// A marker whose name ends another one's goes alone.
func TestAMarkerLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.start()
	s.probe("nginx", "healthy", healthy, shell("true"), whenHealthy())
	other := &v1alpha1.PodProbeMarker{}
	require.NoError(t, s.Client.Get(s.Ctx(), s.Key("ppm-nginx"), other))
	other = &v1alpha1.PodProbeMarker{Spec: other.Spec}
	other.Name = "nginx"
	other.Spec.Probes[0].PodConditionType, other.Spec.Probes[0].MarkerPolicy = check, nil
	s.Create(other)
	s.waitPodsLook(look{label: "healthy", conditions: map[string]string{healthy: "True", check: "True"}})
	s.remove("nginx")
	s.change("ppm-nginx", shell("false"))
	s.waitPodsLook(look{conditions: map[string]string{healthy: "False"}})
}

// The tests below disturb whole nodes, so they are not parallel: they run before the parallel
// ones start.

// conditionStays fails when the condition of a Pod is not True at some moment of the span.
func (s suite) conditionStays(span time.Duration) {
	s.T.Helper()
	s.Throughout("the condition stays True", span, func() string {
		for _, p := range s.Pods(setName) {
			if got := condition(p, healthy); got.Status != corev1.ConditionTrue {
				return fmt.Sprintf("%s: %q", p.Name, got.Status)
			}
		}
		return ""
	})
}

// The agent is killed: conditions and labels stay as they are, and the next agent goes on.
func TestAgentKilledKeepsConditions(t *testing.T) {
	s := newSuite(t)
	s.start()
	good := look{label: "healthy", conditions: map[string]string{healthy: "True"}}
	s.probe("nginx", "healthy", healthy, shell("test", "!", "-e", "/tmp/broken"), whenHealthy())
	s.waitPodsLook(good)
	transitions := map[string]time.Time{}
	for _, p := range s.Pods(setName) {
		transitions[p.Name] = condition(p, healthy).LastTransitionTime.Time
	}
	restarts := harness.AgentRestarts(s.Agent("node1"))
	s.CrashAgent("node1")
	s.conditionStays(harness.Still)
	s.WaitAgent("node1", restarts)
	s.conditionStays(harness.Still)
	for _, p := range s.Pods(setName) {
		require.Equal(t, transitions[p.Name], condition(p, healthy).LastTransitionTime.Time, "%s: nothing has changed", p.Name)
	}
	s.change("ppm-nginx", shell("false"))
	s.waitPodsLook(look{conditions: map[string]string{healthy: "False"}})
	s.change("ppm-nginx", shell("true"))
	s.waitPodsLook(good)
}

// The runtime is away for a while: a probe that cannot be run says nothing new.
func TestRuntimeAwayKeepsConditions(t *testing.T) {
	s := newSuite(t)
	s.start()
	good := look{label: "healthy", conditions: map[string]string{healthy: "True"}}
	s.probe("nginx", "healthy", healthy, shell("true"), whenHealthy())
	s.waitPodsLook(good)
	restarts := harness.AgentRestarts(s.Agent("node1"))
	s.StopRuntime("node1")
	s.conditionStays(harness.Still)
	s.StartRuntime("node1")
	s.waitPodsLook(good)
	require.Equal(t, restarts, harness.AgentRestarts(s.Agent("node1")), "restarts of the agent")
	s.change("ppm-nginx", shell("false"))
	s.waitPodsLook(look{conditions: map[string]string{healthy: "False"}})
}

// A node is cut off for a minute: what its Pods show stays, and what has changed meanwhile is
// told when it is back.
func TestNodeCutOffKeepsConditions(t *testing.T) {
	s := newSuite(t)
	s.start()
	s.probe("nginx", "healthy", healthy, shell("sh", "-c", "test ! -e /tmp/broken"), whenHealthy())
	s.waitPodsLook(look{label: "healthy", conditions: map[string]string{healthy: "True"}})
	var there corev1.Pod
	for _, p := range s.Pods(setName) {
		if p.Spec.NodeName == "node3" {
			there = p
		}
	}
	require.NotEmpty(t, there.Name, "a Pod on node3")
	restarts := harness.AgentRestarts(s.Agent("node3"))
	s.CutOff("node3")
	_, id, _ := strings.Cut(there.Status.ContainerStatuses[1].ContainerID, "://")
	if there.Status.ContainerStatuses[1].Name != "nginx" {
		_, id, _ = strings.Cut(there.Status.ContainerStatuses[0].ContainerID, "://")
	}
	s.Cluster("exec", "node3", "--", "crictl", "exec", id, "touch", "/tmp/broken")
	s.conditionStays(time.Minute)
	s.Join("node3")
	s.Eventually("the Pod of the node shows what has changed", harness.Long, func() string {
		for _, p := range s.Pods(setName) {
			want := "True"
			if p.Name == there.Name {
				want = "False"
			}
			if got := condition(p, healthy); string(got.Status) != want {
				return fmt.Sprintf("%s: %q", p.Name, got.Status)
			}
		}
		return ""
	})
	require.Equal(t, restarts, harness.AgentRestarts(s.Agent("node3")), "restarts of the agent")
}

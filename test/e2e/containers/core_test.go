//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// Scenarios 1a, 1b and 3b of the specification.
func TestContainersAreRecreated(t *testing.T) {
	t.Parallel()
	recreateScenario(newSuite(t, v1beta1Version))
}

// recreateScenario recreates one container of a Pod and both of another.
func recreateScenario(s suite) {
	pods := s.web(2)

	// 1a
	r := s.send(recreate("one", pods[0].Name, []string{"app"}, strategy(func(st *v1beta1.RecreateStrategy) { st.MinStartedSeconds = 5 }),
		func(spec *v1beta1.ContainerRecreateRequestSpec) { spec.TTLSecondsAfterFinished = new(int32(15)) }))
	s.requireFilledIn(r, pods[0])
	// 1b, meanwhile
	s.send(recreate("both", pods[1].Name, []string{"app", "sidecar"}))

	r = s.waitCompleted("one")
	require.Equal(s.T, succeeded("app"), r.Status.ContainerRecreateStates)
	require.Empty(s.T, r.Status.Message)
	after := s.requireRecreated(pods[0], "app")
	ran := r.Status.CompletionTime.Sub(container(s.T, after, "app").State.Running.StartedAt.Time)
	require.Greater(s.T, ran, 4*time.Second, "how long app ran before it had succeeded")

	r = s.waitCompleted("both")
	require.Equal(s.T, succeeded("app", "sidecar"), r.Status.ContainerRecreateStates)
	s.requireRecreated(pods[1], "app", "sidecar")
	s.waitGone("one")
}

// Scenario 3b: the deadline ends the request, not the stop that is under way.
func TestADeadlineEndsARequestButNotAStop(t *testing.T) {
	t.Parallel()
	deadlineScenario(newSuite(t, v1beta1Version))
}

func deadlineScenario(s suite) {
	pods := s.web(1, preStop(20))
	s.send(recreate("late", pods[0].Name, []string{"app", "sidecar"}, deadline(5)))
	r := s.waitCompleted("late")
	require.Equal(s.T, []v1beta1.RecreateState{
		{Name: "app", Phase: v1beta1.RecreatePending}, {Name: "sidecar", Phase: v1beta1.RecreatePending},
	}, r.Status.ContainerRecreateStates, "when the deadline has passed")
	require.Equal(s.T, "recreating has exceeded the activeDeadlineSeconds", r.Status.Message)

	s.waitRecreated(pods[0], "app")
	want := []v1beta1.RecreateState{
		{Name: "app", Phase: v1beta1.RecreateRecreating, IsKilled: true}, {Name: "sidecar", Phase: v1beta1.RecreatePending},
	}
	s.Eventually("the stop is told", harness.Short, func() string {
		if got := s.read("late", s.version).Status.ContainerRecreateStates; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			return "not yet"
		}
		return ""
	})
	s.Throughout("the next container is left alone", harness.Still, func() string {
		if container(s.T, s.pod(pods[0].Name), "sidecar").RestartCount != 0 {
			return "it was stopped"
		}
		return ""
	})
}

// Scenario 3c: the Pod leaves its Services before anything is stopped, and comes back.
func TestAPodIsNotReadyBeforeItsContainersStop(t *testing.T) {
	t.Parallel()
	s := newSuite(t, v1beta1Version)
	pods := s.web(1, preStop(60))
	seen := s.conditionsSeen(pods[0].Name, v1beta1.KruisePodReady)
	r := s.send(recreate("drain", pods[0].Name, []string{"app", "sidecar"}, unreadyGrace(1),
		strategy(func(st *v1beta1.RecreateStrategy) { st.TerminationGracePeriodSeconds = new(int64(3)) })))
	created := r.CreationTimestamp
	r = s.waitCompleted("drain")
	require.Equal(t, succeeded("app", "sidecar"), r.Status.ContainerRecreateStates)
	s.Eventually("the Pod is ready again", harness.Short, func() string {
		if !harness.Ready(s.pod(pods[0].Name)) {
			return "not yet"
		}
		return ""
	})
	after := s.requireRecreated(pods[0], "app", "sidecar")
	states := seen()
	require.Contains(t, states, `False [{"userAgent":"ContainerRecreateRequest","key":"`+s.Namespace+`/drain"}]`)
	require.Equal(t, "True []", states[len(states)-1])
	end := container(t, after, "app").LastTerminationState.Terminated.FinishedAt
	require.Less(t, end.Sub(created.Time), time.Minute, "the hook was given the time of the request, not its own")
	require.Empty(t, s.read("drain", v1beta1Version).Finalizers)
	for _, c := range after.Status.Conditions {
		require.NotEqual(t, corev1.ConditionFalse, c.Status, "condition %s", c.Type)
	}
}

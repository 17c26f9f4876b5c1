// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

func (w *world) status(t *testing.T, r *v1beta1.ContainerRecreateRequest) v1beta1.ContainerRecreateRequestStatus {
	t.Helper()
	now, err := w.server.request(r.Name)
	require.NoError(t, err)
	return now.Status
}

func (w *world) states(t *testing.T, r *v1beta1.ContainerRecreateRequest) []v1beta1.RecreateState {
	t.Helper()
	return w.status(t, r).ContainerRecreateStates
}

// learn brings both caches up to date.
func (w *world) learn() {
	last := len(w.server.history) - 1
	w.managerLearns(last)
	w.managerLearnsPods(last)
	w.agentLearns(last)
}

func succeeded(names ...string) []v1beta1.RecreateState {
	var states []v1beta1.RecreateState
	for _, n := range names {
		states = append(states, v1beta1.RecreateState{Name: n, Phase: "Succeeded", IsKilled: true})
	}
	return states
}

func (w *world) print(t *testing.T) {
	t.Cleanup(func() {
		w.end()
		w.agent.queue.ShutDown()
		if t.Failed() {
			t.Log("\n" + strings.Join(w.log, "\n"))
		}
	})
}

func TestARequestAndWhatItCosts(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app", "proxy")
	old := w.newest(pod.UID, "app").ID
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{TTLSecondsAfterFinished: new(int32(60))}, "app")
	require.False(t, w.quiet(30*time.Second), "its TTL remains")
	status := w.status(t, r)
	require.Equal(t, succeeded("app"), status.ContainerRecreateStates)
	require.Equal(t, v1beta1.RecreateCompleted, status.Phase)
	require.Empty(t, status.Message)
	require.NotEqual(t, old, w.newest(pod.UID, "app").ID)
	require.Zero(t, w.newest(pod.UID, "proxy").Attempt)
	require.Len(t, status.ContainerStatusSnapshot, 1)
	require.Equal(t, recreate.ConditionComplete, status.Conditions[0].Type)
	require.Equal(t, 3, w.server.writes["agent"], "begin, stopped, end")
	require.Equal(t, 2, w.server.writes["manager"], "snapshot, label")
	require.True(t, w.quiet(2*time.Minute))
	require.Empty(t, w.server.requests, "deleted after its TTL")
}

func TestDrainHoldsThePodAndLetsItGo(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, true, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{Strategy: &v1beta1.RecreateStrategy{UnreadyGracePeriodSeconds: new(int64(5))}}, "app")
	created := w.clock.Now()
	for len(w.flights) == 0 {
		if !w.once() {
			next, ok := w.nextDue()
			require.True(t, ok)
			w.clock.SetTime(next)
			continue
		}
		if w.clock.Now().Sub(created) < time.Second && w.status(t, r).Conditions != nil {
			condition := podready.Condition(w.server.pods["web"], v1beta1.KruisePodReady)
			require.Equal(t, `[{"userAgent":"ContainerRecreateRequest","key":"shop/`+r.Name+`"}]`, condition.Message)
			require.Equal(t, corev1.ConditionFalse, condition.Status)
		}
	}
	require.GreaterOrEqual(t, w.clock.Now().Sub(created), 5*time.Second)
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, succeeded("app"), w.states(t, r))
	require.Equal(t, "[]", podready.Condition(w.server.pods["web"], v1beta1.KruisePodReady).Message)
	now, err := w.server.request(r.Name)
	require.NoError(t, err)
	require.Empty(t, now.Finalizers)
	require.Equal(t, 4, w.server.writes["agent"], "begin, states, stopped, end")
	require.Equal(t, 4, w.server.writes["manager"], "finalizer, condition, snapshot, finalizer and label")
	require.Equal(t, 2, w.server.writes["manager pod"], "hold, release")
}

func TestAStopUnderWayIsReportedToARequestThatHasEnded(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app", "proxy")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{ActiveDeadlineSeconds: new(int64(3))}, "app", "proxy")
	w.learn()
	w.serve(KeyOf(r))
	f := w.flights[KeyOf(r)]
	require.NotNil(t, f, "the first container is being stopped")
	w.tick(3 * time.Second)
	w.manage(r.Name)
	w.learn()
	w.manage(r.Name) // takes the label off
	w.learn()
	pending := []v1beta1.RecreateState{{Name: "app", Phase: "Pending"}, {Name: "proxy", Phase: "Pending"}}
	require.Equal(t, pending, w.states(t, r))
	status := w.status(t, r)
	require.Equal(t, "recreating has exceeded the activeDeadlineSeconds", status.Message)
	require.Equal(t, "DeadlineExceeded", status.Conditions[0].Reason)
	require.Contains(t, status.Conditions[0].Message, "app (Pending), proxy (Pending)")

	w.exit(w.box(f.target), 0)
	writes := w.server.writes["agent"]
	w.fail = func() (bool, bool) { return true, false } // and the API server is away at first
	w.resume(f, nil)
	require.Equal(t, pending, w.states(t, r))
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, []v1beta1.RecreateState{{Name: "app", Phase: "Recreating", IsKilled: true}, {Name: "proxy", Phase: "Pending"}}, w.states(t, r))
	require.Equal(t, writes+1, w.server.writes["agent"])
	require.Zero(t, w.newest(pod.UID, "proxy").Attempt, "the next one was not stopped")
}

func TestNoRequestHoldsUpTheNext(t *testing.T) {
	ends := map[string]func(*world, *v1beta1.ContainerRecreateRequest){
		"after its end":     func(*world, *v1beta1.ContainerRecreateRequest) {},
		"when it is gone":   func(w *world, r *v1beta1.ContainerRecreateRequest) { w.server.deleteRequest(r.Name) },
		"when it timed out": func(w *world, _ *v1beta1.ContainerRecreateRequest) { w.tick(20 * time.Second) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.print(t)
			pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
			first := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{ActiveDeadlineSeconds: new(int64(20))}, "app")
			w.learn()
			w.serve(KeyOf(first))
			second := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{Strategy: &v1beta1.RecreateStrategy{ForceRecreate: true}}, "app")
			third := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
			w.learn()
			f := w.flights[KeyOf(first)]
			w.exit(w.box(f.target), 0)
			w.resume(f, nil)
			w.serve(KeyOf(first))
			require.Equal(t, v1beta1.RecreatePending, w.status(t, second).Phase)
			require.Equal(t, v1beta1.RecreatePending, w.status(t, third).Phase)
			end(w, first)
			require.True(t, w.quiet(time.Minute))
			require.Equal(t, succeeded("app"), w.states(t, second))
			require.Equal(t, succeeded("app"), w.states(t, third))
			require.EqualValues(t, 2, w.newest(pod.UID, "app").Attempt, "the third was made for a container that is gone")
		})
	}
}

func TestARequestForAnotherPodOfTheNameDoesNotWait(t *testing.T) {
	w := newWorld()
	w.print(t)
	old := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	first := w.admit(old, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.learn()
	w.serve(KeyOf(first)) // is being stopped, for long
	w.server.deletePod("web")
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	second := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.learn()
	w.serve(KeyOf(second))
	require.NotNil(t, w.flights[KeyOf(second)])
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, succeeded("app"), w.states(t, second))
	require.Equal(t, "pod has gone", w.status(t, first).Message)
	require.Equal(t, "PodGone", w.status(t, first).Conditions[0].Reason)
}

func TestAFailedStop(t *testing.T) {
	cases := map[string]struct {
		policy v1beta1.RecreateFailurePolicy
		reason string
		second v1beta1.RecreateState
	}{
		"ends the request":                      {policy: "Fail", reason: "ContainerFailed", second: v1beta1.RecreateState{Name: "proxy", Phase: "Pending"}},
		"does not, if failures are to be borne": {policy: "Ignore", reason: "ContainerFailed", second: succeeded("proxy")[0]},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.print(t)
			pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app", "proxy")
			r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{Strategy: &v1beta1.RecreateStrategy{FailurePolicy: tc.policy}}, "app", "proxy")
			w.learn()
			w.serve(KeyOf(r))
			w.resume(w.flights[KeyOf(r)], errors.New("no"))
			require.True(t, w.quiet(time.Minute))
			status := w.status(t, r)
			require.Equal(t, []v1beta1.RecreateState{{Name: "app", Phase: "Failed", Message: "kill container error: no"}, tc.second}, status.ContainerRecreateStates)
			require.Equal(t, v1beta1.RecreateCompleted, status.Phase)
			require.Empty(t, status.Message)
			require.Equal(t, "Failed", status.Conditions[0].Type)
			require.Equal(t, tc.reason, status.Conditions[0].Reason)
		})
	}
}

func TestForce(t *testing.T) {
	force := v1beta1.ContainerRecreateRequestSpec{Strategy: &v1beta1.RecreateStrategy{ForceRecreate: true}}
	t.Run("stops a container also after it restarted by itself", func(t *testing.T) {
		w := newWorld()
		w.print(t)
		pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
		r := w.admit(pod, force, "app")
		w.exit(w.newest(pod.UID, "app"), 1)
		w.start(pod, "app")
		require.True(t, w.quiet(time.Minute))
		require.Equal(t, succeeded("app"), w.states(t, r))
		require.EqualValues(t, 2, w.newest(pod.UID, "app").Attempt)
	})
	t.Run("counts a container that does not run as stopped", func(t *testing.T) {
		w := newWorld()
		w.print(t)
		pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
		r := w.admit(pod, force, "app")
		w.exit(w.newest(pod.UID, "app"), 1)
		w.learn()
		w.serve(KeyOf(r))
		require.Empty(t, w.flights)
		require.True(t, w.quiet(time.Minute))
		require.Equal(t, succeeded("app"), w.states(t, r))
		require.EqualValues(t, 1, w.newest(pod.UID, "app").Attempt)
	})
	t.Run("is remembered over a restart of the agent between stop and report", func(t *testing.T) {
		w := newWorld()
		w.print(t)
		pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
		r := w.admit(pod, force, "app")
		w.learn()
		w.serve(KeyOf(r))
		target := w.flights[KeyOf(r)].target
		require.Equal(t, []v1beta1.RecreateState{{Name: "app", Phase: "Pending", Message: "stopping container " + target}}, w.states(t, r))
		w.killAgent()
		w.exit(w.box(target), 0) // the runtime goes on
		w.start(pod, "app")
		w.startAgent()
		w.check = func(*flight, *box) { t.Error("it was stopped twice") }
		require.True(t, w.quiet(time.Minute))
		require.Equal(t, succeeded("app"), w.states(t, r))
	})
}

func TestARestartOfTheAgentStopsNothingTwice(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.learn()
	w.serve(KeyOf(r))
	f := w.flights[KeyOf(r)]
	w.fail = func() (bool, bool) { return true, false }
	w.exit(w.box(f.target), 0)
	w.resume(f, nil) // and the report gets lost
	require.Equal(t, []v1beta1.RecreateState{{Name: "app", Phase: "Pending"}}, w.states(t, r))
	w.killAgent()
	w.start(pod, "app")
	w.startAgent()
	w.check = func(*flight, *box) { t.Error("it was stopped twice") }
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, succeeded("app"), w.states(t, r))
}

func TestAContainerThatIsMissingForAWhile(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	boxes := w.boxes
	w.boxes = nil
	w.learn()
	w.serve(KeyOf(r))
	require.Equal(t, []v1beta1.RecreateState{{Name: "app", Phase: "Pending", Message: "not found container on Node"}}, w.states(t, r))
	w.boxes = boxes
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, succeeded("app"), w.states(t, r))
}

func TestCompletionAgainstTheDeadline(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{ActiveDeadlineSeconds: new(int64(10))}, "app")
	w.learn()
	w.serve(KeyOf(r))
	f := w.flights[KeyOf(r)]
	w.exit(w.box(f.target), 0)
	w.resume(f, nil)
	w.start(pod, "app")
	w.newest(pod.UID, "app").ready = true
	w.mirror("web")
	w.learn()
	w.manage(r.Name)
	w.agentLearns(len(w.server.history) - 1)
	w.tick(10 * time.Second)
	stale := w.managerSees
	w.serve(KeyOf(r)) // completes
	done := w.status(t, r)
	require.Equal(t, recreate.ConditionComplete, done.Conditions[0].Type)
	w.managerSees = stale
	w.manage(r.Name) // thinks that the deadline has passed
	require.Empty(t, w.status(t, r).Message)
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, done.CompletionTime, w.status(t, r).CompletionTime)
}

func TestARequestThatNobodyAnswers(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.killAgent()
	w.learn()
	w.manage(r.Name)
	w.tick(59 * time.Second)
	w.manage(r.Name)
	require.Empty(t, w.status(t, r).Message)
	w.tick(time.Second)
	w.manage(r.Name)
	require.Equal(t, "daemon has not responded for a long time", w.status(t, r).Message)
	require.Equal(t, "AgentNotResponding", w.status(t, r).Conditions[0].Reason)
}

func TestAnAgentWhoseRuntimeIsDownAnswersAllTheSame(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.learn()
	calls := 0
	w.fail = func() (bool, bool) { calls++; return calls == 1, false }
	w.serve(KeyOf(r))
	require.Equal(t, v1beta1.RecreateRecreating, w.status(t, r).Phase)
	require.Empty(t, w.states(t, r))
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, succeeded("app"), w.states(t, r))
}

func TestRequestsOfUnknownRuntimesEnd(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app", "proxy")
	for id, message := range map[string]string{
		"docker://x": `failed to find runtime service: no runtime named "docker" answers on this node`,
		"x":          `failed to find runtime service: container app has the ID "x", which names no runtime`,
	} {
		r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
		changed := w.server.requests[r.Name].DeepCopy()
		changed.Spec.Containers[0].StatusContext.ContainerID = id
		w.server.requests[r.Name] = changed
		w.server.remember()
		require.True(t, w.quiet(time.Minute))
		require.Equal(t, message, w.status(t, r).Message)
		require.Equal(t, "RuntimeNotFound", w.status(t, r).Conditions[0].Reason)
	}
}

func TestARequestThatTookTheNameIsNotTold(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.learn()
	w.serve(KeyOf(r))
	f := w.flights[KeyOf(r)]
	w.server.deleteRequest(r.Name)
	other := r.DeepCopy()
	other.Status = v1beta1.ContainerRecreateRequestStatus{Phase: v1beta1.RecreateCompleted}
	w.server.createRequest(other)
	w.exit(w.box(f.target), 0)
	w.resume(f, nil)
	require.Empty(t, w.states(t, other))
	require.NoError(t, f.err)
}

func TestARuntimeThatOnlySaysItHasStopped(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.learn()
	w.serve(KeyOf(r))
	w.resume(w.flights[KeyOf(r)], nil) // and it still runs
	require.Empty(t, w.flights, "not again at once")
	require.Equal(t, []v1beta1.RecreateState{{Name: "app", Phase: "Recreating", IsKilled: true}}, w.states(t, r))
	require.Equal(t, cri.StateRunning, w.newest(pod.UID, "app").State)
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, succeeded("app"), w.states(t, r))
}

func TestAPodThatOnlyTheCacheDoesNotKnow(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.managerLearns(len(w.server.history) - 1)
	require.Empty(t, w.managerSees.pods)
	w.manage(r.Name)
	require.False(t, recreate.Finished(w.server.requests[r.Name]))
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, succeeded("app"), w.states(t, r))
}

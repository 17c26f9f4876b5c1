//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// inBothVersions runs a scenario twice at once, as a client of each version.
func inBothVersions(t *testing.T, scenario func(s suite)) {
	t.Parallel()
	for name, version := range map[string]string{"v1beta1": v1beta1Version, "v1alpha1": v1alpha1Version} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(newSuite(t, version))
		})
	}
}

// Scenarios 1a and 1b as a client of the old version.
func TestContainersAreRecreatedForAnOldClient(t *testing.T) {
	t.Parallel()
	recreateScenario(newSuite(t, v1alpha1Version))
}

// Scenario 3b as a client of the old version.
func TestADeadlineForAnOldClient(t *testing.T) {
	t.Parallel()
	deadlineScenario(newSuite(t, v1alpha1Version))
}

// start is what the first container of a Pod does before it is running: longer than it takes
// to stop the second one at once, on any machine.
const start = 12

// Scenarios 2a, 2b, 4a, 4b and 7: with orderedRecreate the second container stops when the
// first one runs again, without it soon after the first one.
func TestTheOrderOfContainers(t *testing.T) {
	inBothVersions(t, func(s suite) {
		pods := s.web(4, postStart(start))
		for i, edit := range [][]func(*v1beta1.ContainerRecreateRequestSpec){{}, {ordered}, {force}, {ordered, force}} {
			s.send(recreate(fmt.Sprint("r", i), pods[i].Name, []string{"app", "sidecar"}, edit...))
		}
		for i := range pods {
			r := s.waitCompleted(fmt.Sprint("r", i))
			require.Equal(s.T, succeeded("app", "sidecar"), r.Status.ContainerRecreateStates)
			s.requireRecreated(pods[i], "app", "sidecar")
			apart := s.between(pods[i].Name)
			if i%2 == 0 {
				require.Less(s.T, apart, start*time.Second, "sidecar after app in request %d", i)
				continue
			}
			require.GreaterOrEqual(s.T, apart, start*time.Second, "sidecar after app in request %d, which is ordered", i)
		}
	})
}

// Scenario 3a: the hook of the first container delays the second one.
func TestAHookIsWaitedFor(t *testing.T) {
	inBothVersions(t, func(s suite) {
		pods := s.web(1, preStop(8))
		r := s.send(recreate("hook", pods[0].Name, []string{"app", "sidecar"}))
		s.waitKilling(pods[0].Name, "hook")
		require.Zero(s.T, container(s.T, s.pod(pods[0].Name), "sidecar").RestartCount)
		created := r.CreationTimestamp.Time
		r = s.waitCompleted("hook")
		require.Equal(s.T, succeeded("app", "sidecar"), r.Status.ContainerRecreateStates)
		after := s.requireRecreated(pods[0], "app", "sidecar")
		end := container(s.T, after, "sidecar").LastTerminationState.Terminated.FinishedAt.Time
		require.GreaterOrEqual(s.T, end.Sub(created), 8*time.Second)
	})
}

// Scenarios 6, 8 and 9: what one version keeps in annotations the other one has in its status.
func TestBothVersionsTellTheSame(t *testing.T) {
	inBothVersions(t, func(s suite) {
		pods := s.web(1)
		s.send(recreate("both", pods[0].Name, []string{"app", "sidecar"}, unreadyGrace(1)))
		s.waitCompleted("both")
		s.waitRecreated(pods[0], "app", "sidecar")

		beta := s.read("both", v1beta1Version)
		require.NotContains(s.T, beta.Annotations, "crr.apps.kruise.io/sync-container-statuses")
		require.NotContains(s.T, beta.Annotations, "crr.apps.kruise.io/unready-acquired")
		require.Len(s.T, beta.Status.ContainerStatusSnapshot, 2)
		require.Equal(s.T, "app", beta.Status.ContainerStatusSnapshot[0].Name)
		require.NotEmpty(s.T, beta.Status.ContainerStatusSnapshot[0].ContainerID)
		require.NotEqual(s.T, container(s.T, &pods[0], "app").ContainerID, beta.Status.ContainerStatusSnapshot[0].ContainerID)
		var grace *metav1.Condition
		for i, c := range beta.Status.Conditions {
			if c.Type == "PreRecreateGrace" {
				grace = &beta.Status.Conditions[i]
			}
		}
		require.NotNil(s.T, grace, "condition PreRecreateGrace")
		require.Equal(s.T, metav1.ConditionTrue, grace.Status)

		alpha := s.read("both", v1alpha1Version)
		require.Contains(s.T, alpha.Annotations["crr.apps.kruise.io/sync-container-statuses"], `"name":"app"`)
		at, err := time.Parse(time.RFC3339, alpha.Annotations["crr.apps.kruise.io/unready-acquired"])
		require.NoError(s.T, err)
		require.True(s.T, at.Equal(grace.LastTransitionTime.Time), "%s and %s", at, grace.LastTransitionTime)
	})
}

// Scenario 10: a Pod that also has an ephemeral container.
func TestAnEphemeralContainerDoesNotDisturb(t *testing.T) {
	inBothVersions(t, func(s suite) {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "nginx"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: harness.Nginx1, ImagePullPolicy: corev1.PullIfNotPresent}}},
		}
		s.Create(p)
		ready := func() string {
			if p = s.pod("nginx"); !harness.Ready(p) {
				return "not yet"
			}
			return ""
		}
		s.Eventually("the Pod is ready", harness.Long, ready)
		kube, err := kubernetes.NewForConfig(s.Config)
		require.NoError(s.T, err)
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: harness.Sidecar1, Command: []string{"sleep", "100000"}},
		}}
		_, err = kube.CoreV1().Pods(s.Namespace).UpdateEphemeralContainers(s.Ctx(), p.Name, p, metav1.UpdateOptions{})
		require.NoError(s.T, err)
		s.Eventually("the ephemeral container runs", harness.Long, func() string {
			for _, c := range s.pod("nginx").Status.EphemeralContainerStatuses {
				if c.State.Running != nil {
					return ""
				}
			}
			return "not yet"
		})
		before := *s.pod("nginx")
		s.send(recreate("r", "nginx", []string{"nginx"}, strategy(func(st *v1beta1.RecreateStrategy) { st.MinStartedSeconds = 5 }),
			func(spec *v1beta1.ContainerRecreateRequestSpec) { spec.TTLSecondsAfterFinished = new(int32(99999)) }))
		r := s.waitCompleted("r")
		require.Equal(s.T, succeeded("nginx"), r.Status.ContainerRecreateStates)
		after := s.requireRecreated(before, "nginx")
		require.Greater(s.T, r.Status.CompletionTime.Sub(container(s.T, after, "nginx").State.Running.StartedAt.Time), 4*time.Second)
		require.NotNil(s.T, after.Status.EphemeralContainerStatuses[0].State.Running, "the ephemeral container runs on")
	})
}

// Two requests for one Pod are served one after the other, also when the first one is deleted.
func TestTwoRequestsForOnePod(t *testing.T) {
	inBothVersions(t, func(s suite) {
		pods := s.web(1, preStop(8))
		s.send(recreate("first", pods[0].Name, []string{"app"}))
		s.waitRecreating("first")
		s.send(recreate("second", pods[0].Name, []string{"sidecar"}))
		s.Eventually("the second request waits", harness.Short, func() string {
			if got := s.read("second", s.version).Status.Phase; got != v1beta1.RecreatePending {
				return "phase " + string(got)
			}
			return ""
		})
		require.Equal(s.T, succeeded("app"), s.waitCompleted("first").Status.ContainerRecreateStates)
		require.Equal(s.T, succeeded("sidecar"), s.waitCompleted("second").Status.ContainerRecreateStates)
		s.waitRecreated(pods[0], "app", "sidecar")
	})
}

// A request that is deleted gives the Pod back, and the next one its turn; the stop that is
// under way goes on.
func TestADeletedRequestLetsTheNextOneGo(t *testing.T) {
	inBothVersions(t, func(s suite) {
		pods := s.web(1, preStop(15))
		first := s.send(recreate("first", pods[0].Name, []string{"app"}, unreadyGrace(0)))
		s.waitKilling(pods[0].Name, "first")
		s.send(recreate("second", pods[0].Name, []string{"sidecar"}))
		require.NoError(s.T, s.Client.Delete(s.Ctx(), first))
		s.waitGone("first")
		require.Equal(s.T, succeeded("sidecar"), s.waitCompleted("second").Status.ContainerRecreateStates)
		s.waitRecreated(pods[0], "app", "sidecar")
	})
}

// The Pod goes away in the middle: the request ends and says so.
func TestThePodOfARequestGoes(t *testing.T) {
	inBothVersions(t, func(s suite) {
		pods := s.web(1, preStop(30))
		s.send(recreate("r", pods[0].Name, []string{"app"}, unreadyGrace(1)))
		s.waitRecreating("r")
		require.NoError(s.T, s.Client.Delete(s.Ctx(), &pods[0], client.GracePeriodSeconds(0)))
		require.Equal(s.T, "pod has gone", s.waitCompleted("r").Status.Message)
		require.NoError(s.T, s.Client.Delete(s.Ctx(), s.read("r", v1beta1Version)))
		s.waitGone("r")
		s.WaitAvailable("web", 1)
	})
}

// No time to terminate means none for the hook.
func TestARequestWithoutGrace(t *testing.T) {
	inBothVersions(t, func(s suite) {
		pods := s.web(1, preStop(120))
		s.send(recreate("r", pods[0].Name, []string{"app"}, strategy(func(st *v1beta1.RecreateStrategy) { st.TerminationGracePeriodSeconds = new(int64(0)) })))
		r := s.waitCompleted("r")
		require.Equal(s.T, succeeded("app"), r.Status.ContainerRecreateStates)
		after := s.requireRecreated(pods[0], "app")
		end := container(s.T, after, "app").LastTerminationState.Terminated.FinishedAt
		require.Less(s.T, end.Sub(r.CreationTimestamp.Time), 2*time.Minute, "the hook was skipped")
	})
}

// What a user gets wrong is refused with the field and what to do.
func TestRequestsThatAreRefused(t *testing.T) {
	inBothVersions(t, func(s suite) {
		pods := s.web(1)
		cases := map[string]*request{
			"no such Pod":                  recreate("r", "missing", []string{"app"}),
			"no container":                 recreate("r", pods[0].Name, nil),
			"no such container":            recreate("r", pods[0].Name, []string{"database"}),
			"twice the same container":     recreate("r", pods[0].Name, []string{"app", "app"}),
			"a deadline that is too short": recreate("r", pods[0].Name, []string{"app"}, deadline(2)),
			"a status of one's own": recreate("r", pods[0].Name, []string{"app"}, func(spec *v1beta1.ContainerRecreateRequestSpec) {
				spec.Containers[0].StatusContext = &v1beta1.RecreateContainerContext{ContainerID: "containerd://1"}
			}),
		}
		for name, r := range cases {
			_, err := s.trySend(r)
			require.Error(s.T, err, name)
			require.True(s.T, apierrors.IsBadRequest(err) || apierrors.IsInvalid(err), "%s: %v", name, err)
		}
		created := s.send(recreate("r", pods[0].Name, []string{"app"}))
		created.Spec.ActiveDeadlineSeconds = new(int64(100))
		err := s.Client.Update(s.Ctx(), created)
		require.Error(s.T, err)
		require.Contains(s.T, err.Error(), "immutable")
		s.waitCompleted("r")
		s.waitRecreated(pods[0], "app")
	})
}

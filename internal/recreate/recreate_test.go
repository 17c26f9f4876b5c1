// SPDX-License-Identifier: Apache-2.0

package recreate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

func request(containers ...string) *v1beta1.ContainerRecreateRequest {
	r := &v1beta1.ContainerRecreateRequest{}
	r.Namespace, r.Name, r.Generation = "shop", "restart", 1
	for _, name := range containers {
		r.Spec.Containers = append(r.Spec.Containers, v1beta1.RecreateContainer{Name: name})
	}
	return r
}

func TestEnd(t *testing.T) {
	now := time.Unix(1000, 500)
	drained := metav1.Condition{Type: v1beta1.PreRecreateGraceCondition, Status: metav1.ConditionTrue}
	cases := map[string]struct {
		end    recreate.End
		states []v1beta1.RecreateState
		want   metav1.Condition
	}{
		"a run to the end": {
			end:    recreate.End{Reason: "Recreated"},
			states: []v1beta1.RecreateState{{Name: "app", Phase: "Succeeded", IsKilled: true}},
			want:   metav1.Condition{Type: "Complete", Reason: "Recreated"},
		},
		"the deadline says which containers are unfinished": {
			end:    recreate.End{Reason: "DeadlineExceeded", Message: "recreating has exceeded the activeDeadlineSeconds"},
			states: []v1beta1.RecreateState{{Name: "app", Phase: "Succeeded"}, {Name: "proxy", Phase: "Pending", Message: "not found container on Node"}, {Name: "log", Phase: "Recreating"}},
			want: metav1.Condition{Type: "Failed", Reason: "DeadlineExceeded",
				Message: "recreating has exceeded the activeDeadlineSeconds; unfinished containers: proxy (Pending: not found container on Node), log (Recreating)"},
		},
		"an agent that never answered has begun nothing": {
			end:  recreate.End{Reason: "AgentNotResponding", Message: "daemon has not responded for a long time"},
			want: metav1.Condition{Type: "Failed", Reason: "AgentNotResponding", Message: "daemon has not responded for a long time; unfinished containers: app (not begun), proxy (not begun), log (not begun)"},
		},
		"a container that could not be stopped, without a message of the request": {
			end:    recreate.End{Reason: "ContainerFailed"},
			states: []v1beta1.RecreateState{{Name: "app", Phase: "Failed", Message: "kill container error: no"}},
			want:   metav1.Condition{Type: "Failed", Reason: "ContainerFailed", Message: "unfinished containers: app (Failed: kill container error: no), proxy (not begun), log (not begun)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := request("app", "proxy", "log")
			if tc.end.Reason == "Recreated" {
				r = request("app")
			}
			before := []metav1.Condition{drained}
			status := v1beta1.ContainerRecreateRequestStatus{Phase: "Recreating", ContainerRecreateStates: tc.states, Conditions: before}
			require.False(t, recreate.Finished(r))
			tc.end.Apply(r, &status, now)
			r.Status = status
			require.True(t, recreate.Finished(r))
			tc.want.Status, tc.want.ObservedGeneration, tc.want.LastTransitionTime = metav1.ConditionTrue, 1, metav1.Unix(1000, 0)
			require.Equal(t, []metav1.Condition{drained, tc.want}, status.Conditions)
			require.Equal(t, tc.states, status.ContainerRecreateStates, "the end leaves the states alone")
			require.Equal(t, tc.end.Message, status.Message)
			require.Equal(t, time.Unix(1000, 0), status.CompletionTime.Time)
			require.Len(t, before, 1)
		})
	}
}

func TestDrainedSince(t *testing.T) {
	r := request("app")
	_, ok := recreate.DrainedSince(r)
	require.False(t, ok)
	r.Status.Conditions = []metav1.Condition{{Type: "PreRecreateGrace", Status: "False", LastTransitionTime: metav1.Unix(5, 0)}}
	_, ok = recreate.DrainedSince(r)
	require.False(t, ok)
	r.Status.Conditions[0].Status = "True"
	since, ok := recreate.DrainedSince(r)
	require.True(t, ok)
	require.Equal(t, time.Unix(5, 0), since)
}

func TestSplitID(t *testing.T) {
	for id, want := range map[string][2]string{
		"containerd://abc": {"containerd", "abc"}, "cri-o://x": {"cri-o", "x"}, "abc": {}, "": {}, "docker://": {"docker", ""},
	} {
		runtime, own := recreate.SplitID(id)
		require.Equal(t, want, [2]string{runtime, own}, id)
	}
}

func TestRestarts(t *testing.T) {
	policy := func(p corev1.RestartPolicy) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{
			RestartPolicy:  p,
			Containers:     []corev1.Container{{Name: "app"}},
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
		}}
	}
	own := func(p corev1.RestartPolicy, of corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) *corev1.Pod {
		pod := policy(p)
		pod.Spec.Containers[0].RestartPolicy, pod.Spec.Containers[0].RestartPolicyRules = &of, rules
		return pod
	}
	on := func(op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{Action: "Restart", ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	phase := func(p corev1.PodPhase) *corev1.Pod {
		pod := policy("Always")
		pod.Status.Phase = p
		return pod
	}
	cases := map[string]struct {
		pod       *corev1.Pod
		container string
		code      int32
		why       string
	}{
		"Always restarts":                         {pod: policy("Always"), container: "app"},
		"Never does not":                          {pod: policy("Never"), container: "app", code: 1, why: "its restart policy is Never"},
		"OnFailure restarts failures":             {pod: policy("OnFailure"), container: "app", code: 143},
		"OnFailure leaves successes":              {pod: policy("OnFailure"), container: "app", why: "its restart policy is OnFailure and it exited with code 0"},
		"an evicted Pod restarts nothing":         {pod: phase("Failed"), container: "app", code: 1, why: "the Pod's phase is Failed"},
		"nor does one that has ended":             {pod: phase("Succeeded"), container: "app", why: "the Pod's phase is Succeeded"},
		"native sidecars restart":                 {pod: policy("Never"), container: "sidecar"},
		"init containers restart until they work": {pod: policy("Always"), container: "init", code: 1},
		"and end then":                            {pod: policy("Always"), container: "init", why: "it is an init container and has done its work"},
		"those of a Pod with Never do not":        {pod: policy("Never"), container: "init", code: 1, why: "its restart policy is Never"},
		"the container's own policy counts more":  {pod: own("Never", "Always"), container: "app"},
		"in both directions":                      {pod: own("Always", "Never"), container: "app", why: "its restart policy is Never"},
		"a rule for the exit code restarts":       {pod: own("Never", "Never", on("In", 42)), container: "app", code: 42},
		"another exit code does not":              {pod: own("Never", "Never", on("In", 42)), container: "app", code: 1, why: "its restart policy is Never"},
		"a rule for all others restarts":          {pod: own("Never", "Never", on("NotIn", 0)), container: "app", code: 1},
		"nothing is known of other containers":    {pod: policy("Never"), container: "debugger"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			why, restarts := recreate.Restarts(tc.pod, tc.container, tc.code)
			require.Equal(t, tc.why, why)
			require.Equal(t, tc.why == "", restarts)
		})
	}
}

func TestContainerStatus(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{
		ContainerStatuses:     []corev1.ContainerStatus{{Name: "app", ContainerID: "containerd://1"}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "proxy", ContainerID: "containerd://2"}},
	}}
	require.Equal(t, "containerd://1", recreate.ContainerStatus(pod, "app").ContainerID)
	require.Equal(t, "containerd://2", recreate.ContainerStatus(pod, "proxy").ContainerID, "a native sidecar")
	require.Nil(t, recreate.ContainerStatus(pod, "other"))
}

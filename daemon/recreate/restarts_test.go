// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

func TestContainersThatAreNotStartedAgain(t *testing.T) {
	cases := map[string]struct {
		policy  corev1.RestartPolicy
		ordered bool
		ignore  v1beta1.RecreateFailurePolicy
		stopped []string
		states  []v1beta1.RecreateState
		message string
	}{
		"all are stopped, and the request ends": {
			policy: "Never", stopped: []string{"app", "proxy"},
			states: []v1beta1.RecreateState{
				{Name: "app", Phase: "Failed", IsKilled: true, Message: "the container is not started again: its restart policy is Never"},
				{Name: "proxy", Phase: "Failed", IsKilled: true, Message: "the container is not started again: its restart policy is Never"},
			},
			message: "container app has exited and is not started again: its restart policy is Never; container proxy has exited and is not started again: its restart policy is Never",
		},
		"in order, the first ends the request": {
			policy: "OnFailure", ordered: true, stopped: []string{"app"},
			states: []v1beta1.RecreateState{
				{Name: "app", Phase: "Failed", IsKilled: true, Message: "the container is not started again: its restart policy is OnFailure and it exited with code 0"},
				{Name: "proxy", Phase: "Pending"},
			},
			message: "container app has exited and is not started again: its restart policy is OnFailure and it exited with code 0",
		},
		"in order, if failures are to be borne, all are stopped": {
			policy: "Never", ordered: true, ignore: "Ignore", stopped: []string{"app", "proxy"},
			states: []v1beta1.RecreateState{
				{Name: "app", Phase: "Failed", IsKilled: true, Message: "the container is not started again: its restart policy is Never"},
				{Name: "proxy", Phase: "Failed", IsKilled: true, Message: "the container is not started again: its restart policy is Never"},
			},
			message: "container app has exited and is not started again: its restart policy is Never; container proxy has exited and is not started again: its restart policy is Never",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.print(t)
			pod := w.newPod("job", tc.policy, false, "app", "proxy")
			var stopped []string
			w.check = func(_ *flight, b *box) { stopped = append(stopped, b.Name) }
			r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{Strategy: &v1beta1.RecreateStrategy{OrderedRecreate: tc.ordered, FailurePolicy: tc.ignore}}, "app", "proxy")
			next := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "proxy")
			require.True(t, w.quiet(time.Minute))
			require.Equal(t, tc.stopped, stopped[:len(tc.stopped)])
			status := w.status(t, r)
			require.Equal(t, tc.states, status.ContainerRecreateStates)
			require.Equal(t, tc.message, status.Message)
			require.Equal(t, "ContainerNotRestarted", status.Conditions[0].Reason)
			require.True(t, recreate.Finished(w.server.requests[next.Name]), "the next request had its turn")
		})
	}
}

func TestAnEvictedPodEndsItsRequests(t *testing.T) {
	w := newWorld()
	w.print(t)
	pod := w.newPod("web", corev1.RestartPolicyAlways, false, "app")
	r := w.admit(pod, v1beta1.ContainerRecreateRequestSpec{}, "app")
	w.learn()
	w.serve(KeyOf(r))
	f := w.flights[KeyOf(r)]
	w.exit(w.box(f.target), 0)
	evicted := w.server.pods["web"].DeepCopy()
	evicted.Status.Phase = corev1.PodFailed
	w.server.storePod(evicted)
	w.resume(f, nil)
	require.True(t, w.quiet(time.Minute))
	require.Equal(t, "container app has exited and is not started again: the Pod's phase is Failed", w.status(t, r).Message)
}

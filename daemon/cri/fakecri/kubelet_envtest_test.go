// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package fakecri_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

const (
	soon = 2 * time.Minute
	tick = 20 * time.Millisecond
)

// The life of a Pod: it starts, waits for its gate, crashes, changes its image, goes.
func TestKubelet(t *testing.T) {
	c := apitest.NewClient(t, apitest.Start(t))
	rt := fakecri.New("containerd")
	k := (&fakecri.Kubelet{Client: c, Runtime: rt, Node: "n1"}).Start(t)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"v": "1"}},
		Spec: corev1.PodSpec{
			NodeName:       "n1",
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "Gate"}},
			Containers: []corev1.Container{
				{Name: "main", Image: "nginx:1.25", Env: []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['v']"}}}}},
				{Name: "agent", Image: "agent:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}},
			},
		},
	}
	require.NoError(t, c.Create(t.Context(), pod))
	until := func(what string, is func() bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			return c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && is()
		}, soon, tick, what)
	}
	ready := func() bool { return isTrue(pod, corev1.PodReady) }
	until("containers ready", func() bool { return isTrue(pod, corev1.ContainersReady) })
	require.False(t, ready(), "the readiness gate holds it")
	require.Equal(t, []string{"agent", "main"}, []string{pod.Status.ContainerStatuses[0].Name, pod.Status.ContainerStatuses[1].Name})
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "Gate", Status: corev1.ConditionTrue})
	require.NoError(t, c.Status().Update(t.Context(), pod))
	until("ready", ready)

	main := func() corev1.ContainerStatus { return pod.Status.ContainerStatuses[1] }
	first := main().ContainerID
	require.Equal(t, map[string]string{"PATH": "/bin", "V": "1"}, rt.OfPod(string(pod.UID))[1].Env)
	require.Equal(t, "19fd1bfc", rt.OfPod(string(pod.UID))[1].Annotations[cri.AnnotationHash])
	rt.Exit(first[len("containerd://"):], 1)
	until("restarted", func() bool { return main().RestartCount == 1 && ready() })
	require.NotEqual(t, first, main().ContainerID)
	require.Equal(t, first, main().LastTerminationState.Terminated.ContainerID)

	pod.Spec.Containers[0].Image = "nginx:1.26"
	require.NoError(t, c.Update(t.Context(), pod))
	until("replaced", func() bool { return main().Image == "nginx:1.26" && main().RestartCount == 2 && ready() })
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount, "the other container goes on")
	require.Len(t, rt.OfPod(string(pod.UID)), 3, "one predecessor is kept")

	k.SetPaused(true)
	require.NoError(t, c.Delete(t.Context(), pod))
	k.SetPaused(false)
	require.Eventually(t, func() bool {
		return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)) == nil && len(rt.OfPod(string(pod.UID))) == 0
	}, soon, tick)
}

func isTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

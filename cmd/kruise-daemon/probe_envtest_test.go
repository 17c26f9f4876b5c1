// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

// The whole agent probes what the NodePodProbe of its node lists, static Pods included, and
// answers for it in /healthz and /metrics.
func TestDaemonProbes(t *testing.T) {
	server := apitest.StartServer(t)
	c := apitest.NewClient(t, server.Config)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, server.Kubeconfig, 0o600))
	hostRun, addr := t.TempDir(), freeAddr(t)
	runtime := fakecri.New("containerd")
	fakecri.Serve(t, runtime, hostRun, "containerd.sock")
	o, err := parse([]string{"--addr=" + addr, "--enable-pprof=false", "--host-run-dir=" + hostRun, "--kubeconfig=" + kubeconfig},
		env(map[string]string{"NODE_NAME": "n1"}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	require.Eventually(t, func() bool { return body("http://"+addr+"/healthz") == "200 ok" }, soon, tick)

	static := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "static", Annotations: map[string]string{"kubernetes.io/config.hash": "source"}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Image: "x"}}},
	}
	require.NoError(t, c.Create(t.Context(), static))
	for uid, id := range map[string]string{"source": "c1", "u2": "c2"} {
		runtime.AddContainer(fakecri.Container{
			Status: cri.Status{
				Container: cri.Container{ID: id, Name: "main", State: cri.StateRunning, Created: time.Now(), Labels: map[string]string{cri.LabelPodUID: uid}},
				Started:   time.Now().Add(-time.Minute),
			},
			Exec: map[string]fakecri.ExecScript{"check": {Stdout: "I am " + id}},
		})
	}
	probe := v1alpha1.ContainerProbe{Name: "m#a", ContainerName: "main"}
	probe.Probe.Exec = &corev1.ExecAction{Command: []string{"check"}}
	npp := &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1alpha1.NodePodProbeSpec{PodProbes: []v1alpha1.PodProbe{
		{Namespace: "default", Name: "static", UID: static.UID, Probes: []v1alpha1.ContainerProbe{probe}},
		{Namespace: "default", Name: "other", UID: "u2", Probes: []v1alpha1.ContainerProbe{probe}},
	}}}
	require.NoError(t, c.Create(t.Context(), npp))
	require.Eventually(t, func() bool {
		var messages []string
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(npp), npp))
		for _, pod := range npp.Status.PodProbeStatuses {
			for _, s := range pod.ProbeStates {
				messages = append(messages, string(s.State)+" "+s.Message)
			}
		}
		return len(messages) == 2 && messages[0] == "Succeeded I am c1" && messages[1] == "Succeeded I am c2"
	}, soon, tick)
	metrics := body("http://" + addr + "/metrics")
	require.Contains(t, metrics, "kruise_daemon_probes 2")
	require.Contains(t, metrics, `kruise_daemon_probe_seconds_count{kind="exec",result="succeeded"}`)

	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Fatal("the agent does not end")
	}
}

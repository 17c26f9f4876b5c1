// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

const (
	soon = 2 * time.Minute
	tick = 50 * time.Millisecond
)

// The whole agent against a real API server and a fake runtime behind a socket: it starts
// before the runtime, pulls with a copied secret, reports containers, outlives a restart of
// the runtime and ends when it is told to.
func TestDaemon(t *testing.T) {
	server := apitest.StartServer(t)
	c := apitest.NewClient(t, server.Config)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, server.Kubeconfig, 0o600))
	hostRun := t.TempDir()
	addr, pprofAddr := freeAddr(t), freeAddr(t)
	o, err := parse([]string{"--addr=" + addr, "--pprof-addr=" + pprofAddr, "--host-run-dir=" + hostRun, "--kubeconfig=" + kubeconfig},
		env(map[string]string{"NODE_NAME": "n1"}))
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	require.Eventually(t, func() bool {
		return strings.HasPrefix(body("http://"+addr+"/healthz"), "500 check containerRuntime failed, err: ")
	}, soon, tick)

	runtime := fakecri.New("containerd")
	fake := fakecri.Serve(t, runtime, hostRun, "containerd/containerd.sock")
	require.Eventually(t, func() bool { return body("http://"+addr+"/healthz") == "200 ok" }, soon, tick)
	require.Contains(t, body("http://"+pprofAddr+"/debug/pprof/cmdline"), "200 ")

	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-daemon-config"}}))
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-daemon-config", Name: "s"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"quay.io":{"username":"ann","password":"pw"}}}`)},
	}))
	runtime.Script("quay.io/app:1", fakecri.PullScript{Auth: &cri.Auth{Username: "ann", Password: "pw"}})
	nodeImage := func(name, image string) *v1beta1.NodeImage {
		return &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{
			image: {PullSecrets: []v1beta1.ReferenceObject{{Namespace: "kruise-daemon-config", Name: "s"}}, Tags: []v1beta1.ImageTagSpec{{Tag: "1", CreatedAt: new(metav1.Now())}}},
		}}}
	}
	require.NoError(t, c.Create(t.Context(), nodeImage("n1", "quay.io/app")))
	require.NoError(t, c.Create(t.Context(), nodeImage("n2", "quay.io/other")))
	succeeded := func(n int32) func() bool {
		return func() bool {
			var ni v1beta1.NodeImage
			return c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &ni) == nil && ni.Status.Succeeded == n
		}
	}
	require.Eventually(t, succeeded(1), soon, tick)
	require.Equal(t, 1, runtime.CallsOf("PullImage"), "only this node's images")
	require.Eventually(t, func() bool {
		var events corev1.EventList
		require.NoError(t, c.List(t.Context(), &events))
		for _, e := range events.Items {
			if e.Reason == "PullImageSucceed" && e.Source == (corev1.EventSource{Component: "kruise-daemon-imagepuller", Host: "n1"}) {
				return true
			}
		}
		return false
	}, soon, tick)

	reportsContainers(t, c, runtime)

	fake.Stop()
	fake.Start(t)
	ni := &v1beta1.NodeImage{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "n1"}, ni))
	ni.Spec.Images["nginx"] = v1beta1.ImageSpec{Tags: []v1beta1.ImageTagSpec{{Tag: "1", CreatedAt: new(metav1.Now())}}}
	require.NoError(t, c.Update(t.Context(), ni))
	require.Eventually(t, succeeded(2), soon, tick, "pulls go on after the runtime has restarted")
	require.Contains(t, body("http://"+addr+"/metrics"), `kruise_daemon_image_pull_seconds_count{result="succeeded"} 2`)

	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Fatal("the agent does not end")
	}
}

func reportsContainers(t *testing.T, c client.Client, runtime *fakecri.Runtime) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{v1beta1.SidecarSetHashAnnotation: "{}"}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Image: "nginx:1.25"}}},
	}
	require.NoError(t, c.Create(t.Context(), pod))
	runtime.AddContainer(fakecri.Container{Status: cri.Status{Container: cri.Container{
		ID: "c1", Name: "main", State: cri.StateRunning,
		Labels:      map[string]string{cri.LabelPodUID: string(pod.UID), cri.LabelContainerName: "main"},
		Annotations: map[string]string{cri.AnnotationHash: "19fd1bfc", cri.AnnotationRestartCount: "0"},
	}}})
	// The informer must have seen the Pod before its status changes.
	time.Sleep(time.Second)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://c1", Image: "nginx:1.25"}}
	require.NoError(t, c.Status().Update(t.Context(), pod))
	want := `{"containers":[{"name":"main","containerID":"containerd://c1","restartCount":0,"hashes":{"plainHash":436018172,"extractedEnvFromMetadataHash":86995377}}]}`
	require.Eventually(t, func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return pod.Annotations[v1beta1.RuntimeContainersMetaAnnotation] == want
	}, soon, tick)
}

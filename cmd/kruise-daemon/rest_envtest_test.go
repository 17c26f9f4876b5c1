// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// podsAtRest is a full node.
const podsAtRest = 100

// memoryLimit of the whole process at rest, in KiB.
const memoryLimit = 25 << 10

// A full node at rest: the agent writes nothing and stays small. KRUISE_REST_WINDOW, a
// duration, watches it for longer than the few seconds of an ordinary run.
func TestAtRest(t *testing.T) {
	window := 10 * time.Second
	if text := os.Getenv("KRUISE_REST_WINDOW"); text != "" {
		var err error
		window, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	config := apitest.Start(t)
	c := apitest.NewClient(t, config)
	rt := fakecri.New("containerd")
	run := socketDir(t)
	fakecri.Serve(t, rt, run, "containerd.sock")
	kubelet := (&fakecri.Kubelet{Client: c, Runtime: rt, Node: "n1"}).Start(t)
	require.NoError(t, c.Create(t.Context(), &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1beta1.NodeImageSpec{
		Images: map[string]v1beta1.ImageSpec{"nginx": {Tags: []v1beta1.ImageTagSpec{{Tag: "1", CreatedAt: new(metav1.Now())}}}},
	}}))
	proxy := newProxy(t, config)
	program := buildProgram(t)
	first := startProcess(t, program, proxy.kubeconfig(t), run)
	// Pods that were there before are reported when their containers change.
	for i := range podsAtRest {
		require.NoError(t, c.Create(t.Context(), podAtRest(i)))
	}
	require.Eventually(t, func() bool {
		var pods corev1.PodList
		if c.List(t.Context(), &pods) != nil || len(pods.Items) != podsAtRest {
			return false
		}
		return !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return !reported(&pod) })
	}, soon, 10*tick)
	require.Eventually(t, func() bool {
		var ni v1beta1.NodeImage
		return c.Get(t.Context(), types.NamespacedName{Name: "n1"}, &ni) == nil && ni.Status.Succeeded == 1
	}, soon, tick)
	kubelet.SetPaused(true)
	first.stop(t)
	t.Logf("%d writes for %d Pods of two containers and one image", len(proxy.written()), podsAtRest)

	// The same node again: nothing has changed, so nothing is written, also not at the start.
	before := len(proxy.written())
	again := startProcess(t, program, proxy.kubeconfig(t), run)
	defer again.stop(t)
	time.Sleep(2 * calm)
	reads := proxy.readings()
	time.Sleep(window)
	readsAfter := proxy.readings()
	require.Equal(t, proxy.written()[before:], []string{}, "writes at rest")
	require.LessOrEqual(t, readsAfter-reads, 4*(1+int(window/(5*time.Minute))), "at most its four watches are renewed")
	require.Equal(t, "200 ok", body("http://"+again.addr+"/healthz"))
	rss, anon := again.memory(t, "VmRSS"), again.memory(t, "RssAnon")
	t.Logf("%d Pods, %s at rest: 0 writes, %d reads; RSS %d KiB, of that %d KiB anonymous", podsAtRest, window, readsAfter-reads, rss, anon)
	if rss > memoryLimit {
		t.Errorf("RSS is %d KiB, more than %d KiB", rss, memoryLimit)
	}
}

// reported tells whether the annotation has the containers that the status has.
func reported(pod *corev1.Pod) bool {
	meta, err := runtimehash.FromObject(pod)
	if err != nil || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		record := meta.Container(s.Name)
		return record == nil || record.ContainerID != s.ContainerID
	})
}

// podAtRest is a Pod of middling size, of a workload whose containers are reported.
func podAtRest(i int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web-%d", i),
			Labels: map[string]string{"app": "web", "controller-revision-hash": "web-6f9d8c7b5", "version": "v1"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "0b1c2d3e-0000-4000-8000-000000000000", Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{NodeName: "n1", ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "InPlaceUpdateReady"}}},
	}
	for _, name := range []string{"main", "sidecar"} {
		container := corev1.Container{Name: name, Image: "registry.example.com/shop/" + name + ":1.2.3", Args: []string{"--config=/etc/" + name, "--verbose"}}
		for e := range 15 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: "value of some length"})
		}
		container.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/true"}}}}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

// buildProgram builds the agent as it is released.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kruise-daemon")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// process is a running agent.
type process struct {
	addr   string
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

// startProcess runs the agent and waits until it is healthy.
func startProcess(t *testing.T, program, kubeconfig, hostRun string) *process {
	t.Helper()
	p := &process{addr: freeAddr(t), stderr: &bytes.Buffer{}}
	p.cmd = exec.Command(program, //nolint:noctx // ended by a signal, not killed
		"--addr="+p.addr, "--pprof-addr="+freeAddr(t), "--host-run-dir="+hostRun, "--kubeconfig="+kubeconfig, "--rest-config-qps=100", "--rest-config-burst=100")
	p.cmd.Env = append(os.Environ(), "NODE_NAME=n1")
	p.cmd.Stderr = p.stderr
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	require.Eventually(t, func() bool { return body("http://"+p.addr+"/healthz") == "200 ok" }, soon, tick)
	return p
}

// stop asks the agent to end and wants a good end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the agent ended with %v:\n%s", err, p.stderr.String())
	}
}

// kill ends the agent without a chance to do anything.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait() // says that it was killed
}

// memory reads a line of the process' status, in KiB.
func (p *process) memory(t *testing.T, line string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	found := regexp.MustCompile(line + `:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, found, string(status))
	kib, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return kib
}

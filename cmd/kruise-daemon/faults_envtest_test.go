// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

// faulty is a node whose agent runs in this process, between a proxy to a real API server
// and a fake runtime behind a socket.
type faulty struct {
	t       *testing.T
	client  client.Client
	proxy   *proxy
	runtime *fakecri.Runtime
	server  *fakecri.Server
	run     string
	addr    string
	end     func()
}

func newFaulty(t *testing.T) *faulty {
	config := apitest.Start(t)
	f := &faulty{t: t, client: apitest.NewClient(t, config), proxy: newProxy(t, config), runtime: fakecri.New("containerd"), run: socketDir(t)}
	f.server = fakecri.Serve(t, f.runtime, f.run, "containerd.sock")
	f.begin()
	t.Cleanup(func() { f.end() })
	return f
}

// begin runs the agent; end ends it and waits.
func (f *faulty) begin() {
	f.t.Helper()
	f.addr = freeAddr(f.t)
	o, err := parse([]string{
		"--addr=" + f.addr, "--pprof-addr=" + freeAddr(f.t), "--host-run-dir=" + f.run, "--kubeconfig=" + f.proxy.kubeconfig(f.t),
		"--rest-config-qps=100", "--rest-config-burst=100", "--max-workers-for-pull-image=4",
	}, env(map[string]string{"NODE_NAME": "n1"}))
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	f.end = func() {
		cancel()
		require.NoError(f.t, <-ended)
		f.end = func() {}
	}
	f.until("healthy", func() bool { return body("http://"+f.addr+"/healthz") == "200 ok" })
}

func (f *faulty) until(what string, is func() bool) {
	f.t.Helper()
	require.Eventually(f.t, is, 3*time.Minute, tick, what)
}

// ask makes the NodeImage ask for n tags of app, from 0, with policy IfNotPresent.
func (f *faulty) ask(n int) {
	f.t.Helper()
	image := v1beta1.ImageSpec{}
	for i := range n {
		image.Tags = append(image.Tags, v1beta1.ImageTagSpec{
			Tag: fmt.Sprint(i), CreatedAt: new(metav1.Now()), ImagePullPolicy: v1beta1.PullIfNotPresent,
			PullPolicy: &v1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(600)), BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: new(int32(600))},
		})
	}
	ni := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{"quay.io/app": image}}}
	require.NoError(f.t, f.client.Create(context.Background(), ni))
}

func (f *faulty) status() v1beta1.NodeImageStatus {
	var ni v1beta1.NodeImage
	if err := f.client.Get(context.Background(), types.NamespacedName{Name: "n1"}, &ni); err != nil {
		f.t.Log(err)
	}
	return ni.Status
}

// pulls counts the pulls of each tag.
func (f *faulty) pulls() map[string]int {
	counts := map[string]int{}
	for _, call := range f.runtime.Calls() {
		if reference, ok := strings.CutPrefix(call, "PullImage "); ok {
			counts[reference]++
		}
	}
	return counts
}

// The runtime is killed again and again while images are pulled: no retry is used up, though
// the tasks have none.
func TestRuntimeKilledDuringPulls(t *testing.T) {
	f := newFaulty(t)
	const images = 8
	for i := range images {
		f.runtime.Script(fmt.Sprintf("quay.io/app:%d", i), fakecri.PullScript{Latency: 700 * time.Millisecond})
	}
	f.ask(images)
	for round := range 3 {
		before := f.runtime.CallsOf("PullImage")
		f.until(fmt.Sprint("pulls under way, round ", round), func() bool { return f.runtime.CallsOf("PullImage") > before || f.status().Succeeded == images })
		f.server.Stop()
		f.server.Start(t)
	}
	f.until("all pulled", func() bool { return f.status().Succeeded == images })
	s := f.status()
	require.Zero(t, s.Failed)
	require.Equal(t, &v1beta1.SyncStatus{SyncAt: s.FirstSyncStatus.SyncAt, Status: "Succeeded"}, s.FirstSyncStatus)
	require.LessOrEqual(t, f.runtime.MaxConcurrentPulls(), 4)
	require.Equal(t, "200 ok", body("http://"+f.addr+"/healthz"))
	for _, tag := range s.ImageStatuses["quay.io/app"].Tags {
		require.Empty(t, tag.Message, "what was said while waiting is gone")
	}
}

// The agent ends at any point and starts again: what was told is not pulled again, and what
// was pulled and not told is found on the node.
func TestAgentRestartedDuringPulls(t *testing.T) {
	f := newFaulty(t)
	const images = 8
	for i := range images {
		f.runtime.Script(fmt.Sprintf("quay.io/app:%d", i), fakecri.PullScript{Latency: time.Duration(i) * 200 * time.Millisecond})
	}
	f.ask(images)
	for restarts := range 3 {
		before := f.runtime.CallsOf("PullImage")
		f.until(fmt.Sprint("pulls under way, restart ", restarts), func() bool { return f.runtime.CallsOf("PullImage") > before || f.status().Succeeded == images })
		f.end()
		f.begin()
	}
	f.until("all pulled", func() bool { return f.status().Succeeded == images })
	known, err := f.runtime.Images(t.Context())
	require.NoError(t, err)
	require.Len(t, known, images)
	for reference, n := range f.pulls() {
		// One that was broken off is pulled again; one that had ended is not.
		require.LessOrEqual(t, n, 4, reference)
	}
	before := f.pulls()
	writes := len(f.proxy.written())
	f.end()
	f.begin()
	ni := &v1beta1.NodeImage{}
	require.NoError(t, f.client.Get(t.Context(), types.NamespacedName{Name: "n1"}, ni))
	ni.Spec.Images["quay.io/last"] = v1beta1.ImageSpec{Tags: []v1beta1.ImageTagSpec{{Tag: "1", CreatedAt: new(metav1.Now())}}}
	require.NoError(t, f.client.Update(t.Context(), ni))
	f.until("another one pulled", func() bool { return f.status().Succeeded == images+1 })
	before["quay.io/last:1"] = 1
	require.Equal(t, before, f.pulls(), "nothing else was pulled")
	require.LessOrEqual(t, len(f.proxy.written()), writes+2, "a restart writes nothing of its own")
}

// Without the API server pulls go on, and what they come to is told when it is back.
func TestAPIServerAwayDuringPulls(t *testing.T) {
	f := newFaulty(t)
	const images = 4
	for i := range images {
		f.runtime.Script(fmt.Sprintf("quay.io/app:%d", i), fakecri.PullScript{Latency: 2 * time.Second})
	}
	f.ask(images)
	f.until("pulls under way", func() bool { return f.runtime.CallsOf("PullImage") == images })
	f.proxy.stop()
	f.until("pulled without the API server", func() bool {
		return strings.Contains(body("http://"+f.addr+"/metrics"), fmt.Sprintf(`kruise_daemon_image_pull_seconds_count{result="succeeded"} %d`, images))
	})
	require.Less(t, f.status().Succeeded, int32(images), "nobody could be told")
	require.Equal(t, "200 ok", body("http://"+f.addr+"/healthz"), "the agent is not to blame")
	f.proxy.start(t)
	f.until("told", func() bool { return f.status().Succeeded == images })
	require.Equal(t, images, f.runtime.CallsOf("PullImage"))
}

// Containers are reported again after any of the three has been away.
func TestContainersAreReportedThroughFaults(t *testing.T) {
	f := newFaulty(t)
	(&fakecri.Kubelet{Client: f.client, Runtime: f.runtime, Node: "n1"}).Start(t)
	pod := podAtRest(0)
	require.NoError(t, f.client.Create(t.Context(), pod))
	isReported := func() bool {
		return f.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && reported(pod)
	}
	f.until("reported", isReported)
	crash := func() {
		for _, c := range f.runtime.OfPod(string(pod.UID)) {
			f.runtime.Exit(c.ID, 1)
		}
		f.until("restarted", func() bool {
			before := pod.Status.ContainerStatuses[0].RestartCount
			return f.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && pod.Status.ContainerStatuses[0].RestartCount >= before && !reported(pod) || reported(pod)
		})
	}
	faults := map[string]struct{ away, back func() }{
		"runtime":    {f.server.Stop, func() { f.server.Start(t) }},
		"API server": {f.proxy.stop, func() { f.proxy.start(t) }},
		"agent":      {func() { f.end() }, f.begin},
	}
	for name, fault := range faults {
		fault.away()
		crash()
		fault.back()
		f.until("reported after the "+name+" was away", isReported)
	}
}

// Nothing of an agent is left behind, at whatever point it ends.
func TestNothingIsLeftBehind(t *testing.T) {
	config := apitest.Start(t)
	p := newProxy(t, config)
	runtime := fakecri.New("containerd")
	dir := socketDir(t)
	fakecri.Serve(t, runtime, dir, "containerd.sock")
	before := goleak.IgnoreCurrent()
	for name, limit := range map[string]time.Duration{"at once": 0, "while it detects": 20 * time.Millisecond, "while it reads": 100 * time.Millisecond, "at work": 2 * time.Second} {
		ctx, cancel := context.WithCancel(t.Context())
		o, err := parse([]string{"--addr=" + freeAddr(t), "--pprof-addr=" + freeAddr(t), "--host-run-dir=" + dir, "--kubeconfig=" + p.kubeconfig(t)}, env(map[string]string{"NODE_NAME": "n1"}))
		require.NoError(t, err)
		timer := time.AfterFunc(limit, cancel)
		require.NoError(t, run(ctx, o), name)
		timer.Stop()
		cancel()
		http.DefaultClient.CloseIdleConnections()
	}
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*conn).serve"))
}

// A second agent on a node says so and ends.
func TestASecondAgentEnds(t *testing.T) {
	f := newFaulty(t)
	o, err := parse([]string{"--addr=" + f.addr, "--enable-pprof=false", "--host-run-dir=" + f.run, "--kubeconfig=" + f.proxy.kubeconfig(t)}, env(map[string]string{"NODE_NAME": "n1"}))
	require.NoError(t, err)
	require.ErrorContains(t, run(t.Context(), o), "does another agent run on this node?")
}

// The same with the released program and no chance to say goodbye: a task that was told is
// through, and one that was not is begun again, once for each time that the agent starts.
func TestProgramKilledDuringPulls(t *testing.T) {
	config := apitest.Start(t)
	f := &faulty{t: t, client: apitest.NewClient(t, config), proxy: newProxy(t, config), runtime: fakecri.New("containerd"), run: socketDir(t)}
	fakecri.Serve(t, f.runtime, f.run, "containerd.sock")
	program, kubeconfig := buildProgram(t), f.proxy.kubeconfig(t)
	const images, kills = 5, 3
	for i := range images {
		f.runtime.Script(fmt.Sprintf("quay.io/app:%d", i), fakecri.PullScript{Latency: time.Duration(i) * 300 * time.Millisecond})
	}
	f.ask(images)
	for range kills {
		before := f.runtime.CallsOf("PullImage")
		agent := startProcess(t, program, kubeconfig, f.run)
		f.until("pulls under way", func() bool { return f.runtime.CallsOf("PullImage") > before || f.status().Succeeded == images })
		agent.kill(t)
	}
	told := f.status()
	agent := startProcess(t, program, kubeconfig, f.run)
	defer agent.stop(t)
	f.until("all pulled", func() bool { return f.status().Succeeded == images })
	for reference, n := range f.pulls() {
		require.LessOrEqual(t, n, kills+1, reference)
	}
	for _, tag := range told.ImageStatuses["quay.io/app"].Tags {
		if tag.CompletionTime == nil {
			continue
		}
		for _, now := range f.status().ImageStatuses["quay.io/app"].Tags {
			if now.Tag == tag.Tag {
				require.Equal(t, tag, now, "what was told stays")
			}
		}
	}
}

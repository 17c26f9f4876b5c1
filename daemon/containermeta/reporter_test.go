// SPDX-License-Identifier: Apache-2.0

package containermeta

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node with one Pod: its API object, its runtime and a kubelet that starts
// containers again.
type node struct {
	mu       sync.Mutex
	pod      *corev1.Pod
	lag      bool        // the cache does not follow patches
	stale    *corev1.Pod // what the cache has, while it lags
	patches  int
	runtime  *fakecri.Runtime
	events   *record.FakeRecorder
	reporter *Reporter
	env      map[string]string // of containers that start; nil: the runtime does not tell
	exec     map[string]fakecri.ExecScript
	started  int
	stopped  int // containers that exited because they were asked to
}

func (n *node) ByName(name string) (cri.Runtime, bool) { return n.runtime, name == "containerd" }

func (n *node) Pod(context.Context, types.NamespacedName) (*corev1.Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stale != nil {
		return n.stale, nil
	}
	if n.pod == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), "web-x")
	}
	return n.pod, nil
}

func (n *node) PatchStatus(_ context.Context, _ types.NamespacedName, patch []byte) (*corev1.Pod, error) {
	var p struct {
		Metadata struct {
			UID         types.UID
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.patches++
	if n.lag && n.stale == nil {
		n.stale = n.pod
	}
	n.mu.Unlock()
	return n.change(func(pod *corev1.Pod) {
		for k, v := range p.Metadata.Annotations {
			pod.Annotations[k] = v
		}
	}), nil
}

// change writes the Pod and tells the reporter, as the informer does.
func (n *node) change(change func(*corev1.Pod)) *corev1.Pod {
	n.mu.Lock()
	before, after := n.pod, n.pod.DeepCopy()
	change(after)
	version, _ := strconv.Atoi(after.ResourceVersion)
	after.ResourceVersion = strconv.Itoa(version + 1)
	n.pod = after
	n.mu.Unlock()
	n.reporter.Updated(before, after)
	return after
}

// startContainer starts the next instance of main and writes it into the status.
func (n *node) startContainer() {
	id := "c" + strconv.Itoa(n.started)
	restarts := strconv.Itoa(n.started)
	n.started++
	c := running(id, nginxHex)
	c.Annotations["io.kubernetes.container.restartCount"] = restarts
	c.Annotations["io.kubernetes.container.preStopHandler"] = `{"exec":{"command":["bye"]}}`
	c.Annotations["io.kubernetes.pod.terminationGracePeriod"] = "5"
	c.Created = time.Now()
	n.runtime.AddContainer(fakecri.Container{Status: cri.Status{Container: c, Env: n.env}, Exec: n.exec})
	n.change(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://" + id })
}

func (n *node) record() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pod.Annotations[metaKey]
}

func run(t *testing.T, pod podBuilder, check func(t *testing.T, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{pod: pod.obj, runtime: fakecri.New("containerd"), events: record.NewFakeRecorder(1000), exec: map[string]fakecri.ExecScript{"bye": {}}}
		n.pod.ResourceVersion = "1"
		n.reporter = New(Options{Store: n, Runtimes: n, Events: n.events, TrackEnv: true})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.reporter.Run(ctx) }()
		check(t, n)
		cancel()
		require.NoError(t, <-done)
	})
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestReportsFromTheRuntime(t *testing.T) {
	run(t, newPod().env(), func(t *testing.T, n *node) {
		n.env = map[string]string{"TEST_ENV": "foo"}
		n.startContainer()
		after(5 * time.Second)
		require.Equal(t, `{"containers":[{"name":"main","containerID":"containerd://c0","restartCount":0,"hashes":{"plainHash":436018172,"extractedEnvFromMetadataHash":27323935}}]}`, n.record())
		require.Equal(t, 1, n.patches, "one write per container start")
		require.Zero(t, n.runtime.CallsOf("ExecSync"), "nothing is run inside")
	})
}

func TestReportsFromInsideWhenTheRuntimeDoesNotTell(t *testing.T) {
	cases := map[string]map[string]fakecri.ExecScript{
		"values with newlines and blanks, NUL-separated": {"env -0": {Stdout: "A=1\nTEST_ENV=no\x00TEST_ENV=foo\x00"}},
		"an env program without -0":                      {"env": {Stdout: "A=b=c\nTEST_ENV=foo\n"}},
	}
	for name, exec := range cases {
		t.Run(name, func(t *testing.T) {
			run(t, newPod().env(), func(t *testing.T, n *node) {
				n.exec = exec
				n.startContainer()
				after(5 * time.Second)
				require.Contains(t, n.record(), `"extractedEnvFromMetadataHash":27323935`)
			})
		})
	}
}

func TestGivesUpAskingForAnEnvironment(t *testing.T) {
	run(t, newPod().env(), func(t *testing.T, n *node) {
		n.exec = nil // no env program, and the runtime does not tell
		n.startContainer()
		after(time.Hour)
		require.Contains(t, n.record(), `"hashes":{"plainHash":436018172}`, "what is known is reported")
		require.Equal(t, 1, n.patches)
		require.LessOrEqual(t, n.runtime.CallsOf("ExecSync"), 2*(maxEnvTries+1), "a program that is not there is not run for ever")
		n.runtime.SetDown(true)
		n.startContainer()
		after(time.Hour)
		n.exec = map[string]fakecri.ExecScript{"env": {Stdout: "TEST_ENV=foo"}}
		n.runtime.SetDown(false)
		n.startContainer()
		after(2 * time.Minute)
		require.Contains(t, n.record(), "27323935", "another container is another matter")
	})
}

// An in-place update of the environment restarts the container exactly once: also one
// whose Pod said the new value before already (daemon.md 10, ContainerMeta).
func TestRestartsOnce(t *testing.T) {
	run(t, newPod().env(), func(t *testing.T, n *node) {
		n.env = map[string]string{"TEST_ENV": "foo"}
		n.startContainer()
		after(5 * time.Second)
		n.change(func(p *corev1.Pod) { p.Annotations["test-env"] = "bar" })
		after(time.Minute)
		require.Zero(t, n.runtime.CallsOf("StopContainer"), "a change on a settled Pod restarts nothing")

		n.change(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: "InPlaceUpdateReady", Status: "False"}}
		})
		after(2 * time.Second)
		require.Zero(t, n.runtime.CallsOf("StopContainer"), "the kubelet may be faster")
		after(8 * time.Second)
		require.Equal(t, []string{"ExecSync c0 bye", "StopContainer c0"}, lastCalls(n, 2))
		require.Contains(t, <-n.events.Events, "Normal Killing Stopping container main")

		n.env = map[string]string{"TEST_ENV": "bar"}
		n.startContainer()
		after(time.Hour)
		require.Equal(t, 1, n.runtime.CallsOf("StopContainer"))
		require.Contains(t, n.record(), `"containerID":"containerd://c1","restartCount":1`)
	})
}

// A hash that never matches, for whatever reason, must not restart a container for ever.
func TestRestartsOncePerEnvironment(t *testing.T) {
	run(t, newPod().env().updating("False").annotation("test-env", "bar"), func(t *testing.T, n *node) {
		n.env = map[string]string{"TEST_ENV": "foo"}
		n.startContainer()
		after(time.Minute)
		n.startContainer()
		after(48 * time.Hour)
		require.Equal(t, 1, n.runtime.CallsOf("StopContainer"))
		n.change(func(p *corev1.Pod) { p.Annotations["test-env"] = "other" })
		after(time.Minute)
		require.Equal(t, 2, n.runtime.CallsOf("StopContainer"), "another environment is another restart")
	})
}

// What is taken back before the restart is due restarts nothing, and can be asked for again.
func TestAChangeThatIsTakenBackRestartsNothing(t *testing.T) {
	run(t, newPod().env(), func(t *testing.T, n *node) {
		n.env = map[string]string{"TEST_ENV": "foo"}
		n.startContainer()
		after(5 * time.Second)
		update := func(value string) {
			n.change(func(p *corev1.Pod) {
				p.Annotations["test-env"] = value
				p.Status.Conditions = []corev1.PodCondition{{Type: "InPlaceUpdateReady", Status: "False"}}
			})
		}
		update("bar")
		after(2 * time.Second)
		update("foo")
		after(time.Minute)
		require.Zero(t, n.runtime.CallsOf("StopContainer"))
		update("bar")
		after(20 * time.Second)
		require.Equal(t, 1, n.runtime.CallsOf("StopContainer"))
	})
}

// Image and environment that change one after the other make one restart, the kubelet's, also
// when that takes its whole grace period.
func TestAnImageThatChangesMeanwhileIsTheKubelets(t *testing.T) {
	run(t, newPod().env(), func(t *testing.T, n *node) {
		n.env = map[string]string{"TEST_ENV": "foo"}
		n.startContainer()
		after(5 * time.Second)
		n.change(func(p *corev1.Pod) {
			p.Annotations["test-env"] = "bar"
			p.Status.Conditions = []corev1.PodCondition{{Type: "InPlaceUpdateReady", Status: "False"}}
		})
		after(1500 * time.Millisecond)
		n.change(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:1.26" })
		after(12 * time.Second)
		require.Zero(t, n.runtime.CallsOf("StopContainer"), "5 s of grace and 10 s")
		n.runtime.Exit("c0", 0)
		n.env = map[string]string{"TEST_ENV": "bar"}
		n.startContainer()
		after(time.Hour)
		require.Zero(t, n.runtime.CallsOf("StopContainer"))
	})
}

// Containers of a static Pod carry the UID of its source, not that of its mirror.
func TestStaticPods(t *testing.T) {
	run(t, newPod().annotation("kubernetes.io/config.hash", "source"), func(t *testing.T, n *node) {
		n.startContainer()
		after(5 * time.Second)
		require.Equal(t, 1, n.runtime.CallsOf("ListContainers source"))
	})
}

func TestParseLines(t *testing.T) {
	got := parseLines("A=1\nTEXT=one\n two = 2\n\nB= blanks \nEMPTY=\n")
	require.Equal(t, map[string]string{"A": "1", "TEXT": "one\n two = 2\n", "B": " blanks ", "EMPTY": ""}, got)
}

func TestLetsTheKubeletRestart(t *testing.T) {
	run(t, newPod().env().updating("False").annotation("test-env", "bar"), func(t *testing.T, n *node) {
		n.env = map[string]string{"TEST_ENV": "foo"}
		n.startContainer()
		after(3500 * time.Millisecond)
		require.NoError(t, n.runtime.Stop(t.Context(), "c0", 0))
		n.env = map[string]string{"TEST_ENV": "bar"}
		n.startContainer()
		after(time.Minute)
		require.Equal(t, 1, n.runtime.CallsOf("StopContainer"), "only the kubelet's")
	})
}

func TestSurvives(t *testing.T) {
	run(t, newPod().env(), func(t *testing.T, n *node) {
		n.env = map[string]string{"TEST_ENV": "foo"}
		n.runtime.SetDown(true)
		n.startContainer()
		after(30 * time.Second)
		n.runtime.SetDown(false)
		after(time.Minute)
		require.Contains(t, n.record(), "27323935", "a runtime that comes back is asked again")
		gone := n.pod
		n.mu.Lock()
		n.pod = nil
		n.mu.Unlock()
		n.reporter.Deleted(gone)
		n.reporter.Updated(gone, podBuilder{gone}.annotation("test-env", "bar").obj)
		after(time.Minute)
	})
}

func TestWaitsForTheCache(t *testing.T) {
	run(t, newPod().env(), func(t *testing.T, n *node) {
		n.env, n.lag = map[string]string{"TEST_ENV": "foo"}, true
		n.startContainer()
		after(5 * time.Second)
		n.reporter.Updated(n.stale, n.stale)
		after(10 * time.Second)
		require.Equal(t, 1, n.patches, "a cache that is behind its own patch is not believed")
		n.mu.Lock()
		n.lag, n.stale = false, nil
		n.mu.Unlock()
		after(time.Minute)
		require.Equal(t, 1, n.patches)
	})
}

func lastCalls(n *node, count int) []string {
	calls := n.runtime.Calls()
	return calls[len(calls)-count:]
}

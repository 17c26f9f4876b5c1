// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"
)

var (
	t0        = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	behaviour = Behaviour{Start: time.Second, Restart: 2 * time.Second, Stop: time.Second, Complete: 3 * time.Second}
	host      = Host{IP: "10.128.0.1", PodIP: "100.64.0.1"}
)

func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "u-1", Generation: 1},
		Spec: corev1.PodSpec{
			NodeName: "sim-0001", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1.16"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// story plays a Pod: it applies what Next decides and moves the clock to the next time that matters.
type story struct {
	t      require.TestingT
	pod    *corev1.Pod
	mem    Memory
	now    time.Time
	writes int
	gone   bool
}

// settle plays until nothing is left to do and says how long that took.
func (s *story) settle() time.Duration {
	start := s.now
	for range 100 {
		out := Next(s.pod, host, s.mem, s.now, behaviour)
		s.mem = out.Memory
		if out.Status != nil {
			s.writes++
			s.pod = patched(s.t, s.pod, out.Status)
		}
		if out.Delete {
			s.gone = true
			return s.now.Sub(start)
		}
		if out.Status != nil {
			continue // as the event of our own write would
		}
		if out.Again == 0 {
			return s.now.Sub(start)
		}
		s.now = s.now.Add(out.Again)
	}
	require.Fail(s.t, "the Pod does not settle")
	return 0
}

// patched applies the status the way the API server does.
func patched(t require.TestingT, pod *corev1.Pod, status *corev1.PodStatus) *corev1.Pod {
	patch, err := statusPatch(pod, status)
	require.NoError(t, err)
	before, err := json.Marshal(pod)
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	require.NoError(t, err)
	got := new(corev1.Pod)
	require.NoError(t, json.Unmarshal(after, got))
	merged := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range got.Status.Conditions {
		merged[c.Type] = c
	}
	require.Len(t, got.Status.Conditions, len(status.Conditions))
	got.Status.Conditions = nil
	for _, want := range status.Conditions { // in an order of its own, which means nothing
		have := merged[want.Type]
		require.Equal(t, [3]string{string(want.Status), want.Reason, want.Message}, [3]string{string(have.Status), have.Reason, have.Message})
		got.Status.Conditions = append(got.Status.Conditions, have)
	}
	return got
}

func (s *story) condition(kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range s.pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func begin(t require.TestingT, change ...func(*corev1.Pod)) *story {
	return &story{t: t, pod: newPod(change...), now: t0}
}

func gate(p *corev1.Pod) {
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "InPlaceUpdateReady"}}
}

func setGate(p *corev1.Pod, status corev1.ConditionStatus) {
	for i, c := range p.Status.Conditions {
		if c.Type == "InPlaceUpdateReady" {
			p.Status.Conditions[i].Status = status
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "InPlaceUpdateReady", Status: status})
}

func TestStart(t *testing.T) {
	s := begin(t)
	require.Equal(t, behaviour.Start, s.settle())
	require.Equal(t, 1, s.writes, "a start is one write")
	require.Equal(t, corev1.PodRunning, s.pod.Status.Phase)
	require.Equal(t, "100.64.0.1", s.pod.Status.PodIP)
	require.Equal(t, corev1.ConditionTrue, s.condition(corev1.PodReady).Status)
	cs := s.pod.Status.ContainerStatuses[0]
	require.True(t, cs.Ready)
	require.Equal(t, ImageID("nginx:1.16"), cs.ImageID)
	require.Equal(t, int64(1), s.pod.Status.ObservedGeneration)
}

func TestImageChangeRestartsInPlace(t *testing.T) {
	s := begin(t, gate)
	setGate(s.pod, corev1.ConditionTrue)
	s.settle()
	before := s.pod.Status.ContainerStatuses[0]

	s.pod.Spec.Containers[0].Image = "nginx:1.17"
	s.pod.Generation = 2
	out := Next(s.pod, host, s.mem, s.now, behaviour)
	require.NotNil(t, out.Status)
	during := &story{t: t, pod: patched(t, s.pod, out.Status)}
	require.Equal(t, corev1.ConditionFalse, during.condition(corev1.PodReady).Status, "not Ready while no instance runs")
	require.Equal(t, "ContainersNotReady", during.condition(corev1.PodReady).Reason)
	require.NotNil(t, during.pod.Status.ContainerStatuses[0].State.Terminated)

	require.Equal(t, behaviour.Restart, s.settle())
	after := s.pod.Status.ContainerStatuses[0]
	require.Equal(t, int32(1), after.RestartCount)
	require.NotEqual(t, before.ContainerID, after.ContainerID)
	require.Equal(t, ImageID("nginx:1.17"), after.ImageID)
	require.Equal(t, before.ContainerID, after.LastTerminationState.Terminated.ContainerID)
	require.Equal(t, corev1.ConditionTrue, s.condition(corev1.PodReady).Status)
	require.Empty(t, s.condition(corev1.PodReady).Reason)
	require.Equal(t, "100.64.0.1", s.pod.Status.PodIP, "the Pod keeps its address")
	require.Equal(t, int64(2), s.pod.Status.ObservedGeneration)
}

func TestARestartInTheMiddleOfARestartLosesNothing(t *testing.T) {
	s := begin(t)
	s.settle()
	s.pod.Spec.Containers[0].Image = "nginx:1.17"
	out := Next(s.pod, host, s.mem, s.now, behaviour)
	s.pod, s.mem = patched(t, s.pod, out.Status), Memory{} // the simulation starts anew
	s.settle()
	require.Equal(t, int32(1), s.pod.Status.ContainerStatuses[0].RestartCount)
	require.Equal(t, "nginx:1.17", s.pod.Status.ContainerStatuses[0].Image)
}

func TestSettledPods(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	cases := map[string]struct {
		change func(*corev1.Pod)
		check  func(*testing.T, *story)
	}{
		"a missing gate keeps a Pod from being Ready, its containers are": {
			change: gate,
			check: func(t *testing.T, s *story) {
				require.Equal(t, corev1.ConditionTrue, s.condition(corev1.ContainersReady).Status)
				require.Equal(t, corev1.ConditionFalse, s.condition(corev1.PodReady).Status)
				require.Equal(t, "ReadinessGatesNotReady", s.condition(corev1.PodReady).Reason)
			},
		},
		"a closed gate keeps a Pod from being Ready and stays closed": {
			change: func(p *corev1.Pod) { gate(p); setGate(p, corev1.ConditionFalse) },
			check: func(t *testing.T, s *story) {
				require.Equal(t, corev1.ConditionFalse, s.condition(corev1.PodReady).Status)
				require.Equal(t, corev1.ConditionFalse, s.condition("InPlaceUpdateReady").Status)
			},
		},
		"a broken image runs and is not ready": {
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:broken-1" },
			check: func(t *testing.T, s *story) {
				require.Equal(t, corev1.PodRunning, s.pod.Status.Phase)
				require.Equal(t, corev1.ConditionFalse, s.condition(corev1.PodReady).Status)
			},
		},
		"an image that cannot be pulled keeps the Pod Pending": {
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "invalid.registry.k8s.io/a:1" },
			check: func(t *testing.T, s *story) {
				require.Equal(t, corev1.PodPending, s.pod.Status.Phase)
				require.Equal(t, "ImagePullBackOff", s.pod.Status.ContainerStatuses[0].State.Waiting.Reason)
			},
		},
		"init containers have ended, native sidecars run": {
			change: func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "a:1"}, {Name: "side", Image: "b:1", RestartPolicy: &always}}
			},
			check: func(t *testing.T, s *story) {
				require.NotNil(t, s.pod.Status.InitContainerStatuses[0].State.Terminated)
				require.NotNil(t, s.pod.Status.InitContainerStatuses[1].State.Running)
				require.Equal(t, corev1.ConditionTrue, s.condition(corev1.PodReady).Status)
			},
		},
		"a Pod of a job succeeds": {
			change: func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever },
			check: func(t *testing.T, s *story) {
				require.Equal(t, corev1.PodSucceeded, s.pod.Status.Phase)
				require.Equal(t, "PodCompleted", s.condition(corev1.PodReady).Reason)
			},
		},
		"a Pod of the host network has the address of the node": {
			change: func(p *corev1.Pod) { p.Spec.HostNetwork = true },
			check:  func(t *testing.T, s *story) { require.Equal(t, host.IP, s.pod.Status.PodIP) },
		},
		"ephemeral containers run once": {
			change: func(p *corev1.Pod) {
				p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}}
			},
			check: func(t *testing.T, s *story) {
				require.NotNil(t, s.pod.Status.EphemeralContainerStatuses[0].State.Terminated)
			},
		},
		"a finished Pod stays as it is": {
			change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			check:  func(t *testing.T, s *story) { require.Zero(t, s.writes) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := begin(t, tc.change)
			s.settle()
			tc.check(t, s)
		})
	}
}

func TestChangesOfRunningPods(t *testing.T) {
	cases := map[string]struct {
		before, change func(*corev1.Pod)
		check          func(*testing.T, *story)
	}{
		"an opened gate makes a Pod Ready without a restart": {
			before: gate,
			change: func(p *corev1.Pod) { setGate(p, corev1.ConditionTrue) },
			check: func(t *testing.T, s *story) {
				require.Equal(t, corev1.ConditionTrue, s.condition(corev1.PodReady).Status)
				require.Zero(t, s.pod.Status.ContainerStatuses[0].RestartCount)
			},
		},
		"a closed gate makes a Pod not Ready": {
			before: func(p *corev1.Pod) { gate(p); setGate(p, corev1.ConditionTrue) },
			change: func(p *corev1.Pod) { setGate(p, corev1.ConditionFalse) },
			check: func(t *testing.T, s *story) {
				require.Equal(t, corev1.ConditionFalse, s.condition(corev1.PodReady).Status)
			},
		},
		"resources change without a restart": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}
			},
			check: func(t *testing.T, s *story) {
				cs := s.pod.Status.ContainerStatuses[0]
				require.Zero(t, cs.RestartCount)
				require.Equal(t, "200m", cs.Resources.Requests.Cpu().String())
				require.Equal(t, "200m", cs.AllocatedResources.Cpu().String())
			},
		},
		"only the container whose image changed restarts": {
			before: func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "redis", Image: "redis:5"})
			},
			change: func(p *corev1.Pod) { p.Spec.Containers[1].Image = "redis:6" },
			check: func(t *testing.T, s *story) {
				require.Zero(t, s.pod.Status.ContainerStatuses[0].RestartCount)
				require.Equal(t, int32(1), s.pod.Status.ContainerStatuses[1].RestartCount)
			},
		},
		"a good image after one that cannot be pulled starts": {
			before: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "invalid.test/a:1" },
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:1.17" },
			check: func(t *testing.T, s *story) {
				require.Equal(t, corev1.PodRunning, s.pod.Status.Phase)
				require.Equal(t, corev1.ConditionTrue, s.condition(corev1.PodReady).Status)
			},
		},
		"a deleted Pod goes without a write": {
			change: func(p *corev1.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(t0)), new(int64(30))
			},
			check: func(t *testing.T, s *story) {
				require.True(t, s.gone)
				require.Equal(t, 1, s.writes, "the start")
			},
		},
		"a deleted Pod with a finalizer shows that its containers have ended": {
			before: func(p *corev1.Pod) { p.Finalizers = []string{"example.com/wait"} },
			change: func(p *corev1.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(t0)), new(int64(30))
			},
			check: func(t *testing.T, s *story) {
				require.True(t, s.gone)
				require.Equal(t, corev1.PodSucceeded, s.pod.Status.Phase)
			},
		},
		"a Pod whose containers have been removed waits for its finalizers": {
			change: func(p *corev1.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(t0)), new(int64(0))
			},
			check: func(t *testing.T, s *story) { require.False(t, s.gone) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.before == nil {
				tc.before = func(*corev1.Pod) {}
			}
			s := begin(t, tc.before)
			s.settle()
			tc.change(s.pod)
			s.settle()
			tc.check(t, s)
		})
	}
}

// Whatever happens to images and gates, the Pod settles on what its spec says, and every new instance counts.
func TestAnyStorySettlesOnTheSpec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := begin(t, gate, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "redis", Image: "redis:5"})
		})
		open := false
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"image", "gate", "wait"}).Draw(t, "step") {
			case "image":
				c := rapid.IntRange(0, 1).Draw(t, "container")
				s.pod.Spec.Containers[c].Image = rapid.SampledFrom([]string{"nginx:1.16", "nginx:1.17", "redis:6"}).Draw(t, "image")
			case "gate":
				open = rapid.Bool().Draw(t, "open")
				status := corev1.ConditionFalse
				if open {
					status = corev1.ConditionTrue
				}
				setGate(s.pod, status)
			case "wait":
				out := Next(s.pod, host, s.mem, s.now, behaviour)
				s.mem = out.Memory
				if out.Status != nil {
					s.pod = patched(t, s.pod, out.Status)
				}
				s.now = s.now.Add(out.Again)
			}
		}
		s.settle()
		for i, c := range s.pod.Spec.Containers {
			cs := s.pod.Status.ContainerStatuses[i]
			require.Equal(t, c.Image, cs.Image)
			require.Equal(t, ImageID(c.Image), cs.ImageID)
			require.NotNil(t, cs.State.Running)
		}
		require.Equal(t, open, s.condition(corev1.PodReady).Status == corev1.ConditionTrue)
		writes := s.writes
		s.settle()
		require.Equal(t, writes, s.writes, "a settled Pod costs no write")
	})
}

func TestImageID(t *testing.T) {
	cases := map[string]struct {
		a, b string
		same bool
	}{
		"tags differ":            {"nginx:1.16", "nginx:1.17", false},
		"repositories differ":    {"nginx:1", "httpd:1", false},
		"no tag is latest":       {"nginx", "nginx:latest", true},
		"two names of one image": {"nginx:alpine", "nginx:mainline-alpine", true},
		"a port is not a tag":    {"localhost:5000/nginx", "localhost:5000/nginx:latest", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.same, ImageID(tc.a) == ImageID(tc.b)) })
	}
	require.Regexp(t, `^docker\.io/library/nginx@sha256:[0-9a-f]{64}$`, ImageID("nginx:1.16"))
	require.Regexp(t, `^docker\.io/kruisectl/sidecar@sha256:`, ImageID("kruisectl/sidecar:1"))
	require.Equal(t, "a.test/b@sha256:0", ImageID("a.test/b@sha256:0"))
}

func TestAddressesStartBehindThoseInUse(t *testing.T) {
	pod := newPod()
	pod.Status.PodIP = "100.64.0.9"
	a := newAddresses([]any{pod, "no Pod"})
	require.Equal(t, "100.64.0.10", a.next())
	require.Equal(t, "100.64.0.11", a.next())
}

func TestHostIPsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for n := 1; n <= 70000; n++ {
		ip := hostIP(n).String()
		require.False(t, seen[ip], ip)
		seen[ip] = true
	}
}

func TestIdlePodsNeverClaimToRun(t *testing.T) {
	idle := behaviour
	idle.Idle = []string{"kruise-system"}
	pod := newPod(func(p *corev1.Pod) {
		p.Namespace = "kruise-system"
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox:1"}}
	})
	out := Next(pod, host, Memory{}, t0, idle)
	require.NotNil(t, out.Status)
	require.Zero(t, out.Again)
	pod = patched(t, pod, out.Status)
	require.Equal(t, corev1.PodPending, pod.Status.Phase)
	require.Empty(t, pod.Status.PodIP, "a Service has no endpoint in it")
	for _, cs := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		require.Equal(t, "NotSimulated", cs.State.Waiting.Reason)
		require.False(t, cs.Ready)
	}
	require.Equal(t, corev1.ConditionFalse, (&story{pod: pod}).condition(corev1.PodReady).Status)
	require.Nil(t, Next(pod, host, Memory{}, t0.Add(time.Hour), idle).Status, "it stays so")

	pod.Spec.Containers[0].Image = "nginx:2"
	out = Next(pod, host, Memory{}, t0, idle)
	require.Equal(t, "nginx:2", out.Status.ContainerStatuses[0].Image)
	require.NotNil(t, out.Status.ContainerStatuses[0].State.Waiting)

	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(t0)), new(int64(0))
	require.Nil(t, Next(pod, host, Memory{}, t0, idle).Status)
	pod.DeletionGracePeriodSeconds = new(int64(30))
	require.True(t, Next(pod, host, Memory{StopAt: t0}, t0, idle).Delete, "it can be deleted")
}

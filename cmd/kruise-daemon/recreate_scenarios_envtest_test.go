// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/podready"
)

type (
	behaviours = map[string]fakecri.Behaviour
	spec       = v1beta1.ContainerRecreateRequestSpec
	strategy   = v1beta1.RecreateStrategy
)

// preStop gives the app a hook that takes so long.
func preStop(delay time.Duration) (func(*corev1.Pod), behaviours) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep"}}}}
	}, behaviours{"app": {Exec: map[string]fakecri.ExecScript{"sleep": {Delay: delay}}}}
}

// The scenarios of container-recreate.md 10, with the numbers that they have in common, and
// those beyond them that need the whole agent.
func TestRecreate(t *testing.T) {
	r := startRecreateRig(t)
	scenarios := map[string]func(*testing.T, *recreateRig){
		"1a one container":                      oneContainer,
		"1b two containers and their cost":      twoContainers,
		"2a unordered":                          unordered,
		"2b ordered, also 7":                    ordered,
		"3a a slow hook":                        slowHook,
		"3b the deadline during a stop":         deadlineDuringStop,
		"3c a drain and a short grace":          drain,
		"4a forced":                             forced,
		"4b forced and ordered":                 forcedOrdered,
		"6 the snapshot":                        snapshots,
		"8 through v1alpha1, read by v1beta1":   fromV1alpha1,
		"9 through v1beta1, read by v1alpha1":   toV1alpha1,
		"10 beside an ephemeral container":      besideEphemeral,
		"two requests back to back":             backToBack,
		"a request deleted while stopping":      deletedWhileStopping,
		"a hook over HTTP without host":         httpHook,
		"no grace":                              noGrace,
		"a native sidecar":                      nativeSidecar,
		"a Pod that restarts nothing":           neverRestarts,
		"a stop that fails":                     failingStop,
		"a report to another of the name":       otherOfTheName,
		"events say what was done and for whom": eventsOfStops,
	}
	t.Run("scenarios", func(t *testing.T) {
		for name, scenario := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(t, r)
			})
		}
	})
	t.Run("the agent restarts while stopping", func(t *testing.T) { agentRestart(t, r) })
}

func oneContainer(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s1a", nil, nil)
	old := containerOf(pod, "app").ContainerID
	crr := r.request(t, pod, "s1a", spec{Strategy: &strategy{MinStartedSeconds: 5}, TTLSecondsAfterFinished: new(int32(3))}, "app")
	require.Equal(t, map[string]string{
		"crr.apps.kruise.io/pod-uid": string(pod.UID), "crr.apps.kruise.io/node-name": "n1", "crr.apps.kruise.io/active": "true",
	}, crr.Labels)
	require.Equal(t, v1beta1.RecreateFailurePolicyFail, crr.Spec.Strategy.FailurePolicy)
	require.Equal(t, old, crr.Spec.Containers[0].StatusContext.ContainerID)
	r.until(t, crr, "it completes", func() bool { return crr.Status.Phase == v1beta1.RecreateCompleted })
	require.NoError(t, r.c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.True(t, podIs(pod, corev1.PodReady))
	app := containerOf(pod, "app")
	require.NotEqual(t, old, app.ContainerID)
	require.EqualValues(t, 1, app.RestartCount)
	require.Greater(t, crr.Status.CompletionTime.Sub(app.State.Running.StartedAt.Time), 4*time.Second)
	require.Equal(t, recreated("app"), crr.Status.ContainerRecreateStates)
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(r.c.Get(t.Context(), client.ObjectKeyFromObject(crr), crr))
	}, soon, tick)
}

func twoContainers(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s1b", nil, nil)
	before := *pod.DeepCopy()
	writes := r.versions(t, pod.Name)
	crr := r.request(t, pod, "s1b", spec{}, "app", "sidecar")
	r.completed(t, crr)
	require.Equal(t, recreated("app", "sidecar"), crr.Status.ContainerRecreateStates)
	require.Empty(t, crr.Status.Message)
	r.untilPod(t, pod, "it is ready", func() bool { return podIs(pod, corev1.PodReady) })
	for _, name := range []string{"app", "sidecar"} {
		require.NotEqual(t, containerOf(&before, name).ContainerID, containerOf(pod, name).ContainerID)
		require.EqualValues(t, 1, containerOf(pod, name).RestartCount)
		require.Equal(t, []string{"StopContainer"}, r.callsFor("s1b", name))
	}
	// The agent: begin, app, sidecar, end, and at most one per container that succeeds before
	// the last. The manager: one for each change that the kubelet reports (three when both
	// containers restart apart), and the label.
	seen := writes()
	require.LessOrEqual(t, len(seen), 10, "%q", seen)
	t.Logf("%d writes for 2 containers: %q", len(seen), seen)
}

func unordered(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s2a", nil, behaviours{"app": {PostStart: 8 * time.Second}})
	crr := r.request(t, pod, "s2a", spec{}, "app", "sidecar")
	r.completed(t, crr)
	require.Equal(t, recreated("app", "sidecar"), crr.Status.ContainerRecreateStates)
	r.notHeldUp(t, pod, 8*time.Second)
}

// notHeldUp makes sure that the sidecar was stopped before the app was ready again.
func (r *recreateRig) notHeldUp(t *testing.T, pod *corev1.Pod, postStart time.Duration) {
	t.Helper()
	r.untilPod(t, pod, "it is ready", func() bool {
		return podIs(pod, corev1.PodReady) && containerOf(pod, "sidecar").LastTerminationState.Terminated != nil && containerOf(pod, "app").LastTerminationState.Terminated != nil
	})
	app, sidecar := containerOf(pod, "app"), containerOf(pod, "sidecar")
	require.EqualValues(t, 1, app.RestartCount)
	require.EqualValues(t, 1, sidecar.RestartCount)
	apart := sidecar.LastTerminationState.Terminated.FinishedAt.Sub(app.LastTerminationState.Terminated.FinishedAt.Time)
	require.Less(t, apart, postStart)
	t.Logf("stopped %s apart", apart)
}

// heldUp makes sure that the sidecar was stopped only when the app was ready again.
func (r *recreateRig) heldUp(t *testing.T, pod *corev1.Pod, postStart time.Duration) {
	t.Helper()
	r.untilPod(t, pod, "it is ready", func() bool { return podIs(pod, corev1.PodReady) && containerOf(pod, "sidecar").RestartCount == 1 })
	app, sidecar := containerOf(pod, "app"), containerOf(pod, "sidecar")
	require.EqualValues(t, 1, app.RestartCount)
	apart := sidecar.LastTerminationState.Terminated.FinishedAt.Sub(app.LastTerminationState.Terminated.FinishedAt.Time)
	require.GreaterOrEqual(t, apart, postStart-time.Second) // both are in whole seconds
	t.Logf("stopped %s apart", apart)
}

func ordered(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s2b", nil, behaviours{"app": {PostStart: 5 * time.Second}})
	crr := r.request(t, pod, "s2b", spec{Strategy: &strategy{OrderedRecreate: true}}, "app", "sidecar")
	r.completed(t, crr)
	require.Equal(t, recreated("app", "sidecar"), crr.Status.ContainerRecreateStates)
	r.heldUp(t, pod, 5*time.Second)
}

func slowHook(t *testing.T, r *recreateRig) {
	change, behave := preStop(8 * time.Second)
	pod := r.pod(t, "s3a", change, behave)
	crr := r.request(t, pod, "s3a", spec{}, "app", "sidecar")
	r.completed(t, crr)
	require.Equal(t, recreated("app", "sidecar"), crr.Status.ContainerRecreateStates)
	r.untilPod(t, pod, "it is ready", func() bool { return podIs(pod, corev1.PodReady) && containerOf(pod, "sidecar").RestartCount == 1 })
	require.EqualValues(t, 1, containerOf(pod, "app").RestartCount)
	require.GreaterOrEqual(t, containerOf(pod, "sidecar").LastTerminationState.Terminated.FinishedAt.Sub(crr.CreationTimestamp.Time), 8*time.Second)
	require.Equal(t, []string{"ExecSync", "StopContainer"}, r.callsFor("s3a", "app"))
}

func deadlineDuringStop(t *testing.T, r *recreateRig) {
	change, behave := preStop(15 * time.Second)
	pod := r.pod(t, "s3b", change, behave)
	crr := r.request(t, pod, "s3b", spec{ActiveDeadlineSeconds: new(int64(3))}, "app", "sidecar")
	r.completed(t, crr)
	require.Equal(t, []v1beta1.RecreateState{{Name: "app", Phase: "Pending"}, {Name: "sidecar", Phase: "Pending"}}, crr.Status.ContainerRecreateStates)
	require.Equal(t, "recreating has exceeded the activeDeadlineSeconds", crr.Status.Message)
	require.Equal(t, "DeadlineExceeded", crr.Status.Conditions[0].Reason)
	r.untilPod(t, pod, "the app restarts", func() bool { return containerOf(pod, "app").RestartCount == 1 && podIs(pod, corev1.PodReady) })
	want := []v1beta1.RecreateState{{Name: "app", Phase: "Recreating", IsKilled: true}, {Name: "sidecar", Phase: "Pending"}}
	r.until(t, crr, "the stop is reported", func() bool { return crr.Status.ContainerRecreateStates[0].IsKilled })
	require.Equal(t, want, crr.Status.ContainerRecreateStates)
	require.Empty(t, r.callsFor("s3b", "sidecar"))
}

func drain(t *testing.T, r *recreateRig) {
	change, behave := preStop(8 * time.Second)
	pod := r.pod(t, "s3c", change, behave)
	crr := r.request(t, pod, "s3c", spec{Strategy: &strategy{TerminationGracePeriodSeconds: new(int64(3)), UnreadyGracePeriodSeconds: new(int64(1))}}, "app", "sidecar")
	r.untilPod(t, pod, "it is held", func() bool {
		c := podready.Condition(pod, v1beta1.KruisePodReady)
		return c.Status == corev1.ConditionFalse && c.Message == `[{"userAgent":"ContainerRecreateRequest","key":"default/s3c"}]`
	})
	r.completed(t, crr)
	require.Equal(t, recreated("app", "sidecar"), crr.Status.ContainerRecreateStates)
	r.untilPod(t, pod, "it is let go", func() bool {
		return podIs(pod, v1beta1.KruisePodReady) && podIs(pod, corev1.PodReady)
	})
	stopped, _ := r.runtime.Known(lastID(pod, "app"))
	require.Equal(t, 2*time.Second, stopped.LastGrace, "the hook used the grace period up")
	require.NotContains(t, crr.Finalizers, "crr.apps.kruise.io/unready-acquired")
}

// lastID is the ID of a container's predecessor.
func lastID(pod *corev1.Pod, name string) string {
	return containerOf(pod, name).LastTerminationState.Terminated.ContainerID[len("containerd://"):]
}

func forced(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s4a", nil, behaviours{"app": {PostStart: 8 * time.Second}})
	crr := r.request(t, pod, "s4a", spec{Strategy: &strategy{ForceRecreate: true}}, "app", "sidecar")
	r.completed(t, crr)
	require.Equal(t, recreated("app", "sidecar"), crr.Status.ContainerRecreateStates)
	r.notHeldUp(t, pod, 8*time.Second)
}

func forcedOrdered(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s4b", nil, behaviours{"app": {PostStart: 5 * time.Second}})
	crr := r.request(t, pod, "s4b", spec{Strategy: &strategy{ForceRecreate: true, OrderedRecreate: true}}, "app", "sidecar")
	r.completed(t, crr)
	require.Equal(t, recreated("app", "sidecar"), crr.Status.ContainerRecreateStates)
	r.heldUp(t, pod, 5*time.Second)
}

func snapshots(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s6", nil, nil)
	old := containerOf(pod, "app").ContainerID
	writes := r.versions(t, pod.Name)
	crr := r.request(t, pod, "s6", spec{}, "app")
	r.completed(t, crr)
	require.Equal(t, "app", crr.Status.ContainerStatusSnapshot[0].Name)
	require.NotEmpty(t, crr.Status.ContainerStatusSnapshot[0].ContainerID)
	require.NotEqual(t, old, crr.Status.ContainerStatusSnapshot[0].ContainerID)
	require.NotContains(t, crr.Annotations, "crr.apps.kruise.io/sync-container-statuses")
	seen := writes()
	require.LessOrEqual(t, len(seen), 6, "%q", seen) // 3 of the agent, 2 or 3 of the manager
	t.Logf("%d writes for 1 container: %q", len(seen), seen)
	calls := map[string]int{}
	for _, call := range r.runtime.Calls() {
		verb, of, _ := strings.Cut(call, " ")
		if of == string(pod.UID) || strings.HasPrefix(of, "s6-") {
			calls[verb]++
		}
	}
	require.Equal(t, 1, calls["StopContainer"])
	require.Equal(t, calls["ListContainers"], calls["ContainerStatus"], "of the one container that matters")
	require.LessOrEqual(t, calls["ListContainers"], 8, "%v", calls)
	t.Logf("calls of the runtime: %v", calls)
}

func fromV1alpha1(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s8", nil, nil)
	old := &v1alpha1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s8"}}
	old.Spec.PodName = pod.Name
	old.Spec.Containers = []v1beta1.RecreateContainer{{Name: "app"}, {Name: "sidecar"}}
	old.Spec.Strategy = &v1alpha1.RecreateStrategy{UnreadyGracePeriodSeconds: new(int64(1))}
	require.NoError(t, r.c.Create(t.Context(), old))
	crr := &v1beta1.ContainerRecreateRequest{ObjectMeta: old.ObjectMeta}
	r.completed(t, crr)
	require.Equal(t, recreated("app", "sidecar"), crr.Status.ContainerRecreateStates)
	require.NotEmpty(t, crr.Status.ContainerStatusSnapshot[0].ContainerID)
	require.Equal(t, "PreRecreateGrace", crr.Status.Conditions[0].Type)
	require.Equal(t, metav1.ConditionTrue, crr.Status.Conditions[0].Status)
	require.Empty(t, crr.Annotations)
}

func toV1alpha1(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s9", nil, nil)
	crr := r.request(t, pod, "s9", spec{Strategy: &strategy{UnreadyGracePeriodSeconds: new(int64(1))}}, "app")
	r.until(t, crr, "it drains", func() bool { return len(crr.Status.Conditions) > 0 })
	old := &v1alpha1.ContainerRecreateRequest{}
	require.NoError(t, r.c.Get(t.Context(), client.ObjectKeyFromObject(crr), old))
	require.Equal(t, crr.Status.Conditions[0].LastTransitionTime.UTC().Format(time.RFC3339), old.Annotations["crr.apps.kruise.io/unready-acquired"])
	r.completed(t, crr)
}

func besideEphemeral(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "s10", nil, nil)
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "busybox", ImagePullPolicy: "Always", TerminationMessagePolicy: "File"}}}
	require.NoError(t, r.c.SubResource("ephemeralcontainers").Update(t.Context(), pod))
	r.runtime.AddContainer(fakecri.Container{Status: cri.Status{Started: time.Now(), Container: cri.Container{
		ID: "s10-debugger", Name: "debugger", State: cri.StateRunning, Created: time.Now(),
		Labels: map[string]string{cri.LabelPodUID: string(pod.UID), cri.LabelContainerName: "debugger"},
	}}})
	crr := r.request(t, pod, "s10", spec{Strategy: &strategy{MinStartedSeconds: 5}, TTLSecondsAfterFinished: new(int32(99999))}, "app")
	r.completed(t, crr)
	require.Equal(t, recreated("app"), crr.Status.ContainerRecreateStates)
	debugger, _ := r.runtime.Known("s10-debugger")
	require.Equal(t, cri.StateRunning, debugger.State)
}

func backToBack(t *testing.T, r *recreateRig) {
	change, behave := preStop(4 * time.Second)
	pod := r.pod(t, "back", change, behave)
	first := r.request(t, pod, "back-1", spec{}, "app")
	second := r.request(t, pod, "back-2", spec{Strategy: &strategy{ForceRecreate: true}}, "app")
	third := r.request(t, pod, "back-3", spec{}, "sidecar")
	r.until(t, second, "it is told to wait", func() bool { return second.Status.Phase != "" })
	for _, crr := range []*v1beta1.ContainerRecreateRequest{first, second, third} {
		r.completed(t, crr)
		require.Equal(t, recreated(crr.Spec.Containers[0].Name), crr.Status.ContainerRecreateStates)
	}
	r.untilPod(t, pod, "both restarted", func() bool {
		return containerOf(pod, "app").RestartCount == 2 && containerOf(pod, "sidecar").RestartCount == 1
	})
	require.Equal(t, []string{"ExecSync", "StopContainer", "ExecSync", "StopContainer"}, r.callsFor("back", "app"))
}

func deletedWhileStopping(t *testing.T, r *recreateRig) {
	change, behave := preStop(4 * time.Second)
	pod := r.pod(t, "deleted", change, behave)
	crr := r.request(t, pod, "deleted-1", spec{Strategy: &strategy{UnreadyGracePeriodSeconds: new(int64(0))}}, "app", "sidecar")
	require.Eventually(t, func() bool { return len(r.callsFor("deleted", "app")) == 1 }, soon, tick, "the hook runs")
	require.NoError(t, r.c.Delete(t.Context(), crr))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(r.c.Get(t.Context(), client.ObjectKeyFromObject(crr), crr))
	}, soon, tick, "the finalizer does not keep it")
	r.untilPod(t, pod, "it is let go and the stop goes on", func() bool {
		return podIs(pod, v1beta1.KruisePodReady) && containerOf(pod, "app").RestartCount == 1
	})
	next := r.request(t, pod, "deleted-2", spec{}, "app")
	r.completed(t, next)
	require.Equal(t, recreated("app"), next.Status.ContainerRecreateStates)
	require.Empty(t, r.callsFor("deleted", "sidecar"), "the next stop of a deleted request does not come")
}

// The agent's reports are tied to the UID of their request: that the API server holds this is
// what the test in daemon/recreate takes for granted.
func otherOfTheName(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "other", nil, nil)
	crr := r.request(t, pod, "other", spec{}, "app")
	r.completed(t, crr)
	patch := func(uid types.UID) error {
		return r.c.Status().Patch(t.Context(), crr.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(
			`[{"op":"test","path":"/metadata/uid","value":"`+string(uid)+`"},{"op":"add","path":"/status/containerRecreateStates","value":[]}]`)))
	}
	require.True(t, apierrors.IsInvalid(patch("another")))
	require.NoError(t, patch(crr.UID))
}

func httpHook(t *testing.T, r *recreateRig) {
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { asked.Store(request.URL.Path) }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	pod := r.pod(t, "http", func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: int32(number)}}
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromString("web")}}}
	}, nil)
	r.completed(t, r.request(t, pod, "http", spec{}, "app"))
	require.Equal(t, "/bye", asked.Load(), "the Pod's IP is that of its sandbox")
}

func noGrace(t *testing.T, r *recreateRig) {
	change, behave := preStop(time.Hour)
	behave["app"] = fakecri.Behaviour{Exec: behave["app"].Exec, StopDelay: time.Hour}
	pod := r.pod(t, "nograce", change, behave)
	r.completed(t, r.request(t, pod, "nograce", spec{Strategy: &strategy{TerminationGracePeriodSeconds: new(int64(0))}}, "app"))
	require.Equal(t, []string{"StopContainer"}, r.callsFor("nograce", "app"))
	r.untilPod(t, pod, "restarted", func() bool { return containerOf(pod, "app").RestartCount == 1 })
	require.EqualValues(t, 137, containerOf(pod, "app").LastTerminationState.Terminated.ExitCode)
}

func nativeSidecar(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "native", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "mesh", Image: "mesh:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	}, nil)
	crr := r.request(t, pod, "native", spec{}, "mesh", "app")
	r.completed(t, crr)
	require.Equal(t, recreated("mesh", "app"), crr.Status.ContainerRecreateStates)
	r.untilPod(t, pod, "restarted", func() bool { return containerOf(pod, "mesh").RestartCount == 1 })
}

func neverRestarts(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "never", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }, nil)
	crr := r.request(t, pod, "never", spec{}, "sidecar")
	r.completed(t, crr)
	require.Equal(t, "container sidecar has exited and is not started again: its restart policy is Never", crr.Status.Message)
	require.Equal(t, "ContainerNotRestarted", crr.Status.Conditions[0].Reason)
	require.Equal(t, []string{"StopContainer"}, r.callsFor("never", "sidecar"))
}

func failingStop(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "fails", nil, nil)
	id := containerOf(pod, "app").ContainerID[len("containerd://"):]
	r.runtime.Inject(fakecri.Fault{Call: "StopContainer " + id, Times: 2, Err: http.ErrAbortHandler})
	fail := r.request(t, pod, "fails-1", spec{}, "app", "sidecar")
	r.completed(t, fail)
	require.Equal(t, v1beta1.RecreateFailed, fail.Status.ContainerRecreateStates[0].Phase)
	require.Contains(t, fail.Status.ContainerRecreateStates[0].Message, "kill container error: ")
	require.Equal(t, v1beta1.RecreateState{Name: "sidecar", Phase: "Pending"}, fail.Status.ContainerRecreateStates[1])
	require.Empty(t, fail.Status.Message)
	ignore := r.request(t, pod, "fails-2", spec{Strategy: &strategy{FailurePolicy: "Ignore"}}, "app", "sidecar")
	r.completed(t, ignore)
	require.Equal(t, v1beta1.RecreateFailed, ignore.Status.ContainerRecreateStates[0].Phase)
	require.Equal(t, recreated("sidecar")[0], ignore.Status.ContainerRecreateStates[1])
}

func eventsOfStops(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "told", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"missing"}}}}
	}, nil)
	r.completed(t, r.request(t, pod, "told", spec{}, "app"))
	found := map[string]corev1.Event{}
	require.Eventually(t, func() bool {
		var events corev1.EventList
		if r.c.List(t.Context(), &events, client.InNamespace("default")) != nil {
			return false
		}
		for _, e := range events.Items {
			if e.InvolvedObject.UID == pod.UID {
				found[e.Reason] = e
			}
		}
		return len(found) == 2
	}, soon, tick)
	killing := found["Killing"]
	require.Equal(t, "Stopping container app by ContainerRecreateRequest told", killing.Message)
	require.Equal(t, corev1.EventTypeNormal, killing.Type)
	require.Equal(t, "spec.containers{app}", killing.InvolvedObject.FieldPath)
	require.Equal(t, corev1.EventSource{Component: "kruise-daemon-crr", Host: "n1"}, killing.Source)
	require.Equal(t, corev1.EventTypeWarning, found["FailedPreStopHook"].Type)
	require.NotContains(t, found["FailedPreStopHook"].Message, "told-app-", "IDs keep events from being counted together")
}

func agentRestart(t *testing.T, r *recreateRig) {
	pod := r.pod(t, "restart", nil, behaviours{"app": {StopDelay: 4 * time.Second}})
	id := types.UID(containerOf(pod, "app").ContainerID[len("containerd://"):])
	crr := r.request(t, pod, "restart", spec{Strategy: &strategy{ForceRecreate: true}}, "app")
	require.Eventually(t, func() bool { return len(r.callsFor("restart", "app")) == 1 }, soon, tick, "it is being stopped")
	r.stopAgent()
	r.runtime.Exit(string(id), 0) // a real runtime goes on
	r.untilPod(t, pod, "the app restarts", func() bool { return containerOf(pod, "app").RestartCount == 1 })
	r.startAgent(t)
	r.completed(t, crr)
	require.Equal(t, recreated("app"), crr.Status.ContainerRecreateStates)
	require.Equal(t, []string{"StopContainer"}, r.callsFor("restart", "app"))
}

// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/valid"
)

type recreate = v1beta1.ContainerRecreateRequest

func restart(change ...func(*recreate)) *recreate {
	crr := &recreate{Spec: v1beta1.ContainerRecreateRequestSpec{PodName: "web-0", Containers: []v1beta1.RecreateContainer{{Name: "app"}}}}
	for _, f := range change {
		f(crr)
	}
	return crr
}

func how(change func(*v1beta1.RecreateStrategy)) func(*recreate) {
	return func(crr *recreate) {
		crr.Spec.Strategy = &v1beta1.RecreateStrategy{}
		change(crr.Spec.Strategy)
	}
}

func named(names ...string) func(*recreate) {
	return func(crr *recreate) {
		crr.Spec.Containers = nil
		for _, name := range names {
			crr.Spec.Containers = append(crr.Spec.Containers, v1beta1.RecreateContainer{Name: name})
		}
	}
}

func TestContainerRecreateRequest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*recreate)
		path   []string
		alpha  bool // v1alpha1 has no such fault
	}{
		"the plain one":         {func(*recreate) {}, nil, false},
		"two containers":        {named("app", "sidecar"), nil, false},
		"the shortest deadline": {func(r *recreate) { r.Spec.ActiveDeadlineSeconds = new(int64(3)) }, nil, false},
		"no grace at all": {how(func(s *v1beta1.RecreateStrategy) {
			s.TerminationGracePeriodSeconds, s.UnreadyGracePeriodSeconds = new(int64), new(int64)
		}), nil, false},
		"gone at once":                  {func(r *recreate) { r.Spec.TTLSecondsAfterFinished = new(int32) }, nil, false},
		"no Pod":                        {func(r *recreate) { r.Spec.PodName = "" }, []string{"spec.podName"}, false},
		"no container":                  {named(), []string{"spec.containers"}, false},
		"a container without name":      {named("app", ""), []string{"spec.containers[1].name"}, false},
		"a container twice":             {named("app", "b", "app"), []string{"spec.containers[2].name"}, false},
		"too short a deadline":          {func(r *recreate) { r.Spec.ActiveDeadlineSeconds = new(int64(2)) }, []string{"spec.activeDeadlineSeconds"}, false},
		"less than no time to stop":     {how(func(s *v1beta1.RecreateStrategy) { s.TerminationGracePeriodSeconds = new(int64(-1)) }), []string{"spec.strategy.terminationGracePeriodSeconds"}, false},
		"less than no time to drain":    {how(func(s *v1beta1.RecreateStrategy) { s.UnreadyGracePeriodSeconds = new(int64(-1)) }), []string{"spec.strategy.unreadyGracePeriodSeconds"}, false},
		"an unknown policy":             {how(func(s *v1beta1.RecreateStrategy) { s.FailurePolicy = "Retry" }), []string{"spec.strategy.failurePolicy"}, false},
		"started for less than no time": {how(func(s *v1beta1.RecreateStrategy) { s.MinStartedSeconds = -1 }), []string{"spec.strategy.minStartedSeconds"}, true},
		"less than no time to live":     {func(r *recreate) { r.Spec.TTLSecondsAfterFinished = new(int32(-1)) }, []string{"spec.ttlSecondsAfterFinished"}, true},
		"many faults are reported at once": {func(r *recreate) {
			r.Spec = v1beta1.ContainerRecreateRequestSpec{ActiveDeadlineSeconds: new(int64(0)), Strategy: &v1beta1.RecreateStrategy{FailurePolicy: "x"}}
		}, []string{"spec.podName", "spec.containers", "spec.activeDeadlineSeconds", "spec.strategy.failurePolicy"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.ContainerRecreateRequest(restart(c.change), valid.Options{})
			require.Equal(t, c.path, paths(errs), "%v", errs)
			errs = valid.ContainerRecreateRequest(restart(c.change), valid.Options{V1alpha1: true})
			if c.alpha {
				c.path = nil
			}
			require.Equal(t, c.path, paths(errs), "v1alpha1: %v", errs)
		})
	}
}

// running is a Pod with an app, a native sidecar, an init container that is done, and one whose
// run is not known yet.
func running(change ...func(*corev1.Pod)) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	up := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", UID: "u"},
		Spec: corev1.PodSpec{
			NodeName:       "n",
			InitContainers: []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}},
			Containers: []corev1.Container{
				{Name: "app", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}, Lifecycle: &corev1.Lifecycle{
					PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromString("http")}},
				}},
				{Name: "slow", Ports: []corev1.ContainerPort{{ContainerPort: 81}}, Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 8}}}},
				{Name: "young"}, {Name: "younger"},
			},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			InitContainerStatuses: []corev1.ContainerStatus{
				{Name: "setup", ContainerID: "containerd://1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
				{Name: "proxy", ContainerID: "containerd://2", RestartCount: 2, State: up},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "app", ContainerID: "containerd://3", RestartCount: 3, State: up},
				{Name: "slow", ContainerID: "containerd://4", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
				{Name: "young"},
			},
		},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func TestTargetOfContainerRecreateRequest(t *testing.T) {
	phase := func(p corev1.PodPhase) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Status.Phase = p } }
	ended := func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "SidecarTerminated", Status: corev1.ConditionFalse})
	}
	for name, c := range map[string]struct {
		crr     *recreate
		pod     *corev1.Pod
		noNode  bool
		path    string // "" when there is no fault
		message string
	}{
		"a running container":                   {restart(), running(), false, "", ""},
		"one in a crash loop":                   {restart(named("slow")), running(), false, "", ""},
		"a native sidecar":                      {restart(named("proxy")), running(), false, "", ""},
		"a finished Pod whose sidecars end":     {restart(), running(phase(corev1.PodSucceeded), ended), false, "", ""},
		"no such Pod":                           {restart(), nil, false, "spec.podName", "no found Pod named web-0 in the namespace of the request"},
		"a Pod that is done":                    {restart(), running(phase(corev1.PodSucceeded)), false, "spec.podName", "this Pod is succeeded, and its containers are not started again"},
		"a Pod that failed":                     {restart(), running(phase(corev1.PodFailed)), false, "spec.podName", "this Pod is failed, and its containers are not started again"},
		"a Pod that goes":                       {restart(), running(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }), false, "spec.podName", "this Pod is terminating, and its containers are not started again"},
		"a Pod without a node":                  {restart(), running(func(p *corev1.Pod) { p.Spec.NodeName = "" }), false, "spec.podName", "this Pod is not scheduled to a node yet; wait until it runs"},
		"a node that is gone":                   {restart(), running(), true, "spec.podName", "there is no Node n, on which this Pod is"},
		"a container that is not there":         {restart(named("db")), running(), false, "spec.containers[0].name", "there is no such container in the Pod; it has setup, proxy, app, slow, young, younger"},
		"an ephemeral container":                {restart(named("debug")), running(), false, "spec.containers[0].name", "this is an ephemeral container, which is never started again"},
		"a container that never ran":            {restart(named("app", "young")), running(), false, "spec.containers[1].name", "this container has not been started yet; wait until it runs"},
		"a container that nobody speaks of yet": {restart(named("younger")), running(), false, "spec.containers[0].name", "this container has not been started yet; wait until it runs"},
		"an init container":                     {restart(named("setup")), running(), false, "spec.containers[0].name", "this is an init container, and the Pod would go on without what it does; only those with restartPolicy Always can be recreated"},
		"a hook of one's own": {restart(func(r *recreate) {
			r.Spec.Containers[0].PreStop = &v1beta1.RecreatePreStop{Exec: &corev1.ExecAction{Command: []string{"a"}}}
		}), running(), false,
			"spec.containers[0].preStop", "this field is read-only: it is filled in from the Pod, which says something else; leave it out"},
		"ports of one's own": {restart(func(r *recreate) { r.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 81}} }), running(), false,
			"spec.containers[0].ports", "this field is read-only: it is filled in from the Pod, which says something else; leave it out"},
		"another run": {restart(func(r *recreate) {
			r.Spec.Containers[0].StatusContext = &v1beta1.RecreateContainerContext{ContainerID: "containerd://3", RestartCount: 2}
		}), running(), false,
			"spec.containers[0].statusContext", "this field is read-only: it is filled in from the Pod, which says something else; leave it out"},
		"the very run": {restart(func(r *recreate) {
			r.Spec.Containers[0].StatusContext = &v1beta1.RecreateContainerContext{ContainerID: "containerd://3", RestartCount: 3}
		}), running(), false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			if c.noNode {
				node = nil
			}
			errs := valid.ContainerRecreateRequestTarget(c.crr, c.pod, node)
			if c.path == "" {
				require.Empty(t, errs)
				return
			}
			require.Equal(t, []string{c.path}, paths(errs), "%v", errs)
			require.Equal(t, c.message, errs[0].Detail)
		})
	}
}

func TestRecreatedContainer(t *testing.T) {
	pod := running()
	for name, want := range map[string]v1beta1.RecreateContainer{
		"app": {
			Name: "app", PreStop: &v1beta1.RecreatePreStop{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromString("http")}},
			Ports:         []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
			StatusContext: &v1beta1.RecreateContainerContext{ContainerID: "containerd://3", RestartCount: 3},
		},
		"slow": { // no ports, as no hook names one
			Name: "slow", PreStop: &v1beta1.RecreatePreStop{Sleep: &corev1.SleepAction{Seconds: 8}},
			StatusContext: &v1beta1.RecreateContainerContext{ContainerID: "containerd://4"},
		},
		"proxy": {Name: "proxy", StatusContext: &v1beta1.RecreateContainerContext{ContainerID: "containerd://2", RestartCount: 2}},
	} {
		got, ok := valid.RecreatedContainer(pod, name)
		require.True(t, ok, name)
		require.Equal(t, want, got)
	}
	_, ok := valid.RecreatedContainer(pod, "db")
	require.False(t, ok)
	got, _ := valid.RecreatedContainer(pod, "app")
	got.PreStop.HTTPGet.Path, got.Ports[0].Name = "/changed", "changed"
	require.Equal(t, running(), pod, "what is returned shares nothing with the Pod")
}

// filled is the request as CREATE stores it.
func filled() *recreate {
	crr := restart(named("app", "slow"), how(func(s *v1beta1.RecreateStrategy) {
		s.TerminationGracePeriodSeconds, s.FailurePolicy = new(int64(30)), "Fail"
	}))
	for i, c := range crr.Spec.Containers {
		crr.Spec.Containers[i], _ = valid.RecreatedContainer(running(), c.Name)
	}
	crr.Labels = map[string]string{"crr.apps.kruise.io/pod-uid": "u", "crr.apps.kruise.io/node-name": "n", "crr.apps.kruise.io/active": "true"}
	return crr
}

func TestUpdateOfContainerRecreateRequest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*recreate)
		denial string
	}{
		"nothing":                         {func(*recreate) {}, ""},
		"a finalizer":                     {func(r *recreate) { r.Finalizers = []string{"a/b"} }, ""},
		"no longer active":                {func(r *recreate) { delete(r.Labels, "crr.apps.kruise.io/active") }, ""},
		"the manifest again":              {func(r *recreate) { r.Spec = restart(named("app", "slow")).Spec }, ""},
		"by a client that knows no sleep": {func(r *recreate) { r.Spec.Containers[1].PreStop.Sleep = nil }, ""},
		"a deadline":                      {func(r *recreate) { r.Spec.ActiveDeadlineSeconds = new(int64(60)) }, "spec of ContainerRecreateRequest is immutable; create another one"},
		"another container":               {func(r *recreate) { r.Spec = restart(named("app")).Spec }, "spec of ContainerRecreateRequest is immutable; create another one"},
		"another order":                   {func(r *recreate) { r.Spec = restart(named("slow", "app")).Spec }, "spec of ContainerRecreateRequest is immutable; create another one"},
		"another policy":                  {func(r *recreate) { r.Spec.Strategy.FailurePolicy = "Ignore" }, "spec of ContainerRecreateRequest is immutable; create another one"},
		"another run":                     {func(r *recreate) { r.Spec.Containers[0].StatusContext.RestartCount++ }, "spec of ContainerRecreateRequest is immutable; create another one"},
		"another Pod":                     {func(r *recreate) { r.Labels["crr.apps.kruise.io/pod-uid"] = "v" }, "not allowed to update immutable label crr.apps.kruise.io/pod-uid"},
		"no node":                         {func(r *recreate) { delete(r.Labels, "crr.apps.kruise.io/node-name") }, "not allowed to update immutable label crr.apps.kruise.io/node-name"},
	} {
		t.Run(name, func(t *testing.T) {
			crr := filled()
			c.change(crr)
			valid.KeepRecreateFields(filled(), crr)
			err := valid.ContainerRecreateRequestUpdate(filled(), crr)
			if c.denial == "" {
				require.NoError(t, err)
				require.Equal(t, filled().Spec, crr.Spec)
				return
			}
			require.EqualError(t, err, c.denial)
		})
	}
}

func TestWarningsOfContainerRecreateRequest(t *testing.T) {
	gated := func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "KruisePodReady"}}
	}
	for name, c := range map[string]struct {
		change func(*recreate)
		pod    *corev1.Pod
		want   []string
	}{
		"the plain one": {func(*recreate) {}, running(), nil},
		"a Pod whose containers stay dead": {func(*recreate) {}, running(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }),
			[]string{"spec.podName: this Pod has restartPolicy Never: its containers are stopped and not started again"}},
		"a Pod that cannot be drained": {how(func(s *v1beta1.RecreateStrategy) { s.UnreadyGracePeriodSeconds = new(int64(5)) }), running(),
			[]string{"spec.strategy.unreadyGracePeriodSeconds: the time passes without effect, as the Pod has no readiness gate KruisePodReady: it stays in service"}},
		"a deadline that passes before success": {func(r *recreate) {
			r.Spec.Strategy = &v1beta1.RecreateStrategy{UnreadyGracePeriodSeconds: new(int64(5)), MinStartedSeconds: 5}
			r.Spec.ActiveDeadlineSeconds = new(int64(10))
		}, running(gated), []string{"spec.activeDeadlineSeconds: 10 is over before the request can succeed: unreadyGracePeriodSeconds and minStartedSeconds are 10 together"}},
		"a deadline that does not": {func(r *recreate) {
			r.Spec.Strategy = &v1beta1.RecreateStrategy{MinStartedSeconds: 5}
			r.Spec.ActiveDeadlineSeconds = new(int64(10))
		}, running(), nil},
		"less than no time": {how(func(s *v1beta1.RecreateStrategy) { s.MinStartedSeconds = -3 }), running(),
			[]string{"spec.strategy.minStartedSeconds: -3 has the effect of 0"}},
		"a hook that has no time": {how(func(s *v1beta1.RecreateStrategy) { s.TerminationGracePeriodSeconds = new(int64) }), running(),
			[]string{"spec.containers[0].preStop: does not run, as terminationGracePeriodSeconds is 0"}},
		"a sleep that is cut short": {func(r *recreate) {
			named("slow")(r)
			how(func(s *v1beta1.RecreateStrategy) { s.TerminationGracePeriodSeconds = new(int64(3)) })(r)
		}, running(), []string{"spec.containers[0].preStop.sleep: 8 seconds are cut to terminationGracePeriodSeconds (3)"}},
		"a hook that cannot run": {how(func(*v1beta1.RecreateStrategy) {}), running(func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle.PreStop = &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}}
		}), []string{"spec.containers[0].preStop.tcpSocket: is no hook that can run; the container is stopped without it"}},
	} {
		t.Run(name, func(t *testing.T) {
			crr := restart(c.change)
			for i, r := range crr.Spec.Containers {
				crr.Spec.Containers[i], _ = valid.RecreatedContainer(c.pod, r.Name)
			}
			require.Equal(t, c.want, valid.ContainerRecreateRequestWarnings(crr, c.pod))
		})
	}
}

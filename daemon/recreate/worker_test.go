// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a Worker that runs, with synthetic time, on the fake runtime and a server in memory
// whose cache is always up to date.
type bench struct {
	worker *Worker
	server *server
	rt     *fakecri.Runtime
	events *record.FakeRecorder
}

type byName map[string]cri.Runtime

func (b byName) ByName(name string) (cri.Runtime, bool) { rt, ok := b[name]; return rt, ok }

func startBench(t *testing.T, rt cri.Runtime) *bench {
	b := &bench{server: newServer(time.Now), events: record.NewFakeRecorder(50)}
	b.rt, _ = rt.(*fakecri.Runtime)
	registry := prometheus.NewRegistry()
	b.worker = New(Options{
		Store:    agentStore{server: b.server, cache: func() state { return b.server.state }, fail: func() (bool, bool) { return false, false }},
		Runtimes: byName{rt.Name(): rt}, Events: b.events, Metrics: NewMetrics(registry),
	})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	done := make(chan error)
	go func() { done <- b.worker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		time.Sleep(time.Second) // of the bubble: the queue's own goroutines look up now and then
	})
	return b
}

func container(uid, name, id string, attempt uint32) fakecri.Container {
	return fakecri.Container{Status: cri.Status{Started: time.Now(), Container: cri.Container{
		ID: id, Name: name, Attempt: attempt, State: cri.StateRunning, Created: time.Now(),
		Labels: map[string]string{cri.LabelPodUID: uid, cri.LabelContainerName: name},
	}}}
}

func (b *bench) request(change func(*v1beta1.ContainerRecreateRequest)) *v1beta1.ContainerRecreateRequest {
	r := &v1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "r", Labels: map[string]string{v1beta1.RecreatePodUIDLabel: "pod", v1beta1.RecreateActiveLabel: "true"}},
		Spec: v1beta1.ContainerRecreateRequestSpec{PodName: "web", Strategy: &v1beta1.RecreateStrategy{FailurePolicy: "Fail"}, Containers: []v1beta1.RecreateContainer{
			{Name: "app", StatusContext: &v1beta1.RecreateContainerContext{ContainerID: "containerd://a1"}},
		}},
	}
	if change != nil {
		change(r)
	}
	b.server.createRequest(r)
	b.worker.Changed(r)
	return r
}

func (b *bench) state(r *v1beta1.ContainerRecreateRequest) v1beta1.RecreateState {
	return b.server.requests[r.Name].Status.ContainerRecreateStates[0]
}

func TestStopsByTheOptionsOfTheRequest(t *testing.T) {
	cases := map[string]struct {
		grace  *int64
		hook   *v1beta1.RecreatePreStop
		calls  []string // after the looks
		took   time.Duration
		events []string
	}{
		"without anything the process has 30 s": {calls: []string{"StopContainer a1"}, took: 30 * time.Second, events: []string{"Normal Killing Stopping container app by ContainerRecreateRequest r"}},
		"without grace it dies at once":         {grace: new(int64(0)), hook: &v1beta1.RecreatePreStop{Exec: &corev1.ExecAction{Command: []string{"bye"}}}, calls: []string{"StopContainer a1"}, events: []string{"Normal Killing Stopping container app by ContainerRecreateRequest r"}},
		"a hook uses the grace period up": {
			grace: new(int64(10)), hook: &v1beta1.RecreatePreStop{Exec: &corev1.ExecAction{Command: []string{"bye"}}},
			calls: []string{"ExecSync a1 bye", "StopContainer a1"}, took: 10 * time.Second,
			events: []string{"Normal Killing Stopping container app by ContainerRecreateRequest r"},
		},
		"a hook that sleeps": {
			grace: new(int64(10)), hook: &v1beta1.RecreatePreStop{Sleep: &corev1.SleepAction{Seconds: 3}},
			calls: []string{"StopContainer a1"}, took: 10 * time.Second, events: []string{"Normal Killing Stopping container app by ContainerRecreateRequest r"},
		},
		"a hook that fails": {
			grace: new(int64(2)), hook: &v1beta1.RecreatePreStop{Exec: &corev1.ExecAction{Command: []string{"false"}}},
			calls: []string{"ExecSync a1 false", "StopContainer a1"}, took: 2 * time.Second,
			events: []string{"Normal Killing Stopping container app by ContainerRecreateRequest r", "Warning FailedPreStopHook Container app: command exited with code 1"},
		},
		"a hook of no kind that can be run": {
			grace: new(int64(2)), hook: &v1beta1.RecreatePreStop{TCPSocket: &corev1.TCPSocketAction{}},
			calls: []string{"StopContainer a1"}, took: 2 * time.Second,
			events: []string{"Normal Killing Stopping container app by ContainerRecreateRequest r", "Warning FailedPreStopHook Container app: the handler is neither exec nor httpGet nor sleep"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBench(t, fakecri.New("containerd"))
				c := container("pod", "app", "a1", 0)
				c.StopDelay = time.Hour
				c.Exec = map[string]fakecri.ExecScript{"bye": {Delay: 4 * time.Second}, "false": {Code: 1}}
				b.rt.AddContainer(c)
				started := time.Now()
				r := b.request(func(r *v1beta1.ContainerRecreateRequest) {
					r.Spec.Strategy.TerminationGracePeriodSeconds, r.Spec.Containers[0].PreStop = tc.grace, tc.hook
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				after, _ := b.rt.Known("a1")
				require.Equal(t, tc.took, after.Finished.Sub(started))
				require.Equal(t, v1beta1.RecreateState{Name: "app", Phase: "Recreating", IsKilled: true}, b.state(r))
				calls := slices.DeleteFunc(b.rt.Calls(), func(c string) bool { return c == "ListContainers pod" || c == "ContainerStatus a1" })
				require.Equal(t, tc.calls, calls)
				close(b.events.Events)
				var events []string
				for e := range b.events.Events {
					events = append(events, e)
				}
				require.Equal(t, tc.events, events)
			})
		})
	}
}

// odd panics when it is asked about one Pod.
type odd struct {
	*fakecri.Runtime
	left int
}

func (o *odd) Containers(ctx context.Context, f cri.Filter) ([]cri.Container, error) {
	if f.PodUID == "pod" && o.left > 0 {
		o.left--
		panic("nil status")
	}
	return o.Runtime.Containers(ctx, f)
}

func TestAPanicIsAnErrorOfOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &odd{Runtime: fakecri.New("containerd"), left: 3}
		b := startBench(t, rt)
		rt.AddContainer(container("pod", "app", "a1", 0))
		r := b.request(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, b.state(r).IsKilled)
	})
}

func TestWhatTheRuntimeMayAnswer(t *testing.T) {
	killed := v1beta1.RecreateState{Name: "app", Phase: "Recreating", IsKilled: true}
	cases := map[string]struct {
		containers func() []fakecri.Container
		fault      *fakecri.Fault
		want       v1beta1.RecreateState
		stopped    []string
	}{
		"the newest of a name is the one":         {containers: twice, want: killed},
		"a container that vanishes is not listed": {containers: vanishing, want: killed, stopped: []string{"StopContainer a1"}},
		"a static Pod has the UID of its source":  {containers: static, want: killed, stopped: []string{"StopContainer a1"}},
		"a runtime that is away for a moment":     {containers: one, fault: &fakecri.Fault{Call: "ListContainers", Times: 3, Err: errors.New("away")}, want: killed, stopped: []string{"StopContainer a1"}},
		"a container that is gone before it is stopped": {
			containers: one, fault: &fakecri.Fault{Call: "StopContainer", Times: 1, Err: cri.ErrNotFound}, want: killed, stopped: []string{"StopContainer a1"},
		},
		"a container that cannot be stopped": {
			containers: one, fault: &fakecri.Fault{Call: "StopContainer", Times: 1, Err: errors.New("no a1 today")},
			want: v1beta1.RecreateState{Name: "app", Phase: "Failed", Message: "kill container error: no a1 today"}, stopped: []string{"StopContainer a1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBench(t, fakecri.New("containerd"))
				for _, c := range tc.containers() {
					b.rt.AddContainer(c)
				}
				if tc.fault != nil {
					b.rt.Inject(*tc.fault)
				}
				r := b.request(nil)
				time.Sleep(9 * time.Second)
				synctest.Wait()
				require.Equal(t, tc.want, b.state(r))
				var stops []string
				for _, call := range b.rt.Calls() {
					if call != "ListContainers pod" && call[:4] == "Stop" {
						stops = append(stops, call)
					}
				}
				require.Equal(t, tc.stopped, stops)
			})
		})
	}
}

func one() []fakecri.Container { return []fakecri.Container{container("pod", "app", "a1", 0)} }

// twice is a container that has restarted since the request was made.
func twice() []fakecri.Container {
	old, now := container("pod", "app", "a1", 0), container("pod", "app", "a2", 1)
	old.State, old.Created = cri.StateExited, old.Created.Add(-time.Hour)
	return []fakecri.Container{old, now}
}

func vanishing() []fakecri.Container {
	gone := container("pod", "app", "a0", 1)
	gone.Vanished, gone.Created = true, gone.Created.Add(time.Second)
	return []fakecri.Container{container("pod", "app", "a1", 0), gone}
}

func static() []fakecri.Container {
	return []fakecri.Container{container("hash-of-the-file", "app", "a1", 0), container("hash-of-the-file", "other", "o1", 0)}
}

func TestReadyAndMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fakecri.New("containerd"))
		synced := false
		b.worker.o.Synced = func() bool { return synced }
		require.Equal(t, "crrInformerSynced", b.worker.Name())
		require.EqualError(t, b.worker.Ready(), "not synced")
		synced = true
		require.NoError(t, b.worker.Ready())
		b.rt.AddContainer(container("pod", "app", "a1", 0))
		b.server.storePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "pod"}, Spec: corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{{Name: "app"}}}})
		b.request(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, testutil.CollectAndCount(b.worker.o.Metrics.requests))
		require.Equal(t, 1, testutil.CollectAndCount(b.worker.o.Metrics.stops))
	})
}

func TestOrder(t *testing.T) {
	start := time.Unix(1000, 0)
	request := func(name string, phase v1beta1.RecreatePhase, age int) *v1beta1.ContainerRecreateRequest {
		return &v1beta1.ContainerRecreateRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(-time.Duration(age) * time.Second))},
			Status:     v1beta1.ContainerRecreateRequestStatus{Phase: phase},
		}
	}
	deleted := request("deleted", "Recreating", 9)
	deleted.DeletionTimestamp = &metav1.Time{Time: start}
	cases := map[string]struct {
		requests   []*v1beta1.ContainerRecreateRequest
		next       string
		unanswered []string
	}{
		"nobody waits":                          {},
		"those that have ended hold nobody up":  {requests: []*v1beta1.ContainerRecreateRequest{request("old", "Completed", 9), deleted, request("new", "", 1)}, next: "new"},
		"what was begun goes on":                {requests: []*v1beta1.ContainerRecreateRequest{request("a", "", 9), request("b", "Pending", 5), request("c", "Recreating", 1)}, next: "c", unanswered: []string{"a"}},
		"those that were told to wait go first": {requests: []*v1beta1.ContainerRecreateRequest{request("a", "", 9), request("b", "Pending", 5), request("c", "", 7)}, next: "b", unanswered: []string{"a", "c"}},
		"then the oldest":                       {requests: []*v1beta1.ContainerRecreateRequest{request("a", "", 1), request("b", "", 3), request("c", "", 2)}, next: "b", unanswered: []string{"c", "a"}},
		"then by name":                          {requests: []*v1beta1.ContainerRecreateRequest{request("b", "", 1), request("a", "", 1)}, next: "a", unanswered: []string{"b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			line := Order(tc.requests)
			if tc.next == "" {
				require.Equal(t, Line{}, line)
				return
			}
			require.Equal(t, tc.next, line.Next.Name)
			var unanswered []string
			for _, r := range line.Unanswered {
				unanswered = append(unanswered, r.Name)
			}
			require.Equal(t, tc.unanswered, unanswered)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/controllers/containerrecreaterequest"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

// box is one container of the runtime.
type box struct {
	cri.Status
	podUID types.UID
	ready  bool
	stops  int // by the agent, that succeeded
}

// flight is one call of Worker.serve, which runs only while the world waits for it: it is
// either in a stop or has ended.
type flight struct {
	key    Key
	target string // ID that is being stopped; empty when not in a stop
	result chan error
	paused chan struct{}
	ended  bool
	// panicked is what the call panicked with: a broken promise.
	panicked any
	again    time.Duration
	err      error
	request  string // that the stop is for
}

// world is an API server, a manager, a node with runtime, kubelet and agent, and a clock.
// Nothing in it happens by itself.
type world struct {
	clock  *clocktesting.FakePassiveClock
	server *server
	boxes  []*box
	count  int
	// fail is asked before each write and each call of the runtime.
	fail func() (before, after bool)
	// check is called with the request when the agent is about to stop a container.
	check func(f *flight, b *box)

	manager     *containerrecreaterequest.Reconciler
	managerSees state
	managerAt   int // position of the requests in the server's history
	podsAt      int // and of the Pods, whose watch is another one
	managerDue  map[string]time.Time

	agent     *Worker
	agentSees state
	agentAt   int
	agentDue  map[Key]time.Time
	end       context.CancelFunc
	life      context.Context //nolint:containedctx // of the agent, which may end in the middle of a call
	flights   map[Key]*flight
	current   *flight
	stopping  string // request that the last event spoke of
	log       []string
}

func newWorld() *world {
	w := &world{
		clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)), fail: func() (bool, bool) { return false, false },
		managerDue: map[string]time.Time{}, agentDue: map[Key]time.Time{}, flights: map[Key]*flight{},
	}
	w.server = newServer(w.clock.Now)
	w.managerSees, w.agentSees = w.server.history[0], w.server.history[0]
	w.startManager()
	w.startAgent()
	return w
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%4.0fs ", w.clock.Now().Sub(time.Unix(1_000_000, 0)).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) tick(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// startManager begins a life of the manager, which sees everything as it is at first.
func (w *world) startManager() {
	c := managerClient{server: w.server, cache: func() state { return w.managerSees }, fail: func() (bool, bool) { return w.fail() }}
	live := c
	live.live = true
	w.manager = containerrecreaterequest.New(c, live, w.clock)
	w.managerDue = map[string]time.Time{}
	w.managerAt = len(w.server.history) - 1
	w.managerSees, w.podsAt = w.server.history[w.managerAt], w.managerAt
	for name := range w.managerSees.requests {
		w.managerDue[name] = w.clock.Now()
	}
}

// startAgent begins a life of the agent.
func (w *world) startAgent() {
	w.life, w.end = context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	w.agent = New(Options{
		Store:    agentStore{server: w.server, cache: func() state { return w.agentSees }, fail: func() (bool, bool) { return w.fail() }},
		Runtimes: runtimes{w}, Events: recorder{w: w},
	})
	w.agent.now = w.clock.Now
	w.agentDue = map[Key]time.Time{}
	w.agentSees, w.agentAt = w.server.history[len(w.server.history)-1], len(w.server.history)-1
	for _, r := range w.agentSees.requests {
		if active(r) {
			w.agentDue[KeyOf(r)] = w.clock.Now()
		}
	}
}

// killAgent ends the life of the agent, also in the middle of stops; whether these have an
// effect is up to the caller.
func (w *world) killAgent() {
	w.end()
	for _, key := range slices.SortedFunc(maps.Keys(w.flights), compareKeys) {
		w.resume(w.flights[key], context.Canceled)
	}
	w.agent.queue.ShutDown()
}

func compareKeys(a, b Key) int {
	return strings.Compare(a.Pod+string(a.UID), b.Pod+string(b.UID))
}

// managerLearns moves the manager's cache of requests on, and wakes it for what has changed.
func (w *world) managerLearns(at int) {
	before, after := w.managerSees.requests, w.server.history[at].requests
	w.managerSees.requests, w.managerAt = after, at
	for name, r := range after {
		if before[name] != r {
			w.managerDue[name] = w.clock.Now()
		}
	}
}

// managerLearnsPods does the same for Pods.
func (w *world) managerLearnsPods(at int) {
	before, after := w.managerSees.pods, w.server.history[at].pods
	w.managerSees.pods, w.podsAt = after, at
	for _, r := range w.managerSees.requests {
		if before[r.Spec.PodName] != after[r.Spec.PodName] && !recreate.Finished(r) {
			w.managerDue[r.Name] = w.clock.Now()
		}
	}
}

func (w *world) agentLearns(at int) {
	before, after := w.agentSees, w.server.history[at]
	w.agentSees, w.agentAt = after, at
	for name, r := range after.requests {
		if before.requests[name] != r && active(r) {
			w.agent.Changed(r)
			w.agentDue[KeyOf(r)] = w.clock.Now()
		}
	}
	for name, r := range before.requests {
		if now := after.requests[name]; active(r) && (now == nil || !active(now)) {
			w.agent.Deleted(r)
			w.agentDue[KeyOf(r)] = w.clock.Now()
		}
	}
}

// manage lets the manager look at one request.
func (w *world) manage(name string) {
	delete(w.managerDue, name)
	result, err := w.manager.Reconcile(logr.NewContext(context.Background(), logr.Discard()), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	w.note("manager: %s again %v err %v", name, result.RequeueAfter, err)
	if err != nil {
		w.managerDue[name] = w.clock.Now().Add(time.Second)
	} else if result.RequeueAfter > 0 {
		w.managerDue[name] = w.clock.Now().Add(result.RequeueAfter)
	}
}

// serve lets the agent look at one Pod, until it has nothing to do or is in a stop.
func (w *world) serve(key Key) {
	if w.flights[key] != nil {
		return
	}
	delete(w.agentDue, key)
	f := &flight{key: key, result: make(chan error), paused: make(chan struct{})}
	w.flights[key] = f
	w.current = f
	life, agent := w.life, w.agent
	go func() {
		defer func() {
			f.panicked, f.ended = recover(), true
			f.paused <- struct{}{}
		}()
		f.again, f.err = agent.serve(life, key)
	}()
	w.wait(f)
}

// resume ends the stop that f is in.
func (w *world) resume(f *flight, err error) {
	w.current = f
	f.target = ""
	f.result <- err
	w.wait(f)
}

func (w *world) wait(f *flight) {
	<-f.paused
	if !f.ended {
		w.note("agent: %s stops %s for %s", f.key.Pod, f.target, f.request)
		return
	}
	delete(w.flights, f.key)
	if f.panicked != nil {
		panic(f.panicked)
	}
	w.note("agent: %s again %v err %v", f.key.Pod, f.again, f.err)
	if f.err != nil {
		w.agentDue[f.key] = w.clock.Now().Add(time.Second)
	} else if f.again > 0 {
		if at, due := w.agentDue[f.key]; !due || w.clock.Now().Add(f.again).Before(at) {
			w.agentDue[f.key] = w.clock.Now().Add(f.again)
		}
	}
}

// runtimes has the one runtime of the node.
type runtimes struct{ w *world }

func (r runtimes) ByName(name string) (cri.Runtime, bool) {
	return worldRuntime{w: r.w}, name == "containerd"
}

type worldRuntime struct {
	cri.Runtime
	w *world
}

var errRuntime = errors.New("runtime is busy")

func (r worldRuntime) Containers(_ context.Context, filter cri.Filter) ([]cri.Container, error) {
	if before, _ := r.w.fail(); before {
		return nil, errRuntime
	}
	var list []cri.Container
	for _, b := range slices.Backward(r.w.boxes) { // newest first
		if string(b.podUID) == filter.PodUID {
			list = append(list, b.Container)
		}
	}
	return list, nil
}

func (r worldRuntime) Container(_ context.Context, id string) (cri.Status, error) {
	if b := r.w.box(id); b != nil {
		return b.Status, nil
	}
	return cri.Status{}, cri.ErrNotFound
}

func (r worldRuntime) Stop(ctx context.Context, id string, _ time.Duration) error {
	f := r.w.current
	f.target, f.request = id, r.w.stopping
	if r.w.check != nil {
		r.w.check(f, r.w.box(id))
	}
	f.paused <- struct{}{}
	if err := <-f.result; err != nil {
		return err
	}
	if b := r.w.box(id); b != nil {
		b.stops++
	}
	return ctx.Err()
}

// recorder notes for which request a container is about to be stopped.
type recorder struct {
	record.EventRecorder
	w *world
}

func (r recorder) Event(_ runtime.Object, _, reason, message string) {
	if _, request, ok := strings.Cut(message, " by ContainerRecreateRequest "); ok && reason == "Killing" {
		r.w.stopping = request
	}
}

func (w *world) box(id string) *box {
	for _, b := range w.boxes {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// newest is the newest container of a name, or nil.
func (w *world) newest(pod types.UID, name string) *box {
	for _, b := range slices.Backward(w.boxes) {
		if b.podUID == pod && b.Name == name {
			return b
		}
	}
	return nil
}

func (w *world) exit(b *box, code int32) {
	if b != nil && b.State == cri.StateRunning {
		b.State, b.ExitCode, b.ready = cri.StateExited, code, false
		w.note("node: %s exits with %d", b.ID, code)
	}
}

// start makes the kubelet start a container that does not run, if the policies say so.
func (w *world) start(pod *corev1.Pod, name string) bool {
	last := w.newest(pod.UID, name)
	attempt := uint32(0)
	if last != nil {
		if _, restarts := recreate.Restarts(pod, name, last.ExitCode); !restarts || last.State != cri.StateExited {
			return false
		}
		attempt = last.Attempt + 1
	}
	w.count++
	b := &box{podUID: pod.UID, Status: cri.Status{Started: w.clock.Now(), Container: cri.Container{
		ID: fmt.Sprintf("%s-%d", name, w.count), Name: name, Attempt: attempt, State: cri.StateRunning, Created: w.clock.Now(),
		Labels:      map[string]string{cri.LabelContainerName: name, cri.LabelPodUID: string(pod.UID)},
		Annotations: map[string]string{cri.AnnotationRestartCount: strconv.Itoa(int(attempt))},
	}}}
	w.boxes = append(w.boxes, b)
	w.note("kubelet: starts %s", b.ID)
	return true
}

// mirror makes the kubelet write the status of a Pod; it tells whether it changed.
func (w *world) mirror(name string) bool {
	pod, ok := w.server.pods[name]
	if !ok {
		return false
	}
	pod = pod.DeepCopy()
	var statuses []corev1.ContainerStatus
	for _, c := range pod.Spec.Containers {
		b := w.newest(pod.UID, c.Name)
		if b == nil {
			continue
		}
		s := corev1.ContainerStatus{Name: c.Name, ContainerID: "containerd://" + b.ID, Ready: b.ready, RestartCount: int32(b.Attempt)}
		if b.State == cri.StateRunning {
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(b.Started.Truncate(time.Second))}
		} else {
			s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: b.ExitCode}
		}
		statuses = append(statuses, s)
	}
	before := pod.Status.DeepCopy()
	pod.Status.ContainerStatuses = statuses
	if fmt.Sprint(before.ContainerStatuses) == fmt.Sprint(statuses) {
		return false
	}
	w.server.storePod(pod)
	return true
}

// newPod makes a Pod whose containers run and are ready.
func (w *world) newPod(name string, policy corev1.RestartPolicy, gate bool, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("pod-" + w.server.next())}}
	pod.Spec.RestartPolicy, pod.Status.Phase = policy, corev1.PodRunning
	if gate {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1beta1.KruisePodReady}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: v1beta1.KruisePodReady, Status: corev1.ConditionTrue}}
	}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c})
	}
	w.server.storePod(pod)
	for _, c := range containers {
		w.start(pod, c)
		w.newest(pod.UID, c).ready = true
	}
	w.mirror(name)
	return w.server.pods[name]
}

// admit does what the webhook does, and creates the request.
func (w *world) admit(pod *corev1.Pod, spec v1beta1.ContainerRecreateRequestSpec, containers ...string) *v1beta1.ContainerRecreateRequest {
	w.count++
	r := &v1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("crr-%d", w.count),
		Labels: map[string]string{v1beta1.RecreatePodUIDLabel: string(pod.UID), v1beta1.RecreateNodeNameLabel: "node", v1beta1.RecreateActiveLabel: "true"},
	}, Spec: spec}
	v1beta1.SetDefaultsContainerRecreateRequest(r)
	r.Spec.PodName = pod.Name
	for _, name := range containers {
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == name {
				r.Spec.Containers = append(r.Spec.Containers, v1beta1.RecreateContainer{Name: name, StatusContext: &v1beta1.RecreateContainerContext{ContainerID: s.ContainerID, RestartCount: s.RestartCount}})
			}
		}
	}
	w.server.createRequest(r)
	w.note("user: creates %s for %v of %s: %+v", r.Name, containers, pod.Name, *r.Spec.Strategy)
	return r
}

// quiet lets everything work as it should, as long as there is something to do within the
// time. It returns false when there still was at the end.
func (w *world) quiet(limit time.Duration) bool {
	w.fail = func() (bool, bool) { return false, false }
	until := w.clock.Now().Add(limit)
	for range 10_000 {
		if w.once() {
			continue
		}
		next, ok := w.nextDue()
		if !ok {
			return true
		}
		if next.After(until) {
			return false
		}
		w.clock.SetTime(next)
	}
	return false
}

// once does one round of everything; it tells whether there was anything to do.
func (w *world) once() bool {
	busy := false
	if last := len(w.server.history) - 1; w.managerAt < last || w.podsAt < last || w.agentAt < last {
		w.managerLearns(last)
		w.managerLearnsPods(last)
		w.agentLearns(last)
		busy = true
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.flights), compareKeys) {
		f := w.flights[key]
		w.exit(w.box(f.target), 0)
		w.resume(f, nil)
		busy = true
	}
	for _, name := range slices.Sorted(maps.Keys(w.server.pods)) {
		pod := w.server.pods[name]
		for _, c := range pod.Spec.Containers {
			busy = w.start(pod, c.Name) || busy
			if b := w.newest(pod.UID, c.Name); b != nil && b.State == cri.StateRunning && !b.ready {
				b.ready, busy = true, true
			}
		}
		busy = w.mirror(name) || busy
	}
	now := w.clock.Now()
	for _, name := range slices.Sorted(maps.Keys(w.managerDue)) {
		if !w.managerDue[name].After(now) {
			w.manage(name)
			busy = true
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.agentDue), compareKeys) {
		if !w.agentDue[key].After(now) {
			w.serve(key)
			busy = true
		}
	}
	return busy
}

func (w *world) nextDue() (time.Time, bool) {
	due := slices.Concat(slices.Collect(maps.Values(w.managerDue)), slices.Collect(maps.Values(w.agentDue)))
	if len(due) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(due, time.Time.Compare), true
}

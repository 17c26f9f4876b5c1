// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

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

// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/cri"
)

// worker runs one probe. Its task and its life, which starts anew when the task becomes
// another probe, belong to Prober.mu; all else to its goroutine.
type worker struct {
	prober  *Prober
	cancel  context.CancelFunc
	changed chan struct{}
	task    Task
	life    int

	tracker Tracker
	lived   int // the life that tracker is about
	// started is when the container of this ID started, which never changes.
	startedID string
	started   time.Time
	panicked  bool
	// missed is why the last tick had no result: the next thousand have none for the same reason.
	missed string
}

// errNoContainer says that the Pod has no container of the name, yet or any more.
var errNoContainer = errors.New("no such container")

// run probes each period until ctx ends.
func (w *worker) run(ctx context.Context) {
	task, _ := w.prober.taskOf(w)
	// After a restart of the agent all probes of the node start in the same moment.
	if since := time.Since(w.prober.started); since < task.period() && !w.wait(ctx, time.Now().Add(rand.N(task.period())), nil) {
		return
	}
	for {
		last := time.Now()
		task, life := w.prober.taskOf(w)
		if life != w.lived {
			w.tracker, w.lived = Tracker{}, life
		}
		w.safely(ctx, task, life)
		next := func() (time.Time, bool) {
			task, life := w.prober.taskOf(w)
			return last.Add(task.period()), life != w.lived
		}
		at, _ := next()
		if !w.wait(ctx, at, next) {
			return
		}
	}
}

// wait returns true at the given time, false when ctx ended. When the task changes, next, if
// any, tells the new time, and whether not to wait at all.
func (w *worker) wait(ctx context.Context, at time.Time, next func() (time.Time, bool)) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-w.changed:
			if next == nil {
				continue
			}
			at, now := next()
			if now {
				return true
			}
			timer.Reset(time.Until(at))
		}
	}
}

// safely is tick. A panic over an odd container must not take the whole agent along.
func (w *worker) safely(ctx context.Context, task Task, life int) {
	defer func() {
		if p := recover(); p != nil {
			w.prober.o.Metrics.missed()
			if w.panicked { // it will again, each second
				return
			}
			w.panicked = true
			klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "Probing", "pod", klog.KRef(task.Namespace, task.Pod),
				"probe", task.Key.Name, "stack", string(debug.Stack()))
		}
	}()
	err := w.tick(ctx, task, life)
	if err == nil {
		w.missed = ""
		return
	}
	if ctx.Err() != nil {
		return
	}
	w.prober.o.Metrics.missed()
	if reason := err.Error(); reason != w.missed {
		w.missed = reason
		klog.FromContext(ctx).V(2).Info("No result of a probe", "pod", klog.KRef(task.Namespace, task.Pod), "probe", task.Key.Name, "reason", reason)
	}
}

// tick probes once. An error is no result: what was last published stays.
func (w *worker) tick(ctx context.Context, task Task, life int) error {
	rt, sight, err := w.sight(ctx, task)
	if err != nil {
		return err
	}
	seed := w.tracker.Seed
	known, probe := w.tracker.Look(task, sight, time.Now())
	switch {
	case known != nil:
		w.prober.publish(w, life, *known)
	case seed.State != "":
		w.prober.adopt(w, life, seed)
	}
	if !probe {
		return nil
	}
	began := time.Now()
	result, err := w.probe(ctx, task, rt, sight.ID)
	if err != nil || ctx.Err() != nil {
		return err
	}
	w.prober.o.Metrics.probed(kindOf(task), result.State, time.Since(began))
	if r := w.tracker.Count(task, result); r != nil {
		w.prober.publish(w, life, *r)
	}
	return nil
}

// sight looks for the newest container of the task's name.
func (w *worker) sight(ctx context.Context, task Task) (cri.Runtime, Sight, error) {
	uid := w.prober.o.RuntimeUID(ctx, task)
	var errs []error
	for _, rt := range w.prober.o.Runtimes {
		// Probes of one Pod that come at the same time share the answer.
		answer, err, _ := w.prober.lists.Do(rt.Name()+" "+uid, func() (any, error) {
			return rt.Containers(ctx, cri.Filter{PodUID: uid})
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, c := range answer.([]cri.Container) {
			if c.Name == task.Container { // the first is the newest
				sight, err := w.complete(ctx, rt, c)
				return rt, sight, err
			}
		}
	}
	return nil, Sight{}, errors.Join(append(errs, errNoContainer)...)
}

// complete adds what lists do not tell.
func (w *worker) complete(ctx context.Context, rt cri.Runtime, c cri.Container) (Sight, error) {
	if c.State != cri.StateRunning || c.ID == w.startedID {
		return Sight{ID: c.ID, Running: c.State == cri.StateRunning, Started: w.started}, nil
	}
	status, err := rt.Container(ctx, c.ID)
	if err != nil {
		return Sight{}, err
	}
	if running := status.State == cri.StateRunning; !running {
		return Sight{ID: c.ID}, nil
	}
	w.startedID, w.started = c.ID, status.Started
	return Sight{ID: c.ID, Running: true, Started: status.Started}, nil
}

// probe runs the probe itself.
func (w *worker) probe(ctx context.Context, task Task, rt cri.Runtime, id string) (Result, error) {
	p := w.prober
	handler := task.Probe.ProbeHandler
	switch {
	case handler.Exec != nil:
		if err := p.slots.Acquire(ctx, 1); err != nil {
			return Result{}, err
		}
		defer p.slots.Release(1)
		stdout, err := rt.Exec(ctx, id, handler.Exec.Command, task.timeout())
		return command(stdout, err, task.timeout())
	case handler.HTTPGet == nil && handler.TCPSocket == nil:
		return Result{}, errors.New("the probe has no handler that is known")
	case task.IP == "":
		return Result{}, errors.New("the Pod has no IP yet")
	}
	ctx, cancel := context.WithTimeout(ctx, task.timeout())
	defer cancel()
	if handler.HTTPGet != nil {
		return p.o.Network.HTTP(ctx, task.IP, handler.HTTPGet), nil
	}
	return p.o.Network.TCP(ctx, task.IP, handler.TCPSocket.Port.IntValue()), nil
}

// command turns the end of a command into a result. What the runtime could not do says
// nothing about the container; that the container has no such program does.
func command(stdout []byte, err error, timeout time.Duration) (Result, error) {
	var exit *cri.ExitError
	switch {
	case err == nil:
		return Result{State: v1alpha1.ProbeSucceeded, Message: string(stdout)}, nil
	case errors.As(err, &exit):
		return failed("%s", exit.Stderr), nil
	case errors.Is(err, cri.ErrTimedOut):
		return failed("%v after %s", cri.ErrTimedOut, timeout), nil
	}
	if reason, ok := noProgram(err); ok {
		return failed("%s", reason), nil
	}
	return Result{}, err
}

// startErrors are the words of runc and crun for a program that a container does not have, or
// cannot run. CRI has no code for it: it is an error of the call and not an exit code.
var startErrors = []string{"unable to start container process: exec: ", "executable file ", "exec format error"}

// noProgram says whether err is that the command could not be started, and in which words.
func noProgram(err error) (string, bool) {
	if errors.Is(err, cri.ErrUnavailable) {
		return "", false
	}
	text := err.Error()
	for _, words := range startErrors {
		if i := strings.Index(text, words); i >= 0 {
			return strings.TrimPrefix(text[i:], "unable to start container process: "), true
		}
	}
	return "", false
}

// kindOf is the label of metrics.
func kindOf(task Task) string {
	switch {
	case task.Probe.Exec != nil:
		return "exec"
	case task.Probe.HTTPGet != nil:
		return "http"
	}
	return "tcp"
}

// SPDX-License-Identifier: Apache-2.0

// Package probe runs the probes that the NodePodProbe of this node lists, each in a worker of
// its own, and writes their results into its status. What a probe's history says, and what
// the status is to be, is decided purely; the manager takes results to the Pods. Rules:
// podprobe.md 6.
package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/cri"
)

// Event reasons on Pods. Both are of type Normal: a probe decides nothing about a Pod.
const (
	EventSucceeded = "KruiseProbeSucceeded"
	EventFailed    = "KruiseProbeFailed" // also when nothing is known
)

const (
	// spacing is the shortest time between two looks; results that come meanwhile share one
	// write. A lone result is written at once.
	spacing              = 500 * time.Millisecond
	firstRetry, maxRetry = 500 * time.Millisecond, 10 * time.Second
	// cacheLag bounds how long our own last write is waited for.
	cacheLag = 30 * time.Second
	// execs bounds concurrent commands on the node, and with it the load that thousands of
	// probes put on the runtime. The wait for a turn is not part of a probe's timeout.
	execs = 32
	// messageEvents is how often an event tells of a new message of an unchanged state.
	messageEvents = time.Minute
)

// Store is where the NodePodProbe is.
type Store interface {
	// NodePodProbe returns this node's NodePodProbe from a cache, read-only, or a NotFound error.
	NodePodProbe(ctx context.Context) (*v1alpha1.NodePodProbe, error)
	// WriteProbeStatus replaces the status of the version that npp carries and returns the
	// new version.
	WriteProbeStatus(ctx context.Context, npp *v1alpha1.NodePodProbe) (*v1alpha1.NodePodProbe, error)
}

// Network probes over the network, from the node. Both take no longer than ctx allows, and
// every answer, an error included, is a result.
type Network interface {
	HTTP(ctx context.Context, ip string, action *corev1.HTTPGetAction) Result
	TCP(ctx context.Context, ip string, port int) Result
}

// Options are what the agent's main decides.
type Options struct {
	Store Store
	// Runtimes are those of the node, best first. Each may run any of its Pods.
	Runtimes []cri.Runtime
	Events   record.EventRecorder
	// Synced reports whether the cache behind Store has been filled.
	Synced func() bool
	// RuntimeUID is the UID by which the runtimes know a Pod, for Pods that have another in
	// the API; nil: they are the same.
	RuntimeUID func(ctx context.Context, task Task) string
	// Network is the real one when nil.
	Network Network
	// Metrics may be nil.
	Metrics *Metrics
}

// Prober is the worker that probes. Create it with New.
type Prober struct {
	o     Options
	slots *semaphore.Weighted
	lists singleflight.Group // of containers, by Pod
	wake  chan struct{}
	group sync.WaitGroup

	mu      sync.Mutex
	workers map[Key]*worker
	stored  map[Key]Stored // only of workers

	started time.Time // of Run, before there are workers

	// Only Run's goroutine uses what follows.
	written   string // resourceVersion of the last own write
	writtenAt time.Time
	told      map[Key]time.Time // when an event told of a probe
}

// New returns a Prober that does nothing before Run.
func New(o Options) *Prober {
	if o.Network == nil {
		o.Network = newNetwork()
	}
	if o.RuntimeUID == nil {
		o.RuntimeUID = func(_ context.Context, task Task) string { return string(task.Key.UID) }
	}
	return &Prober{
		o: o, slots: semaphore.NewWeighted(execs), wake: make(chan struct{}, 1),
		workers: map[Key]*worker{}, stored: map[Key]Stored{}, told: map[Key]time.Time{},
	}
}

// Name identifies the worker in logs and health checks.
func (p *Prober) Name() string { return "nodePodProbeInformerSynced" }

// Ready returns an error until the NodePodProbe can be read.
func (p *Prober) Ready() error {
	if p.o.Synced != nil && !p.o.Synced() {
		return errors.New("not synced")
	}
	return nil
}

// Wake makes Run look at the NodePodProbe soon. It never blocks.
func (p *Prober) Wake() {
	select {
	case p.wake <- struct{}{}:
	default: // a look is due already
	}
}

// Run probes until ctx ends; then it waits for the probes under way.
func (p *Prober) Run(ctx context.Context) error {
	defer p.group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.started = time.Now()
	retry := firstRetry
	p.Wake()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
		wait := spacing
		err := p.look(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Retrying to report probes", "in", retry, "reason", err.Error())
			wait, retry = retry, min(2*retry, maxRetry)
			p.Wake()
		} else {
			retry = firstRetry
		}
		if !pause(ctx, wait) {
			return nil
		}
	}
}

// pause returns false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// look starts and stops workers, and writes the status if it differs.
func (p *Prober) look(ctx context.Context) error {
	npp, err := p.o.Store.NodePodProbe(ctx)
	if apierrors.IsNotFound(err) {
		p.assign(ctx, &v1alpha1.NodePodProbe{})
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the NodePodProbe: %w", err)
	}
	p.assign(ctx, npp)
	if p.behind(npp) {
		p.Wake() // and again, until the cache shows it
		return nil
	}
	now := time.Now()
	p.mu.Lock()
	stored := maps.Clone(p.stored)
	p.mu.Unlock()
	status, changes := Merge(npp, stored, now)
	if apiequality.Semantic.DeepEqual(npp.Status, status) {
		return nil
	}
	// A copy of the top alone: what is below is read-only, and only the status is replaced.
	changed := &v1alpha1.NodePodProbe{TypeMeta: npp.TypeMeta, ObjectMeta: *npp.ObjectMeta.DeepCopy(), Spec: npp.Spec, Status: status}
	changed, err = p.o.Store.WriteProbeStatus(ctx, changed)
	if apierrors.IsNotFound(err) {
		return nil // its event comes
	}
	if err != nil {
		return fmt.Errorf("writing the status of the NodePodProbe: %w", err)
	}
	p.written, p.writtenAt = changed.ResourceVersion, now
	p.o.Metrics.wrote()
	for _, c := range changes {
		p.tell(c, now)
	}
	return nil
}

// behind reports whether the cache does not show our last write yet.
func (p *Prober) behind(npp *v1alpha1.NodePodProbe) bool {
	if p.written == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(npp.ResourceVersion, p.written)
	if err != nil || order >= 0 || time.Since(p.writtenAt) > cacheLag {
		p.written = ""
		return false
	}
	return true
}

// tell emits an event for a new state, and now and then for a new message.
func (p *Prober) tell(c Change, now time.Time) {
	if !c.NewState && now.Sub(p.told[c.Task.Key]) < messageEvents {
		return
	}
	p.told[c.Task.Key] = now
	reason := EventFailed
	if c.State == v1alpha1.ProbeSucceeded {
		reason = EventSucceeded
	}
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: c.Task.Namespace, Name: c.Task.Pod, UID: c.Task.Key.UID}
	p.o.Events.Event(pod, corev1.EventTypeNormal, reason, c.Message)
}

// assign makes the workers be those that npp wants.
func (p *Prober) assign(ctx context.Context, npp *v1alpha1.NodePodProbe) {
	tasks := Tasks(npp.Spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, w := range p.workers {
		if _, wanted := tasks[key]; !wanted {
			w.cancel()
			delete(p.workers, key)
			delete(p.stored, key)
			delete(p.told, key)
		}
	}
	for key, task := range tasks {
		if w := p.workers[key]; w != nil {
			p.change(w, task)
			continue
		}
		life, cancel := context.WithCancel(ctx)
		w := &worker{prober: p, cancel: cancel, changed: make(chan struct{}, 1), task: task}
		w.tracker.Seed = seed(npp.Status, key)
		p.workers[key] = w
		p.group.Go(func() { w.run(life) })
	}
	p.o.Metrics.running(len(p.workers))
}

// change gives a worker its task anew. The caller holds mu.
func (p *Prober) change(w *worker, task Task) {
	if apiequality.Semantic.DeepEqual(w.task, task) {
		return
	}
	if another(w.task, task) {
		// What the old probe says, even now, is not about the new one.
		w.life++
		p.stored[task.Key] = Stored{Result: Result{State: v1alpha1.ProbeUnknown}, At: time.Now()}
	}
	w.task = task
	select {
	case w.changed <- struct{}{}:
	default: // it looks at its task anyway
	}
}

// publish stores the result of w's probe as of its life, unless that has ended.
func (p *Prober) publish(w *worker, life int, r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := w.task.Key
	if p.workers[key] != w || w.life != life {
		return
	}
	now := time.Now()
	if s, ok := p.stored[key]; ok && !r.outdates(s, now) {
		return
	}
	p.stored[key] = Stored{Result: r, At: now}
	p.Wake()
}

// adopt makes a result of the agent's earlier life the stored one of w's probe.
func (p *Prober) adopt(w *worker, life int, s Stored) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.stored[w.task.Key]; !ok && p.workers[w.task.Key] == w && w.life == life {
		p.stored[w.task.Key] = s
	}
}

// taskOf returns the task of w and the number of its life.
func (p *Prober) taskOf(w *worker) (Task, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.task, w.life
}

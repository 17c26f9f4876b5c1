// SPDX-License-Identifier: Apache-2.0

// Package images pulls the images that the NodeImage of this node lists, and reports how
// far that is. Decide compares, purely, what is wanted with what is under way; Puller runs
// one worker per image and tag, and writes the status. Rules: daemon.md 4, images.md 4.
package images

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// Timing of the status (daemon.md 4.1, 4.4). A change is visible after spacing when few
// changes come, and after 2 s when many do.
const (
	// spacing is the shortest time between two looks; what happens meanwhile shares one write.
	spacing = 500 * time.Millisecond
	// writesPerSecond and burst limit status writes.
	writesPerSecond, burst = 0.5, 5
	// idle is the longest time between two looks, plus up to half of it.
	idle                 = 20 * time.Minute
	firstRetry, maxRetry = 500 * time.Millisecond, 50 * time.Second
)

// Store is where the NodeImage is.
type Store interface {
	// NodeImage returns this node's NodeImage from a cache, read-only, or a NotFound error.
	NodeImage(ctx context.Context) (*v1beta1.NodeImage, error)
	// WriteStatus replaces the status of the version that ni carries and returns the new version.
	WriteStatus(ctx context.Context, ni *v1beta1.NodeImage) (*v1beta1.NodeImage, error)
}

// Credentials finds logins for a registry.
type Credentials interface {
	// Lookup returns the logins to try in turn for a repository such as
	// docker.io/library/nginx; none means an anonymous pull. Each is looked for when its
	// turn comes.
	Lookup(ctx context.Context, repository string, secrets []v1beta1.ReferenceObject) iter.Seq[cri.Auth]
	// Problems says why secrets have no logins, for people; empty when they have.
	Problems(secrets []v1beta1.ReferenceObject) string
	// Refresh forgets what is remembered of secrets, before a retry.
	Refresh(secrets []v1beta1.ReferenceObject)
}

// Options are what the agent's main decides.
type Options struct {
	Store Store
	// Runtime is the runtime that pulls now.
	Runtime     func() cri.Runtime
	Credentials Credentials
	Events      record.EventRecorder
	// MaxWorkers bounds concurrent pulls on the node; 0 or less is no bound.
	MaxWorkers int
	// MaxPerRegistry bounds concurrent pulls from one registry; 0 or less is no bound.
	MaxPerRegistry int
	// Synced reports whether the cache behind Store has been filled.
	Synced func() bool
	// Metrics may be nil.
	Metrics *Metrics
}

// Puller is the worker that pulls images. Create it with New.
type Puller struct {
	o     Options
	slots *slots
	list  imageList
	wake  chan struct{}
	group sync.WaitGroup

	mu    sync.Mutex
	uid   types.UID // of the NodeImage that workers belong to
	tasks map[imageref.Ref]*worker

	// Only Run's goroutine uses what follows.
	limiter *rate.Limiter
	written string // resourceVersion of the last own write
}

// New returns a Puller that does nothing before Run.
func New(o Options) *Puller {
	return &Puller{
		o:       o,
		slots:   newSlots(o.MaxWorkers, o.MaxPerRegistry),
		list:    imageList{runtime: o.Runtime},
		wake:    make(chan struct{}, 1),
		tasks:   map[imageref.Ref]*worker{},
		limiter: rate.NewLimiter(writesPerSecond, burst),
	}
}

// Name identifies the worker in logs and health checks.
func (p *Puller) Name() string { return "nodeImageInformerSynced" }

// Ready returns an error until the NodeImage can be read.
func (p *Puller) Ready() error {
	if p.o.Synced != nil && !p.o.Synced() {
		return errors.New("not synced")
	}
	return nil
}

// Wake makes Run look at the NodeImage soon. It never blocks.
func (p *Puller) Wake() {
	select {
	case p.wake <- struct{}{}:
	default: // a look is due already
	}
}

// Run pulls until ctx ends; then it cancels all pulls and waits for them.
func (p *Puller) Run(ctx context.Context) error {
	defer p.group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logger := klog.FromContext(ctx).WithName("imagepuller")
	retry := firstRetry
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-timer.C:
		}
		wait, err := p.look(ctx)
		if err != nil && ctx.Err() == nil {
			logger.Info("Retrying", "in", retry, "reason", err.Error())
			wait, retry = retry, min(2*retry, maxRetry)
		} else {
			retry = firstRetry
		}
		timer.Reset(max(wait, spacing))
		if !pause(ctx, spacing) {
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

// look starts and stops workers and writes the status if that is due. It returns when to
// look again though nothing woke it.
func (p *Puller) look(ctx context.Context) (time.Duration, error) {
	ni, err := p.o.Store.NodeImage(ctx)
	if apierrors.IsNotFound(err) {
		p.reset("")
		return idle, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the NodeImage: %w", err)
	}
	p.reset(ni.UID)
	if order, err := resourceversion.CompareResourceVersion(ni.ResourceVersion, p.written); err == nil && order < 0 {
		// The cache does not show our own write yet. Its event wakes us.
		return firstRetry, nil
	}
	plan := Decide(ni, p.work(), time.Now())
	for _, ref := range plan.Stop {
		p.stop(ref)
	}
	for _, task := range plan.Update {
		p.update(task)
	}
	for _, task := range plan.Start {
		p.start(ctx, ni, task)
	}
	if len(plan.Start) > 0 {
		// A present image is done by the next look: then one write tells all.
		return spacing, nil
	}
	if apiequality.Semantic.DeepEqual(ni.Status, plan.Status) {
		return idle + rand.N(idle/2), nil
	}
	reservation := p.limiter.Reserve()
	if delay := reservation.Delay(); delay > 0 {
		reservation.Cancel()
		return delay, nil
	}
	changed := ni.DeepCopy()
	changed.Status = plan.Status
	written, err := p.o.Store.WriteStatus(ctx, changed)
	if err != nil {
		return 0, fmt.Errorf("writing the status: %w", err)
	}
	p.written = written.ResourceVersion
	return idle + rand.N(idle/2), nil
}

// reset forgets everything that belongs to another NodeImage than the one with uid: after
// its node was registered anew, nothing counts as pulled.
func (p *Puller) reset(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.uid == uid {
		return
	}
	for _, w := range p.tasks {
		w.cancel()
	}
	clear(p.tasks)
	p.uid, p.written = uid, ""
}

// work is what the workers last said.
func (p *Puller) work() map[imageref.Ref]Work {
	p.mu.Lock()
	defer p.mu.Unlock()
	work := make(map[imageref.Ref]Work, len(p.tasks))
	for ref, w := range p.tasks {
		work[ref] = Work{Task: w.task, Status: w.status}
	}
	return work
}

func (p *Puller) stop(ref imageref.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.tasks[ref]; w != nil {
		w.cancel()
		delete(p.tasks, ref)
	}
}

// update tells a worker what its task says now.
func (p *Puller) update(task Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.tasks[task.Ref]; w != nil {
		w.task = task
	}
}

func (p *Puller) start(ctx context.Context, ni *v1beta1.NodeImage, task Task) {
	p.stop(task.Ref)
	ctx, cancel := context.WithCancel(ctx)
	w := newWorker(p, ni, task, cancel)
	p.mu.Lock()
	p.tasks[task.Ref] = w
	p.mu.Unlock()
	p.group.Go(func() {
		defer cancel()
		w.safely(ctx)
	})
}

// publish takes over what w says, unless w has been stopped, and reports which it was.
func (p *Puller) publish(w *worker, status v1beta1.ImageTagStatus) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks[w.ref] != w {
		return false
	}
	w.status = status
	p.Wake()
	return true
}

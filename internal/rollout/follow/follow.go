// SPDX-License-Identifier: Apache-2.0

// Package follow watches one workload and delivers its read model whenever something
// changed. It is the view.Source behind `rollout status`, `rollout watch` and the
// terminal UI.
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

const (
	// interval is the shortest time between two reads.
	interval = 250 * time.Millisecond
	// pollInterval replaces a watch that the user may not open.
	pollInterval = 5 * time.Second
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// Options of a Live source.
type Options struct {
	// Context is the kubeconfig context, for display.
	Context string
	Clock   clock.Clock
	Want    fetch.Want
	// Write says how actions are sent; Program is the name in their commands.
	Write   apply.Options
	Program string
}

// Live is a view.Source over a real cluster. The workload's UID is pinned: another object
// of the same name is not followed.
type Live struct {
	c      client.WithWatch
	o      Options
	cancel context.CancelFunc
	wake   chan struct{}
	wg     sync.WaitGroup

	mu       sync.Mutex
	w        adapter.Workload
	uid      types.UID
	lost     time.Time
	lastRead time.Time
	took     time.Duration
	gone     bool
}

var _ view.Source = (*Live)(nil)

// New starts watching w, which was just read. Close it.
func New(ctx context.Context, c client.WithWatch, w adapter.Workload, o Options) *Live {
	ctx, cancel := context.WithCancel(ctx)
	l := &Live{c: c, o: o, cancel: cancel, wake: make(chan struct{}, 1), w: w, uid: w.Live.GetUID()}
	l.Again(ctx, 0)
	own := &unstructured.UnstructuredList{}
	own.SetGroupVersionKind(w.GVK)
	l.watch(ctx, own, client.InNamespace(w.Live.GetNamespace()),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", w.Live.GetName())})
	if sel, err := w.Selector(); err == nil && o.Want.Pods && !sel.Empty() {
		l.watch(ctx, &corev1.PodList{}, client.InNamespace(w.Live.GetNamespace()), client.MatchingLabelsSelector{Selector: sel})
	}
	return l
}

// Close implements view.Source.
func (l *Live) Close() {
	l.cancel()
	l.wg.Wait()
}

// Lost implements view.Source.
func (l *Live) Lost() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Again makes the next call of Next return after d even if nothing changes.
func (l *Live) Again(ctx context.Context, d time.Duration) {
	if d == 0 {
		l.signal()
		return
	}
	l.wg.Go(func() {
		if l.sleep(ctx, d) == nil {
			l.signal()
		}
	})
}

func (l *Live) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Live) sleep(ctx context.Context, d time.Duration) error {
	t := l.o.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C():
		return nil
	}
}

// watch keeps a watch open and signals at every event, until ctx ends.
func (l *Live) watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) {
	l.wg.Go(func() {
		backoff := firstBackoff
		for ctx.Err() == nil {
			w, err := l.c.Watch(ctx, list, opts...)
			switch {
			case err == nil:
				backoff = firstBackoff
				// What happened between two watches is seen by the read that this causes.
				l.signal()
				drain(ctx, w, l.signal)
			case apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err):
				if l.sleep(ctx, pollInterval) != nil {
					return
				}
				l.signal()
			default:
				if l.sleep(ctx, backoff) != nil {
					return
				}
				backoff = min(2*backoff, lastBackoff)
				l.signal()
			}
		}
	})
}

func drain(ctx context.Context, w watch.Interface, signal func()) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error {
				return
			}
			if e.Type != watch.Bookmark {
				signal()
			}
		}
	}
}

// Next implements view.Source.
func (l *Live) Next(ctx context.Context) (view.Rollout, error) {
	r, _, err := l.Step(ctx)
	return r, err
}

// Step is Next together with the snapshot that the read model was computed from.
func (l *Live) Step(ctx context.Context) (view.Rollout, diagnose.Snapshot, error) {
	if l.gone {
		return view.Rollout{}, diagnose.Snapshot{}, io.EOF
	}
	backoff := firstBackoff
	for {
		select {
		case <-ctx.Done():
			return view.Rollout{}, diagnose.Snapshot{}, context.Cause(ctx)
		case <-l.wake:
		}
		// Never spend more than a fifth of the time on reading, and never read faster
		// than four times a second.
		if wait := max(interval, 4*l.took) - l.o.Clock.Since(l.lastRead); wait > 0 && !l.lastRead.IsZero() {
			if err := l.sleep(ctx, wait); err != nil {
				return view.Rollout{}, diagnose.Snapshot{}, err
			}
		}
		s, err := l.read(ctx)
		switch {
		case err == nil:
			l.setLost(time.Time{})
			return view.Of(s, l.o.Context, l.o.Clock.Now()), s, nil
		case errors.Is(err, errGone):
			l.gone = true
			return l.goneView(), s, nil
		case ctx.Err() != nil:
			return view.Rollout{}, s, context.Cause(ctx)
		case refused(err):
			return view.Rollout{}, s, err
		}
		l.setLost(l.o.Clock.Now())
		if err := l.sleep(ctx, backoff); err != nil {
			return view.Rollout{}, s, err
		}
		backoff = min(2*backoff, lastBackoff)
		l.signal()
	}
}

// refused reports an answer of the server that trying again does not change.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != 429 && code != 410
}

func (l *Live) setLost(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.IsZero() || l.lost.IsZero() {
		l.lost = t
	}
}

var errGone = errors.New("gone")

func (l *Live) read(ctx context.Context) (diagnose.Snapshot, error) {
	start := l.o.Clock.Now()
	defer func() { l.lastRead = l.o.Clock.Now(); l.took = l.lastRead.Sub(start) }()
	obj, err := fetch.Again(ctx, l.c, l.w.Object)
	if apierrors.IsNotFound(err) || err == nil && obj.Live.GetUID() != l.uid {
		return diagnose.Snapshot{Workload: l.w}, errGone
	}
	if err != nil {
		return diagnose.Snapshot{Workload: l.w}, err
	}
	l.mu.Lock()
	l.w.Object = obj
	w := l.w
	l.mu.Unlock()
	return fetch.Snapshot(ctx, l.c, w, l.o.Want)
}

func (l *Live) goneView() view.Rollout {
	r := view.Of(diagnose.Snapshot{Workload: l.w}, l.o.Context, l.o.Clock.Now())
	r.Result = verdict.Result{Verdict: verdict.Gone, Reason: verdict.ReasonDeleted,
		Message: "deleted, or replaced by another object of the same name", Blockers: []verdict.Finding{}}
	return r
}

// Why implements view.Source.
func (l *Live) Why(ctx context.Context, pod string) (diagnose.Report, error) {
	l.mu.Lock()
	w := l.w
	l.mu.Unlock()
	s, err := fetch.Snapshot(ctx, l.c, w, fetch.Everything)
	if err != nil {
		return diagnose.Report{}, err
	}
	now := l.o.Clock.Now()
	if pod == "" {
		return diagnose.Workload(s, now), nil
	}
	for _, p := range append(s.Pods, s.Inactive...) {
		if p.Name == pod {
			return diagnose.Pod(s, p, now), nil
		}
	}
	return diagnose.Report{}, fmt.Errorf("%s has no pod named %q", w.Object, pod)
}

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
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// Options of a Live source.
type Options struct {
	// Context is the kubeconfig context, for display.
	Context string
	Clock   clock.WithTicker
	Want    fetch.Want
	// Write says how actions are sent; Program is the name in their commands.
	Write   apply.Options
	Program string
}

// Live is a view.Source over a real cluster. The workload's UID is pinned: another object
// of the same name is not followed.
type Live struct {
	*Waker
	c client.WithWatch
	o Options

	mu   sync.Mutex
	w    adapter.Workload
	uid  types.UID
	lost time.Time
	gone bool
	// looked is when the next look at images was asked for last.
	looked time.Time
}

var _ view.Source = (*Live)(nil)

// New starts watching w, which was just read. Close it.
func New(ctx context.Context, c client.WithWatch, w adapter.Workload, o Options) *Live {
	l := &Live{Waker: NewWaker(c, o.Clock), c: c, o: o, w: w, uid: w.Live.GetUID()}
	own := &unstructured.UnstructuredList{}
	own.SetGroupVersionKind(w.GVK)
	l.Watch(ctx, own, client.InNamespace(w.Live.GetNamespace()),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", w.Live.GetName())})
	if sel, err := w.Selector(); err == nil && o.Want.Pods && !sel.Empty() {
		l.Watch(ctx, &corev1.PodList{}, client.InNamespace(w.Live.GetNamespace()), client.MatchingLabelsSelector{Selector: sel})
	}
	return l
}

// Lost implements view.Source.
func (l *Live) Lost() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
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
		if err := l.Wait(ctx, nil); err != nil {
			return view.Rollout{}, diagnose.Snapshot{}, err
		}
		s, err := l.read(ctx)
		switch {
		case err == nil:
			l.setLost(time.Time{})
			r := view.Of(s, l.o.Context, l.o.Clock.Now())
			l.soon(ctx, r)
			return r, s, nil
		case errors.Is(err, errGone):
			l.gone = true
			return l.goneView(), s, nil
		case ctx.Err() != nil:
			return view.Rollout{}, s, context.Cause(ctx)
		case Refused(err):
			return view.Rollout{}, s, err
		}
		l.setLost(l.o.Clock.Now())
		if err := l.sleep(ctx, backoff); err != nil {
			return view.Rollout{}, s, err
		}
		backoff = min(2*backoff, lastBackoff)
		l.Signal()
	}
}

// pullsEvery is how often images on their way to nodes are looked at: no watch tells of them.
const pullsEvery = 5 * time.Second

// soon makes Step look again while images are on their way.
func (l *Live) soon(ctx context.Context, r view.Rollout) {
	under := slices.ContainsFunc(r.Pulls, func(c pull.Coverage) bool { return !c.Done })
	if now := l.o.Clock.Now(); under && now.Sub(l.looked) >= pullsEvery {
		l.looked = now
		l.After(ctx, pullsEvery)
	}
}

// Refused reports an answer of the server that trying again does not change.
func Refused(err error) bool {
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

func (l *Live) read(ctx context.Context) (s diagnose.Snapshot, err error) {
	err = l.Read(func() error {
		s, err = l.snapshot(ctx)
		return err
	})
	return s, err
}

func (l *Live) snapshot(ctx context.Context) (diagnose.Snapshot, error) {
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

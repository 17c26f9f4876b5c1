// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// wakes counts how often Wait returned within d.
func wakes(t *testing.T, w *Waker, d time.Duration, read func() error) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for w.Wait(ctx, nil) == nil {
		n++
		if err := w.Read(read); err != nil {
			t.Error(err)
		}
	}
	return n
}

func nothing() error { return nil }

func TestWaker(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	}
	story := func(name string, watchErr error, run func(t *testing.T, w *Waker, c client.Client)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := fake.NewClientBuilder().Build()
				c := interceptor.NewClient(base, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
					if watchErr != nil {
						return nil, watchErr
					}
					return c.Watch(ctx, l, opts...)
				}})
				w := NewWaker(c, clock.RealClock{})
				defer w.Close() // the bubble fails if anything is left behind
				run(t, w, c)
			})
		})
	}
	story("wakes once without a watch", nil, func(t *testing.T, w *Waker, _ client.Client) {
		if n := wakes(t, w, time.Minute, nothing); n != 1 {
			t.Errorf("woke %d times", n)
		}
	})
	story("wakes for events, and not for each of many", nil, func(t *testing.T, w *Waker, c client.Client) {
		w.Watch(t.Context(), &corev1.PodList{}, client.InNamespace("shop"))
		_ = wakes(t, w, time.Second, nothing)
		go func() {
			for i := range 100 {
				time.Sleep(10 * time.Millisecond)
				_ = c.Create(context.Background(), pod("p"+string(rune('a'+i%26))+string(rune('a'+i/26))))
			}
		}()
		if n := wakes(t, w, 10*time.Second, nothing); n < 2 || n > 6 {
			t.Errorf("woke %d times for 100 events in a second", n)
		}
	})
	story("reads no more than a fifth of the time", nil, func(t *testing.T, w *Waker, _ client.Client) {
		slow := func() error { time.Sleep(time.Second); w.Signal(); return nil }
		if n := wakes(t, w, 49*time.Second, slow); n != 10 {
			t.Errorf("%d reads of a second in 49 seconds", n)
		}
	})
	story("polls what may not be watched", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil), func(t *testing.T, w *Waker, _ client.Client) {
		w.Watch(t.Context(), &corev1.PodList{})
		if n := wakes(t, w, time.Minute+time.Second, nothing); n != 13 {
			t.Errorf("woke %d times in a minute", n)
		}
	})
	story("tries a broken watch less and less often", errors.New("gone away"), func(t *testing.T, w *Waker, _ client.Client) {
		w.Watch(t.Context(), &corev1.PodList{})
		if n := wakes(t, w, time.Minute, nothing); n < 6 || n > 12 {
			t.Errorf("woke %d times in a minute", n)
		}
	})
	story("beats while nothing happens, and wakes later when asked", nil, func(t *testing.T, w *Waker, _ client.Client) {
		_ = wakes(t, w, time.Millisecond, nothing)
		w.After(t.Context(), 10*time.Second)
		beats := 0
		if err := w.Wait(t.Context(), func() { beats++ }); err != nil || beats < 9 || beats > 10 {
			t.Errorf("%d beats, %v", beats, err)
		}
	})
}

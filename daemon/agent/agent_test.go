// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worker runs until its own channel or the context ends.
type worker struct {
	ready   atomic.Bool
	started atomic.Bool
	end     chan error
}

func newWorker(ready bool) *worker {
	w := &worker{end: make(chan error, 1)}
	w.ready.Store(ready)
	return w
}

func (w *worker) Name() string { return "test" }

func (w *worker) Ready() error {
	if !w.ready.Load() {
		return errors.New("not synced")
	}
	return nil
}

func (w *worker) Run(ctx context.Context) error {
	w.started.Store(true)
	select {
	case <-ctx.Done():
		return nil
	case err := <-w.end:
		return err
	}
}

func TestRun(t *testing.T) {
	broken := errors.New("broken")
	cases := map[string]func(t *testing.T, cancel context.CancelFunc, a, b *worker) (want string){
		"ends well with its context": func(_ *testing.T, cancel context.CancelFunc, _, _ *worker) string {
			cancel()
			return ""
		},
		"a worker that fails ends all": func(_ *testing.T, _ context.CancelFunc, a, _ *worker) string {
			a.end <- broken
			return "running test: broken"
		},
		"a worker that ends by itself ends all": func(_ *testing.T, _ context.CancelFunc, a, _ *worker) string {
			a.end <- nil
			return "test ended by itself"
		},
		"a worker starts when it is ready": func(t *testing.T, cancel context.CancelFunc, a, b *worker) string {
			time.Sleep(time.Minute)
			require.True(t, a.started.Load())
			require.False(t, b.started.Load())
			b.ready.Store(true)
			time.Sleep(time.Second)
			require.True(t, b.started.Load())
			cancel()
			return ""
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a, b := newWorker(true), newWorker(false)
				done := make(chan error, 1)
				go func() { done <- Run(ctx, []Worker{a, b}) }()
				synctest.Wait()
				want := play(t, cancel, a, b)
				err := <-done
				if want == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, want)
				}
			})
		})
	}
}

func TestChecks(t *testing.T) {
	ask := func(c *Checks) (int, string) {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		return w.Code, w.Body.String()
	}
	checks := &Checks{}
	code, text := ask(checks)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok", text)

	checks.Add("good", func() error { return nil })
	checks.Add("podInformerSynced", func() error { return errors.New("not synced") })
	code, text = ask(checks)
	require.Equal(t, http.StatusInternalServerError, code)
	require.Equal(t, "check podInformerSynced failed, err: not synced\n", text)

	checks.Add("podInformerSynced", func() error { return nil })
	code, _ = ask(checks)
	require.Equal(t, http.StatusOK, code)
}

func TestServeEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, &Checks{}) }()
	response, err := http.Get("http://" + listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	cancel()
	require.NoError(t, <-done)
}

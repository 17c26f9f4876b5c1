// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a supervisor for the time of the test and returns its client.
func serve(t *testing.T) *Client {
	t.Helper()
	// Not t.TempDir(): the path of a socket must be short.
	dir, err := os.MkdirTemp("", "sup")
	require.NoError(t, err)
	socket := filepath.Join(dir, "s")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, socket, new(Supervisor)) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, os.RemoveAll(dir))
	})
	c := NewClient(socket)
	eventually(t, func() bool { _, err := c.List(t.Context()); return err == nil })
	return c
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 5*time.Millisecond)
}

func sleeper(t *testing.T, restart bool) Spec {
	return Spec{Name: "sleeper", Args: []string{"sleep", "600"}, Log: filepath.Join(t.TempDir(), "log"), Restart: restart}
}

func only(t *testing.T, c *Client) Status {
	t.Helper()
	list, err := c.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestKilledProcessComesBack(t *testing.T) {
	c := serve(t)
	require.NoError(t, c.Put(t.Context(), sleeper(t, true)))
	first := only(t, c)
	require.Equal(t, Running, first.State)
	require.NoError(t, c.Do(t.Context(), "sleeper", Kill))
	eventually(t, func() bool { s := only(t, c); return s.State == Running && s.PID != first.PID })
	require.Equal(t, 1, only(t, c).Restarts)
	require.Equal(t, "signal: killed", only(t, c).LastExit)
}

func TestProcessWithoutRestartStaysDown(t *testing.T) {
	c := serve(t)
	require.NoError(t, c.Put(t.Context(), sleeper(t, false)))
	require.NoError(t, c.Do(t.Context(), "sleeper", Kill))
	eventually(t, func() bool { return only(t, c).State == Exited })
}

func TestStoppedProcessStaysDownUntilStarted(t *testing.T) {
	c := serve(t)
	require.NoError(t, c.Put(t.Context(), sleeper(t, true)))
	pid := only(t, c).PID
	require.NoError(t, c.Do(t.Context(), "sleeper", Freeze))
	require.Equal(t, Frozen, only(t, c).State)
	require.NoError(t, c.Do(t.Context(), "sleeper", Stop), "a frozen process can be stopped")
	require.Equal(t, Stopped, only(t, c).State)
	require.False(t, alive(pid))
	require.Error(t, c.Do(t.Context(), "sleeper", Freeze), "nothing to freeze")
	require.NoError(t, c.Do(t.Context(), "sleeper", Start))
	require.Equal(t, Running, only(t, c).State)
}

func TestPutReplaces(t *testing.T) {
	c := serve(t)
	require.NoError(t, c.Put(t.Context(), sleeper(t, true)))
	old := only(t, c).PID
	spec := sleeper(t, true)
	spec.Args = []string{"sleep", "601"}
	require.NoError(t, c.Put(t.Context(), spec))
	require.NotEqual(t, old, only(t, c).PID)
	require.False(t, alive(old))
}

func TestRequestsThatCannotBeMet(t *testing.T) {
	c := serve(t)
	require.ErrorContains(t, c.Do(t.Context(), "nobody", Stop), "no such process")
	require.ErrorContains(t, c.Put(t.Context(), Spec{Name: "empty"}), "needs a name and a program")
	spec := sleeper(t, true)
	spec.Args = []string{"/does/not/exist"}
	require.ErrorContains(t, c.Put(t.Context(), spec), "starting sleeper")
	require.NoError(t, c.Put(t.Context(), sleeper(t, true)))
	require.ErrorContains(t, c.Do(t.Context(), "sleeper", "dance"), "unknown action")
}

func TestShutdownStopsAll(t *testing.T) {
	dir, err := os.MkdirTemp("", "sup")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	require.NoError(t, os.WriteFile(socket, nil, 0o600), "a crashed supervisor left its socket")
	ended := make(chan error, 1)
	go func() { ended <- Serve(context.Background(), socket, new(Supervisor)) }()
	c := NewClient(socket)
	eventually(t, func() bool { _, err := c.List(t.Context()); return err == nil })
	require.NoError(t, c.Put(t.Context(), sleeper(t, true)))
	pid := only(t, c).PID
	require.NoError(t, c.Shutdown(t.Context()))
	require.NoError(t, <-ended)
	require.False(t, alive(pid))
}

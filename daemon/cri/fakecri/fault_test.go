// SPDX-License-Identifier: Apache-2.0

package fakecri_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New("containerd")
		broken := errors.New("broken")
		rt.Inject(fakecri.Fault{Call: "ListImages", Times: 2, Delay: time.Minute, Err: broken})
		for range 2 {
			started := time.Now()
			_, err := rt.Images(t.Context())
			require.ErrorIs(t, err, broken)
			require.Equal(t, time.Minute, time.Since(started))
		}
		_, err := rt.Images(t.Context())
		require.NoError(t, err, "only as often as asked")

		rt.Inject(fakecri.Fault{Call: "StopContainer c1", Hang: true})
		rt.AddContainer(fakecri.Container{Status: cri.Status{Container: cri.Container{ID: "c1", State: cri.StateRunning}}})
		ended := make(chan error, 1)
		go func() { ended <- rt.Stop(t.Context(), "c1", time.Second) }()
		synctest.Wait()
		require.Empty(t, ended)
		rt.Heal()
		require.NoError(t, <-ended)
		c, _ := rt.Known("c1")
		require.Equal(t, cri.StateExited, c.State)
		require.Equal(t, time.Second, c.LastGrace)
	})
}

func TestExecAnswersPerCall(t *testing.T) {
	rt := fakecri.New("containerd")
	rt.AddContainer(fakecri.Container{
		Status:    cri.Status{Container: cri.Container{ID: "c1", State: cri.StateRunning}},
		ExecCalls: map[string][]fakecri.ExecScript{"check": {{Stdout: "one"}, {Code: 2, Stderr: "two"}, {Stdout: "three"}}},
	})
	check := func() (string, error) {
		out, err := rt.Exec(t.Context(), "c1", []string{"check"}, time.Second)
		return string(out), err
	}
	out, err := check()
	require.NoError(t, err)
	require.Equal(t, "one", out)
	_, err = check()
	var exit *cri.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, cri.ExitError{Code: 2, Stderr: "two"}, *exit)
	for range 2 {
		out, err = check()
		require.NoError(t, err)
		require.Equal(t, "three", out, "the last one stays")
	}
}

func TestContainersThatGoBetweenListAndStatus(t *testing.T) {
	rt := fakecri.New("containerd")
	rt.AddContainer(fakecri.Container{Status: cri.Status{Container: cri.Container{ID: "gone"}}, Vanished: true})
	rt.AddContainer(fakecri.Container{Status: cri.Status{Container: cri.Container{ID: "nil"}}, NilStatus: true})
	list, err := rt.Containers(t.Context(), cri.Filter{})
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, c := range list {
		_, err := rt.Container(t.Context(), c.ID)
		require.ErrorIs(t, err, cri.ErrNotFound)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

func TestEveryKnownSocketIsFound(t *testing.T) {
	for _, file := range []string{
		"containerd.sock", "containerd/containerd.sock", "crio.sock", "crio/crio.sock", "cri-dockerd.sock", "cri-dockerd/cri-dockerd.sock",
		"k3s/containerd/containerd.sock", "k3s/cri-dockerd/cri-dockerd.sock", "k0s/containerd.sock",
	} {
		t.Run(file, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "cri") //nolint:usetesting // the path of a socket must be short
			require.NoError(t, err)
			defer func() { require.NoError(t, os.RemoveAll(dir)) }()
			fakecri.Serve(t, fakecri.New("r"), dir, file)
			set, err := cri.Detect(t.Context(), cri.Options{Dir: dir})
			require.NoError(t, err)
			require.Equal(t, "r", set.First().Name())
			require.NoError(t, set.Close())
		})
	}
}

// Images pulled into a runtime that the kubelet does not use would be of no use.
func TestTheKubeletsRuntimePullsImages(t *testing.T) {
	dir := t.TempDir()
	fakecri.Serve(t, fakecri.New("containerd"), dir, "containerd/containerd.sock")
	fakecri.Serve(t, fakecri.New("docker"), dir, "cri-dockerd.sock")
	set, err := cri.Detect(t.Context(), cri.Options{Dir: dir})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	require.Equal(t, "containerd", set.Busiest(slices.Values([]string(nil))).Name(), "the first socket, while nothing is known")
	require.Equal(t, "docker", set.Busiest(slices.Values([]string{"docker://a", "", "docker://b", "containerd://c"})).Name())
	require.Equal(t, "containerd", set.Busiest(slices.Values([]string{"docker://a", "containerd://c"})).Name(), "in doubt the first socket")
}

func TestARuntimeThatStartsLaterJoins(t *testing.T) {
	dir := t.TempDir()
	fakecri.Serve(t, fakecri.New("docker"), dir, "cri-dockerd.sock")
	set, err := cri.Detect(t.Context(), cri.Options{Dir: dir})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	fakecri.Serve(t, fakecri.New("containerd"), dir, "containerd.sock")

	ctx, cancel := context.WithCancel(t.Context())
	ticks := make(chan time.Time)
	var done sync.WaitGroup
	done.Go(func() { set.Keep(ctx, func(time.Duration) <-chan time.Time { return ticks }) })
	ticks <- time.Time{}
	ticks <- time.Time{} // taken when the first look is over
	_, ok := set.ByName("containerd")
	require.True(t, ok)
	require.Equal(t, "docker", set.First().Name(), "what is in use stays first")
	cancel()
	done.Wait()
}

func TestErrorsOfDetectionSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	_, err := cri.Detect(t.Context(), cri.Options{Dir: dir, SocketFile: "other.sock"})
	require.ErrorContains(t, err, "other.sock: no such file", "the one that was asked for")

	fakecri.Serve(t, fakecri.New("containerd"), dir, "containerd/containerd.sock").NoCRI = true
	_, err = cri.Detect(t.Context(), cri.Options{Dir: dir})
	require.ErrorContains(t, err, "a containerd without its CRI plugin")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "crio.sock"), nil, 0o600))
	_, err = cri.Detect(t.Context(), cri.Options{Dir: dir})
	require.ErrorContains(t, err, "crio.sock", "a file without a listener")
}

func TestCallsAreObserved(t *testing.T) {
	dir := t.TempDir()
	rt := fakecri.New("containerd")
	fakecri.Serve(t, rt, dir, "containerd.sock")
	var mu sync.Mutex
	var seen []string
	set, err := cri.Detect(t.Context(), cri.Options{Dir: dir, Observe: func(c cri.Call) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, c.Method+" "+c.Code)
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	_, err = set.First().Container(t.Context(), "unknown")
	require.ErrorIs(t, err, cri.ErrNotFound)
	require.Equal(t, []string{"ImageFsInfo OK", "ListImages OK", "Version OK", "ContainerStatus NotFound"}, seen)
}

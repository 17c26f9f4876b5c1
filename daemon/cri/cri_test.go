// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial serves rt and connects to it.
func dial(t *testing.T, rt *fakecri.Runtime) (cri.Runtime, *fakecri.Server) {
	t.Helper()
	server := fakecri.Serve(t, rt, t.TempDir(), "c.sock")
	client, closer, err := cri.Dial(t.Context(), server.Socket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, closer()) })
	return client, server
}

func TestPullOverSocket(t *testing.T) {
	rt := fakecri.New("containerd")
	rt.Script("nginx:1", fakecri.PullScript{Auth: &cri.Auth{Username: "u", Password: "p"}})
	client, _ := dial(t, rt)
	require.Equal(t, "containerd", client.Name())

	_, err := client.PullImage(t.Context(), cri.Pull{Reference: "nginx:1"})
	require.EqualError(t, err, "pulling nginx:1: unauthenticated", "without gRPC's words")

	pull := cri.Pull{Reference: "nginx:1", Auth: &cri.Auth{Username: "u", Password: "p"}, SandboxLabels: map[string]string{"a": "b"}, SandboxAnnotations: map[string]string{"c": "d"}}
	_, err = client.PullImage(t.Context(), pull)
	require.NoError(t, err)
	require.Equal(t, pull, rt.Pulls()[1])

	images, err := client.Images(t.Context())
	require.NoError(t, err)
	require.Equal(t, []cri.Image{{ID: "sha256:id-of-nginx:1", RepoTags: []string{"nginx:1"}}}, images)
}

func TestPullEndsWithItsContext(t *testing.T) {
	rt := fakecri.New("containerd")
	rt.Script("nginx:1", fakecri.PullScript{Hang: true})
	client, _ := dial(t, rt)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := client.PullImage(ctx, cri.Pull{Reference: "nginx:1"})
	require.Error(t, err)
}

func TestContainersOverSocket(t *testing.T) {
	rt := fakecri.New("containerd")
	created := time.Unix(100, 5)
	c := fakecri.Container{
		Status: cri.Status{
			Container: cri.Container{
				ID: "c1", Name: "app", Attempt: 2, State: cri.StateRunning, Created: created,
				Labels:      map[string]string{cri.LabelPodUID: "uid"},
				Annotations: map[string]string{cri.AnnotationHash: "19fd1bfc"},
			},
			Started: created.Add(time.Second), Image: "nginx:1", ImageRef: "nginx@sha256:x",
			Env: map[string]string{"A": "with = and\nnewline ", "EMPTY": ""},
		},
		Exec: map[string]fakecri.ExecScript{"env": {Stdout: "A=1\n"}, "false": {Code: 1}, "sleep": {Delay: time.Hour}},
	}
	rt.AddContainer(c)
	old := c
	old.ID, old.State, old.Created = "c0", cri.StateExited, created.Add(-time.Minute)
	rt.AddContainer(old)
	other := c
	other.ID, other.Labels = "c2", map[string]string{cri.LabelPodUID: "another"}
	rt.AddContainer(other)
	client, _ := dial(t, rt)

	list, err := client.Containers(t.Context(), cri.Filter{PodUID: "uid"})
	require.NoError(t, err)
	require.Equal(t, []cri.Container{c.Container, old.Container}, list, "newest first, exited included")
	list, err = client.Containers(t.Context(), cri.Filter{PodUID: "uid", ID: "c2"})
	require.NoError(t, err)
	require.Empty(t, list, "filters are ANDed")

	status, err := client.Container(t.Context(), "c1")
	require.NoError(t, err)
	require.Equal(t, c.Status, status)
	_, err = client.Container(t.Context(), "unknown")
	require.ErrorIs(t, err, cri.ErrNotFound)

	out, err := client.Exec(t.Context(), "c1", []string{"env"}, time.Second)
	require.NoError(t, err)
	require.Equal(t, "A=1\n", string(out))
	_, err = client.Exec(t.Context(), "c1", []string{"false"}, time.Second)
	var exit *cri.ExitError
	require.ErrorAs(t, err, &exit)
	require.EqualValues(t, 1, exit.Code)
	_, err = client.Exec(t.Context(), "c1", []string{"sleep"}, time.Second)
	require.ErrorIs(t, err, cri.ErrTimedOut)

	require.NoError(t, client.Stop(t.Context(), "c1", time.Second))
	status, err = client.Container(t.Context(), "c1")
	require.NoError(t, err)
	require.Equal(t, cri.StateExited, status.State)
	require.ErrorIs(t, client.Stop(t.Context(), "unknown", time.Second), cri.ErrNotFound)
}

func TestSandboxOverSocket(t *testing.T) {
	rt := fakecri.New("containerd")
	client, _ := dial(t, rt)
	_, err := client.Sandbox(t.Context(), "uid")
	require.ErrorIs(t, err, cri.ErrNoSandbox)
	want := cri.Sandbox{
		ID: "s1", IPs: []string{"10.0.0.7", "fd00::7"}, Created: time.Unix(7, 0),
		Labels: map[string]string{cri.LabelPodUID: "uid"}, Annotations: map[string]string{"a": "b"},
	}
	rt.AddSandbox("uid", want)
	got, err := client.Sandbox(t.Context(), "uid")
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, "10.0.0.7", got.IP())
	rt.AddSandbox("host", cri.Sandbox{ID: "s2", HostNetwork: true})
	got, err = client.Sandbox(t.Context(), "host")
	require.NoError(t, err)
	require.True(t, got.HostNetwork)
	require.Empty(t, got.IP())
}

func TestReconnectsAfterTheRuntimeRestarted(t *testing.T) {
	client, server := dial(t, fakecri.New("containerd"))
	server.Stop()
	_, err := client.Images(t.Context())
	require.Error(t, err)
	server.Start(t)
	require.Eventually(t, func() bool {
		_, err := client.Images(t.Context())
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
}

func TestDetect(t *testing.T) {
	dir := t.TempDir()
	_, err := cri.Detect(t.Context(), cri.Options{Dir: dir})
	require.ErrorIs(t, err, cri.ErrNoRuntime)

	docker := fakecri.Serve(t, fakecri.New("containerd"), dir, "containerd/containerd.sock")
	docker.NoCRI = true
	_, err = cri.Detect(t.Context(), cri.Options{Dir: dir})
	require.ErrorIs(t, err, cri.ErrNoRuntime, "docker's own containerd is skipped")
	require.ErrorContains(t, err, "Unimplemented", "and the error says why")

	fakecri.Serve(t, fakecri.New("cri-o"), dir, "crio/crio.sock")
	require.NoError(t, os.Symlink(filepath.Join(dir, "crio/crio.sock"), filepath.Join(dir, "crio.sock")))
	fakecri.Serve(t, fakecri.New("docker"), dir, "cri-dockerd.sock")
	set, err := cri.Detect(t.Context(), cri.Options{Dir: dir})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	require.Len(t, set.All(), 2, "two paths of one runtime count once")
	require.Equal(t, "cri-o", set.First().Name())
	_, ok := set.ByName("docker")
	require.True(t, ok)
	_, ok = set.ByName("containerd")
	require.False(t, ok)

	only, err := cri.Detect(t.Context(), cri.Options{Dir: dir, SocketFile: "cri-dockerd.sock"})
	require.NoError(t, err)
	defer func() { require.NoError(t, only.Close()) }()
	require.Equal(t, "docker", only.First().Name(), "a given socket is the only one tried")
	_, err = cri.Detect(t.Context(), cri.Options{Dir: dir, SocketFile: "missing.sock"})
	require.True(t, strings.Contains(err.Error(), "missing.sock"), err)
}

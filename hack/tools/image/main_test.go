// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

// binaries lays files out as goreleaser does.
func binaries(t *testing.T) string {
	dist := t.TempDir()
	for _, dir := range []string{"kruise-manager_linux_amd64_v1", "kruise-manager_linux_arm64_v8.0", "kruise-daemon_linux_amd64_v1", "kruise-daemon_linux_arm64_v8.0"} {
		binary, _, _ := strings.Cut(dir, "_")
		require.NoError(t, os.Mkdir(filepath.Join(dist, dir), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dist, dir, binary), []byte(dir), 0o755))
	}
	return dist
}

func TestImage(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	certs := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(certs, []byte("certificates"), 0o644))
	ref := strings.TrimPrefix(server.URL, "http://") + "/kruisectl/kruise-manager:v1"
	out := t.TempDir()
	require.NoError(t, run(binaries(t), []string{"amd64", "arm64"}, certs, ref, out))

	written, err := layout.ImageIndexFromPath(out)
	require.NoError(t, err)
	pushed, err := remote.Index(must(name.ParseReference(ref)))
	require.NoError(t, err)
	digest := must(pushed.Digest())
	require.Equal(t, digest, must(written.Digest()))
	again, err := assemble(binaries(t), []string{"amd64", "arm64"}, []byte("certificates"))
	require.NoError(t, err)
	require.Equal(t, digest, must(again.Digest()), "the same input gives the same digest")

	for _, arch := range []string{"amd64", "arm64"} {
		image, err := remote.Image(must(name.ParseReference(ref)), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		require.NoError(t, err)
		config := must(image.ConfigFile())
		require.Equal(t, []string{"/manager"}, config.Config.Entrypoint)
		require.Equal(t, arch, config.Architecture)
		require.Empty(t, config.Config.User, "the daemon runs as root")

		files := contents(t, image)
		require.True(t, strings.HasPrefix(files["manager"], "kruise-manager_linux_"+arch))
		require.True(t, strings.HasPrefix(files["kruise-daemon"], "kruise-daemon_linux_"+arch))
		require.Equal(t, "certificates", files["etc/ssl/certs/ca-certificates.crt"])
		require.Contains(t, files, "tmp")
	}
}

func TestImageNeedsEveryBinary(t *testing.T) {
	_, err := assemble(binaries(t), []string{"amd64", "riscv64"}, nil)
	require.ErrorContains(t, err, "kruise-manager for linux/riscv64")
	require.Error(t, run(t.TempDir(), nil, "/does/not/exist", "", ""))
}

// contents reads the flattened file system of an image.
func contents(t *testing.T, image v1.Image) map[string]string {
	files := map[string]string{}
	stream := mutate.Extract(image)
	defer func() { require.NoError(t, stream.Close()) }()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = string(data)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
)

var testBase = Base{Busybox: []byte("program"), Applets: []string{"sh", "sleep", "busybox", "httpd"}}

func digests(t *testing.T) map[string]string {
	t.Helper()
	built, err := Build(testBase, Catalog())
	require.NoError(t, err)
	all := map[string]string{}
	for ref, image := range built {
		d, err := image.Digest()
		require.NoError(t, err)
		all[ref] = d.String()
	}
	return all
}

func TestSameContentHasTheSameDigest(t *testing.T) {
	require.Equal(t, digests(t), digests(t))
}

func TestEveryOtherTagHasItsOwnDigest(t *testing.T) {
	byDigest := map[string]string{}
	all := digests(t)
	for ref, d := range all {
		if strings.HasSuffix(ref, ":mainline-alpine") {
			continue
		}
		require.NotContains(t, byDigest, d, "%s and %s", ref, byDigest[d])
		byDigest[d] = ref
	}
	require.Equal(t, all["docker.io/library/nginx:alpine"], all["docker.io/library/nginx:mainline-alpine"])
}

func TestNamesOfTheCatalogAreFullNames(t *testing.T) {
	for _, ref := range Names(Catalog()) {
		parsed, err := name.NewTag(ref, name.StrictValidation)
		require.NoError(t, err)
		host, _, _ := strings.Cut(ref, "/")
		require.Contains(t, []string{"docker.io", "registry.k8s.io", PrivateHost}, host)
		require.NotEmpty(t, parsed.TagStr())
	}
}

func entries(t *testing.T, image v1.Image) map[string]tar.Header {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	all := map[string]tar.Header{}
	for _, l := range layers {
		r, err := l.Uncompressed()
		require.NoError(t, err)
		files := tar.NewReader(r)
		for {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			all[strings.TrimSuffix(h.Name, "/")] = *h
		}
		require.NoError(t, r.Close())
	}
	return all
}

func TestBaseHasAppletsAsLinks(t *testing.T) {
	built, err := Build(testBase, Catalog())
	require.NoError(t, err)
	files := entries(t, built["docker.io/library/nginx:1.20"])
	require.Equal(t, "busybox", files["bin/sleep"].Linkname)
	require.Equal(t, byte(tar.TypeReg), files["bin/busybox"].Typeflag, "the program does not become a link to itself")
	require.Equal(t, int64(0o1777), files["tmp"].Mode)
	require.Contains(t, files, "usr/share/nginx/html/version")
}

func writeBinaries(t *testing.T, manager string) (string, string) {
	t.Helper()
	dir := t.TempDir()
	m, d := filepath.Join(dir, "m"), filepath.Join(dir, "d")
	require.NoError(t, os.WriteFile(m, []byte(manager), 0o755))
	require.NoError(t, os.WriteFile(d, []byte("daemon"), 0o700))
	return m, d
}

func TestProductImageDependsOnlyOnTheBinaries(t *testing.T) {
	digest := func(content string) string {
		manager, daemon := writeBinaries(t, content)
		image, err := Product(manager, daemon, []byte("certificates"))
		require.NoError(t, err)
		d, err := image.Digest()
		require.NoError(t, err)
		return d.String()
	}
	require.Equal(t, digest("one"), digest("one"))
	require.NotEqual(t, digest("one"), digest("two"))
}

func TestProductImageRunsAsNobody(t *testing.T) {
	manager, daemon := writeBinaries(t, "one")
	image, err := Product(manager, daemon, []byte("certificates"))
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, []string{"/manager"}, config.Config.Entrypoint)
	files := entries(t, image)
	require.Equal(t, 65534, files["log"].Uid)
	require.Equal(t, int64(0o755), files["kruise-daemon"].Mode)
	require.Contains(t, files, "etc/ssl/certs/ca-certificates.crt")
}

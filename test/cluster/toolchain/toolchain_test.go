// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFolderReplacements(t *testing.T) {
	const goMod = `module k8s.io/kubernetes

require (
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	example.com/fork => example.com/other v1.0.0
)

replace k8s.io/client-go => ./staging/src/k8s.io/client-go
`
	require.Equal(t, []string{"k8s.io/api", "k8s.io/client-go"}, folderReplacements(goMod))
}

func TestRequirements(t *testing.T) {
	const goMod = `module k8s.io/kubernetes

go 1.26.0

require example.com/one v1.0.0

require (
	example.com/two v1.2.0
	example.com/three v0.0.0-20260720052920-cd9e7ad1ae09 // indirect
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
)
`
	require.Equal(t, map[string]string{
		"example.com/one": "v1.0.0", "example.com/two": "v1.2.0",
		"example.com/three": "v0.0.0-20260720052920-cd9e7ad1ae09", "k8s.io/api": "v0.0.0",
	}, requirements(goMod))
}

func TestSetsHaveDirectoriesOfTheirOwn(t *testing.T) {
	require.NotEqual(t, Core().Key(), Volumes().Key())
	require.True(t, strings.HasPrefix(Core().Key(), "k8s-1.37.2_etcd-3.7.3_containerd-2.4.2_"), Core().Key())
}

func TestModuleFile(t *testing.T) {
	g := Group{Name: "tool", Module: "example.com/tool", Version: "v1.2.3"}
	require.Equal(t, `module kruisectl.test/tool

go 1.26.0

require example.com/tool v1.2.3

replace a => a v0.1.0

replace b => b v0.1.0
`, g.moduleFile(map[string]string{"b": "v0.1.0", "a": "v0.1.0"}))
}

func TestProgramsHaveUniqueNames(t *testing.T) {
	names := append(Core().Programs(), Volumes().Programs()...)
	seen := map[string]bool{}
	for _, n := range names {
		require.False(t, seen[n], n)
		seen[n] = true
	}
	for _, n := range append(EnvtestPrograms(), ControlPlanePrograms()...) {
		require.Contains(t, Core().Programs(), n)
	}
}

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "kubelet"), 0o755))
	require.Equal(t, []string{"kubelet", "kubectl"}, Missing(dir, []string{"etcd", "kubelet", "kubectl"}))
}

func TestCacheFollowsTheEnvironment(t *testing.T) {
	t.Setenv("KRUISECTL_CACHE", "/somewhere")
	dir, err := Core().Dir()
	require.NoError(t, err)
	require.Equal(t, "/somewhere/kruisectl/bin/"+Core().Key(), dir)
}

func TestBuildOfPresentProgramsNeedsNothing(t *testing.T) {
	t.Setenv("KRUISECTL_CACHE", t.TempDir())
	dir, err := Core().Dir()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o755))
	t.Setenv("PATH", "") // no go command
	progress := func(format string, _ ...any) { t.Errorf("progress without work: %s", format) }
	got, err := Core().Build(t.Context(), []string{"etcd"}, progress)
	require.NoError(t, err)
	require.Equal(t, dir, got)

	_, err = Core().Build(t.Context(), []string{"kubelet"}, progress)
	require.ErrorContains(t, err, "building kubelet needs the go command")
	_, err = Core().Build(t.Context(), []string{"docker"}, progress)
	require.ErrorContains(t, err, `unknown program "docker"`)
}

func TestLockLetsOneIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, func() { t.Error("nobody holds the lock") })
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = lock(ctx, path, cancel) // give up as soon as it has to wait
	require.ErrorIs(t, err, context.Canceled)
	unlock()
	unlock, err = lock(t.Context(), path, func() {})
	require.NoError(t, err)
	unlock()
}

func TestTailKeepsTheLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("one\ntwo\nthree\n"), 0o644))
	require.Equal(t, "    two\n    three", Tail(path, 2))
	require.Empty(t, Tail(path+".missing", 2))
}

func TestMeterCountsPackages(t *testing.T) {
	m := &meter{name: "tool", start: time.Now(), done: make(chan struct{})}
	m.follow(strings.NewReader("go: downloading example.com/a v1.0.0\nexample.com/a\nexample.com/b\n# example.com/c\n"))
	require.Equal(t, 2, m.packages)
	require.Equal(t, "example.com/b", m.last)
}

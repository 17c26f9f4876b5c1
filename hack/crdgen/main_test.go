// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func TestCRDsAreUpToDate(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "apps.kruise.io_gones.yaml")
	require.NoError(t, os.WriteFile(gone, nil, 0o600))
	require.NoError(t, crdsInto(t.Context(), root, dir))
	require.NoFileExists(t, gone, "the CRD of a kind that is gone stays behind")
	require.Equal(t, contents(t, filepath.Join(root, "manifests/crds")), contents(t, dir), "run: go generate ./apis/...")
}

func TestDeepCopyIsUpToDate(t *testing.T) {
	packages, err := filepath.Glob(filepath.Join(root, "apis/*/*/zz_generated.deepcopy.go"))
	require.NoError(t, err)
	require.NotEmpty(t, packages)
	for _, file := range packages {
		pkg, err := filepath.Rel(root, filepath.Dir(file))
		require.NoError(t, err)
		dir := t.TempDir()
		require.NoError(t, controllerGen(t.Context(), root,
			"object:headerFile=hack/boilerplate.go.txt", "paths=./"+pkg, "output:object:dir="+dir))
		want, err := os.ReadFile(filepath.Join(dir, filepath.Base(file)))
		require.NoError(t, err)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run: go generate ./apis/...", pkg)
	}
}

func TestWithConversion(t *testing.T) {
	one := "a: b\nspec:\n  group: g\n  versions:\n  - name: v1\n    served: true\n"
	got, err := withConversion([]byte(one))
	require.NoError(t, err)
	require.Equal(t, one, string(got), "one version needs no conversion")

	got, err = withConversion([]byte(one + "  - name: v2\n    served: true\n"))
	require.NoError(t, err)
	require.Contains(t, string(got), "a: b\n"+conversion+"  group: g\n")

	_, err = withConversion([]byte("  - name: v1\n    served: true\n  - name: v2\n    served: true\n"))
	require.Error(t, err)
}

// contents maps the YAML files of a folder to their text, without the list for kustomize.
func contents(t *testing.T, dir string) map[string]string {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	out := map[string]string{}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		out[filepath.Base(file)] = string(text)
	}
	return out
}

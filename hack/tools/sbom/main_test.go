// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModulesOfABinary(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "image") // a test binary records none
	built, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../image").CombinedOutput()
	require.NoError(t, err, "%s", built)
	out := filepath.Join(t.TempDir(), "x.cdx.json")
	require.NoError(t, run(binary, out))
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	var d document
	require.NoError(t, json.Unmarshal(text, &d))
	require.Equal(t, "CycloneDX", d.Format)
	names := map[string]component{}
	for _, c := range d.Components {
		names[c.Name] = c
	}
	require.Contains(t, names, "std")
	library := names["github.com/google/go-containerregistry"]
	require.Equal(t, "pkg:golang/github.com/google/go-containerregistry@"+library.Version, library.PURL)
	require.Len(t, library.Hashes, 1)
	require.Len(t, library.Hashes[0].Content, 64)
}

func TestNoBinary(t *testing.T) {
	require.ErrorContains(t, run("main.go", filepath.Join(t.TempDir(), "x")), "reading the modules")
}

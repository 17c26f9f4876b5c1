// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test that a table of conformance names exists, whatever its build tags are.
func TestConformanceNamesTestsThatExist(t *testing.T) {
	const root = "../.."
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declaration.FindAllStringSubmatch(string(text), -1) {
			declared[m[1]] = true
		}
		return err
	}))
	tables, err := filepath.Glob(filepath.Join(root, "docs", "conformance*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	named := regexp.MustCompile(`\b(Test[A-Z]\w+)`)
	for _, table := range tables {
		text, err := os.ReadFile(table)
		require.NoError(t, err)
		names := named.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, names, table)
		for _, m := range names {
			require.True(t, declared[m[1]], "%s is in %s and nowhere else", m[1], filepath.Base(table))
		}
	}
}

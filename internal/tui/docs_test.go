// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// frameMarker stands before each frame in the documentation and names its golden file.
var frameMarker = regexp.MustCompile("(?s)<!-- frame (\\S+) -->\n```text\n.*?```")

// The documentation shows the golden frames themselves; -update writes them there too.
func TestDocumentationShowsTheGoldenFrames(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "tui.md")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	shown := 0
	want := frameMarker.ReplaceAllStringFunc(string(raw), func(block string) string {
		shown++
		name := frameMarker.FindStringSubmatch(block)[1]
		frame, err := os.ReadFile(filepath.Join("testdata", "frames", name+".golden"))
		require.NoError(t, err)
		var lines []string
		for line := range strings.Lines(string(frame)) {
			lines = append(lines, strings.TrimRight(line, " \n"))
		}
		return "<!-- frame " + name + " -->\n```text\n" + strings.Join(lines, "\n") + "\n```"
	})
	require.GreaterOrEqual(t, shown, 4, "frames in %s", path)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("%s does not show the golden frames: run the test with -update (-want +got):\n%s", path, diff)
	}
}

// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

// requireFrame fails unless the frame is exactly as high as the terminal and no line is
// wider.
func requireFrame(t *rapid.T, m Model) {
	lines := strings.Split(m.View(), "\n")
	if len(lines) != m.size.Height {
		t.Fatalf("%d lines in a terminal of %d", len(lines), m.size.Height)
	}
	for i, l := range lines {
		if w := ansi.StringWidth(l); w > m.size.Width {
			t.Fatalf("line %d is %d cells wide in a terminal of %d: %q", i+1, w, m.size.Width, l)
		}
	}
}

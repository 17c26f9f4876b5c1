// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// dialog asks before an action (cli.md 14.6). Cancel is the default, and y works only
// once armed, half a second after the dialog opened: keys typed ahead confirm nothing.
type dialog struct {
	action  view.Action
	confirm bool // the second button has the focus
	armed   bool
}

// Update answers with doMsg or backMsg.
func (d dialog) Update(msg tea.Msg, keys keyMap) (dialog, tea.Cmd) {
	switch msg := msg.(type) {
	case armedMsg:
		d.armed = true
	case tea.KeyMsg:
		switch {
		case key.Matches(msg, keys.toggle):
			d.confirm = !d.confirm
		case key.Matches(msg, keys.no), key.Matches(msg, keys.back), key.Matches(msg, keys.quit):
			return d, send(backMsg{})
		case key.Matches(msg, keys.yes) && d.armed:
			return d, send(doMsg{d.action})
		case key.Matches(msg, keys.activate):
			if d.confirm && d.armed {
				return d, send(doMsg{d.action})
			}
			if !d.confirm {
				return d, send(backMsg{})
			}
		}
	}
	return d, nil
}

// over draws the box in the middle of a finished screen.
func (d dialog) over(screen string, s scene) string {
	lines := strings.Split(screen, "\n")
	box := d.box(min(s.size.Width-4, 80))
	first := max((len(lines)-len(box))/2, 0)
	left := max((s.size.Width-ansi.StringWidth(box[0]))/2, 0)
	for i, b := range box {
		if first+i < len(lines) {
			lines[first+i] = fit(strings.Repeat(" ", left)+b, s.size.Width)
		}
	}
	return strings.Join(lines, "\n")
}

func (d dialog) box(width int) []string {
	inner := width - 4
	edge := "+" + strings.Repeat("-", width-2) + "+"
	put := func(text string) string { return "| " + fit(text, inner) + " |" }
	box := []string{edge, put(" " + d.action.Title + "?"), put("")}
	for _, c := range d.action.Confirm {
		for _, l := range wrap("   ", c, inner) {
			box = append(box, put(l))
		}
	}
	cancel, yes := "[ Cancel ]", "  "+d.action.Name+"  "
	if d.confirm {
		cancel, yes = "  Cancel  ", "[ "+d.action.Name+" ]"
	}
	box = append(box, put(""), put("   "+d.action.Command), put(""), put("   "+cancel+"   "+yes+"     y yes   n no   tab other button"), edge)
	return box
}

// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// Theme is the look of every screen: colours where the terminal has them, and symbols or
// ASCII. State is never shown by colour alone.
type Theme struct {
	ASCII bool

	title, dim, selected, rule lipgloss.Style
	state                      map[State]lipgloss.Style
}

// State is how a row or a headline stands.
type State string

// The states of cli.md 1.7.
const (
	StateOK      State = "ok"
	StateWorking State = "working"
	StateWaiting State = "waiting"
	StateWarning State = "warning"
	StateFailed  State = "failed"
	StateUnknown State = "unknown"
)

// NewTheme makes a theme. Without colour the same words and symbols stay.
func NewTheme(ascii, colour bool) Theme {
	profile := termenv.Ascii
	if colour {
		profile = termenv.ANSI256
	}
	r := lipgloss.NewRenderer(nil)
	r.SetColorProfile(profile)
	style := func(colour string) lipgloss.Style { return r.NewStyle().Foreground(lipgloss.Color(colour)) }
	return Theme{
		ASCII:    ascii,
		title:    r.NewStyle().Bold(true),
		dim:      r.NewStyle().Faint(true),
		selected: r.NewStyle().Bold(true),
		rule:     r.NewStyle().Faint(true),
		state: map[State]lipgloss.Style{
			StateOK: style("2"), StateWorking: style("4"), StateWaiting: style("3"),
			StateWarning: style("3"), StateFailed: style("1"), StateUnknown: r.NewStyle().Faint(true),
		},
	}
}

// mark is the symbol of a state.
func (t Theme) mark(s State) string {
	symbols := map[State][2]string{
		StateOK: {"[ok]", "✔"}, StateWorking: {"[..]", "◌"}, StateWaiting: {"[--]", "⏸"},
		StateWarning: {"[!]", "!"}, StateFailed: {"[x]", "✖"}, StateUnknown: {"[?]", "?"},
	}
	if t.ASCII {
		return symbols[s][0]
	}
	return symbols[s][1]
}

// ruleRune fills a horizontal line.
func (t Theme) ruleRune() string {
	if t.ASCII {
		return "-"
	}
	return "─"
}

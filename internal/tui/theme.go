// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strconv"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"

	"github.com/kruisectl/kruisectl/internal/look"
)

// Theme is the look of every screen: colours where the terminal has them, and symbols or
// ASCII. State is never shown by colour alone.
type Theme struct {
	ASCII bool

	title, dim, selected, rule lipgloss.Style
	state                      map[look.State]lipgloss.Style
}

// NewTheme makes a theme. Without colour the same words and symbols stay.
func NewTheme(ascii, colour bool) Theme {
	profile := termenv.Ascii
	if colour {
		profile = termenv.ANSI256
	}
	r := lipgloss.NewRenderer(nil)
	r.SetColorProfile(profile)
	return Theme{
		ASCII:    ascii,
		title:    r.NewStyle().Bold(true),
		dim:      r.NewStyle().Faint(true),
		selected: r.NewStyle().Bold(true),
		rule:     r.NewStyle().Faint(true),
		state:    states(r),
	}
}

// states are the styles of the states.
func states(r *lipgloss.Renderer) map[look.State]lipgloss.Style {
	m := map[look.State]lipgloss.Style{}
	for s := look.OK; s <= look.Unknown; s++ {
		style := r.NewStyle().Faint(true)
		if c := s.Colour(); c > 0 {
			style = r.NewStyle().Foreground(lipgloss.Color(strconv.Itoa(int(c))))
		}
		m[s] = style
	}
	return m
}

// mark is the symbol of a state.
func (t Theme) mark(s look.State) string { return s.Symbol(t.ASCII) }

// ruleRune fills a horizontal line.
func (t Theme) ruleRune() string {
	if t.ASCII {
		return "-"
	}
	return "─"
}

// SPDX-License-Identifier: Apache-2.0

package out

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/kruisectl/kruisectl/internal/look"
)

// State is one of the states of package look, under the names that commands use.
type State = look.State

// The states.
const (
	Plain       = look.Plain
	OK          = look.OK
	Progressing = look.Progressing
	Waiting     = look.Waiting
	Warning     = look.Warning
	Failed      = look.Failed
	Unknown     = look.Unknown
)

// Style is what a stream can show. The zero Style is plain ASCII without colour for a
// width of 0, which means "do not cut".
type Style struct {
	Color, ASCII, TTY bool
	// Width is the number of cells of a line; 0 is unlimited.
	Width int
}

// Paint colours text as s when colour is on.
func (st Style) Paint(s State, text string) string {
	code := ""
	switch c := s.Colour(); {
	case !st.Color || c == look.None:
		return text
	case c == look.Dim:
		code = "2"
	default:
		code = fmt.Sprint(30 + int(c))
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold marks text as a heading when colour is on.
func (st Style) Bold(text string) string {
	if !st.Color {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// Symbol is the mark of s, coloured; "" for Plain.
func (st Style) Symbol(s State) string {
	if s == Plain {
		return ""
	}
	return st.Paint(s, s.Symbol(st.ASCII))
}

// Arrow separates old from new.
func (st Style) Arrow() string {
	if st.ASCII {
		return "->"
	}
	return "→"
}

// Bar draws done of total in width cells, in brackets where only ASCII is wanted.
func (st Style) Bar(done, total, width int) string {
	bar := look.Bar(done, total, width, st.ASCII)
	if st.ASCII {
		return "[" + bar + "]"
	}
	return bar
}

// Cells is the number of terminal cells of s without escape sequences.
func Cells(s string) int {
	n, esc := 0, false
	for _, r := range s {
		switch {
		case r == 0x1b:
			esc = true
		case esc:
			if r == 'm' {
				esc = false
			}
		default:
			n++
		}
	}
	if !utf8.ValidString(s) {
		return len(s)
	}
	return n
}

// Age prints a duration as look.Age does.
func Age(d time.Duration) string { return look.Age(d) }

// Elapsed prints a duration as the prefix of a progress line, e.g. 00:42 or 1:02:03.
func Elapsed(d time.Duration) string {
	s := int(d / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%02d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s%3600/60, s%60)
}

// Plural prints n and the noun, with an s unless n is 1.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

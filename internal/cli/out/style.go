// SPDX-License-Identifier: Apache-2.0

package out

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// State is one of the six states of cli.md 1.7. A state always has a word beside it:
// colour and symbol repeat it, they never replace it.
type State int

// The states.
const (
	Plain State = iota
	OK
	Progressing
	Waiting
	Warning
	Failed
	Unknown
)

var symbols = map[State][2]string{
	OK: {"✔", "[ok]"}, Progressing: {"◌", "[..]"}, Waiting: {"⏸", "[--]"},
	Warning: {"!", "[!]"}, Failed: {"✖", "[x]"}, Unknown: {"?", "[?]"},
}

var colours = map[State]string{
	OK: "32", Progressing: "34", Waiting: "33", Warning: "33", Failed: "31", Unknown: "2",
}

// Style is what a stream can show. The zero Style is plain ASCII without colour for a
// width of 0, which means "do not cut".
type Style struct {
	Color, ASCII, TTY bool
	// Width is the number of cells of a line; 0 is unlimited.
	Width int
}

// Paint colours text as s when colour is on.
func (st Style) Paint(s State, text string) string {
	if !st.Color || colours[s] == "" {
		return text
	}
	return "\x1b[" + colours[s] + "m" + text + "\x1b[0m"
}

// Bold marks text as a heading when colour is on.
func (st Style) Bold(text string) string {
	if !st.Color {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// Symbol is the mark of s, coloured.
func (st Style) Symbol(s State) string {
	pair, ok := symbols[s]
	if !ok {
		return ""
	}
	if st.ASCII {
		return st.Paint(s, pair[1])
	}
	return st.Paint(s, pair[0])
}

// Arrow separates old from new.
func (st Style) Arrow() string {
	if st.ASCII {
		return "->"
	}
	return "→"
}

// Bar draws done of total in width cells.
func (st Style) Bar(done, total, width int) string {
	full := 0
	if total > 0 {
		full = min(width, done*width/total)
	}
	if st.ASCII {
		return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
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

// Age prints a duration as the two largest units, such as 5d4h; "-" when negative.
func Age(d time.Duration) string {
	if d < 0 {
		return "-"
	}
	s := int(d / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return two(s/60, "m", s%60, "s")
	case s < 86400:
		return two(s/3600, "h", s%3600/60, "m")
	default:
		return two(s/86400, "d", s%86400/3600, "h")
	}
}

func two(a int, ua string, b int, ub string) string {
	if b == 0 || a >= 10 {
		return fmt.Sprintf("%d%s", a, ua)
	}
	return fmt.Sprintf("%d%s%d%s", a, ua, b, ub)
}

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

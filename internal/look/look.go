// SPDX-License-Identifier: Apache-2.0

// Package look is how states, durations and progress look on a terminal, the same in lines
// and on screens (cli.md 1.7). It draws nothing itself and knows no colour codes.
package look

import (
	"fmt"
	"strings"
	"time"

	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// State is one of the six states of cli.md 1.7. A state always has a word beside it:
// colour and symbol repeat it, they never replace it.
type State int

// The states; Plain has neither symbol nor colour.
const (
	Plain State = iota
	OK
	Progressing
	Waiting
	Warning
	Failed
	Unknown
)

// Colour is one of the terminal's own colours, or Dim.
type Colour int

// The colours that states have, numbered as in ANSI.
const (
	None   Colour = -2
	Dim    Colour = -1
	Red    Colour = 1
	Green  Colour = 2
	Yellow Colour = 3
	Blue   Colour = 4
)

// Colour is that of a state.
func (s State) Colour() Colour {
	switch s {
	case OK:
		return Green
	case Progressing:
		return Blue
	case Waiting, Warning:
		return Yellow
	case Failed:
		return Red
	case Unknown:
		return Dim
	}
	return None
}

// Symbol is the mark of a state, "" for Plain.
func (s State) Symbol(ascii bool) string {
	symbol, plain := "", ""
	switch s {
	case OK:
		symbol, plain = "✔", "[ok]"
	case Progressing:
		symbol, plain = "◌", "[..]"
	case Waiting:
		symbol, plain = "⏸", "[--]"
	case Warning:
		symbol, plain = "!", "[!]"
	case Failed:
		symbol, plain = "✖", "[x]"
	case Unknown:
		symbol, plain = "?", "[?]"
	}
	if ascii {
		return plain
	}
	return symbol
}

// Of is the state of a verdict.
func Of(v verdict.Verdict) State {
	switch v {
	case verdict.Complete:
		return OK
	case verdict.PartitionReached, verdict.Paused, verdict.Manual:
		return Waiting
	case verdict.Blocked, verdict.Stalled, verdict.Gone:
		return Failed
	case verdict.Superseded:
		return Warning
	}
	return Progressing
}

// Bar draws done of total in so many cells. Nothing to do is done.
func Bar(done, total, cells int, ascii bool) string {
	cells = max(cells, 0)
	full := cells
	if total > 0 {
		full = max(0, min(cells, done*cells/total))
	}
	if ascii {
		return strings.Repeat("#", full) + strings.Repeat(".", cells-full)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full)
}

// Age prints a duration as its two largest units, such as 5d4h; "-" when negative.
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

// two leaves the second unit out where it says little.
func two(a int, ua string, b int, ub string) string {
	if b == 0 || a >= 10 {
		return fmt.Sprintf("%d%s", a, ua)
	}
	return fmt.Sprintf("%d%s%d%s", a, ua, b, ub)
}

// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kruisectl/kruisectl/internal/look"
)

// Size is the terminal in cells.
type Size struct{ Width, Height int }

// tooSmall is below what any screen can use.
func (s Size) tooSmall() bool { return s.Width < 40 || s.Height < 10 }

// fit cuts text at the right with "~", or pads it, to exactly width cells. Escape
// sequences are never split and wide runes count double.
func fit(text string, width int) string {
	if width <= 0 {
		return ""
	}
	w := ansi.StringWidth(text)
	if w > width {
		return ansi.Truncate(text, width, "~")
	}
	return text + strings.Repeat(" ", width-w)
}

// fitName cuts a name in the middle, for its end is what tells Pods apart.
func fitName(name string, width int) string {
	if ansi.StringWidth(name) <= width || width < 8 {
		return fit(name, width)
	}
	tail := 5
	return fit(ansi.Truncate(name, width-tail-2, "")+".."+name[len(name)-tail:], width)
}

// between puts left and right on one line of width cells; right wins when both do not fit.
func between(left, right string, width int) string {
	room := width - ansi.StringWidth(right)
	if room <= 1 {
		return fit(right, width)
	}
	return fit(left, room-1) + " " + right
}

// bar draws progress of done out of total in width cells, brackets included.
func (t Theme) bar(done, total, width int) string {
	return "[" + look.Bar(done, total, max(width-2, 1), t.ASCII) + "]"
}

// frame builds a screen line by line and makes it exactly as large as the terminal.
type frame struct {
	theme Theme
	size  Size
	lines []string
}

func (f *frame) line(text string) { f.lines = append(f.lines, fit(text, f.size.Width)) }

func (f *frame) linef(format string, args ...any) { f.line(fmt.Sprintf(format, args...)) }

func (f *frame) rule() {
	f.lines = append(f.lines, f.theme.rule.Render(strings.Repeat(f.theme.ruleRune(), f.size.Width)))
}

// left is how many lines are free when bottom lines are kept for the footer.
func (f *frame) left(bottom int) int { return max(f.size.Height-len(f.lines)-bottom, 0) }

// fill adds empty lines until only bottom are left.
func (f *frame) fill(bottom int) {
	for range f.left(bottom) {
		f.line("")
	}
}

// String cuts what does not fit and joins the lines without a trailing newline.
func (f *frame) String() string {
	f.fill(0)
	return strings.Join(f.lines[:f.size.Height], "\n")
}

// age is look.Age; clocks that differ make no negative ages.
func age(d time.Duration) string { return look.Age(max(d, 0)) }

// since is the age of a time that may be unknown.
func since(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return age(now.Sub(at))
}

// window returns the range of n rows to show in height lines so that cursor is visible.
func window(n, cursor, height int) (from, to int) {
	height = max(height, 0)
	from = max(0, min(cursor-height+1, n-height))
	from = max(from, 0)
	return from, min(n, from+height)
}

// columns is a table layout: names and widths, dropped from a priority list until it fits.
type column struct {
	name  string
	width int
	right bool
	drop  int // columns with the highest number go first when there is no room; 0 never
}

// fitColumns returns the columns that fit into width with two cells between them.
func fitColumns(cols []column, width int) []column {
	total := func(cols []column) int {
		n := 0
		for _, c := range cols {
			n += c.width + 2
		}
		return n
	}
	for total(cols) > width {
		worst := -1
		for i, c := range cols {
			if c.drop > 0 && (worst < 0 || c.drop > cols[worst].drop) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		cols = append(append([]column{}, cols[:worst]...), cols[worst+1:]...)
	}
	return cols
}

// row renders cells, given by column name, in the order and width of cols.
func row(cols []column, cells map[string]string) string {
	var b strings.Builder
	for i, c := range cols {
		if i > 0 {
			b.WriteString("  ")
		}
		text := cells[c.name]
		if c.right {
			text = strings.Repeat(" ", max(c.width-ansi.StringWidth(text), 0)) + text
		}
		if c.name == "POD" {
			b.WriteString(fitName(text, c.width))
			continue
		}
		b.WriteString(fit(text, c.width))
	}
	return b.String()
}

// header is the row of column names.
func header(cols []column) string {
	cells := map[string]string{}
	for _, c := range cols {
		cells[c.name] = c.name
	}
	return row(cols, cells)
}

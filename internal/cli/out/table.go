// SPDX-License-Identifier: Apache-2.0

package out

import (
	"fmt"
	"io"
	"strings"
)

// Column is one column of a Table.
type Column struct {
	// Name is the header, upper case.
	Name string
	// Wide columns are shown with -o wide only.
	Wide bool
	// Drop orders the columns that go when the table is too wide for the terminal: the
	// largest first; 0 never goes.
	Drop int
	// Right aligns numbers.
	Right bool
}

// Table is a table for people: two spaces between columns, "-" for an empty cell, never
// wrapped before droppable columns are gone (cli.md 1.6, 1.7).
type Table struct {
	Columns []Column
	// Rows have one cell per column; cells may hold colour.
	Rows [][]string
	// NoHeaders leaves out the header line.
	NoHeaders bool
	// Indent is put before each line.
	Indent string
}

// Print writes the table. On a stream that is no terminal every column is printed.
func (t Table) Print(w io.Writer, style Style, wide bool) error {
	var shown []int
	for i, c := range t.Columns {
		if wide || !c.Wide {
			shown = append(shown, i)
		}
	}
	for style.TTY && style.Width > 0 && t.width(shown) > style.Width {
		worst := -1
		for at, i := range shown {
			if t.Columns[i].Drop > 0 && (worst < 0 || t.Columns[i].Drop > t.Columns[shown[worst]].Drop) {
				worst = at
			}
		}
		if worst < 0 {
			break
		}
		shown = append(append([]int{}, shown[:worst]...), shown[worst+1:]...)
	}
	if !t.NoHeaders {
		head := make([]string, len(t.Columns))
		for i, c := range t.Columns {
			head[i] = c.Name
		}
		if err := t.line(w, shown, head); err != nil {
			return err
		}
	}
	for _, r := range t.Rows {
		if err := t.line(w, shown, r); err != nil {
			return err
		}
	}
	return nil
}

func (t Table) line(w io.Writer, shown []int, cells []string) error {
	var b strings.Builder
	b.WriteString(t.Indent)
	for at, i := range shown {
		c := cell(cells, i)
		pad := strings.Repeat(" ", t.columnWidth(i)-Cells(c))
		last := at == len(shown)-1
		switch {
		case t.Columns[i].Right:
			b.WriteString(pad + c)
		case last:
			b.WriteString(c)
		default:
			b.WriteString(c + pad)
		}
		if !last {
			b.WriteString("  ")
		}
	}
	_, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	return err
}

func (t Table) columnWidth(i int) int {
	n := 0
	if !t.NoHeaders {
		n = Cells(t.Columns[i].Name)
	}
	for _, r := range t.Rows {
		n = max(n, Cells(cell(r, i)))
	}
	return n
}

func (t Table) width(shown []int) int {
	n := len(t.Indent)
	for at, i := range shown {
		n += t.columnWidth(i)
		if at > 0 {
			n += 2
		}
	}
	return n
}

func cell(cells []string, i int) string {
	if i >= len(cells) || cells[i] == "" {
		return "-"
	}
	return cells[i]
}

// SPDX-License-Identifier: Apache-2.0

package out

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Keys of cobra annotations that the help prints.
const (
	// ExitCodes is the sentence on exit codes beyond 0, 1 and 2.
	ExitCodes = "kruisectl/exit-codes"
	// SeeAlso lists related commands.
	SeeAlso = "kruisectl/see-also"
	// FlagGroup is the group of a flag: Target, Change, Safety, Wait or Output.
	FlagGroup = "kruisectl/group"
)

// Group puts flags under one heading of the help.
func Group(fs *pflag.FlagSet, group string, names ...string) {
	for _, n := range names {
		_ = fs.SetAnnotation(n, FlagGroup, []string{group})
	}
}

// Nearest returns up to n of the words within an edit distance of 2 of word, or starting
// with it, nearest first.
func Nearest(word string, words []string, n int) []string {
	type near struct {
		word string
		d    int
	}
	var found []near
	for _, w := range words {
		d := distance(strings.ToLower(word), strings.ToLower(w))
		if len(word) >= 3 && strings.HasPrefix(w, word) {
			d = min(d, 1)
		}
		if d <= 2 && d < len(w) {
			found = append(found, near{w, d})
		}
	}
	slices.SortStableFunc(found, func(a, b near) int {
		if a.d != b.d {
			return a.d - b.d
		}
		return strings.Compare(a.word, b.word)
	})
	var list []string
	for _, f := range found[:min(n, len(found))] {
		if !slices.Contains(list, f.word) {
			list = append(list, f.word)
		}
	}
	return list
}

// distance is the edit distance of a and b, with a swap of neighbours as one edit.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range len(b) + 1 {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// Wrap breaks text at spaces so that no line is longer than width cells, where a word
// allows it; following lines start with indent. Leading spaces stay.
func Wrap(text string, width int, indent string) string {
	if Cells(text) <= width {
		return text
	}
	lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var lines []string
	line, empty := lead, true
	rest := text[len(lead):]
	for rest != "" {
		word := rest
		if i := strings.IndexByte(rest, ' '); i >= 0 {
			j := i
			for j < len(rest) && rest[j] == ' ' {
				j++
			}
			word = rest[:j]
		}
		rest = rest[len(word):]
		if !empty && Cells(line)+Cells(strings.TrimRight(word, " ")) > width {
			lines = append(lines, strings.TrimRight(line, " "))
			line = indent
		}
		line += word
		empty = false
	}
	lines = append(lines, strings.TrimRight(line, " "))
	return strings.Join(lines, "\n")
}

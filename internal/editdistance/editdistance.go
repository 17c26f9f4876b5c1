// SPDX-License-Identifier: Apache-2.0

// Package editdistance measures how far two words are apart, for errors that suggest what
// was probably meant.
package editdistance

// Of is the number of single-byte insertions, deletions and replacements between
// a and b.
func Of(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/kruisectl/kruisectl/internal/editdistance"
)

// nearest returns up to three of known that got is probably meant to be: a small edit
// distance, or the same last part of a dotted key.
func nearest(got string, known []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	limit := max(2, len(got)/6)
	last := strings.ToLower(got[strings.LastIndex(got, ".")+1:])
	var found []candidate
	for _, k := range known {
		d := editdistance.Of(strings.ToLower(got), strings.ToLower(k))
		tail := strings.ToLower(k[strings.LastIndex(k, ".")+1:])
		if d > limit && strings.Contains(got+k, ".") && editdistance.Of(last, tail) <= min(2, len(last)/4) {
			d = limit // moved to another section
		}
		if d <= limit {
			found = append(found, candidate{k, d})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	var names []string
	for _, c := range found[:min(3, len(found))] {
		names = append(names, c.name)
	}
	return names
}

// joinErrors is errors.Join, but a single error stays itself.
func joinErrors(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

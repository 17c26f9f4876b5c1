// SPDX-License-Identifier: Apache-2.0

// Package ordinal computes with the ordinals of a StatefulSet as intervals: which of them
// are reserved, which have a Pod, and which place a Pod has among its peers (statefulset.md
// 7.4). Nothing here grows with the width of an interval: "0-2000000000" costs as much as
// "0". It is pure.
package ordinal

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Interval holds the ordinals from First to Last, both included.
type Interval struct{ First, Last int }

// Set is a set of ordinals: sorted intervals that neither overlap nor touch.
type Set []Interval

// NewSet makes a Set of intervals in any order; empty ones (Last before First) are left out.
func NewSet(intervals ...Interval) Set {
	sorted := slices.DeleteFunc(slices.Clone(intervals), func(i Interval) bool { return i.Last < i.First })
	slices.SortFunc(sorted, func(a, b Interval) int { return cmp.Compare(a.First, b.First) })
	var s Set
	for _, i := range sorted {
		if n := len(s); n > 0 && i.First <= s[n-1].Last+1 {
			s[n-1].Last = max(s[n-1].Last, i.Last)
			continue
		}
		s = append(s, i)
	}
	return s
}

// ParseInterval reads one entry of reserveOrdinals: a number, or text such as "4-6".
func ParseInterval(v intstr.IntOrString) (Interval, error) {
	if v.Type == intstr.Int {
		if v.IntVal < 0 {
			return Interval{}, fmt.Errorf("%d is negative", v.IntVal)
		}
		return Interval{int(v.IntVal), int(v.IntVal)}, nil
	}
	first, last, found := strings.Cut(v.StrVal, "-")
	if !found {
		return Interval{}, fmt.Errorf(`%q is not a range such as "4-6"`, v.StrVal)
	}
	a, errA := parse(first)
	b, errB := parse(last)
	switch {
	case errA != nil || errB != nil:
		return Interval{}, fmt.Errorf(`%q is not a range such as "4-6"`, v.StrVal)
	case b < a:
		return Interval{}, fmt.Errorf("%q ends before it begins", v.StrVal)
	}
	return Interval{a, b}, nil
}

// parse reads digits and nothing else. The bound keeps sums of ordinals within an int.
func parse(digits string) (int, error) {
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%q has other characters than digits", digits)
	}
	n, err := strconv.ParseInt(digits, 10, 48)
	return int(n), err
}

// Parse reads reserveOrdinals. Entries that cannot be read, which admission refuses, are
// left out of the Set and named in the error.
func Parse(list []intstr.IntOrString) (Set, error) {
	var intervals []Interval
	var errs []error
	for _, v := range list {
		i, err := ParseInterval(v)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		intervals = append(intervals, i)
	}
	return NewSet(intervals...), errors.Join(errs...)
}

// Contains tells whether n is in the set.
func (s Set) Contains(n int) bool {
	_, found := s.find(n)
	return found
}

// find returns the index of the interval with n, or of the first one after it.
func (s Set) find(n int) (int, bool) {
	return slices.BinarySearchFunc(s, n, func(i Interval, n int) int {
		switch {
		case i.Last < n:
			return -1
		case i.First > n:
			return 1
		}
		return 0
	})
}

// String is the set as reserveOrdinals would have it, such as "1,4-6".
func (s Set) String() string {
	parts := make([]string, len(s))
	for i, v := range s {
		parts[i] = strconv.Itoa(v.First)
		if v.Last > v.First {
			parts[i] += "-" + strconv.Itoa(v.Last)
		}
	}
	return strings.Join(parts, ",")
}

// Range is the ordinals that have a Pod: the first Count ones from a start upwards that
// are not reserved.
type Range struct {
	// intervals hold the ordinals, below[i] of them are before the i-th interval.
	intervals Set
	below     []int
	count     int
}

// NewRange makes the Range of count ordinals from start that are not in reserved.
func NewRange(start, count int, reserved Set) Range {
	r := Range{count: max(count, 0)}
	next, left := start, r.count
	add := func(last int) {
		r.below = append(r.below, r.count-left)
		r.intervals = append(r.intervals, Interval{next, last})
		left -= last - next + 1
	}
	for i, _ := reserved.find(start); i < len(reserved) && left > 0; i++ {
		if free := min(reserved[i].First-next, left); free > 0 {
			add(next + free - 1)
		}
		next = max(next, reserved[i].Last+1)
	}
	if left > 0 {
		add(next + left - 1)
	}
	return r
}

// Count is how many ordinals are in the range.
func (r Range) Count() int { return r.count }

// Contains tells whether n is in the range.
func (r Range) Contains(n int) bool { return r.intervals.Contains(n) }

// Position is how many ordinals of the range are below n, whether or not n is in it.
func (r Range) Position(n int) int {
	i, found := r.intervals.find(n)
	switch {
	case found:
		return r.below[i] + n - r.intervals[i].First
	case i < len(r.intervals):
		return r.below[i]
	}
	return r.count
}

// At is the ordinal at a position, from 0 to Count-1; it panics beyond.
func (r Range) At(position int) int {
	if position < 0 || position >= r.count {
		panic(fmt.Sprintf("position %d of %d ordinals", position, r.count))
	}
	i, found := slices.BinarySearch(r.below, position)
	if !found {
		i--
	}
	return r.intervals[i].First + position - r.below[i]
}

// End is one past the last ordinal; for an empty range it is 0.
func (r Range) End() int {
	if n := len(r.intervals); n > 0 {
		return r.intervals[n-1].Last + 1
	}
	return 0
}

// Walk yields the ordinals, lowest first.
func (r Range) Walk() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, i := range r.intervals {
			for n := i.First; n <= i.Last; n++ {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// Backward yields the ordinals, highest first.
func (r Range) Backward() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, i := range slices.Backward(r.intervals) {
			for n := i.Last; n >= i.First; n-- {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// String is the range as intervals, such as "0,2-3,7".
func (r Range) String() string { return r.intervals.String() }

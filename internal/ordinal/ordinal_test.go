// SPDX-License-Identifier: Apache-2.0

package ordinal_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/ordinal"
	"github.com/kruisectl/kruisectl/internal/property"
)

func entries(list ...any) (out []intstr.IntOrString) {
	for _, e := range list {
		switch v := e.(type) {
		case int:
			out = append(out, intstr.FromInt32(int32(v)))
		case string:
			out = append(out, intstr.FromString(v))
		}
	}
	return out
}

func TestRangeOfTheSpecsExamples(t *testing.T) {
	cases := map[string]struct {
		start, replicas int
		reserved        []intstr.IntOrString
		want            []int
		end             int
	}{
		"nothing reserved":                          {0, 3, nil, []int{0, 1, 2}, 3},
		"replicas 4, reserve 1":                     {0, 4, entries(1), []int{0, 2, 3, 4}, 5},
		"start 2, replicas 4, reserve 1 and 3":      {2, 4, entries(1, 3), []int{2, 4, 5, 6}, 7},
		"replicas 3, reserve 0 and 2-5":             {0, 3, entries(0, "2-5"), []int{1, 6, 7}, 8},
		"the example of the API":                    {0, 4, entries(1, "4-6"), []int{0, 2, 3, 7}, 8},
		"no replicas":                               {5, 0, entries(1), nil, 0},
		"the start is within a reserved range":      {3, 2, entries("2-4"), []int{5, 6}, 7},
		"reserved beyond the end has no effect":     {0, 2, entries(7), []int{0, 1}, 2},
		"overlapping and touching reservations":     {0, 2, entries("0-3", 2, "3-5", 6), []int{7, 8}, 9},
		"two thousand million ordinals are nothing": {0, 2, entries("0-2000000000"), []int{2000000001, 2000000002}, 2000000003},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			reserved, err := ordinal.Parse(tc.reserved)
			require.NoError(t, err)
			r := ordinal.NewRange(tc.start, tc.replicas, reserved)
			assert.Equal(t, tc.want, slices.Collect(r.Walk()))
			back := slices.Collect(r.Backward())
			slices.Reverse(back)
			assert.Equal(t, tc.want, back)
			assert.Equal(t, tc.replicas, r.Count())
			assert.Equal(t, tc.end, r.End())
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, entry := range map[string]any{
		"a negative number":           -1,
		"a bare number as text":       "5",
		"a range that ends too early": "6-4",
		"a range without end":         "4-",
		"a range without beginning":   "-4",
		"letters":                     "a-b",
		"signs":                       "+1-2",
		"three parts":                 "1-2-3",
		"a number beyond any ordinal": "1-99999999999999999999",
		"spaces":                      "1 - 2",
		"nothing":                     "",
	} {
		t.Run(name, func(t *testing.T) {
			set, err := ordinal.Parse(entries(entry, 7))
			require.Error(t, err)
			assert.Equal(t, "7", set.String(), "the entries that can be read still count")
		})
	}
}

func TestRangeAgreesWithCounting(t *testing.T) {
	property.Many(t, 2000, func(t *rapid.T) {
		var intervals []ordinal.Interval
		reserved := map[int]bool{}
		for range rapid.IntRange(0, 4).Draw(t, "intervals") {
			first := rapid.IntRange(0, 20).Draw(t, "first")
			last := first + rapid.IntRange(-1, 5).Draw(t, "width")
			intervals = append(intervals, ordinal.Interval{First: first, Last: last})
			for n := first; n <= last; n++ {
				reserved[n] = true
			}
		}
		set := ordinal.NewSet(intervals...)
		start, count := rapid.IntRange(0, 25).Draw(t, "start"), rapid.IntRange(0, 12).Draw(t, "count")
		r := ordinal.NewRange(start, count, set)
		var want []int
		for n := start; len(want) < count; n++ {
			if !reserved[n] {
				want = append(want, n)
			}
		}
		if got := slices.Collect(r.Walk()); !slices.Equal(got, want) {
			t.Fatalf("walked %v, want %v", got, want)
		}
		for n := range 50 {
			if set.Contains(n) != reserved[n] {
				t.Fatalf("%v contains %d: %t", set, n, !reserved[n])
			}
			below := 0
			for _, w := range want {
				if w < n {
					below++
				}
			}
			if r.Contains(n) != slices.Contains(want, n) || r.Position(n) != below {
				t.Fatalf("%v: contains %d %t, position %d, want %d", r, n, r.Contains(n), r.Position(n), below)
			}
		}
		for i, w := range want {
			if r.At(i) != w {
				t.Fatalf("%v: position %d has %d, want %d", r, i, r.At(i), w)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package editdistance

import "testing"

func TestOf(t *testing.T) {
	cases := map[string]struct {
		a, b string
		want int
	}{
		"equal words":        {"image", "image", 0},
		"a missing letter":   {"imge", "image", 1},
		"a swap is two":      {"iamge", "image", 2},
		"nothing in common":  {"abc", "xyz", 3},
		"against no word":    {"", "image", 5},
		"the other way, too": {"image", "", 5},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Of(tc.a, tc.b); got != tc.want {
				t.Errorf("Of(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package look

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "-", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 67 * time.Second: "1m7s", 12*time.Minute + 30*time.Second: "12m",
		2*time.Hour + 5*time.Minute: "2h5m", 24 * time.Hour: "1d", 124 * time.Hour: "5d4h", 31 * 24 * time.Hour: "31d",
	} {
		if got := Age(d); got != want {
			t.Errorf("Age(%s) = %s, want %s", d, got, want)
		}
	}
}

// A bar has as many cells as were asked for, whatever the numbers.
func TestBarIsAsWideAsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-5, 500)
		cells := rapid.IntRange(0, 80).Draw(t, "cells")
		ascii := rapid.Bool().Draw(t, "ascii")
		bar := Bar(n.Draw(t, "done"), n.Draw(t, "total"), cells, ascii)
		if utf8.RuneCountInString(bar) != cells {
			t.Fatalf("bar %q has not %d cells", bar, cells)
		}
	})
	if got := Bar(3, 10, 10, true); got != "###......." {
		t.Errorf("3 of 10 is %s", got)
	}
	if got := Bar(0, 0, 4, true); got != "####" {
		t.Errorf("nothing to do is %s", got)
	}
}

// Every state has a symbol of its own in both modes, and an ASCII one that is ASCII.
func TestStatesCanBeToldApart(t *testing.T) {
	seen := map[string]State{}
	for s := OK; s <= Unknown; s++ {
		for _, ascii := range []bool{true, false} {
			mark := s.Symbol(ascii)
			if was, twice := seen[mark]; mark == "" || twice {
				t.Errorf("state %d has symbol %q, as has %d", s, mark, was)
			}
			seen[mark] = s
			if ascii && strings.IndexFunc(mark, func(r rune) bool { return r > 127 }) >= 0 {
				t.Errorf("%q is not ASCII", mark)
			}
		}
		if s.Colour() == None {
			t.Errorf("state %d has no colour", s)
		}
	}
	for _, v := range verdict.All {
		if Of(v) == Plain {
			t.Errorf("verdict %s has no state", v)
		}
	}
}

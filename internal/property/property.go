// SPDX-License-Identifier: Apache-2.0

// Package property runs property tests: it decides which random cases a run draws. A
// pipeline fixes them, so that a change is judged by its own merit and not by luck; a
// long run draws new ones every time. It is imported by tests only.
//
// The environment says which: RAPID_SEED is the seed of the cases, without it each run
// has another; RAPID_CHECKS is how many cases each property has. The flags -rapid.seed
// and -rapid.checks of one run go before both.
package property

import (
	"flag"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// rapid keeps its settings for the whole process: one property runs at a time.
var settings sync.Mutex

// Check holds prop against as many random cases as rapid's own default, 100.
func Check(t testing.TB, prop func(*rapid.T)) {
	t.Helper()
	Many(t, 0, prop)
}

// Many is Check with at least this number of cases, for promises that much depends on.
// RAPID_CHECKS can only raise it.
func Many(t testing.TB, cases int, prop func(*rapid.T)) {
	t.Helper()
	settings.Lock()
	defer settings.Unlock()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if seed := number(t, "RAPID_SEED"); seed > 0 && !given["rapid.seed"] {
		defer set(t, "rapid.seed", seed)()
	}
	if n := max(cases, number(t, "RAPID_CHECKS")); n > 0 && !given["rapid.checks"] {
		defer set(t, "rapid.checks", n)()
	}
	rapid.Check(t, prop)
}

func number(t testing.TB, variable string) int {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: a number is wanted, 0 or more", variable, value)
	}
	return n
}

// set changes a flag of rapid and returns how to take that back.
func set(t testing.TB, name string, n int) (reset func()) {
	t.Helper()
	was := flag.Lookup(name).Value.String()
	change := func(value string) {
		if err := flag.Lookup(name).Value.Set(value); err != nil { // flag.Set would mark it as given
			t.Fatalf("setting -%s: %v", name, err)
		}
	}
	change(strconv.Itoa(n))
	return func() { change(was) }
}

// SPDX-License-Identifier: Apache-2.0

// Package property runs property tests whose promises need more cases than others. It is
// imported by tests only.
package property

import (
	"flag"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// rapid keeps its settings for the whole process.
var settings sync.Mutex

// Many is rapid.Check with at least this number of cases: RAPID_CHECKS can raise it, the
// flag -rapid.checks of one run replaces it. Properties run one at a time.
func Many(t testing.TB, cases int, prop func(*rapid.T)) {
	t.Helper()
	settings.Lock()
	defer settings.Unlock()
	const name = "rapid.checks"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	checks := flag.Lookup(name).Value
	was := checks.String()
	if n, err := strconv.Atoi(was); err == nil && n < cases && !given {
		change := func(value string) {
			if err := checks.Set(value); err != nil { // flag.Set would mark it as given
				t.Fatalf("setting -%s: %v", name, err)
			}
		}
		change(strconv.Itoa(cases))
		defer change(was)
	}
	rapid.Check(t, prop)
}

// SPDX-License-Identifier: Apache-2.0

package property_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/property"
)

func draw(t *testing.T, check func(testing.TB, func(*rapid.T))) (drawn []uint64) {
	check(t, func(r *rapid.T) { drawn = append(drawn, rapid.Uint64().Draw(r, "n")) })
	return drawn
}

func TestEnvironmentDecidesWhatIsDrawn(t *testing.T) {
	t.Setenv("RAPID_SEED", "7")
	t.Setenv("RAPID_CHECKS", "20")
	first := draw(t, property.Check)
	require.Len(t, first, 20)
	require.Equal(t, first, draw(t, property.Check), "the same seed")
	t.Setenv("RAPID_SEED", "8")
	require.NotEqual(t, first, draw(t, property.Check), "another seed")
	t.Setenv("RAPID_SEED", "")
	free := draw(t, property.Check)
	require.False(t, slices.Equal(free, draw(t, property.Check)), "no seed: each run draws its own cases")
}

func TestManyIsTheLeastNumberOfCases(t *testing.T) {
	many := func(n int) func(testing.TB, func(*rapid.T)) {
		return func(t testing.TB, prop func(*rapid.T)) { property.Many(t, n, prop) }
	}
	t.Setenv("RAPID_CHECKS", "")
	require.Len(t, draw(t, property.Check), 100)
	require.Len(t, draw(t, many(30)), 30)
	t.Setenv("RAPID_CHECKS", "50")
	require.Len(t, draw(t, many(30)), 50)
	require.Len(t, draw(t, many(70)), 70)
	require.Equal(t, "100", flag.Lookup("rapid.checks").Value.String(), "the setting is taken back")
}

// SPDX-License-Identifier: Apache-2.0

package property_test

import (
	"flag"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/property"
)

func TestManyIsTheLeastNumberOfCases(t *testing.T) {
	setting := flag.Lookup("rapid.checks").Value.String()
	usual, err := strconv.Atoi(setting)
	require.NoError(t, err)
	for cases, want := range map[int]int{0: usual, usual - 1: usual, usual + 20: usual + 20} {
		drawn := 0
		property.Many(t, cases, func(*rapid.T) { drawn++ })
		require.Equal(t, want, drawn, "at least %d", cases)
	}
	require.Equal(t, setting, flag.Lookup("rapid.checks").Value.String(), "the setting is taken back")
}

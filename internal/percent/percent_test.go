// SPDX-License-Identifier: Apache-2.0

package percent_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/percent"
)

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		value    string
		total    int32
		up, down int32
	}{
		"a third of ten is rounded":                {"33%", 10, 4, 3},
		"a whole result is not rounded":            {"30%", 10, 3, 3},
		"7% of 300 is 21 in spite of binary":       {"7%", 300, 21, 21},
		"a fraction of a percent counts":           {"12.5%", 8, 1, 1},
		"a tiny fraction is one Pod when up":       {"0.1%", 10, 1, 0},
		"nothing of nothing":                       {"50%", 0, 0, 0},
		"more than all":                            {"150%", 4, 6, 6},
		"an int is an int":                         {"7", 3, 7, 7},
		"a negative int stays":                     {"-1", 3, -1, -1},
		"an absurd percentage ends at the maximum": {"99999999999999%", 10, math.MaxInt32, math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			up, err := percent.Of(intstr.Parse(c.value), c.total, percent.Up)
			require.NoError(t, err)
			down, err := percent.Of(intstr.Parse(c.value), c.total, percent.Down)
			require.NoError(t, err)
			require.Equal(t, [2]int32{c.up, c.down}, [2]int32{up, down})
		})
	}
}

func TestCheckRefusesWhatIsNoPercentage(t *testing.T) {
	for _, text := range []string{"", "5", "abc", "-5%", "5 %", "%", ".5%", "5.%", "5%%", "+5%", "1e2%", "5%\n"} {
		require.Error(t, percent.Check(intstr.FromString(text)), "%q", text)
		_, err := percent.Of(intstr.FromString(text), 10, percent.Up)
		require.Error(t, err, "%q", text)
	}
}

func TestWholePercentagesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share, total := rapid.Int64Range(0, 100).Draw(t, "share"), rapid.Int32Range(0, 1_000_000).Draw(t, "total")
		v := intstr.FromString(strconv.FormatInt(share, 10) + "%")
		up, err := percent.Of(v, total, percent.Up)
		require.NoError(t, err)
		down, err := percent.Of(v, total, percent.Down)
		require.NoError(t, err)
		require.Equal(t, (share*int64(total)+99)/100, int64(up))
		require.Equal(t, share*int64(total)/100, int64(down))
	})
}

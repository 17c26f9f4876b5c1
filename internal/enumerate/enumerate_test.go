// SPDX-License-Identifier: Apache-2.0

package enumerate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/internal/enumerate"
)

func TestSome(t *testing.T) {
	require.Empty(t, enumerate.Some(nil, 2))
	require.Equal(t, "a", enumerate.Some([]string{"a"}, 2))
	require.Equal(t, "a, b", enumerate.Some([]string{"a", "b"}, 2))
	require.Equal(t, "a, b and 1 more", enumerate.Some([]string{"a", "b", "c"}, 2))
}

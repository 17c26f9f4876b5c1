// SPDX-License-Identifier: Apache-2.0

// Package enumerate puts lists into sentences. It is pure.
package enumerate

import (
	"fmt"
	"strings"
)

// Some joins the first n items and says how many more there are: "a, b and 3 more".
func Some(items []string, n int) string {
	if more := len(items) - n; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:n], ", "), more)
	}
	return strings.Join(items, ", ")
}

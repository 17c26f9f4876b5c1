// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
)

// failKeys reads --fail-on: names of faults, "all" or "none".
func failKeys(words []string) (map[string]bool, error) {
	keys := map[string]bool{}
	for _, w := range words {
		switch {
		case w == "all":
			for _, k := range diagnose.FaultKeys {
				keys[k] = true
			}
		case w == "none" || w == "":
		case slices.Contains(diagnose.FaultKeys, w):
			keys[w] = true
		default:
			return nil, fmt.Errorf("--fail-on %q is unknown: use %s, all or none", w, strings.Join(diagnose.FaultKeys, ", "))
		}
	}
	return keys, nil
}

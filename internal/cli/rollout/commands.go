// SPDX-License-Identifier: Apache-2.0

// Package rollout follows, changes and explains rollouts: the commands `kruisectl rollout …`.
package rollout

import (
	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
)

// Commands returns the commands of this package for the root.
func Commands(*factory.Factory) []*cobra.Command { return nil }

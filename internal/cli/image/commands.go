// SPDX-License-Identifier: Apache-2.0

// Package image pulls images before a rollout needs them: the commands `kruisectl image …`.
package image

import (
	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
)

// Commands returns the commands of this package for the root.
func Commands(*factory.Factory) []*cobra.Command { return nil }

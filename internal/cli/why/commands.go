// SPDX-License-Identifier: Apache-2.0

// Package why says what holds a Pod or a workload back: `kruisectl why` and `kruisectl inplace`.
package why

import (
	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
)

// Commands returns the commands of this package for the root.
func Commands(*factory.Factory) []*cobra.Command { return nil }

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/test/cluster"
)

func newRunManager() *cobra.Command {
	var name string
	var o cluster.ManagerOptions
	cmd := &cobra.Command{
		Use:   "run-manager [-- FLAG ...]",
		Short: "Run the product's manager as a process of this machine, for a cluster without real nodes",
		Long: "Run the product's manager as a process of this machine, for a cluster without real nodes: they run no Pod of it. The\n" +
			"product must be installed (kruisectl install --wait=false); flags and rights of the manager are those of its Deployment\n" +
			"and ServiceAccount. Flags after -- come before those of the Deployment. down ends the process; running this again\n" +
			"replaces it.",
		Example: "  kruisectl install --yes --wait=false && cluster run-manager --program bin/kruise-manager\n" +
			"  cluster run-manager -- --nodeimage-creation-delay=1s",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Load(name)
			if err != nil {
				return err
			}
			o.Args, o.Progress = args, say(cmd.ErrOrStderr(), false)
			return c.RunManager(cmd.Context(), o)
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().StringVar(&o.Program, "program", "bin/kruise-manager", "path of the manager")
	return cmd
}

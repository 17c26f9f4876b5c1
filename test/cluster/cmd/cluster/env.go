// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/test/cluster"
	"github.com/kruisectl/kruisectl/test/cluster/images"
	"github.com/kruisectl/kruisectl/test/cluster/registry"
)

func newEnv() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "env",
		Short:   "Print what the suites need to know of a cluster, for eval in a shell",
		Example: `  eval "$(cluster env)"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Load(name)
			if err != nil {
				return err
			}
			for _, v := range [][2]string{
				{"KUBECONFIG", c.Kubeconfig()},
				{"KUBECTL", filepath.Join(c.State.BinDir, "kubectl")},
				{"CLUSTER_AUDIT_LOG", c.State.AuditLog},
				{"E2E_PRIVATE_REGISTRY", images.PrivateHost},
				{"E2E_PRIVATE_USER", registry.User},
				{"E2E_PRIVATE_PASSWORD", registry.Password},
			} {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "export %s=%q\n", v[0], v[1]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

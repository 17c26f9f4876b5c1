// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/toolchain"
)

func newBuild() *cobra.Command {
	var only []string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the programs of a cluster into the cache, once",
		Long: "Build the programs of a cluster into the cache ($KRUISECTL_CACHE or the user's cache directory), once per set of versions,\n" +
			"and install the Debian packages that real nodes need (only as root, only what is missing).\n\n" +
			"Programs: " + strings.Join(allPrograms(), ", "),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := say(cmd.ErrOrStderr(), quiet)
			names := only
			if len(names) == 0 {
				names = allPrograms()
				if err := machine.InstallPackages(cmd.Context(), progress); err != nil {
					return err
				}
			}
			for _, n := range names {
				if !slices.Contains(allPrograms(), n) {
					return fmt.Errorf("unknown program %q; known are %s", n, strings.Join(allPrograms(), ", "))
				}
			}
			for _, set := range toolchain.Sets() {
				wanted := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(set.Programs(), n) })
				if len(wanted) == 0 {
					continue
				}
				dir, err := set.Build(cmd.Context(), wanted, progress)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), dir); err != nil {
					return err
				}
			}
			progress("all programs are present")
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "names of the programs to build; installs no packages")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "print no progress")
	return cmd
}

func allPrograms() []string {
	var names []string
	for _, set := range toolchain.Sets() {
		names = append(names, set.Programs()...)
	}
	return names
}

func newAssets() *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print the directory for KUBEBUILDER_ASSETS (etcd, kube-apiserver, kubectl), building them if missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := toolchain.Core().Build(cmd.Context(), toolchain.EnvtestPrograms(), say(cmd.ErrOrStderr(), false))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package controlplane installs, upgrades, removes and inspects what runs in the cluster:
// the commands install, upgrade, uninstall, status, manifest, preflight, doctor,
// feature-gates and version (cli.md 4). What they do is in internal/install; here are
// flags, questions and printing.
package controlplane

import (
	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	return []*cobra.Command{
		newInstall(f), newUpgrade(f), newUninstall(f), newStatus(f), newManifest(f),
		newFeatureGates(f), newPreflight(f), newDoctor(f), newVersion(f),
	}
}

// cluster opens the connection of a command.
func cluster(f *factory.Factory) (*install.Cluster, error) {
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	d, err := f.Discovery()
	if err != nil {
		return nil, err
	}
	return &install.Cluster{Client: c, Version: d, Clock: f.Clock}, nil
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return out.Usagef("%q takes no argument, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/registry"
	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
	"github.com/kruisectl/kruisectl/test/cluster/volumes"
)

// The commands below are processes of a cluster, started by up.

func newHoldNode() *cobra.Command {
	return &cobra.Command{
		Use:    "hold-node DIR",
		Short:  "Set up the mounts of a node and keep its namespaces",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(cmd *cobra.Command, args []string) error { return machine.Hold(cmd.Context(), args[0]) },
	}
}

func newSupervise() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:    "supervise",
		Short:  "Keep the processes of a cluster running",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return supervisor.Serve(cmd.Context(), socket, new(supervisor.Supervisor))
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "Unix socket to serve")
	return cmd
}

func newServeRegistry() *cobra.Command {
	var dir, public, private string
	cmd := &cobra.Command{
		Use:    "serve-registry",
		Short:  "Serve images to the nodes of a cluster",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return registry.Serve(cmd.Context(), dir, public, private)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the images")
	cmd.Flags().StringVar(&public, "public", "", "address that serves everybody")
	cmd.Flags().StringVar(&private, "private", "", "address that wants credentials")
	return cmd
}

func newServeVolumes() *cobra.Command {
	var dir, socket, node string
	cmd := &cobra.Command{
		Use:    "serve-volumes",
		Short:  "Make volumes for a cluster, or mount them in the node whose namespaces this is",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			switch {
			case node != "":
				return volumes.ServeNode(cmd.Context(), dir, node, log)
			case socket != "":
				return volumes.ServeController(cmd.Context(), dir, socket, log)
			}
			return errors.New("either a socket or a node is needed")
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the volumes")
	cmd.Flags().StringVar(&socket, "socket", "", "Unix socket to serve as the controller")
	cmd.Flags().StringVar(&node, "node", "", "node to serve, instead of the controller")
	return cmd
}

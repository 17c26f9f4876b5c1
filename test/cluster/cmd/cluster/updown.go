// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/test/cluster"
	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
)

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", cluster.DefaultName, "name of the cluster")
}

func newUp() *cobra.Command {
	var o cluster.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and wait until all its nodes are Ready",
		Long: "Start a cluster and wait until all its nodes are Ready. What a crashed run left is removed first; a healthy cluster of\n" +
			"the same shape is left alone. Prints the path of the kubeconfig.",
		Example: "  cluster up                                      three real nodes, as root\n" +
			"  cluster up --nodes 3 --simulated 200 --audit    real nodes for the product, simulated ones for its workloads\n" +
			"  cluster up --rootless-simulated --simulated 50  control plane on 127.0.0.1 and simulated nodes, as any user",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rootless && !cmd.Flags().Changed("nodes") {
				o.Nodes = 0
			}
			o.Progress = say(cmd.ErrOrStderr(), false)
			c, err := cluster.Up(cmd.Context(), o)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig())
			return err
		},
	}
	nameFlag(cmd, &o.Name)
	cmd.Flags().IntVar(&o.Nodes, "nodes", 3, "real nodes; need root")
	cmd.Flags().IntVar(&o.Simulated, "simulated", 0, "simulated nodes; beside real nodes they have the label and taint kruisectl.test/simulated=true")
	cmd.Flags().BoolVar(&o.Rootless, "rootless-simulated", false, "control plane and simulated nodes on 127.0.0.1 only, without root")
	cmd.Flags().BoolVar(&o.NoVolumes, "no-volumes", false, "do not make volumes for claims; a cluster with simulated nodes never does")
	cmd.Flags().BoolVar(&o.Audit, "audit", false, "write an audit log of all requests; its path is in the status")
	return cmd
}

func newDown() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove every trace of a cluster, also of a crashed one",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cluster.Down(cmd.Context(), name, say(cmd.ErrOrStderr(), false))
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func newStatus() *cobra.Command {
	var name, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how a cluster is; fails unless it is healthy",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := cluster.StatusOf(cmd.Context(), name)
			if err != nil {
				return err
			}
			switch output {
			case "json":
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(status)
			case "":
				err = printStatus(cmd.OutOrStdout(), status)
			default:
				return fmt.Errorf("output %q is not json", output)
			}
			if err == nil && !status.Healthy() {
				err = fmt.Errorf("cluster %s is %s: %s", status.Name, status.Phase, status.Problem)
			}
			return err
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for text")
	return cmd
}

func printStatus(w io.Writer, s cluster.Status) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "Cluster:\t%s\nPhase:\t%s\n", s.Name, s.Phase)
	for _, row := range [][2]string{
		{"Problem", s.Problem}, {"Kubeconfig", s.Kubeconfig}, {"API server", s.APIServer}, {"Registry", s.Registry},
		{"Private registry", s.PrivateRegistry}, {"Audit log", s.AuditLog}, {"Programs", s.BinDir}, {"Logs", s.LogsDir},
	} {
		if row[1] != "" {
			fmt.Fprintf(t, "%s:\t%s\n", row[0], row[1])
		}
	}
	for _, n := range s.Nodes {
		ready := "not Ready"
		if n.Ready {
			ready = "Ready"
		}
		fmt.Fprintf(t, "Node %s:\t%s, %s, %s\n", n.Name, ready, n.IP, n.Zone)
	}
	if s.Shape.Simulated > 0 {
		fmt.Fprintf(t, "Simulated nodes:\t%d of %d Ready\n", s.SimulatedReady, s.Shape.Simulated)
	}
	for _, p := range s.Processes {
		fmt.Fprintf(t, "Process %s:\t%s, pid %d, %d restarts\n", p.Name, p.State, p.PID, p.Restarts)
	}
	return t.Flush()
}

func newKubeconfig() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Load(name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig())
			return err
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func newProcess() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "process ACTION PROCESS",
		Short:   "Disturb a process: start, stop, restart, kill, freeze, thaw",
		Example: "  cluster process kill node1.containerd\n  cluster process restart kube-apiserver",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Load(name)
			if err != nil {
				return err
			}
			return c.Do(cmd.Context(), args[1], supervisor.Action(args[0]))
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func newNode() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "node stop|start|cut|join NODE",
		Short: "Switch a real node off, as if its power were cut, or on again; cut it off from the API server, or join it again",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Load(name)
			if err != nil {
				return err
			}
			switch args[0] {
			case "stop":
				return c.StopNode(cmd.Context(), args[1])
			case "start":
				return c.StartNode(cmd.Context(), args[1])
			case "cut":
				return c.CutNode(cmd.Context(), args[1])
			case "join":
				return c.JoinNode(cmd.Context(), args[1])
			}
			return errors.New("the first argument must be stop, start, cut or join")
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func newExec() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "exec NODE -- COMMAND [ARG ...]",
		Short:   "Run a command inside a real node; crictl and ctr find its container runtime",
		Example: "  cluster exec node1 -- crictl ps",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Load(name)
			if err != nil {
				return err
			}
			return c.Exec(cmd.Context(), args[0], args[1:])
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

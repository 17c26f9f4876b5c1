// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kruisectl/kruisectl/test/cluster/hollow"
)

func newSimulate() *cobra.Command {
	o := hollow.DefaultOptions()
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Play nodes and their kubelets in any cluster until interrupted; no container runs",
		Long: "Play nodes and their kubelets in any cluster until interrupted. No container runs: Pods bound to these nodes get the\n" +
			"status that a kubelet would write, in-place image changes included. The Node objects stay when the command ends.\n\n" +
			"A container whose image tag starts with \"broken\" never becomes ready; an image on a host that starts with \"invalid.\"\n" +
			"cannot be pulled; a Node with the annotation " + hollow.AnnotationDown + " goes silent.\n\n" +
			"With --node-agent the nodes also report the images as pulled that their NodeImages ask for. Leave it off where the\n" +
			"product's node agents run: they report too.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
			if err != nil {
				return fmt.Errorf("loading the kubeconfig: %w", err)
			}
			o.Progress = say(cmd.ErrOrStderr(), false)
			return hollow.Run(cmd.Context(), config, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "path of a kubeconfig; default as kubectl")
	f.IntVar(&o.Nodes, "nodes", 10, "number of nodes")
	f.StringVar(&o.Prefix, "prefix", o.Prefix, "prefix of their names")
	f.BoolVar(&o.Taint, "taint", false, "give them the taint "+hollow.LabelSimulated+"=true:NoSchedule")
	f.DurationVar(&o.LeaseInterval, "lease-interval", o.LeaseInterval, "how often each node says that it is alive")
	f.BoolVar(&o.NodeAgent, "node-agent", false, "play the product's node agent as well: report images as pulled")
	f.StringSliceVar(&o.Behaviour.Idle, "idle-namespace", nil, "namespaces whose Pods stay Pending, for nothing plays what they would do")
	f.DurationVar(&o.Behaviour.Start, "start-delay", o.Behaviour.Start, "from binding to running containers")
	f.DurationVar(&o.Behaviour.Restart, "restart-delay", o.Behaviour.Restart, "from the end of a container to its next instance")
	f.DurationVar(&o.Behaviour.Stop, "stop-delay", o.Behaviour.Stop, "from a request of deletion to the end of a Pod")
	f.DurationVar(&o.Behaviour.Complete, "complete-delay", o.Behaviour.Complete, "how long containers run that are not to be restarted")
	f.DurationVar(&o.Behaviour.Pull, "pull-delay", o.Behaviour.Pull, "how long the node agent takes for an image")
	return cmd
}

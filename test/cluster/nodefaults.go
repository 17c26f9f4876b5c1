// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"

	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
)

// StopNode switches a node off: its kubelet, its container runtime and all its containers end at once, and its network
// is gone. The machine and the other nodes do not notice.
func (c *Cluster) StopNode(ctx context.Context, node string) error {
	n, err := c.node(node)
	if err != nil {
		return err
	}
	holder, _ := c.pid(ctx, processName(n.Name, kindHolder)) // 0: it is off already
	kinds := []string{kindProxy, kindKubelet, kindContainerd}
	if c.State.Shape.Volumes {
		kinds = append(kinds, kindVolumes)
	}
	for _, kind := range kinds {
		if err := c.supervisor.Do(ctx, processName(n.Name, kind), supervisor.Stop); err != nil {
			return err
		}
	}
	machine.DisconnectNode(ctx, n.Name)
	if err := machine.KillAll(ctx, func() []int {
		pids := machine.CgroupMembers(n.Name)
		if holder != 0 {
			pids = append(pids, machine.InNetwork(holder)...) // shims
		}
		return pids
	}); err != nil {
		return fmt.Errorf("stopping node %s: %w", n.Name, err)
	}
	if err := c.supervisor.Do(ctx, processName(n.Name, kindHolder), supervisor.Stop); err != nil {
		return err
	}
	return machine.RemoveCgroups(ctx, n.Name)
}

// StartNode switches a node on again that StopNode switched off. It does not wait until the node is Ready.
func (c *Cluster) StartNode(ctx context.Context, node string) error {
	n, err := c.node(node)
	if err != nil {
		return err
	}
	if pid, err := c.pid(ctx, processName(n.Name, kindHolder)); err == nil && pid != 0 {
		return fmt.Errorf("node %s is not off", n.Name)
	}
	if err := machine.ClearRun(c.State.nodeDir(n.Name)); err != nil {
		return err
	}
	pid, err := c.startHolder(ctx, n)
	if err != nil {
		return err
	}
	for _, spec := range append([]supervisor.Spec{c.State.containerdSpec(n, pid)}, c.State.nodeAgentSpecs(n, pid)...) {
		if err := c.supervisor.Put(ctx, spec); err != nil {
			return err
		}
	}
	return nil
}

// CutNode cuts a node off from the API server, both ways and silently; its containers and its pulls go on.
func (c *Cluster) CutNode(ctx context.Context, node string) error {
	pid, err := c.holder(ctx, node)
	if err != nil {
		return err
	}
	return machine.CutNode(ctx, pid, c.State.Ports.API)
}

// JoinNode undoes CutNode.
func (c *Cluster) JoinNode(ctx context.Context, node string) error {
	pid, err := c.holder(ctx, node)
	if err != nil {
		return err
	}
	return machine.JoinNode(ctx, pid)
}

// holder is the process that keeps the namespaces of a node.
func (c *Cluster) holder(ctx context.Context, node string) (int, error) {
	n, err := c.node(node)
	if err != nil {
		return 0, err
	}
	return c.pid(ctx, processName(n.Name, kindHolder))
}

// Exec runs a command inside a node with the input and output of the calling process.
func (c *Cluster) Exec(ctx context.Context, node string, args []string) error {
	pid, err := c.holder(ctx, node)
	if err != nil {
		return err
	}
	env := []string{
		"PATH=" + c.State.BinDir + ":" + os.Getenv("PATH"),
		machine.Mark(c.State.Name), // Down ends it too
		"CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock", "CONTAINERD_NAMESPACE=k8s.io",
	}
	return machine.RunIn(ctx, pid, env, args)
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kruisectl/kruisectl/test/cluster/images"
	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/toolchain"
)

// prepareNodes makes the namespaces of all nodes and starts their container runtimes. It returns the process that
// holds the namespaces of each node.
func (c *Cluster) prepareNodes(ctx context.Context, progress toolchain.Progress) (map[string]int, error) {
	holders := map[string]int{}
	if len(c.State.Nodes) == 0 {
		return holders, nil
	}
	progress("starting %d container runtimes", len(c.State.Nodes))
	for _, n := range c.State.Nodes {
		pid, err := c.startHolder(ctx, n)
		if err != nil {
			return nil, err
		}
		holders[n.Name] = pid
		if err := c.supervisor.Put(ctx, c.State.containerdSpec(n, pid)); err != nil {
			return nil, err
		}
	}
	for _, n := range c.State.Nodes {
		if err := c.importPause(ctx, n, holders[n.Name]); err != nil {
			return nil, err
		}
	}
	return holders, nil
}

// startHolder makes the namespaces, control groups and network of a node.
func (c *Cluster) startHolder(ctx context.Context, n NodeState) (int, error) {
	dir := c.State.nodeDir(n.Name)
	if err := machine.CreateCgroup(n.Name); err != nil {
		return 0, err
	}
	machine.ClearReady(dir)
	name := processName(n.Name, kindHolder)
	if err := c.supervisor.Put(ctx, c.State.holderSpec(n)); err != nil {
		return 0, err
	}
	if err := c.wait(ctx, time.Minute, name, func(context.Context) error {
		if !machine.Ready(dir) {
			return errors.New("its namespaces are not set up")
		}
		return nil
	}); err != nil {
		return 0, err
	}
	pid, err := c.pid(ctx, name)
	if err != nil {
		return 0, err
	}
	var peers []machine.Net
	for _, other := range c.State.Nodes {
		if other.Name != n.Name {
			peers = append(peers, other.net())
		}
	}
	return pid, machine.ConnectNode(ctx, n.net(), pid, peers)
}

// importPause puts the sandbox image into the node's container runtime, so that no sandbox waits for a registry.
func (c *Cluster) importPause(ctx context.Context, n NodeState, holder int) error {
	process := processName(n.Name, kindContainerd)
	return c.wait(ctx, nodeLimit, process, func(ctx context.Context) error {
		args := append(machine.Enter(holder), c.State.program("ctr"), "--namespace=k8s.io", "images", "import", c.State.pauseArchive())
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("importing %s: %w: %s", images.Pause, err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// startNodes starts kubelets and proxies and returns when all nodes are Ready.
func (c *Cluster) startNodes(ctx context.Context, kube kubernetes.Interface, holders map[string]int, progress toolchain.Progress) error {
	if len(c.State.Nodes) == 0 {
		return nil
	}
	if err := c.waitRegistry(ctx); err != nil {
		return err
	}
	progress("starting %d kubelets", len(c.State.Nodes))
	for _, n := range c.State.Nodes {
		if err := c.createNode(ctx, kube, n); err != nil {
			return err
		}
		for _, spec := range c.State.nodeAgentSpecs(n, holders[n.Name]) {
			if err := c.supervisor.Put(ctx, spec); err != nil {
				return err
			}
		}
	}
	for _, n := range c.State.Nodes {
		if err := c.waitNode(ctx, kube, n.Name); err != nil {
			return err
		}
	}
	if err := c.waitVolumes(ctx, kube); err != nil {
		return err
	}
	return c.wait(ctx, controlPlaneLimit, ControllerManager, func(ctx context.Context) error {
		_, err := kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// createNode registers the node before its kubelet does, with the Pod network that the node's bridge uses.
func (c *Cluster) createNode(ctx context.Context, kube kubernetes.Interface, n NodeState) error {
	_, err := kube.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name,
			Labels: map[string]string{
				corev1.LabelHostname:             n.Name,
				corev1.LabelTopologyZone:         n.Zone,
				corev1.LabelTopologyRegion:       "local",
				"node-role.kubernetes.io/worker": "",
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: n.PodCIDR, PodCIDRs: []string{n.PodCIDR}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Node %s: %w", n.Name, err)
	}
	return nil
}

func (c *Cluster) waitNode(ctx context.Context, kube kubernetes.Interface, node string) error {
	return c.wait(ctx, nodeLimit, processName(node, kindKubelet), func(ctx context.Context) error {
		obj, err := kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if why := notReady(obj); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

// notReady says why Pods cannot run on the node yet, "" if they can.
func notReady(node *corev1.Node) string {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable {
			return fmt.Sprintf("Node %s has the taint %s", node.Name, t.Key)
		}
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type != corev1.NodeReady {
			continue
		}
		if cond.Status == corev1.ConditionTrue {
			return ""
		}
		return fmt.Sprintf("Node %s is not Ready: %s", node.Name, cond.Message)
	}
	return fmt.Sprintf("Node %s has no status yet", node.Name)
}

// startSimulated starts the simulated nodes and returns when all are Ready.
func (c *Cluster) startSimulated(ctx context.Context, kube kubernetes.Interface, progress toolchain.Progress) error {
	want := c.State.Shape.Simulated
	if want == 0 {
		return nil
	}
	progress("starting %d simulated nodes", want)
	if err := c.supervisor.Put(ctx, c.State.simulatorSpec()); err != nil {
		return err
	}
	return c.wait(ctx, simulatedLimit, Simulator, func(ctx context.Context) error {
		list, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type=simulated", ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if notReady(&list.Items[i]) == "" {
				ready++
			}
		}
		if ready < want {
			// The list is large: asking all the time would slow down what it waits for.
			return errors.Join(fmt.Errorf("%d of %d simulated nodes are Ready", ready, want), pause(ctx, time.Second))
		}
		return nil
	})
}

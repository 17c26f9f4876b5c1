//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Nodes lists the nodes by name.
func (e *Env) Nodes() []corev1.Node {
	e.T.Helper()
	list := &corev1.NodeList{}
	e.read("the nodes", func() error { return e.Client.List(e.Background(), list) })
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// NodeNames lists the names of the nodes, sorted.
func (e *Env) NodeNames() []string {
	e.T.Helper()
	var names []string
	for _, n := range e.Nodes() {
		names = append(names, n.Name)
	}
	return names
}

// Address is the node's own address, "" if it has none.
func Address(n corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// CutOff cuts the node off from the API server until the test ends or Join is called. Its
// containers run on, and it can still pull.
func (e *Env) CutOff(node string) {
	e.T.Helper()
	e.Cluster("node", "cut", node)
	e.T.Logf("fault: %s is cut off from the API server", node)
	e.T.Cleanup(func() { e.Join(node) })
}

// Join undoes CutOff and returns when the node is Ready.
func (e *Env) Join(node string) {
	e.T.Helper()
	e.Cluster("node", "join", node)
	e.EventuallyIn(e.Background(), node+" is Ready", Long, func() string {
		n := &corev1.Node{}
		if err := e.Client.Get(e.Background(), client.ObjectKey{Name: node}, n); err != nil {
			return err.Error()
		}
		for _, t := range n.Spec.Taints {
			if t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady {
				return "taint " + t.Key
			}
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return "condition Ready is not True"
	})
}

// KillRuntime crashes the container runtime of a node; containers run on and it comes back.
func (e *Env) KillRuntime(node string) {
	e.T.Helper()
	e.Disturb("kill", node+".containerd")
}

// StopRuntime keeps the container runtime of a node down until the test ends or
// StartRuntime is called.
func (e *Env) StopRuntime(node string) {
	e.T.Helper()
	e.Disturb("stop", node+".containerd")
	e.T.Cleanup(func() { e.StartRuntime(node) })
}

// StartRuntime undoes StopRuntime.
func (e *Env) StartRuntime(node string) {
	e.T.Helper()
	e.Disturb("start", node+".containerd")
}

// Agent is the Pod of the node agent on a node, nil if there is none.
func (e *Env) Agent(node string) *corev1.Pod {
	e.T.Helper()
	list := &corev1.PodList{}
	e.EventuallyIn(e.Background(), "reading the node agents", Short, func() string { // also in clean-up
		return found(e.Client.List(e.Background(), list, client.InNamespace(SystemNamespace), client.MatchingLabels{"control-plane": "daemon"}))
	})
	for i := range list.Items {
		if list.Items[i].Spec.NodeName == node && list.Items[i].DeletionTimestamp == nil {
			return &list.Items[i]
		}
	}
	return nil
}

// CrashAgent kills the process of the node agent, as an out-of-memory kill does; the
// kubelet starts it again in the same Pod. It returns at once; see WaitAgent. When the test
// ends the Pod is replaced: the kubelet takes longer for each further restart of the same one.
func (e *Env) CrashAgent(node string) {
	e.T.Helper()
	pod := e.Agent(node)
	require.NotNil(e.T, pod, "an agent on %s", node)
	require.NotEmpty(e.T, pod.Status.ContainerStatuses)
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	require.NotEmpty(e.T, id, "the container of %s", pod.Name)
	pid := strings.TrimSpace(e.Cluster("exec", node, "--", "crictl", "inspect", "-o", "go-template", "--template", "{{.info.pid}}", id))
	e.Cluster("exec", node, "--", "kill", "-9", pid)
	e.T.Logf("fault: killed process %s of %s on %s", pid, pod.Name, node)
	e.T.Cleanup(func() { e.ReplaceAgent(node) })
}

// ReplaceAgent deletes the Pod of the node agent and waits for another one that is ready.
func (e *Env) ReplaceAgent(node string) {
	e.T.Helper()
	pod := e.Agent(node)
	if pod != nil {
		require.NoError(e.T, client.IgnoreNotFound(e.Client.Delete(e.Background(), pod)))
	}
	e.EventuallyIn(e.Background(), "another agent on "+node, Long, func() string {
		next := e.Agent(node)
		if next == nil || (pod != nil && next.UID == pod.UID) || !Ready(next) {
			return "not yet"
		}
		return ""
	})
}

// WaitAgent waits until the agent of the node has restarted more often than before and is ready.
func (e *Env) WaitAgent(node string, before int32) {
	e.T.Helper()
	e.EventuallyIn(e.Background(), "the agent of "+node+" is back", Long, func() string {
		pod := e.Agent(node)
		switch {
		case pod == nil:
			return "there is none"
		case AgentRestarts(pod) <= before:
			return "it has not restarted"
		case !Ready(pod):
			return "it is not ready"
		}
		return ""
	})
}

// AgentRestarts is how often the agent's container was restarted.
func AgentRestarts(pod *corev1.Pod) int32 {
	if pod == nil || len(pod.Status.ContainerStatuses) == 0 {
		return 0
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}

// Clean removes what a suite that was killed may have left on the cluster: rules of the
// registry, nodes that are cut off, NodeImages without a node, Namespaces. Call it before
// the tests of a suite that uses them.
func Clean(ctx context.Context) error {
	c, _, err := Connect()
	if err != nil {
		return err
	}
	if err := askRegistry(ctx, http.MethodDelete, "/test/rules", nil, nil, nil); err != nil {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range nodes.Items {
		r, err := Run(ctx, "", "cluster", "node", "join", n.Name)
		if err != nil || r.Code != 0 {
			return fmt.Errorf("joining node %s: %w: %s", n.Name, err, r.Text())
		}
	}
	fakes := &v1beta1.NodeImageList{}
	if err := c.List(ctx, fakes, client.HasLabels{v1beta1.FakeNodeImageLabel}); err != nil {
		return fmt.Errorf("listing NodeImages: %w", err)
	}
	for i := range fakes.Items {
		if err := c.Delete(ctx, &fakes.Items[i]); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting NodeImage %s: %w", fakes.Items[i].Name, err)
		}
	}
	namespaces := &corev1.NamespaceList{}
	if err := c.List(ctx, namespaces, client.MatchingLabels{testLabel: "true"}); err != nil {
		return fmt.Errorf("listing the namespaces of tests: %w", err)
	}
	for i := range namespaces.Items {
		if err := c.Delete(ctx, &namespaces.Items[i]); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting Namespace %s: %w", namespaces.Items[i].Name, err)
		}
	}
	return nil
}

// Main is TestMain of a suite: it cleans up, installs, runs the tests, and returns the exit
// code, which is not 0 either when a namespace does not go away.
func Main(run func() int) int {
	log.SetLogger(logr.Discard()) // or controller-runtime complains that nobody did
	ctx := context.Background()
	say := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := Install(ctx); err != nil {
		return say(err)
	}
	if err := Clean(ctx); err != nil {
		return say(err)
	}
	code := run()
	if err := NamespacesGone(ctx); err != nil {
		return say(err)
	}
	return code
}

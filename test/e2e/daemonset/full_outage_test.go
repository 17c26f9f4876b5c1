//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// D8: two of three machines are silent and no longer wanted. Their Pods are told to go, and
// their never going does not hold up the machine that works.
func TestSilentNodesDoNotHoldUpTheOthers(t *testing.T) {
	s := newSuite(t, beta{}) // not parallel: machines are stopped
	nodes := s.nodes()
	require.Len(t, nodes, 3)
	silent := nodes[1:]
	s.create(func(f fields) {
		f.Rolling.MaxUnavailable = new(intstr.FromInt32(2))
		f.Template.Spec.TerminationGracePeriodSeconds = new(int64(5))
	})
	s.waitOn(nodes)
	t.Cleanup(func() { s.bringBack(silent) })
	for _, node := range silent {
		s.Disturb("stop", node+".kubelet")
	}
	s.waitNodes(silent, corev1.ConditionUnknown)
	s.moveManager(silent)

	s.change(func(f fields) {
		container(f).Image = harness.Nginx2
		f.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: silent}},
			}}},
		}}
	})
	s.Eventually("Pods of silent nodes are told to go, the others are updated", harness.Long, func() string {
		for _, p := range s.all() {
			gone := slices.Contains(silent, target(p))
			switch {
			case gone && p.DeletionTimestamp == nil:
				return "Pod " + p.Name + " of a silent node stays"
			case !gone && (harness.Image(p, "busybox") != harness.Nginx2 || !harness.Ready(&p)):
				return fmt.Sprintf("Pod %s has image %s", p.Name, harness.Image(p, "busybox"))
			}
		}
		return ""
	})
}

// waitNodes waits until condition Ready of the nodes has the status.
func (s suite) waitNodes(nodes []string, status corev1.ConditionStatus) {
	s.T.Helper()
	ctx := s.Background()
	s.EventuallyIn(ctx, fmt.Sprintf("condition Ready of %v is %s", nodes, status), harness.Long, func() string {
		for _, name := range nodes {
			n := &corev1.Node{}
			if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
				return err.Error()
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != status {
					return fmt.Sprintf("%s: %s", name, c.Status)
				}
			}
		}
		return ""
	})
}

// moveManager removes the manager's Pods from the nodes at once and waits until others are ready.
func (s suite) moveManager(from []string) {
	s.T.Helper()
	managers := func() []corev1.Pod {
		list := &corev1.PodList{}
		require.NoError(s.T, s.Client.List(s.Ctx(), list, client.InNamespace(harness.SystemNamespace), client.MatchingLabels{"control-plane": "controller-manager"}))
		return list.Items
	}
	for _, p := range managers() {
		if slices.Contains(from, p.Spec.NodeName) {
			require.NoError(s.T, client.IgnoreNotFound(s.Client.Delete(s.Ctx(), &p, client.GracePeriodSeconds(0))))
		}
	}
	s.Eventually("every manager is ready on a node that works", harness.Long, func() string {
		pods := managers()
		if len(pods) < 2 {
			return fmt.Sprintf("%d managers", len(pods))
		}
		for _, p := range pods {
			if slices.Contains(from, p.Spec.NodeName) || !harness.Ready(&p) {
				return fmt.Sprintf("%s on %q: %s", p.Name, p.Spec.NodeName, p.Status.Phase)
			}
		}
		return ""
	})
}

// bringBack starts the kubelets again, after removing what they no longer have to stop, and
// waits until every node and every Pod of the cluster is ready.
func (s suite) bringBack(nodes []string) {
	ctx := s.Background()
	list := &corev1.PodList{}
	if err := s.Client.List(ctx, list); err != nil {
		s.T.Errorf("listing Pods: %v", err)
	}
	for _, p := range list.Items {
		if slices.Contains(nodes, p.Spec.NodeName) && p.DeletionTimestamp != nil {
			_ = client.IgnoreNotFound(s.Client.Delete(ctx, &p, client.GracePeriodSeconds(0)))
		}
	}
	for _, node := range nodes {
		s.Disturb("start", node+".kubelet")
	}
	s.waitNodes(nodes, corev1.ConditionTrue)
	s.EventuallyIn(ctx, "every Pod of the cluster is ready", harness.Long, func() string {
		if err := s.Client.List(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{}}); err != nil {
			return err.Error()
		}
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil {
				continue
			}
			if p.Status.Phase != corev1.PodRunning || !harness.Ready(&p) {
				return fmt.Sprintf("Pod %s/%s on %s is %s", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase)
			}
		}
		return ""
	})
}

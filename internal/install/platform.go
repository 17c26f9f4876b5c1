// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Platform guesses the kind of cluster from its nodes; "generic" when they say nothing or
// may not be read. EKS is never guessed: only its users know whether the control plane
// reaches their Pods.
func (c *Cluster) Platform(ctx context.Context) string {
	nodes, err := c.list(ctx, gvkNode)
	if err != nil {
		return "generic"
	}
	return platformOf(nodes)
}

func platformOf(nodes []unstructured.Unstructured) string {
	for _, n := range nodes {
		kubelet, _, _ := unstructured.NestedString(n.Object, "status", "nodeInfo", "kubeletVersion")
		labels := n.GetLabels()
		switch {
		case strings.Contains(kubelet, "+k3s"):
			return "k3s"
		case strings.Contains(kubelet, "+rke2"):
			return "rke2"
		case labels["kubernetes.azure.com/cluster"] != "":
			return "aks"
		case labels["cloud.google.com/gke-nodepool"] != "":
			return "gke"
		}
	}
	return "generic"
}

// onEKS reports nodes of Amazon's EKS.
func onEKS(nodes []unstructured.Unstructured) bool {
	for _, n := range nodes {
		for k := range n.GetLabels() {
			if strings.HasPrefix(k, "eks.amazonaws.com/") {
				return true
			}
		}
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0

// Package nodestate reads from a Node what decides whether a node agent serves it. It is pure.
package nodestate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// ReadySince returns since when the node is ready, by the kubelet's clock; false when it is
// not, or has not said so yet.
func ReadySince(n *corev1.Node) (time.Time, bool) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time, c.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// Ready reports whether the node says that it is ready.
func Ready(n *corev1.Node) bool {
	_, ready := ReadySince(n)
	return ready
}

// IsVirtual reports whether a provider stands behind the node (label type=virtual-kubelet):
// then it has no node agent, and neither NodeImage nor NodePodProbe (images.md 8, podprobe.md 4.1).
func IsVirtual(n *corev1.Node) bool {
	return n.Labels[v1beta1.VirtualKubeletLabel] == v1beta1.VirtualKubelet
}

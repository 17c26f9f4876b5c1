//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Identity is what an in-place update must keep.
type Identity struct {
	UID      types.UID
	IP, Node string
}

// Identities maps Pod names to what must stay.
func Identities(pods []corev1.Pod) map[string]Identity {
	ids := map[string]Identity{}
	for _, p := range pods {
		ids[p.Name] = Identity{UID: p.UID, IP: p.Status.PodIP, Node: p.Spec.NodeName}
	}
	return ids
}

// UIDs returns the UIDs of pods, sorted.
func UIDs(pods []corev1.Pod) []string {
	var uids []string
	for _, p := range pods {
		uids = append(uids, string(p.UID))
	}
	slices.Sort(uids)
	return uids
}

// Restarts returns the restart count of a container, or -1 when the status lacks it.
func Restarts(p corev1.Pod, container string) int32 {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container {
			return s.RestartCount
		}
	}
	return -1
}

// Image returns the image that the spec of a container names.
func Image(p corev1.Pod, container string) string {
	for _, c := range p.Spec.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// RequireSamePods fails unless the workload has exactly the Pods of before, each with the
// same UID, IP and node.
func (e *Env) RequireSamePods(owner string, before map[string]Identity) {
	e.T.Helper()
	after := Identities(e.Pods(owner))
	require.Equal(e.T, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)), "names of Pods")
	require.Equal(e.T, before, after, "UID, IP and node of every Pod")
}

// CountImage counts pods whose container names image.
func CountImage(pods []corev1.Pod, container, image string) int {
	n := 0
	for _, p := range pods {
		if Image(p, container) == image {
			n++
		}
	}
	return n
}

// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/controllers/nodepodprobe"
	"github.com/kruisectl/kruisectl/controllers/podprobemarker"
	"github.com/kruisectl/kruisectl/daemon/probe"
)

func read(t *testing.T, file string, list any) {
	t.Helper()
	data, err := os.ReadFile("testdata/openkruise-1.9-" + file + ".yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, list))
}

// What OpenKruise 1.9 left at rest is at rest here too: nobody writes anything.
func TestTakeover(t *testing.T) {
	var markers v1alpha1.PodProbeMarkerList
	var nodeProbes v1alpha1.NodePodProbeList
	var pods corev1.PodList
	read(t, "podprobemarkers", &markers)
	read(t, "nodepodprobes", &nodeProbes)
	read(t, "pods", &pods)
	require.Len(t, markers.Items, 1)
	require.Len(t, nodeProbes.Items, 3)
	require.Len(t, pods.Items, 2)

	marker := &markers.Items[0]
	snap := podprobemarker.Snapshot{Marker: marker, Nodes: map[string]*corev1.Node{}, Serverless: true}
	byKey := map[types.NamespacedName]*corev1.Pod{}
	for i := range pods.Items {
		p := &pods.Items[i]
		snap.Pods = append(snap.Pods, p)
		byKey[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
	}
	for i := range nodeProbes.Items {
		npp := &nodeProbes.Items[i]
		snap.NodeProbes = append(snap.NodeProbes, npp)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: npp.Name}}
		snap.Nodes[npp.Name] = node
		plan := nodepodprobe.Decide(nodepodprobe.Snapshot{
			Name: npp.Name, Node: node, NodeProbe: npp, Pods: byKey,
			Markers: map[types.NamespacedName]*v1alpha1.PodProbeMarker{{Namespace: marker.Namespace, Name: marker.Name}: marker},
		})
		if diff := cmp.Diff(nodepodprobe.Plan{}, plan); diff != "" {
			t.Errorf("%s (-want +got):\n%s", npp.Name, diff)
		}
		status, changes := probe.Merge(npp, nil, time.Now())
		if diff := cmp.Diff(npp.Status, status); diff != "" || len(changes) > 0 {
			t.Errorf("the agent of %s rewrites its status (-want +got):\n%s", npp.Name, diff)
		}
	}
	if diff := cmp.Diff(podprobemarker.Plan{Status: marker.Status}, podprobemarker.Decide(snap)); diff != "" {
		t.Errorf("marker (-want +got):\n%s", diff)
	}
}

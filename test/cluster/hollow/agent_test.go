// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"
)

func storedNodeImage(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"images": map[string]any{"nginx": map[string]any{"tags": []any{map[string]any{"tag": "1.17"}}}}},
	}}
}

func phaseOf(t *testing.T, client *dynamicfake.FakeDynamicClient, node string) string {
	t.Helper()
	u, err := client.Resource(nodeImages).Get(context.Background(), node, metav1.GetOptions{})
	require.NoError(t, err)
	tags, _, err := unstructured.NestedSlice(u.Object, "status", "imageStatuses", "nginx", "tags")
	require.NoError(t, err)
	if len(tags) == 0 {
		return ""
	}
	return tags[0].(map[string]any)["phase"].(string)
}

func TestAgentsPullForSimulatedNodesOnly(t *testing.T) {
	kinds := map[schema.GroupVersionResource]string{nodeImages: "NodeImageList"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, storedNodeImage("sim-0001"), storedNodeImage("node1"))
	var once sync.Once
	client.PrependReactor("update", "nodeimages", func(kubetesting.Action) (handled bool, ret runtime.Object, err error) {
		once.Do(func() { handled, err = true, errors.New("a conflict") })
		return handled, nil, err
	})
	o := DefaultOptions()
	o.Behaviour.Pull = 0
	s := &simulation{options: o, dynamic: client, nodes: map[string]int{"sim-0001": 1}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.runAgents(ctx) }()
	require.Eventually(t, func() bool { return phaseOf(t, client, "sim-0001") == phaseSucceeded }, 30*time.Second, 10*time.Millisecond)
	require.Empty(t, phaseOf(t, client, "node1"), "real nodes have agents of their own")
	cancel()
	<-ended
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// D2: Pods come and go with the labels of nodes.
func TestPodsFollowTheLabelsOfNodes(t *testing.T) {
	inBothVersions(t, func(s suite) {
		key := "color-of-" + s.Namespace // tests run side by side
		s.create(func(f fields) { f.Template.Spec.NodeSelector = map[string]string{key: "blue"} })
		node := s.nodes()[0]
		s.T.Cleanup(func() { s.labelNode(node, key, "null") })
		s.waitOn(nil)
		s.labelNode(node, key, `"blue"`)
		s.waitOn([]string{node})
		s.labelNode(node, key, `"green"`)
		s.waitOn(nil)
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:"green"}}},"updateStrategy":{"type":"RollingUpdate"}}}`, key)
		obj := s.api.empty()
		obj.SetNamespace(s.Namespace)
		obj.SetName(agentName)
		require.NoError(s.T, s.Client.Patch(s.Ctx(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
		s.waitOn([]string{node})
	})
}

// labelNode sets a label of a node to a JSON value.
func (s suite) labelNode(node, key, value string) {
	s.T.Helper()
	ctx := s.Background()
	s.EventuallyIn(ctx, "labelling "+node, harness.Short, func() string {
		n := &corev1.Node{}
		n.Name = node
		return text(s.Client.Patch(ctx, n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, value))))
	})
}

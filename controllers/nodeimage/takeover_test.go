// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// NodeImages as OpenKruise wrote them need no write, only patience until their TTL.
func TestTakeover(t *testing.T) {
	data, err := os.ReadFile("testdata/openkruise-1.9-nodeimages.yaml")
	require.NoError(t, err)
	var list v1beta1.NodeImageList
	require.NoError(t, yaml.UnmarshalStrict(data, &list))
	require.Len(t, list.Items, 3)
	for i := range list.Items {
		ni := &list.Items[i]
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ni.Name, Labels: ni.Labels}}
		now := ni.Spec.Images["nginx"].Tags[0].CreatedAt.Add(time.Minute)
		plan := Decide(Snapshot{Name: ni.Name, Node: node, NodeImage: ni}, now)
		if diff := cmp.Diff(Plan{}, plan, cmpopts.IgnoreFields(Plan{}, "Requeue")); diff != "" {
			t.Errorf("%s: Decide() differs (-want +got):\n%s", ni.Name, diff)
		}
		require.Greater(t, plan.Requeue, 2000*time.Second)
	}
}

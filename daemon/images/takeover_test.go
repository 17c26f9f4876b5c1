// SPDX-License-Identifier: Apache-2.0

package images

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// What OpenKruise's agent has pulled and reported is neither pulled nor written again.
func TestTakeover(t *testing.T) {
	data, err := os.ReadFile("testdata/openkruise-1.9-nodeimages.yaml")
	require.NoError(t, err)
	var list v1beta1.NodeImageList
	require.NoError(t, yaml.UnmarshalStrict(data, &list))
	require.Len(t, list.Items, 3)
	for i := range list.Items {
		if diff := cmp.Diff(Plan{Status: list.Items[i].Status}, Decide(&list.Items[i], nil, end.Time)); diff != "" {
			t.Errorf("%s: Decide() differs (-want +got):\n%s", list.Items[i].Name, diff)
		}
	}
}

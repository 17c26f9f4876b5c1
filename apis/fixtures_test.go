// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Objects as OpenKruise 1.9 stored them decode without an unknown field and encode to the same.
func TestStoredObjectsAreUnderstood(t *testing.T) {
	for file, into := range map[string]func() any{
		"clonesets.yaml":                 func() any { return &v1beta1.CloneSet{} },
		"containerrecreaterequests.yaml": func() any { return &v1beta1.ContainerRecreateRequest{} },
		"daemonsets.yaml":                func() any { return &v1beta1.DaemonSet{} },
		"imagepulljobs.yaml":             func() any { return &v1beta1.ImagePullJob{} },
		"nodeimages.yaml":                func() any { return &v1beta1.NodeImage{} },
		"nodepodprobes.yaml":             func() any { return &v1alpha1.NodePodProbe{} },
		"podprobemarkers.yaml":           func() any { return &v1alpha1.PodProbeMarker{} },
		"statefulsets.yaml":              func() any { return &v1beta1.StatefulSet{} },
	} {
		folders, err := filepath.Glob("testdata/openkruise-1.9/*")
		require.NoError(t, err)
		require.Len(t, folders, 3)
		for _, folder := range folders {
			text, err := os.ReadFile(filepath.Join(folder, file))
			require.NoError(t, err)
			var list struct{ Items []map[string]any }
			require.NoError(t, yaml.Unmarshal(text, &list))
			for _, want := range list.Items {
				raw, err := json.Marshal(want)
				require.NoError(t, err)
				obj := into()
				require.NoError(t, yaml.UnmarshalStrict(raw, obj), "%s", raw)
				again, err := json.Marshal(obj)
				require.NoError(t, err)
				var got map[string]any
				require.NoError(t, json.Unmarshal(again, &got))
				require.Equal(t, plain(want), plain(got), "%s %s", folder, file)
			}
		}
	}
}

// plain drops what says nothing: nulls (creationTimestamp of a template), empty objects, and the
// one value that the schema fills in, enablePVCReuse: false.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			value = plain(value)
			if m, ok := value.(map[string]any); ok && len(m) == 0 && key != "inPlaceUpdateStrategy" {
				continue
			}
			if value == nil || key == "enablePVCReuse" && value == false {
				continue
			}
			out[key] = value
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case int64:
		return float64(v)
	}
	return v
}

// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

// What OpenKruise 1.9 stored gets no default with its next update: not with another burst, and
// not with another image, so that the image is all that changes and an update in place stays one.
func TestNoDefaultAfterATakeOver(t *testing.T) {
	files, err := filepath.Glob("../../apis/testdata/openkruise-1.9/*/daemonsets.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	hs := handlers(t, "")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var list struct{ Items []map[string]any }
		require.NoError(t, yaml.Unmarshal(text, &list))
		require.NotEmpty(t, list.Items, file)
		for _, item := range list.Items {
			old := encode(t, item)
			version := strings.TrimPrefix(item["apiVersion"].(string), "apps.kruise.io/")
			delete(item, "status")
			spec := item["spec"].(map[string]any)
			spec["burstReplicas"] = 7
			scaled := encode(t, item)
			containers := spec["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
			containers[0].(map[string]any)["image"] = "registry.example/other:2"
			for _, obj := range []string{scaled, encode(t, item)} {
				r := review(version, "UPDATE", old, obj)
				answer := admittest.Ask(t, hs, mutate, r)
				require.True(t, answer.Allowed, "%s: %v", file, answer.Result)
				require.Empty(t, answer.Patch, "%s: %s", file, answer.Patch)
				answer = admittest.Ask(t, hs, validate, r)
				require.True(t, answer.Allowed, "%s: %v", file, answer.Result)
			}
		}
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

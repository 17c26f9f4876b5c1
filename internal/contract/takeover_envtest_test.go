// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package contract_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/apitest"
)

// What OpenKruise 1.9 stored is valid under our schemas, loses nothing to pruning, and takes a
// status: a take-over leaves no object behind that can no longer be written.
func TestSchemaAcceptsWhatOpenKruiseStored(t *testing.T) {
	c := apitest.NewClient(t, apitest.Start(t, apitest.WithConversion(converter(t))))
	files, err := filepath.Glob("../../apis/testdata/openkruise-1.9/*/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 24)
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var list struct{ Items []map[string]any }
		require.NoError(t, yaml.Unmarshal(text, &list))
		for _, item := range list.Items {
			stored := &unstructured.Unstructured{Object: item}
			ns := stored.GetNamespace()
			if ns != "" && !seen[ns] {
				require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
				seen[ns] = true
			}
			for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"} {
				unstructured.RemoveNestedField(stored.Object, "metadata", field)
			}
			stored.SetFinalizers(nil)
			created := stored.DeepCopy()
			require.NoError(t, c.Create(t.Context(), created), file)
			require.JSONEq(t, encode(t, stored.Object["spec"]), encode(t, created.Object["spec"]), file)
			created.Object["status"] = stored.Object["status"]
			if created.Object["status"] != nil {
				require.NoError(t, c.Status().Update(t.Context(), created), file)
				require.JSONEq(t, encode(t, stored.Object["status"]), encode(t, created.Object["status"]), file)
			}
			require.NoError(t, c.Delete(t.Context(), created))
		}
	}
}

func encode(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// servedVersions returns the kind of a CRD at each version that is served.
func servedVersions(crd *unstructured.Unstructured) []schema.GroupVersionKind {
	var gvks []schema.GroupVersionKind
	eachVersion(crd, func(gvk schema.GroupVersionKind, served, _ bool) {
		if served {
			gvks = append(gvks, gvk)
		}
	})
	return gvks
}

// storageVersion returns the kind of a CRD at the version in which it is stored, which
// needs no conversion.
func storageVersion(crd *unstructured.Unstructured) schema.GroupVersionKind {
	var found schema.GroupVersionKind
	eachVersion(crd, func(gvk schema.GroupVersionKind, _, storage bool) {
		if storage {
			found = gvk
		}
	})
	return found
}

func eachVersion(crd *unstructured.Unstructured, visit func(gvk schema.GroupVersionKind, served, storage bool)) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		served, _ := m["served"].(bool)
		storage, _ := m["storage"].(bool)
		visit(schema.GroupVersionKind{Group: group, Version: name, Kind: kind}, served, storage)
	}
}

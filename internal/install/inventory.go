// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// InventoryName is the ConfigMap in the system namespace that remembers an installation.
const InventoryName = "kruisectl-inventory"

// FieldManager is the owner of what this package applies.
const FieldManager = "kruisectl"

// Inventory is what was applied, by whom it can be pruned, compared and removed.
type Inventory struct {
	// Version is that of the manifests.
	Version string
	// Complete is false from the start of an apply until everything was applied.
	Complete bool
	// Values are those that were rendered.
	Values Values
	// Objects are sorted as they are applied.
	Objects []Entry
}

// Entry is one object of an inventory.
type Entry struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	// Hash is that of the rendered object, the first 16 hex digits of SHA-256.
	Hash string `json:"hash,omitempty"`
}

func entryOf(o *unstructured.Unstructured, uid string) Entry {
	gvk := o.GroupVersionKind()
	return Entry{
		Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: uid, Hash: hash(o),
	}
}

func (e Entry) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: e.Group, Version: e.Version, Kind: e.Kind}
}

// same reports that both name one object, whatever its version.
func (e Entry) same(o Entry) bool {
	return e.Group == o.Group && e.Kind == o.Kind && e.Namespace == o.Namespace && e.Name == o.Name
}

func (e Entry) object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(e.gvk())
	u.SetNamespace(e.Namespace)
	u.SetName(e.Name)
	return u
}

// String is Kind/name or Kind/namespace/name.
func (e Entry) String() string { return Name(e.object()) }

func hash(o *unstructured.Unstructured) string {
	data, err := json.Marshal(o.Object)
	if err != nil {
		panic(err) // decoded from JSON
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// ReadInventory returns the inventory of an installation in namespace, nil when there is
// none.
func (c *Cluster) ReadInventory(ctx context.Context, namespace string) (*Inventory, error) {
	cm, err := c.get(ctx, gvkConfigMap, namespace, InventoryName)
	if err != nil || cm == nil {
		return nil, err
	}
	data, _, _ := unstructured.NestedStringMap(cm.Object, "data")
	inv := &Inventory{Version: data["version"], Complete: data["complete"] == "true"}
	if err := json.Unmarshal([]byte(data["objects"]), &inv.Objects); err != nil {
		return nil, fmt.Errorf("reading objects of ConfigMap %s/%s: %w", namespace, InventoryName, err)
	}
	// Values of another version of this tool may have keys that this one does not know.
	if inv.Values, err = Defaults(ProfileDefault, "generic"); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal([]byte(data["values"]), &inv.Values); err != nil {
		return nil, fmt.Errorf("reading values of ConfigMap %s/%s: %w", namespace, InventoryName, err)
	}
	return inv, nil
}

// writeInventory stores inv; it takes over the fields of an earlier one.
func (c *Cluster) writeInventory(ctx context.Context, namespace string, inv *Inventory) error {
	objects, err := json.MarshalIndent(inv.Objects, "", " ")
	if err != nil {
		return fmt.Errorf("encoding inventory: %w", err)
	}
	cm := &unstructured.Unstructured{Object: map[string]any{
		"data": map[string]any{
			"version":  inv.Version,
			"complete": fmt.Sprint(inv.Complete),
			"values":   string(inv.Values.YAML()),
			"objects":  string(objects),
		},
	}}
	cm.SetGroupVersionKind(gvkConfigMap)
	cm.SetNamespace(namespace)
	cm.SetName(InventoryName)
	cm.SetLabels(map[string]string{
		"app.kubernetes.io/name":       "kruise",
		"app.kubernetes.io/part-of":    "kruise",
		"app.kubernetes.io/managed-by": FieldManager,
		LabelComponent:                 "inventory",
	})
	if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(cm), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing inventory: %w", err)
	}
	return nil
}

// merge returns the entries of a and those of b that a lacks.
func mergeEntries(a, b []Entry) []Entry {
	out := slices.Clone(a)
	for _, e := range b {
		if !slices.ContainsFunc(a, e.same) {
			out = append(out, e)
		}
	}
	return out
}

// Obsolete lists entries of inv that are not rendered any more and may be pruned, in the
// order of their removal: the reverse of applying. CRDs and Namespaces are never among
// them, as they hold what users made, unless includeCRDs asks for CRDs.
func (inv *Inventory) Obsolete(rendered []*unstructured.Unstructured, includeCRDs bool) []Entry {
	var out []Entry
	for _, e := range inv.Objects {
		kept := slices.ContainsFunc(rendered, func(o *unstructured.Unstructured) bool { return e.same(entryOf(o, "")) })
		switch {
		case kept, e.Kind == "Namespace", e.Kind == "CustomResourceDefinition" && !includeCRDs:
		default:
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return orderOf(b.Kind) - orderOf(a.Kind) })
	return out
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PreviousName is the Secret that keeps what was last applied, compressed, for going back
// after a failed upgrade. CRDs are not in it: going back never touches them.
const PreviousName = "kruisectl-inventory-previous"

func (c *Cluster) savePrevious(ctx context.Context, namespace string, m *Manifests) error {
	var objs []map[string]any
	for _, o := range m.Objects {
		if o.GetKind() != "CustomResourceDefinition" {
			objs = append(objs, o.Object)
		}
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(map[string]any{"version": m.Version, "values": string(m.Values.YAML()), "objects": objs}); err != nil {
		return fmt.Errorf("encoding what was applied: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compressing what was applied: %w", err)
	}
	s := &unstructured.Unstructured{Object: map[string]any{
		"data": map[string]any{"applied.json.gz": base64.StdEncoding.EncodeToString(b.Bytes())},
	}}
	s.SetGroupVersionKind(gvkSecret)
	s.SetNamespace(namespace)
	s.SetName(PreviousName)
	s.SetLabels(map[string]string{labelPartOf: "kruise", labelManagedBy: FieldManager, LabelComponent: "inventory"})
	if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(s), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing Secret %s: %w", PreviousName, err)
	}
	return nil
}

// Previous returns what was last applied completely, nil when that is not known.
func (c *Cluster) Previous(ctx context.Context, namespace string) (*Manifests, error) {
	s, err := c.get(ctx, gvkSecret, namespace, PreviousName)
	if err != nil || s == nil {
		return nil, err
	}
	data, _, _ := unstructured.NestedString(s.Object, "data", "applied.json.gz")
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", PreviousName, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", PreviousName, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", PreviousName, err)
	}
	var doc struct {
		Version string
		Values  string
		Objects []json.RawMessage
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", PreviousName, err)
	}
	m := &Manifests{Version: doc.Version}
	tree, err := ParseFile([]byte(doc.Values))
	if err != nil {
		return nil, err
	}
	if m.Values, err = Defaults(ProfileDefault, "generic"); err != nil {
		return nil, err
	}
	if _, err := m.Values.Merge(tree); err != nil {
		return nil, err
	}
	for _, o := range doc.Objects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o); err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", PreviousName, err)
		}
		m.Objects = append(m.Objects, u)
	}
	return m, nil
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// DiffState says how an object differs from the manifests.
type DiffState string

// The states.
const (
	StateMissing DiffState = "missing in the cluster"
	StateDiffers DiffState = "differs"
	StateExtra   DiffState = "not part of the manifests any more"
)

// ObjectDiff is one object that is not as in the manifests.
type ObjectDiff struct {
	Name   string
	State  DiffState
	Fields []FieldDiff
}

// Lines are the differing fields as text.
func (d ObjectDiff) Lines() []string {
	lines := []string{}
	for _, f := range d.Fields {
		lines = append(lines, f.String())
	}
	return lines
}

// Diff compares the cluster with a rendering; inv, if any, tells what was applied before.
func (c *Cluster) Diff(ctx context.Context, m *Manifests, inv *Inventory) ([]ObjectDiff, error) {
	var diffs []ObjectDiff
	for _, want := range m.Objects {
		live, err := c.live(ctx, want)
		if err != nil {
			return nil, err
		}
		if live == nil {
			diffs = append(diffs, ObjectDiff{Name: Name(want), State: StateMissing})
			continue
		}
		if fields := Drift(live, want); len(fields) > 0 {
			diffs = append(diffs, ObjectDiff{Name: Name(want), State: StateDiffers, Fields: fields})
		}
	}
	if inv == nil {
		return diffs, nil
	}
	for _, e := range inv.Obsolete(m.Objects, true) {
		live, err := c.get(ctx, e.gvk(), e.Namespace, e.Name)
		if err != nil {
			return nil, err
		}
		if live != nil {
			diffs = append(diffs, ObjectDiff{Name: e.String(), State: StateExtra})
		}
	}
	return diffs, nil
}

// IgnoreFields leaves out fields at or below the given paths, and objects that then do
// not differ.
func IgnoreFields(diffs []ObjectDiff, paths []string) []ObjectDiff {
	var kept []ObjectDiff
	for _, d := range diffs {
		if d.State == StateDiffers {
			d.Fields = slices.DeleteFunc(slices.Clone(d.Fields), func(f FieldDiff) bool {
				return slices.ContainsFunc(paths, func(p string) bool {
					return f.Path == p || strings.HasPrefix(f.Path, p+".") || strings.HasPrefix(f.Path, p+"[")
				})
			})
			if len(d.Fields) == 0 {
				continue
			}
		}
		kept = append(kept, d)
	}
	return kept
}

// ParseStream decodes YAML or JSON documents.
func ParseStream(data []byte) ([]*unstructured.Unstructured, error) {
	var objs []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := d.Decode(u)
		switch {
		case errors.Is(err, io.EOF):
			return objs, nil
		case err != nil:
			return nil, fmt.Errorf("parsing manifests: %w", err)
		case len(u.Object) == 0:
			continue
		}
		objs = append(objs, u)
	}
}

// SortAlphabetically sorts by kind, namespace and name.
func SortAlphabetically(objs []*unstructured.Unstructured) {
	slices.SortStableFunc(objs, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// YAML returns the objects as one stream that kubectl apply -f accepts: sorted keys, LF,
// one trailing newline.
func (m *Manifests) YAML() ([]byte, error) { return Stream(m.Objects) }

// Stream encodes objects as YAML documents in the given order.
func Stream(objs []*unstructured.Unstructured) ([]byte, error) {
	var b bytes.Buffer
	for i, o := range objs {
		if i > 0 {
			b.WriteString("---\n")
		}
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", Name(o), err)
		}
		b.Write(data)
	}
	return b.Bytes(), nil
}

// Name is how messages call an object: Kind/name or Kind/namespace/name.
func Name(o *unstructured.Unstructured) string {
	if ns := o.GetNamespace(); ns != "" {
		return o.GetKind() + "/" + ns + "/" + o.GetName()
	}
	return o.GetKind() + "/" + o.GetName()
}

// Images lists the container images of the objects, sorted, each once.
func Images(objs []*unstructured.Unstructured) []string {
	var images []string
	for _, o := range objs {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			if m, ok := c.(map[string]any); ok {
				if image, ok := m["image"].(string); ok {
					images = append(images, image)
				}
			}
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// Component is the value of the label that says what part of the product o belongs to.
func Component(o *unstructured.Unstructured) string { return o.GetLabels()[LabelComponent] }

// LabelComponent is on every object of a rendering.
const LabelComponent = "cli.kruise.io/component"

// Split says how WriteDir cuts the stream into files.
type Split string

// The ways to split.
const (
	SplitObject    Split = "object"
	SplitComponent Split = "component"
	SplitNone      Split = "none"
)

// ErrForeignFiles is wrapped by WriteDir when dir holds files it did not write.
var ErrForeignFiles = errors.New("the directory holds other files")

// WriteDir writes the objects as files with a kustomization.yaml that lists them, the
// effective values and the images. Files of an earlier WriteDir that are not needed any
// more are removed; with any other file in dir it refuses, unless force is set, and then
// leaves the others alone. It returns the names of the files written.
func (m *Manifests) WriteDir(dir string, split Split, force bool) ([]string, error) {
	files, order, err := m.files(split)
	if err != nil {
		return nil, err
	}
	old, err := writtenBefore(dir)
	if err != nil {
		return nil, err
	}
	if foreign, err := foreignFiles(dir, old); err != nil {
		return nil, err
	} else if len(foreign) > 0 && !force {
		return nil, fmt.Errorf("%w: %s has %s", ErrForeignFiles, dir, strings.Join(foreign, ", "))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating directory: %w", err)
	}
	for _, name := range old {
		if _, still := files[name]; !still {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("removing what an earlier run wrote: %w", err)
			}
		}
	}
	for _, name := range order {
		if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o644); err != nil {
			return nil, fmt.Errorf("writing: %w", err)
		}
	}
	return order, nil
}

const (
	fileKustomization = "kustomization.yaml"
	fileValues        = "VALUES.yaml"
	fileImages        = "IMAGES.txt"
)

func (m *Manifests) files(split Split) (files map[string][]byte, order []string, err error) {
	groups := map[string][]*unstructured.Unstructured{}
	for _, o := range m.Objects {
		name := "all.yaml"
		switch split {
		case SplitObject:
			name = fmt.Sprintf("%02d-%s-%s.yaml", orderOf(o.GetKind()), strings.ToLower(o.GetKind()), o.GetName())
		case SplitComponent:
			name = Component(o) + ".yaml"
		}
		if _, ok := groups[name]; !ok {
			order = append(order, name)
		}
		groups[name] = append(groups[name], o)
	}
	files = map[string][]byte{}
	for name, objs := range groups {
		if files[name], err = Stream(objs); err != nil {
			return nil, nil, err
		}
	}
	var k strings.Builder
	k.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n")
	for _, name := range order {
		fmt.Fprintf(&k, "- %s\n", name)
	}
	files[fileKustomization] = []byte(k.String())
	files[fileValues] = m.Values.YAML()
	files[fileImages] = []byte(strings.Join(Images(m.Objects), "\n") + "\n")
	return files, append(order, fileKustomization, fileValues, fileImages), nil
}

// writtenBefore lists what an earlier WriteDir left in dir. A directory is only trusted
// to be ours when it has all three of the files with fixed names.
func writtenBefore(dir string) ([]string, error) {
	for _, name := range []string{fileValues, fileImages} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, nil //nolint:nilerr // not ours, whatever the reason
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, fileKustomization))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading what an earlier run wrote: %w", err)
	}
	var k struct{ Resources []string }
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, fileKustomization), err)
	}
	names := slices.DeleteFunc(k.Resources, func(n string) bool { return n != filepath.Base(n) })
	return append(names, fileKustomization, fileValues, fileImages), nil
}

func foreignFiles(dir string, own []string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading directory: %w", err)
	}
	var foreign []string
	for _, e := range entries {
		if !slices.Contains(own, e.Name()) {
			foreign = append(foreign, e.Name())
		}
	}
	return foreign, nil
}

// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
)

// Image is one container's new image.
type Image struct {
	// Container is its name, or "*" for all.
	Container, Image string
}

// ParseImages reads CONTAINER=IMAGE words. The error is one sentence for the user.
func ParseImages(words []string) ([]Image, error) {
	var list []Image
	for _, w := range words {
		name, image, ok := strings.Cut(w, "=")
		if !ok || name == "" || image == "" {
			return nil, fmt.Errorf("%q is not CONTAINER=IMAGE", w)
		}
		if _, err := reference.ParseNormalizedNamed(image); err != nil {
			return nil, fmt.Errorf("%q is not an image reference: %w", image, err)
		}
		if slices.ContainsFunc(list, func(i Image) bool { return i.Container == name }) {
			return nil, fmt.Errorf("container %q is named twice", name)
		}
		list = append(list, Image{Container: name, Image: image})
	}
	return list, nil
}

// Replaced is one image that changes.
type Replaced struct {
	Container, Old, New string
	// Init containers force recreation.
	Init bool
}

// Images are the changes that the list makes to the live template; an unknown container
// is an error that lists those there are. "*" means all containers but init containers.
func Images(w adapter.Workload, list []Image) ([]Replaced, error) {
	t, err := w.Template()
	if err != nil {
		return nil, err
	}
	var out []Replaced
	for _, im := range list {
		found := false
		take := func(cs []corev1.Container, init bool) {
			for _, c := range cs {
				if c.Name != im.Container && (im.Container != "*" || init) {
					continue
				}
				found = true
				if c.Image != im.Image {
					out = append(out, Replaced{Container: c.Name, Old: c.Image, New: im.Image, Init: init})
				}
			}
		}
		take(t.Spec.Containers, false)
		take(t.Spec.InitContainers, true)
		if !found {
			return nil, fmt.Errorf("no container is named %q; there are %s", im.Container, names(t))
		}
	}
	return out, nil
}

func names(t *corev1.PodTemplateSpec) string {
	var words []string
	for _, c := range t.Spec.Containers {
		words = append(words, c.Name)
	}
	for _, c := range t.Spec.InitContainers {
		words = append(words, c.Name+" (init)")
	}
	return strings.Join(words, ", ")
}

// SetImages changes the images and nothing else: each operation is addressed by index
// and tested by name, so that no other byte of the template moves.
func SetImages(list []Image, reason string) Change {
	return func(w adapter.Workload) ([]Op, error) {
		changes, err := Images(w, list)
		if err != nil || len(changes) == 0 {
			return nil, err
		}
		t, err := w.Template()
		if err != nil {
			return nil, err
		}
		var ops []Op
		for _, ch := range changes {
			field, cs := "containers", t.Spec.Containers
			if ch.Init {
				field, cs = "initContainers", t.Spec.InitContainers
			}
			i := slices.IndexFunc(cs, func(c corev1.Container) bool { return c.Name == ch.Container })
			at := fmt.Sprintf("%s/spec/%s/%d", w.At.Template.Pointer(), field, i)
			ops = append(ops,
				Op{Op: "test", Path: at + "/name", Value: ch.Container},
				Op{Op: "replace", Path: at + "/image", Value: ch.New})
		}
		return append(ops, Remark(w, reason)...), nil
	}
}

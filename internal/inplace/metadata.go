// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// metadata is the part of a template's metadata that a Pod has from it. Others, such as
// a name or owner references, are not the template's to give, and a patch with them
// would be refused by the server.
type metadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Finalizers  []string          `json:"finalizers"`
}

// metadataOf returns copies that are never nil: the patch from a map to none would be to
// delete the whole map, and with it the keys that others have put on the Pod.
func metadataOf(t *corev1.PodTemplateSpec) metadata {
	m := metadata{Labels: map[string]string{}, Annotations: map[string]string{}, Finalizers: []string{}}
	maps.Copy(m.Labels, t.Labels)
	maps.Copy(m.Annotations, t.Annotations)
	m.Finalizers = append(m.Finalizers, t.Finalizers...)
	return m
}

// patchTo is the strategic merge patch of a Pod from m to next; nil if they are equal.
func (m metadata) patchTo(next metadata) ([]byte, error) {
	type object struct {
		Metadata metadata `json:"metadata"`
	}
	from, err := json.Marshal(object{m})
	if err != nil {
		return nil, fmt.Errorf("encoding metadata: %w", err)
	}
	to, err := json.Marshal(object{next})
	if err != nil {
		return nil, fmt.Errorf("encoding metadata: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, &corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("comparing metadata: %w", err)
	}
	if string(patch) == "{}" {
		return nil, nil
	}
	return patch, nil
}

// refMetadata finds the containers whose environment reads a changed label or
// annotation, gives them the key, and takes the key out of old and new. Added, changed
// and removed keys count alike: a removed key is an empty value inside the container.
func (c *comparer) refMetadata(old, new *metadata) {
	taken := map[runtimehash.MetadataKey]bool{}
	for i := range c.to.template.Spec.Containers {
		container := &c.to.template.Spec.Containers[i]
		for _, env := range runtimehash.MetadataEnvs(container) {
			was, had := c.from.value(env.MetadataKey)
			is, has := c.to.value(env.MetadataKey)
			if had == has && was == is {
				continue
			}
			taken[env.MetadataKey] = true
			if c.spec.ContainerRefMetadata == nil {
				c.spec.ContainerRefMetadata = map[string]RefMetadata{}
			}
			ref := c.spec.ContainerRefMetadata[container.Name]
			ref.set(env.MetadataKey, is, has)
			c.spec.ContainerRefMetadata[container.Name] = ref
			c.spec.UpdateEnvFromMetadata = true
		}
	}
	for key := range taken {
		for _, m := range []*metadata{old, new} {
			if key.Kind == runtimehash.Labels {
				delete(m.Labels, key.Key)
			} else {
				delete(m.Annotations, key.Key)
			}
		}
	}
}

func (d document) value(key runtimehash.MetadataKey) (string, bool) {
	values := d.template.Annotations
	if key.Kind == runtimehash.Labels {
		values = d.template.Labels
	}
	v, ok := values[key.Key]
	return v, ok
}

// set records that the key has the value, or that it is gone.
func (r *RefMetadata) set(key runtimehash.MetadataKey, value string, exists bool) {
	values, removed := &r.Annotations, &r.RemovedAnnotations
	if key.Kind == runtimehash.Labels {
		values, removed = &r.Labels, &r.RemovedLabels
	}
	if exists {
		setKey(values, key.Key, value)
		*removed = without(*removed, key.Key)
		return
	}
	if i, found := slices.BinarySearch(*removed, key.Key); !found {
		*removed = slices.Insert(slices.Clone(*removed), i, key.Key)
	}
	delete(*values, key.Key)
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(e string) bool { return e == s })
}

// over returns r with what a later update says about the same container on top.
func (r RefMetadata) over(later RefMetadata) RefMetadata {
	merged := RefMetadata{
		Labels:             maps.Clone(r.Labels),
		Annotations:        maps.Clone(r.Annotations),
		RemovedLabels:      slices.Clone(r.RemovedLabels),
		RemovedAnnotations: slices.Clone(r.RemovedAnnotations),
	}
	for key := range later.keys() {
		value, exists := later.value(key)
		merged.set(key, value, exists)
	}
	return merged
}

// keys are all keys that r changes or removes.
func (r RefMetadata) keys() map[runtimehash.MetadataKey]bool {
	keys := map[runtimehash.MetadataKey]bool{}
	for k := range r.Labels {
		keys[runtimehash.MetadataKey{Kind: runtimehash.Labels, Key: k}] = true
	}
	for k := range r.Annotations {
		keys[runtimehash.MetadataKey{Kind: runtimehash.Annotations, Key: k}] = true
	}
	for _, k := range r.RemovedLabels {
		keys[runtimehash.MetadataKey{Kind: runtimehash.Labels, Key: k}] = true
	}
	for _, k := range r.RemovedAnnotations {
		keys[runtimehash.MetadataKey{Kind: runtimehash.Annotations, Key: k}] = true
	}
	return keys
}

func (r RefMetadata) value(key runtimehash.MetadataKey) (string, bool) {
	values := r.Annotations
	if key.Kind == runtimehash.Labels {
		values = r.Labels
	}
	v, ok := values[key.Key]
	return v, ok
}

// apply writes the keys to the Pod's metadata.
func (r RefMetadata) apply(pod *corev1.Pod) {
	for key := range r.keys() {
		values := &pod.Annotations
		if key.Kind == runtimehash.Labels {
			values = &pod.Labels
		}
		if v, exists := r.value(key); exists {
			setKey(values, key.Key, v)
		} else {
			delete(*values, key.Key)
		}
	}
}

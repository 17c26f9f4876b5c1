// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// barrierEnv is the variable by which the Pod webhook passes on a launch priority.
const barrierEnv = "KRUISE_CONTAINER_BARRIER"

// Write is a Pod as the engine wants it to be next.
type Write struct {
	// Pod is a changed copy of the Pod that was given; nil is "nothing to write".
	Pod *corev1.Pod
	// Resize maps containers to the quantities that must go by pods/resize first. The
	// write is then decided anew on the Pod that the server returns, where Resize is empty.
	Resize map[string]corev1.ResourceRequirements
}

// applyBatch returns a copy of pod with the next batch of spec (inplace-update.md 6).
// Neither pod, spec nor state is changed, so that a retry can use them again.
func applyBatch(pod *corev1.Pod, spec *UpdateSpec, state *State, o Options, now time.Time) (Write, error) {
	pod, state = pod.DeepCopy(), state.Clone()
	state.NextContainerImages, state.NextContainerRefMetadata, state.NextContainerResources = nil, nil, nil
	if err := patchMetadata(pod, spec.MetaDataPatch); err != nil {
		return Write{}, err
	}

	chosen := chooseBatch(pod, spec)
	w := Write{Pod: pod}
	for name, image := range spec.ContainerImages {
		if !chosen[name] {
			setKey(&state.NextContainerImages, name, image)
			continue
		}
		if c := container(pod, name); c != nil {
			c.Image = image
			if s := containerStatus(pod, name); s != nil {
				if state.LastContainerStatuses == nil {
					state.LastContainerStatuses = map[string]ContainerStatus{}
				}
				state.LastContainerStatuses[name] = ContainerStatus{ImageID: s.ImageID}
			}
		}
	}
	for name, resources := range spec.ContainerResources {
		if !chosen[name] {
			if state.NextContainerResources == nil {
				state.NextContainerResources = map[string]corev1.ResourceRequirements{}
			}
			state.NextContainerResources[name] = *resources.DeepCopy()
			continue
		}
		c := container(pod, name)
		if c == nil {
			continue
		}
		left := differing(c, resources)
		switch {
		case len(left.Requests)+len(left.Limits) == 0:
		case o.ResizeSubresource:
			if w.Resize == nil {
				w.Resize = map[string]corev1.ResourceRequirements{}
			}
			w.Resize[name] = left
		default:
			overlay(&c.Resources, left)
		}
	}
	for name, ref := range spec.ContainerRefMetadata {
		if chosen[name] {
			ref.apply(pod)
			continue
		}
		if state.NextContainerRefMetadata == nil {
			state.NextContainerRefMetadata = map[string]RefMetadata{}
		}
		state.NextContainerRefMetadata[name] = ref
	}

	list := slices.Sorted(maps.Keys(chosen))
	state.PreCheckBeforeNext = nil
	if state.Pending() {
		state.PreCheckBeforeNext = &PreCheck{ContainersRequiredReady: list}
	}
	if len(list) > 0 {
		state.ContainerBatchesRecord = append(state.ContainerBatchesRecord, Batch{Timestamp: wireTime(now), Containers: list})
	}
	dropGrace(pod)
	setState(pod, state)
	return w, nil
}

func patchMetadata(pod *corev1.Pod, patch []byte) error {
	if len(patch) == 0 {
		return nil
	}
	patch, err := keyByKey(patch)
	if err != nil {
		return fmt.Errorf("reading the metadata patch of Pod %s: %w", pod.Name, err)
	}
	old, err := json.Marshal(pod)
	if err != nil {
		return fmt.Errorf("encoding Pod %s: %w", pod.Name, err)
	}
	patched, err := strategicpatch.StrategicMergePatch(old, patch, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("applying the metadata patch to Pod %s: %w", pod.Name, err)
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(patched, next); err != nil {
		return fmt.Errorf("applying the metadata patch to Pod %s: %w", pod.Name, err)
	}
	pod.ObjectMeta = next.ObjectMeta
	return nil
}

// keyByKey takes from a patch what would delete all labels or all annotations. A patch in
// a grace annotation that another program wrote may have that, for a template that has
// none any more; but the Pod's are not the template's alone.
func keyByKey(patch []byte) ([]byte, error) {
	var tree map[string]map[string]any
	if err := json.Unmarshal(patch, &tree); err != nil {
		return nil, err
	}
	for _, key := range []string{"labels", "annotations"} {
		if v, ok := tree["metadata"][key]; ok && v == nil {
			delete(tree["metadata"], key)
		}
	}
	return json.Marshal(tree)
}

// chooseBatch picks the containers to change now: all without a launch priority, those
// with the highest priority present, and whoever reads a label or annotation that these
// change, until nobody joins: one annotation cannot have two values.
func chooseBatch(pod *corev1.Pod, spec *UpdateSpec) map[string]bool {
	todo := map[string]bool{}
	for name := range spec.ContainerImages {
		todo[name] = true
	}
	for name := range spec.ContainerRefMetadata {
		todo[name] = true
	}
	for name := range spec.ContainerResources {
		todo[name] = true
	}

	highest, any := 0, false
	for name := range todo {
		if p, ok := priority(container(pod, name)); ok && (!any || p > highest) {
			highest, any = p, true
		}
	}
	chosen := map[string]bool{}
	for name := range todo {
		if p, ok := priority(container(pod, name)); !ok || p == highest {
			chosen[name] = true
		}
	}
	for joined := true; joined; {
		joined = false
		for name, ref := range spec.ContainerRefMetadata {
			if !chosen[name] && sharesKey(ref, spec, chosen) {
				chosen[name], joined = true, true
			}
		}
	}
	return chosen
}

func sharesKey(ref RefMetadata, spec *UpdateSpec, chosen map[string]bool) bool {
	keys := ref.keys()
	for name := range chosen {
		for key := range spec.ContainerRefMetadata[name].keys() {
			if keys[key] {
				return true
			}
		}
	}
	return false
}

// priority is the launch priority that the webhook injected, from the key p_<n> of the
// barrier's ConfigMap. A variable of that name in any other form is the user's own.
func priority(c *corev1.Container) (int, bool) {
	if c == nil {
		return 0, false
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if c.Env[i].Name != barrierEnv || from == nil || from.ConfigMapKeyRef == nil {
			continue
		}
		if digits, ok := strings.CutPrefix(from.ConfigMapKeyRef.Key, "p_"); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				return n, true
			}
		}
	}
	return 0, false
}

func container(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

func containerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

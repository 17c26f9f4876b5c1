// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Marks are what a Pod has to carry, or the part of it that a Pod lacks. A nil value of a
// label or annotation stands for its absence.
type Marks struct {
	Conditions          []corev1.PodCondition
	DropConditions      []corev1.PodConditionType
	Labels, Annotations map[string]*string
	// Ignored has a sentence for each result that another one stands in the way of.
	Ignored []string
}

// Marking is one Pod and what it lacks.
type Marking struct {
	Pod   *corev1.Pod
	Marks Marks
}

// Empty reports whether nothing is to be written.
func (m Marks) Empty() bool {
	return len(m.Conditions) == 0 && len(m.DropConditions) == 0 && len(m.Labels) == 0 && len(m.Annotations) == 0
}

// Results returns what the results of one Pod ask for. marker finds a marker of the Pod's
// namespace by name; nil is one that does not exist or is being deleted. Of two results for
// one condition type the first counts, of two for one label or annotation the last.
func Results(states []v1alpha1.ContainerProbeState, marker func(name string) *v1alpha1.PodProbeMarker) Marks {
	marks := Marks{}
	by := map[string]string{} // condition types and keys of metadata: the key of the result
	for i := range states {
		state := &states[i]
		name, probeName, ok := SplitKey(state.Name)
		if !ok || state.State == "" {
			continue
		}
		m := marker(name)
		if m == nil {
			continue
		}
		// The last of a name counts, as in Probes.
		for j := range slices.Backward(m.Spec.Probes) {
			if probe := &m.Spec.Probes[j]; probe.Name == probeName {
				marks.condition(probe, state, by)
				marks.policies(probe, state.State, state.Name, by)
				break
			}
		}
	}
	return marks
}

func (m *Marks) condition(probe *v1alpha1.PodContainerProbe, state *v1alpha1.ContainerProbeState, by map[string]string) {
	if probe.PodConditionType == "" {
		return
	}
	id := "condition " + probe.PodConditionType
	if first, ok := by[id]; ok {
		m.Ignored = append(m.Ignored, fmt.Sprintf("%s of %s is that of %s already", id, state.Name, first))
		return
	}
	by[id] = state.Name
	status := corev1.ConditionFalse
	if state.State == v1alpha1.ProbeSucceeded {
		status = corev1.ConditionTrue
	}
	m.Conditions = append(m.Conditions, corev1.PodCondition{
		Type: corev1.PodConditionType(probe.PodConditionType), Status: status,
		LastProbeTime: state.LastProbeTime, LastTransitionTime: state.LastTransitionTime, Message: state.Message,
	})
}

// policies drops the keys of all policies for other states, then sets those for this one
// (podprobe.md 4.4). Unknown is no policy's state.
func (m *Marks) policies(probe *v1alpha1.PodContainerProbe, state v1alpha1.ProbeState, key string, by map[string]string) {
	set := func(kind string, into *map[string]*string, from map[string]string, keep bool) {
		for k, v := range from {
			id := kind + " " + k
			if other, ok := by[id]; ok && other != key {
				m.Ignored = append(m.Ignored, fmt.Sprintf("%s of %s is that of %s", id, other, key))
			}
			by[id] = key
			if *into == nil {
				*into = map[string]*string{}
			}
			(*into)[k] = nil
			if keep {
				(*into)[k] = new(v)
			}
		}
	}
	for _, matches := range []bool{false, true} {
		for _, policy := range probe.MarkerPolicy {
			if (policy.State == state) == matches {
				set("label", &m.Labels, policy.Labels, matches)
				set("annotation", &m.Annotations, policy.Annotations, matches)
			}
		}
	}
}

// FromConditions returns the labels and annotations that the conditions of a Pod on a
// serverless node ask for: there the provider writes conditions and nothing else.
func FromConditions(m *v1alpha1.PodProbeMarker, pod *corev1.Pod) Marks {
	marks := Marks{}
	by := map[string]string{}
	for i := range m.Spec.Probes {
		probe := &m.Spec.Probes[i]
		if probe.PodConditionType == "" || len(probe.MarkerPolicy) == 0 {
			continue
		}
		state := v1alpha1.ProbeUnknown
		switch ConditionStatus(pod, probe.PodConditionType) {
		case "":
			continue
		case corev1.ConditionTrue:
			state = v1alpha1.ProbeSucceeded
		case corev1.ConditionFalse:
			state = v1alpha1.ProbeFailed
		}
		marks.policies(probe, state, Key(m.Name, probe.Name), by)
	}
	return marks
}

// reserved are the conditions that Kubernetes and Kruise write themselves.
var reserved = []corev1.PodConditionType{
	corev1.PodScheduled, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.DisruptionTarget,
	v1beta1.KruisePodReady, v1beta1.InPlaceUpdateReady,
}

// Unmark returns what has to be removed from a Pod so that nothing remains of a marker that
// goes, except for what one of others, the markers that stay, is in charge of. As when a
// result removes a key, the value does not matter: keys belong to the marker. With conditions
// false, for serverless nodes, conditions are not ours.
func Unmark(pod *corev1.Pod, m *v1alpha1.PodProbeMarker, others []*v1alpha1.PodProbeMarker, conditions bool) Marks {
	kept := map[string]bool{}
	for _, other := range others {
		if !Selects(other, pod) {
			continue
		}
		for i := range other.Spec.Probes {
			probe := &other.Spec.Probes[i]
			if !conditions && ConditionStatus(pod, probe.PodConditionType) == "" {
				continue // it has no result there
			}
			kept["condition "+probe.PodConditionType] = true
			for _, policy := range probe.MarkerPolicy {
				for k := range policy.Labels {
					kept["label "+k] = true
				}
				for k := range policy.Annotations {
					kept["annotation "+k] = true
				}
			}
		}
	}
	marks := Marks{}
	drop := func(kind string, into *map[string]*string, is, ours map[string]string) {
		for k := range ours {
			if _, ok := is[k]; !ok || kept[kind+" "+k] {
				continue
			}
			if *into == nil {
				*into = map[string]*string{}
			}
			(*into)[k] = nil
		}
	}
	for i := range m.Spec.Probes {
		probe := &m.Spec.Probes[i]
		for _, policy := range probe.MarkerPolicy {
			drop("label", &marks.Labels, pod.Labels, policy.Labels)
			drop("annotation", &marks.Annotations, pod.Annotations, policy.Annotations)
		}
		kind := corev1.PodConditionType(probe.PodConditionType)
		if conditions && condition(pod, string(kind)) != nil && !kept["condition "+string(kind)] &&
			!slices.Contains(reserved, kind) && !slices.Contains(marks.DropConditions, kind) {
			marks.DropConditions = append(marks.DropConditions, kind)
		}
	}
	return marks
}

// Missing returns the part of the marks that the Pod lacks. Times alone are no difference.
func (m Marks) Missing(pod *corev1.Pod) Marks {
	out := Marks{Labels: missing(m.Labels, pod.Labels), Annotations: missing(m.Annotations, pod.Annotations), Ignored: m.Ignored}
	for _, c := range m.Conditions {
		if is := condition(pod, string(c.Type)); is == nil || is.Status != c.Status || is.Message != c.Message {
			out.Conditions = append(out.Conditions, c)
		}
	}
	for _, kind := range m.DropConditions {
		if condition(pod, string(kind)) != nil {
			out.DropConditions = append(out.DropConditions, kind)
		}
	}
	return out
}

func missing(want map[string]*string, is map[string]string) map[string]*string {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(k string, v *string) bool {
		value, ok := is[k]
		return v == nil && !ok || v != nil && ok && *v == value
	})
	return out
}

// Patch is a strategic merge patch that gives the Pod these marks and touches nothing else;
// the UID keeps it from another Pod of this name. It goes to pods/status when there are
// conditions, which takes metadata along: all marks change at once.
func (m Marks) Patch(pod *corev1.Pod) ([]byte, error) {
	metadata := map[string]any{"uid": pod.UID}
	if len(m.Labels) > 0 {
		metadata["labels"] = m.Labels
	}
	if len(m.Annotations) > 0 {
		metadata["annotations"] = m.Annotations
	}
	patch := map[string]any{"metadata": metadata}
	var conditions []any
	for _, c := range m.Conditions {
		conditions = append(conditions, whole(c))
	}
	for _, kind := range m.DropConditions {
		conditions = append(conditions, map[string]any{"$patch": "delete", "type": kind})
	}
	if len(conditions) > 0 {
		patch["status"] = map[string]any{"conditions": conditions}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding the marks of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return raw, nil
}

// whole is a condition with its message even when that is empty: a merge would keep the
// message of before.
func whole(c corev1.PodCondition) map[string]any {
	out := map[string]any{"type": c.Type, "status": c.Status, "message": c.Message}
	if !c.LastProbeTime.IsZero() {
		out["lastProbeTime"] = c.LastProbeTime
	}
	if !c.LastTransitionTime.IsZero() {
		out["lastTransitionTime"] = c.LastTransitionTime
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// podProbes writes into a new Pod which probes a serverless node has to run, as no agent runs
// there (podprobe.md 5). It does so for every Pod that a PodProbeMarker matches: where the Pod
// will run is not known yet. markers may be a cache.
func podProbes(markers client.Reader) step {
	return step{name: "PodProbeMarker", apply: func(ctx context.Context, r *request) error {
		list := &v1alpha1.PodProbeMarkerList{}
		switch err := markers.List(ctx, list, client.InNamespace(r.Pod.Namespace)); {
		case meta.IsNoMatchError(err): // the kind is not installed
			return nil
		case err != nil:
			return fmt.Errorf("listing PodProbeMarkers of namespace %s: %w", r.Pod.Namespace, err)
		}
		probes, names := serverlessProbes(list.Items, r.Pod)
		if len(probes) == 0 {
			return nil
		}
		text, err := json.Marshal(probes)
		if err != nil {
			return fmt.Errorf("encoding the probes: %w", err)
		}
		if r.Pod.Annotations == nil {
			r.Pod.Annotations = map[string]string{}
		}
		r.Pod.Annotations[v1beta1.PodProbeAnnotation] = string(text)
		r.Pod.Annotations[v1beta1.PodProbeMarkerListAnnotation] = strings.Join(names, ",")
		return nil
	}}
}

// serverlessProbes returns the probes of those markers that match the Pod, without what marks the
// Pod, which is not the business of the node, and the sorted names of the markers they are from.
// The order is that of names and then of the specs, so that the first of two probes that want the
// same condition, or have the same name for the same container, is always the same one.
func serverlessProbes(markers []v1alpha1.PodProbeMarker, pod *corev1.Pod) (probes []v1alpha1.PodContainerProbe, names []string) {
	sorted := slices.SortedFunc(slices.Values(markers), func(a, b v1alpha1.PodProbeMarker) int { return cmp.Compare(a.Name, b.Name) })
	containers := longRunning(pod)
	type key struct{ container, probe string }
	conditions, seen := map[string]bool{}, map[key]bool{}
	for i := range sorted {
		m := &sorted[i]
		if m.DeletionTimestamp != nil || !matches(m.Spec.Selector, pod) {
			continue
		}
		before := len(probes)
		for _, p := range m.Spec.Probes {
			k := key{p.ContainerName, p.Name}
			if p.PodConditionType == "" || !containers[p.ContainerName] || conditions[p.PodConditionType] || seen[k] {
				continue
			}
			conditions[p.PodConditionType], seen[k] = true, true
			p.MarkerPolicy = nil
			probes = append(probes, p)
		}
		if len(probes) > before {
			names = append(names, m.Name)
		}
	}
	return probes, names
}

// matches never takes an empty selector for one of every Pod, as no PodProbeMarker may have it.
func matches(s *metav1.LabelSelector, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.Labels))
}

// longRunning are the containers that run as long as the Pod does: all but plain init containers.
func longRunning(pod *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for i := range pod.Spec.Containers {
		out[pod.Spec.Containers[i].Name] = true
	}
	for i := range pod.Spec.InitContainers {
		if p := pod.Spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			out[pod.Spec.InitContainers[i].Name] = true
		}
	}
	return out
}

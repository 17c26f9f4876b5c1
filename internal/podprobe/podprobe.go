// SPDX-License-Identifier: Apache-2.0

// Package podprobe holds the rules of PodProbeMarkers that their two controllers share: which
// Pods a marker is for, what a NodePodProbe has to list, and what a result makes of a Pod. It
// is pure. Rules: podprobe.md 3 and 4.
package podprobe

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// separator stands between the names of a marker and of its probe. Neither name has one.
const separator = "#"

// Key is the name of a marker's probe in a NodePodProbe.
func Key(marker, probe string) string { return marker + separator + probe }

// SplitKey is the reverse of Key; false for a text that Key does not make.
func SplitKey(key string) (marker, probe string, ok bool) {
	marker, probe, ok = strings.Cut(key, separator)
	return marker, probe, ok && marker != "" && probe != ""
}

// Owns reports whether a key is of the marker of this name, and not of one whose name
// merely ends or begins with it.
func Owns(marker, key string) bool { return strings.HasPrefix(key, marker+separator) }

// Active reports whether a Pod neither ends nor has ended.
func Active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Probeable reports whether a Pod is active, on a node and initialized (podprobe.md 3.2).
func Probeable(pod *corev1.Pod) bool {
	return Active(pod) && pod.Spec.NodeName != "" && ConditionStatus(pod, string(corev1.PodInitialized)) == corev1.ConditionTrue
}

// ConditionStatus is the status of a Pod's condition, empty when it has none of this type.
func ConditionStatus(pod *corev1.Pod, kind string) corev1.ConditionStatus {
	if c := condition(pod, kind); c != nil {
		return c.Status
	}
	return ""
}

func condition(pod *corev1.Pod, kind string) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return string(c.Type) == kind })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// Selector is that of a marker. One that is missing, empty or invalid selects nothing.
func Selector(m *v1alpha1.PodProbeMarker) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(m.Spec.Selector)
	if err != nil || selector.Empty() {
		return labels.Nothing()
	}
	return selector
}

// Selects reports whether the marker is for the Pod by namespace and labels.
func Selects(m *v1alpha1.PodProbeMarker, pod *corev1.Pod) bool {
	return m.Namespace == pod.Namespace && Selector(m).Matches(labels.Set(pod.Labels))
}

// Follows reports whether a change of the Pod concerns the marker: a Pod that was created
// with a list of markers follows those alone (podprobe.md 3.1).
func Follows(m *v1alpha1.PodProbeMarker, pod *corev1.Pod) bool {
	list := pod.Annotations[v1beta1.PodProbeMarkerListAnnotation]
	if list == "" {
		return Selects(m, pod)
	}
	return m.Namespace == pod.Namespace && slices.Contains(strings.Split(list, ","), m.Name)
}

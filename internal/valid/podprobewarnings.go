// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

// PodProbeMarkerWarnings returns what to tell the author of a valid PodProbeMarker.
func PodProbeMarkerWarnings(ppm *v1alpha1.PodProbeMarker) []string {
	var out []string
	for i := range ppm.Spec.Probes {
		p, at := &ppm.Spec.Probes[i], field.NewPath("spec", "probes").Index(i)
		if p.Probe.GRPC != nil {
			out = append(out, warning(at.Child("probe", "grpc"), "has no effect beside the other action"))
		}
		if p.Probe.TerminationGracePeriodSeconds != nil {
			out = append(out, warning(at.Child("probe", "terminationGracePeriodSeconds"), "has no effect, as a PodProbeMarker ends no container"))
		}
		if period := max(p.Probe.PeriodSeconds, 1); p.Probe.TimeoutSeconds > period {
			out = append(out, warning(at.Child("probe", "timeoutSeconds"), "%d is longer than periodSeconds (%d): a probe that hangs delays the next one", p.Probe.TimeoutSeconds, period))
		}
		for j := range p.MarkerPolicy {
			for _, key := range selected(ppm.Spec.Selector) {
				if _, ok := p.MarkerPolicy[j].Labels[key]; ok {
					out = append(out, warning(at.Child("markerPolicy").Index(j).Child("labels").Key(key),
						"spec.selector asks for this label, so the mark can take Pods out of the selection, or put them into it"))
				}
			}
		}
	}
	return out
}

// selected are the keys of the labels that a selector looks at, sorted.
func selected(s *metav1.LabelSelector) []string {
	if s == nil {
		return nil
	}
	var keys []string
	for key := range s.MatchLabels {
		keys = append(keys, key)
	}
	for _, e := range s.MatchExpressions {
		keys = append(keys, e.Key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// PodProbeMarkerConflicts returns what to tell the author of ppm of the other markers of its
// namespace that write the same condition or mark. Of two that match one Pod, the first has its
// say about a condition, and the last about a label or an annotation.
func PodProbeMarkerConflicts(ppm *v1alpha1.PodProbeMarker, others []v1alpha1.PodProbeMarker) []string {
	conditions, marks := map[string]string{}, map[string]string{} // to the name of the marker
	for _, o := range slices.SortedFunc(slices.Values(others), func(a, b v1alpha1.PodProbeMarker) int { return cmp.Compare(b.Name, a.Name) }) {
		if o.Name == ppm.Name || o.DeletionTimestamp != nil || disjoint(ppm.Spec.Selector, o.Spec.Selector) {
			continue
		}
		for i := range o.Spec.Probes {
			conditions[o.Spec.Probes[i].PodConditionType] = o.Name
			for _, key := range markKeys(&o.Spec.Probes[i]) {
				marks[key] = o.Name
			}
		}
	}
	delete(conditions, "")
	var out []string
	for i := range ppm.Spec.Probes {
		p, at := &ppm.Spec.Probes[i], field.NewPath("spec", "probes").Index(i)
		if other, ok := conditions[p.PodConditionType]; ok {
			out = append(out, warning(at.Child("podConditionType"),
				"PodProbeMarker %s writes %s as well: of Pods that both match, only one of them has a say", other, p.PodConditionType))
		}
		for _, key := range markKeys(p) {
			if other, ok := marks[key]; ok {
				out = append(out, warning(at.Child("markerPolicy"), "PodProbeMarker %s writes %s as well: in Pods that both match, the last result wins", other, key))
			}
		}
	}
	return out
}

// disjoint reports whether no Pod can match both, as far as matchLabels tell.
func disjoint(a, b *metav1.LabelSelector) bool {
	if a == nil || b == nil {
		return true // one of them matches nothing
	}
	for key, value := range a.MatchLabels {
		if other, ok := b.MatchLabels[key]; ok && other != value {
			return true
		}
	}
	return false
}

// markKeys are the labels and annotations of the policies of a probe, as words, sorted.
func markKeys(p *v1alpha1.PodContainerProbe) []string {
	keys := map[string]bool{}
	for i := range p.MarkerPolicy {
		for key := range p.MarkerPolicy[i].Labels {
			keys["label "+key] = true
		}
		for key := range p.MarkerPolicy[i].Annotations {
			keys["annotation "+key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

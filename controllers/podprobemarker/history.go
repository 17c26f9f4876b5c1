// SPDX-License-Identifier: Apache-2.0

package podprobemarker

import (
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

// history remembers versions of markers whose marks may still be on Pods. The zero value is
// ready for concurrent use.
type history struct {
	mu       sync.Mutex
	versions map[types.NamespacedName][]*v1alpha1.PodProbeMarker
}

// add remembers before if after may mark Pods otherwise.
func (h *history) add(before, after *v1alpha1.PodProbeMarker) {
	if apiequality.Semantic.DeepEqual(marksOf(before), marksOf(after)) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.versions == nil {
		h.versions = map[types.NamespacedName][]*v1alpha1.PodProbeMarker{}
	}
	key := client.ObjectKeyFromObject(before)
	h.versions[key] = append(h.versions[key], before)
}

// marksOf is the marker's probes without the probing.
func marksOf(m *v1alpha1.PodProbeMarker) []v1alpha1.PodContainerProbe {
	out := make([]v1alpha1.PodContainerProbe, 0, len(m.Spec.Probes))
	for _, p := range m.Spec.Probes {
		out = append(out, v1alpha1.PodContainerProbe{MarkerPolicy: p.MarkerPolicy, PodConditionType: p.PodConditionType})
	}
	return out
}

// of returns the versions of a marker, oldest first.
func (h *history) of(key types.NamespacedName) []*v1alpha1.PodProbeMarker {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*v1alpha1.PodProbeMarker(nil), h.versions[key]...)
}

// drop forgets the n oldest versions.
func (h *history) drop(key types.NamespacedName, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.versions[key] = h.versions[key][n:]; len(h.versions[key]) == 0 {
		delete(h.versions, key)
	}
}

// forget forgets a marker.
func (h *history) forget(key types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.versions, key)
}

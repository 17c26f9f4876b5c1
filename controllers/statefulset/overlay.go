// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/internal/requeue"
)

// overlay collects what became of Pods and claims, concurrently; close puts it into the
// snapshot, so that the status tells of it in the same pass.
type overlay struct {
	snap   *snapshot
	wishes requeue.Wishes
	// pods and claims are those of the snapshot by name, as they were observed.
	pods   map[string]*corev1.Pod
	claims map[string]*corev1.PersistentVolumeClaim

	mu            sync.Mutex
	changedPods   map[string]*corev1.Pod
	changedClaims map[string]*corev1.PersistentVolumeClaim
}

func newOverlay(snap *snapshot) *overlay {
	return &overlay{
		snap: snap, pods: byName(snap.Pods), claims: byName(snap.Claims),
		changedPods: map[string]*corev1.Pod{}, changedClaims: map[string]*corev1.PersistentVolumeClaim{},
	}
}

func byName[T metav1.Object](objects []T) map[string]T {
	m := make(map[string]T, len(objects))
	for _, o := range objects {
		m[o.GetName()] = o
	}
	return m
}

func (o *overlay) pod(p *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changedPods[p.Name] = p
}

func (o *overlay) claim(c *corev1.PersistentVolumeClaim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changedClaims[c.Name] = c
}

// deleted notes that the Pod terminates now. It may be gone altogether, which the next
// pass sees.
func (o *overlay) deleted(pod *corev1.Pod, at metav1.Time) {
	going := pod.DeepCopy()
	going.DeletionTimestamp = &at
	o.pod(going)
}

func (o *overlay) close() {
	o.snap.Pods = merge(o.snap.Pods, o.changedPods)
	o.snap.Claims = merge(o.snap.Claims, o.changedClaims)
}

// merge replaces objects by those of the same name in changed, and adds the others,
// sorted by name.
func merge[T metav1.Object](objects []T, changed map[string]T) []T {
	var out []T
	for _, o := range objects {
		if _, replaced := changed[o.GetName()]; !replaced {
			out = append(out, o)
		}
	}
	for _, o := range changed {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

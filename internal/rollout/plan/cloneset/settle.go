// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// settle lets everybody else do their part: owners of hooks let go of Pods that wait for
// them and come back afterwards, and trusted Pods become ready.
func (m *model) settle() {
	lc := m.snapshot.Set.Spec.Lifecycle
	for i, p := range m.snapshot.Pods {
		state := lifecycle.State(p)
		settled := IsReady(p) && state == v1beta1.LifecycleNormal && !inProgress(p)
		if settled || !m.trusted[p.Name] && !waitsForHook(state) {
			continue
		}
		p = p.DeepCopy()
		switch state {
		case v1beta1.LifecyclePreparingUpdate:
			if lc != nil {
				lifecycle.Unhook(lc.InPlaceUpdate, p)
			}
		case v1beta1.LifecyclePreparingDelete:
			if lc != nil {
				lifecycle.Unhook(lc.PreDelete, p)
			}
		default:
			if lc != nil {
				lifecycle.Rehook(lc.InPlaceUpdate, p)
			}
			m.settled(p)
		}
		m.snapshot.Pods[i] = p
	}
}

func inProgress(p *corev1.Pod) bool {
	_, state := p.Annotations[v1beta1.InPlaceUpdateStateAnnotation]
	_, grace := p.Annotations[v1beta1.InPlaceUpdateGraceAnnotation]
	return state || grace
}

func waitsForHook(s v1beta1.LifecycleState) bool {
	return s == v1beta1.LifecyclePreparingUpdate || s == v1beta1.LifecyclePreparingDelete
}

// settled makes a Pod what it is when nothing is left to do: Normal and ready.
func (m *model) settled(p *corev1.Pod) {
	p.Annotations = maps.Clone(p.Annotations)
	for _, key := range []string{
		v1beta1.InPlaceUpdateStateAnnotation, v1beta1.InPlaceUpdateStateAnnotationOld,
		v1beta1.InPlaceUpdateGraceAnnotation, v1beta1.InPlaceUpdateGraceAnnotationOld,
	} {
		delete(p.Annotations, key)
	}
	setLabel(p, v1beta1.LifecycleStateLabel, string(v1beta1.LifecycleNormal))
	since := metav1.NewTime(m.now)
	if IsReady(p) {
		at, _ := readySince(p)
		since = metav1.NewTime(at)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{
		{Type: v1beta1.InPlaceUpdateReady, Status: corev1.ConditionTrue, LastTransitionTime: since},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since},
	}
}

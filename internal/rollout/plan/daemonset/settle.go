// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
)

// settle lets everybody else do their part: hooks let go of Pods that wait to be deleted,
// and trusted Pods become ready.
func (m *model) settle() {
	for i, p := range m.snapshot.Pods {
		preparing := lifecycle.State(p) == v1beta1.LifecyclePreparingDelete
		if !preparing && (!m.trusted[p.Name] || settled(p)) {
			continue
		}
		p = p.DeepCopy()
		if preparing {
			p.Finalizers = nil
			if lc := m.snapshot.Set.Spec.Lifecycle; lc != nil && lc.PreDelete != nil {
				for k := range lc.PreDelete.LabelsHandler {
					delete(p.Labels, k)
				}
			}
		} else {
			m.ready(p)
		}
		m.snapshot.Pods[i] = p
	}
}

// settled tells whether nothing is left to do for a Pod.
func settled(p *corev1.Pod) bool {
	_, state := p.Annotations[v1beta1.InPlaceUpdateStateAnnotation]
	_, grace := p.Annotations[v1beta1.InPlaceUpdateGraceAnnotation]
	return IsReady(p) && !heldInPlace(p) && !state && !grace
}

// ready ends what is under way in the Pod and makes it ready.
func (m *model) ready(p *corev1.Pod) {
	for _, key := range []string{
		v1beta1.InPlaceUpdateStateAnnotation, v1beta1.InPlaceUpdateStateAnnotationOld,
		v1beta1.InPlaceUpdateGraceAnnotation, v1beta1.InPlaceUpdateGraceAnnotationOld,
	} {
		delete(p.Annotations, key)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = nil
	for _, t := range []corev1.PodConditionType{v1beta1.InPlaceUpdateReady, v1beta1.KruisePodReady, corev1.ContainersReady, corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(m.now),
		})
	}
}

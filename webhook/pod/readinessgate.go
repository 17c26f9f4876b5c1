// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// readinessGate adds KruisePodReady to the readiness gates of Pods that a workload of ours
// controls, or of every Pod (platform.md 4, rule 1).
func readinessGate(everyPod bool) step {
	return step{name: "readiness gate", apply: func(_ context.Context, r *request) error {
		if (everyPod || ownedByKruise(r.Pod)) && !podready.HasGate(r.Pod, v1beta1.KruisePodReady) {
			r.Pod.Spec.ReadinessGates = append(r.Pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: v1beta1.KruisePodReady})
		}
		return nil
	}}
}

// ownedByKruise compares the group alone: Pods of earlier releases name other versions.
func ownedByKruise(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == v1beta1.GroupVersion.Group
}

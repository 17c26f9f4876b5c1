// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/owned"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// kind is the kind of the owners that are woken.
var kind = schema.GroupKind{Group: v1beta1.GroupVersion.Group, Kind: "CloneSet"}

// watch starts the sources of cloneset.md 9.2. Pods that nobody owns are of no interest:
// they are never adopted.
func watch(mgr ctrl.Manager, c controller.Controller, optimize bool) error {
	cache := mgr.GetCache()
	for _, s := range []source.Source{
		source.Kind(cache, &v1beta1.CloneSet{}, &handler.TypedEnqueueRequestForObject[*v1beta1.CloneSet]{}),
		source.Kind(cache, &corev1.Pod{}, owned.Handler(kind, podChanged(optimize))),
		source.Kind(cache, &corev1.PersistentVolumeClaim{}, owned.Handler(kind, claimChanged)),
	} {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("starting a watch: %w", err)
		}
	}
	return nil
}

// claimChanged: of updates of claims only the beginning of their end matters.
func claimChanged(old, claim *corev1.PersistentVolumeClaim) bool {
	return (old.DeletionTimestamp == nil) != (claim.DeletionTimestamp == nil)
}

// podChanged tells which updates of Pods are looked at: all, or, with the gate
// CloneSetEventHandlerOptimization, those that can change a decision.
func podChanged(optimize bool) func(old, pod *corev1.Pod) bool {
	if !optimize {
		return func(_, _ *corev1.Pod) bool { return true }
	}
	return func(old, pod *corev1.Pod) bool {
		return old.Generation != pod.Generation ||
			(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
			old.Spec.NodeName != pod.Spec.NodeName ||
			plan.IsActive(old) != plan.IsActive(pod) ||
			!equality.Semantic.DeepEqual(old.Labels, pod.Labels) ||
			!equality.Semantic.DeepEqual(old.Finalizers, pod.Finalizers) ||
			readiness(old) != readiness(pod) ||
			updating(pod)
	}
}

// readiness is the status of the conditions that availability depends on.
func readiness(p *corev1.Pod) (r [2]corev1.ConditionStatus) {
	for _, c := range p.Status.Conditions {
		switch c.Type {
		case corev1.PodReady:
			r[0] = c.Status
		case v1beta1.InPlaceUpdateReady:
			r[1] = c.Status
		}
	}
	return r
}

// updating: an in-place update is under way, so that any change of the status counts.
func updating(p *corev1.Pod) bool {
	state := p.Labels[v1beta1.LifecycleStateLabel]
	return state != "" && state != string(v1beta1.LifecycleNormal) || readiness(p)[1] != corev1.ConditionTrue
}

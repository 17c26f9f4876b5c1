// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// maxPrefix is how much of the set's name a Pod's name keeps, as for generated names.
const maxPrefix = 58

// templateGeneration is the annotation of the set whose value its Pods carry as a label.
const templateGeneration = "deprecated.daemonset.template.generation"

// nodeScheduler is the scheduler of Pods that the controller itself puts on their node.
const nodeScheduler = "kubernetes.io/daemonset-controller"

// newPod is the Pod of a set for one node (daemonset.md 6), as it is sent to the API server.
func newPod(set *v1beta1.DaemonSet, hash, node, id string, toNode bool) *corev1.Pod {
	template := set.Spec.Template.DeepCopy()
	prefix := set.Name + "-"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            prefix[:min(len(prefix), maxPrefix)] + id,
			GenerateName:    prefix,
			Namespace:       set.Namespace,
			Labels:          maps.Clone(template.Labels),
			Annotations:     template.Annotations,
			Finalizers:      template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("DaemonSet"))},
		},
		Spec: template.Spec,
	}
	plan.SetHash(pod, hash)
	if generation, ok := set.Annotations[templateGeneration]; ok {
		pod.Labels[v1beta1.PodTemplateGenerationLabel] = generation
	}
	pod.Spec.Tolerations = plan.Tolerations(template)
	if toNode {
		pod.Spec.NodeName, pod.Spec.SchedulerName = node, nodeScheduler
	} else {
		bind(pod, node)
	}
	gate := corev1.PodReadinessGate{ConditionType: v1beta1.InPlaceUpdateReady}
	if plan.InPlace(set) && !slices.Contains(pod.Spec.ReadinessGates, gate) {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, gate)
	}
	return pod
}

// bind lets the scheduler put the Pod on this node only. What the template requires of
// nodes is left out: the node was found to fit, and a Pod is not moved when it no longer does.
func bind(pod *corev1.Pod, node string) {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}},
		}},
	}
}

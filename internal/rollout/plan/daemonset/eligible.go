// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Eligibility tells which nodes run the Pods of one template (daemonset.md 7.3). Make it
// once and ask it about every node.
type Eligibility struct {
	nodeName    string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

// EligibilityOf reads a template. Nothing of it is changed.
func EligibilityOf(template *corev1.PodTemplateSpec) *Eligibility {
	return &Eligibility{
		nodeName:    template.Spec.NodeName,
		affinity:    nodeaffinity.NewRequiredNodeAffinity(template.Spec.NodeSelector, template.Spec.Affinity),
		tolerations: Tolerations(template),
	}
}

// On tells whether a node should have a Pod, and whether a Pod that is there may stay. A
// node's readiness does not matter, nor whether it is cordoned: Pods tolerate both. An
// affinity that cannot be read matches no node.
func (e *Eligibility) On(node *corev1.Node) (run, stay bool) {
	if e.nodeName != "" && e.nodeName != node.Name {
		return false, false
	}
	if fits, err := e.affinity.Match(node); err != nil || !fits {
		return false, false
	}
	run, stay = true, true
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || e.tolerates(taint) {
			continue
		}
		switch taint.Effect {
		case corev1.TaintEffectNoExecute:
			run, stay = false, false
		case corev1.TaintEffectNoSchedule:
			run = false
		}
	}
	return run, stay
}

func (e *Eligibility) tolerates(taint *corev1.Taint) bool {
	for i := range e.tolerations {
		t := &e.tolerations[i]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		switch t.Operator {
		case corev1.TolerationOpExists:
			return true
		case "", corev1.TolerationOpEqual:
			if t.Value == taint.Value {
				return true
			}
		}
	}
	return false
}

// Tolerations are those of the template and those that every Pod of a DaemonSet has, so
// that it stays on a node in trouble (daemonset.md 6).
func Tolerations(template *corev1.PodTemplateSpec) []corev1.Toleration {
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	added := []corev1.Toleration{
		exists(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute),
		exists(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute),
		exists(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule),
		exists(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule),
		exists(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule),
		exists(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule),
	}
	if template.Spec.HostNetwork {
		added = append(added, exists(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule))
	}
	out := make([]corev1.Toleration, 0, len(template.Spec.Tolerations)+len(added))
	out = append(out, template.Spec.Tolerations...)
	for _, t := range added {
		out = addToleration(out, t)
	}
	return out
}

// addToleration replaces a toleration of the same taint, or adds t: one of the template
// with tolerationSeconds would let the Pod be evicted.
func addToleration(list []corev1.Toleration, t corev1.Toleration) []corev1.Toleration {
	for i := range list {
		same := list[i]
		same.TolerationSeconds = nil
		if equality.Semantic.DeepEqual(same, t) {
			list[i] = t
			return list
		}
	}
	return append(list, t)
}

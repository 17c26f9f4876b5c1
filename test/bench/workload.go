// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// simulated is the label of the nodes that run the Pods of the benchmark.
const simulated = "kruisectl.test/simulated"

// workload is one kind of workload to measure.
type workload struct {
	object client.Object
	// done tells from the status whether every Pod is available at the update revision.
	done func() bool
	// state is the status, for the error of a wait that ended.
	state func() string
}

// workloads are the kinds by the name that -workload takes.
var workloads = map[string]func(namespace string, o options) workload{
	"cloneset": cloneSet, "statefulset": statefulSet, "daemonset": daemonSet,
}

var podLabels = map[string]string{"app": "web"}

func meta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: "web"}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
		Spec: corev1.PodSpec{
			NodeSelector:   map[string]string{simulated: "true"},
			Tolerations:    []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:     []corev1.Container{{Name: "app", Image: "nginx:1.16"}},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1beta1.InPlaceUpdateReady}},
		},
	}
}

func cloneSet(namespace string, o options) workload {
	c := &v1beta1.CloneSet{ObjectMeta: meta(namespace), Spec: v1beta1.CloneSetSpec{
		Replicas: new(int32(o.pods)),
		Selector: &metav1.LabelSelector{MatchLabels: podLabels},
		Template: template(),
		UpdateStrategy: v1beta1.CloneSetUpdateStrategy{
			Type: v1beta1.RollingUpdateCloneSetUpdateStrategyType,
			RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{
				PodUpdatePolicy: v1beta1.InPlaceIfPossiblePodUpdatePolicyType,
				MaxUnavailable:  new(intstr.Parse(o.maxUnavailable)),
			},
		},
	}}
	return workload{
		object: c,
		done: func() bool {
			s, want := &c.Status, int32(o.pods)
			return s.ObservedGeneration == c.Generation && s.Replicas == want && s.UpdatedAvailableReplicas == want
		},
		state: func() string { return fmt.Sprintf("%+v", c.Status) },
	}
}

func statefulSet(namespace string, o options) workload {
	s := &v1beta1.StatefulSet{ObjectMeta: meta(namespace), Spec: v1beta1.StatefulSetSpec{
		Replicas:            new(int32(o.pods)),
		Selector:            &metav1.LabelSelector{MatchLabels: podLabels},
		Template:            template(),
		PodManagementPolicy: appsv1.ParallelPodManagement,
		UpdateStrategy: v1beta1.StatefulSetUpdateStrategy{
			Type: appsv1.RollingUpdateStatefulSetStrategyType,
			RollingUpdate: &v1beta1.RollingUpdateStatefulSetStrategy{
				PodUpdatePolicy: v1beta1.InPlaceIfPossiblePodUpdatePolicyType,
				MaxUnavailable:  new(intstr.Parse(o.maxUnavailable)),
			},
		},
	}}
	return workload{
		object: s,
		done: func() bool {
			st, want := &s.Status, int32(o.pods)
			return st.ObservedGeneration == s.Generation && st.Replicas == want && st.UpdatedAvailableReplicas == want
		},
		state: func() string { return fmt.Sprintf("%+v", s.Status) },
	}
}

// daemonSet has one Pod on each simulated node, whatever -pods says.
func daemonSet(namespace string, o options) workload {
	d := &v1beta1.DaemonSet{ObjectMeta: meta(namespace), Spec: v1beta1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: podLabels},
		Template: template(),
		UpdateStrategy: v1beta1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &v1beta1.RollingUpdateDaemonSet{
				RollingUpdateType: v1beta1.InplaceRollingUpdateType,
				MaxUnavailable:    new(intstr.Parse(o.maxUnavailable)),
			},
		},
	}}
	return workload{
		object: d,
		done: func() bool {
			s := &d.Status
			return s.ObservedGeneration == d.Generation && s.DesiredNumberScheduled == int32(o.nodes) &&
				s.UpdatedNumberScheduled == int32(o.nodes) && s.NumberAvailable == int32(o.nodes)
		},
		state: func() string { return fmt.Sprintf("%+v", d.Status) },
	}
}

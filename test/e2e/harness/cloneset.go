//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Images of the local registry. Each nginx tag is another image of the same shape.
const (
	Nginx1   = "nginx:1.16"
	Nginx2   = "nginx:1.17"
	Nginx3   = "nginx:1.18"
	NoImage  = "nginx:does-not-exist"
	Sidecar1 = "busybox:1.32"
	Redis    = "redis:5.0"

	// Two tags of one image.
	SameImage1, SameImage2 = "nginx:alpine", "nginx:mainline-alpine"

	// Images that no other test uses, so that no node has them.
	NewImage1, NewImage2, NewImage3 = "kruisectl/sidecar:1", "kruisectl/sidecar:2", "nginx:1.20"
)

// WebSet is a CloneSet of containers "app" and "sidecar", updated in place where
// possible, one Pod unavailable at most, spread over the nodes.
func WebSet(name string, replicas int32, edit ...func(*v1beta1.CloneSet)) *v1beta1.CloneSet {
	labels := map[string]string{"app": name}
	cs := &v1beta1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.CloneSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: maps.Clone(labels)}, // a test may add labels to the template
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)),
					Containers: []corev1.Container{
						{Name: "app", Image: Nginx1, ImagePullPolicy: corev1.PullIfNotPresent, Env: []corev1.EnvVar{{Name: "TIER", Value: "one"}}},
						{Name: "sidecar", Image: Sidecar1, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "1000000"}},
					},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: maps.Clone(labels)},
					}},
				},
			},
			UpdateStrategy: v1beta1.CloneSetUpdateStrategy{
				Type: v1beta1.RollingUpdateCloneSetUpdateStrategyType,
				RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{
					PodUpdatePolicy: v1beta1.InPlaceIfPossiblePodUpdatePolicyType,
					MaxUnavailable:  new(intstr.FromInt32(1)),
				},
			},
		},
	}
	for _, f := range edit {
		f(cs)
	}
	return cs
}

// Policy sets the Pod update policy.
func Policy(p v1beta1.PodUpdatePolicyType) func(*v1beta1.CloneSet) {
	return func(cs *v1beta1.CloneSet) { cs.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = p }
}

// MaxUnavailable sets the limit of the rolling update.
func MaxUnavailable(n int32) func(*v1beta1.CloneSet) {
	return func(cs *v1beta1.CloneSet) {
		cs.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(n))
	}
}

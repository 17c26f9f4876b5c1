// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

// setKind is the kind in owner references, which are always of v1beta1.
var setKind = v1beta1.GroupVersion.WithKind("StatefulSet")

// parentOf is the name of the set that a Pod of this name may belong to: "(anything)" of
// "(anything)-(digits)". It is false for a name of another form.
func parentOf(pod string) (set string, ok bool) {
	i := strings.LastIndexByte(pod, '-')
	if i < 1 {
		return "", false
	}
	if _, err := strconv.ParseUint(pod[i+1:], 10, 63); err != nil {
		return "", false
	}
	return pod[:i], true
}

// newPod is the Pod of c (statefulset.md 6), as it is sent to the API server.
func newPod(set *v1beta1.StatefulSet, template *corev1.PodTemplateSpec, c plan.Creation, gates plan.Gates, now time.Time) *corev1.Pod {
	template = template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            c.Pod,
			GenerateName:    set.Name + "-",
			Namespace:       set.Namespace,
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			Finalizers:      template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, setKind)},
		},
		Spec: template.Spec,
	}
	pod.Spec.Hostname = c.Pod
	pod.Spec.Subdomain = set.Spec.ServiceName
	plan.Identity(pod, c.Ordinal, gates)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, c.Revision)
	lifecycle.SetState(pod, c.State, now)
	mountClaims(set, pod, c.Ordinal)
	return pod
}

// mountClaims gives the Pod one volume for each claim template, in place of a volume of
// the same name in the Pod template.
func mountClaims(set *v1beta1.StatefulSet, pod *corev1.Pod, ordinal int) {
	pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return plan.ClaimTemplate(set, v.Name) != nil })
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: plan.ClaimName(name, set.Name, ordinal),
			}},
		})
	}
}

// claimOf tells whether the set may have made a claim of this name.
func claimOf(set *v1beta1.StatefulSet, claim string) bool {
	for i := range set.Spec.VolumeClaimTemplates {
		if pod, found := strings.CutPrefix(claim, set.Spec.VolumeClaimTemplates[i].Name+"-"); found {
			if _, ok := plan.OrdinalOf(set.Name, pod); ok {
				return true
			}
		}
	}
	return false
}

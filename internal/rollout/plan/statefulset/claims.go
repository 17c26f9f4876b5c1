// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// setKind is the kind of owner references to a StatefulSet.
var setKind = v1beta1.GroupVersion.WithKind("StatefulSet")

// NewClaim makes the claim that ordinal n has of a claim template. Labels are those of the
// template, overlaid with the selector's. Owners come later, once the Pod exists.
func NewClaim(set *v1beta1.StatefulSet, template *corev1.PersistentVolumeClaim, n int) *corev1.PersistentVolumeClaim {
	claim := template.DeepCopy()
	claim.Name = ClaimName(template.Name, set.Name, n)
	claim.Namespace = set.Namespace
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	if set.Spec.Selector != nil {
		maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	}
	return claim
}

// ClaimTemplate returns the claim template with this name; nil without one.
func ClaimTemplate(set *v1beta1.StatefulSet, name string) *corev1.PersistentVolumeClaim {
	for i := range set.Spec.VolumeClaimTemplates {
		if set.Spec.VolumeClaimTemplates[i].Name == name {
			return &set.Spec.VolumeClaimTemplates[i]
		}
	}
	return nil
}

// Apply makes the change of OwnClaim or ExpandClaim on claim, which must be the caller's
// copy. pod is the Pod of the step.
func (s ClaimStep) Apply(claim *corev1.PersistentVolumeClaim, set *v1beta1.StatefulSet, pod *corev1.Pod) {
	switch s.Do {
	case OwnClaim:
		claim.OwnerReferences = owners(claim, set, pod, s.SetOwns, s.PodOwns)
	case ExpandClaim:
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, v1beta1.OwnedByStatefulSetAnnotation, set.Name)
		claim.Spec.Resources = *s.Resources.DeepCopy()
	}
}

// owners returns the references of claim with those to set and pod as wanted; the others
// stay. Where the Pod does not own the claim, neither does one that had its name before.
func owners(claim *corev1.PersistentVolumeClaim, set *v1beta1.StatefulSet, pod *corev1.Pod, setOwns, podOwns bool) []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		return r.UID == set.UID && !setOwns || namesPod(r, pod.Name) && !podOwns
	})
	if setOwns && !ownedBy(claim, set) {
		refs = append(refs, metav1.OwnerReference{APIVersion: setKind.GroupVersion().String(), Kind: setKind.Kind, Name: set.Name, UID: set.UID})
	}
	if podOwns && !ownedBy(claim, pod) {
		refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
	}
	if len(refs) == 0 {
		return nil
	}
	return refs
}

func ownedBy(claim *corev1.PersistentVolumeClaim, owner metav1.Object) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}

func namesPod(r metav1.OwnerReference, pod string) bool {
	return r.Kind == "Pod" && r.APIVersion == "v1" && r.Name == pod
}

// Retention is what the retention policy says of the claims of one Pod (statefulset.md 9):
// who owns them while the Pod is in range, or is not.
func Retention(set *v1beta1.StatefulSet, inRange bool) (setOwns, podOwns bool) {
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	if p == nil {
		return false, false
	}
	deleted := p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	if deletesScaled(set) && !inRange {
		return false, true
	}
	return deleted, false
}

// deletesScaled tells whether claims go with a Pod that is scaled in.
func deletesScaled(set *v1beta1.StatefulSet) bool {
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	return p != nil && p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// Covers tells whether the Pod has a volume for each claim template. One that was made
// before a template was added lacks it, and only a new Pod gets it.
func Covers(set *v1beta1.StatefulSet, pod *corev1.Pod) bool { return missingVolume(set, pod) == "" }

// missingVolume is the name of the first claim template that the Pod has no volume for.
func missingVolume(set *v1beta1.StatefulSet, pod *corev1.Pod) string {
	n, _ := OrdinalOf(set.Name, pod.Name)
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		if !mounts(pod, t.Name, ClaimName(t.Name, set.Name, n)) {
			return t.Name
		}
	}
	return ""
}

func mounts(pod *corev1.Pod, volume, claim string) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == volume {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		}
	}
	return false
}

// Identity writes the labels that tell which Pod of the set this is.
func Identity(pod *corev1.Pod, n int, g Gates) {
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.StatefulSetPodNameLabel, pod.Name)
	if g.PodIndexLabel {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.PodIndexLabel, strconv.Itoa(n))
	}
}

// fit is how one claim stands to its template (statefulset.md 10.1).
type fit struct {
	// sameShape: access modes are equal, and the storage class when both name one.
	sameShape bool
	// enough: the claim asks for at least what the template does.
	enough bool
	// ready: the volume has at least what the claim asks for.
	ready bool
	// pending is the condition FileSystemResizePending when it is True; else nil.
	pending *corev1.PersistentVolumeClaimCondition
}

func (f fit) compatible() bool { return f.sameShape && f.enough }

// completed: what remains, if anything, happens when the Pod starts anew.
func (f fit) completed() bool { return f.compatible() && (f.ready || f.pending != nil) }

func fitOf(claim, template *corev1.PersistentVolumeClaim) fit {
	const storage = corev1.ResourceStorage
	asks, wants, has := claim.Spec.Resources.Requests[storage], template.Spec.Resources.Requests[storage], claim.Status.Capacity[storage]
	f := fit{
		sameShape: sameClass(claim, template) && slices.Equal(claim.Spec.AccessModes, template.Spec.AccessModes),
		enough:    asks.Cmp(wants) >= 0,
		ready:     has.Cmp(asks) >= 0,
	}
	for i := range claim.Status.Conditions {
		if c := &claim.Status.Conditions[i]; c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue {
			f.pending = c
		}
	}
	return f
}

func sameClass(a, b *corev1.PersistentVolumeClaim) bool {
	x, y := a.Spec.StorageClassName, b.Spec.StorageClassName
	return x == nil || y == nil || *x == *y
}

// claimIndex finds claims by name.
type claimIndex map[string]*corev1.PersistentVolumeClaim

func indexClaims(claims []*corev1.PersistentVolumeClaim) claimIndex {
	m := make(claimIndex, len(claims))
	for _, c := range claims {
		m[c.Name] = c
	}
	return m
}

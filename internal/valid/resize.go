// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// defaultClass marks the StorageClass of claims that name none.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

var claimUpdates = []v1beta1.VolumeClaimUpdateStrategyType{
	v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType, v1beta1.OnDeleteVolumeClaimUpdateStrategyType,
}

// claimUpdate refuses strategies that OpenKruise lets by: a typing error there would leave every
// claim as small as it is, without a word.
func claimUpdate(t v1beta1.VolumeClaimUpdateStrategyType, path *field.Path) field.ErrorList {
	if t == "" || slices.Contains(claimUpdates, t) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, t, claimUpdates)}
}

// StatefulSetResizes reports whether an UPDATE from old to set changes the size of claims that
// exist, so that StatefulSetUpdate needs Options.StorageClasses to judge it.
func StatefulSetResizes(old, set *v1beta1.StatefulSet, o Options) bool {
	if !resizes(&set.Spec, o) {
		return false
	}
	return slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(c corev1.PersistentVolumeClaim) bool {
		before := claimTemplate(old.Spec.VolumeClaimTemplates, c.Name)
		return before != nil && !sameSize(&before.Spec, &c.Spec)
	})
}

// resizes judges by the strategy of the new object: OpenKruise consults the old one's, so that
// an update that switches it together with the templates goes unchecked.
func resizes(s *v1beta1.StatefulSetSpec, o Options) bool {
	return o.ResizeClaims && s.VolumeClaimUpdateStrategy.Type == v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType
}

// resize refuses changes of claim templates that cannot be made to claims that exist
// (statefulset.md 5.3). Templates are matched by name.
func resize(old, s *v1beta1.StatefulSetSpec, o Options) field.ErrorList {
	if !resizes(s, o) {
		return nil
	}
	path := field.NewPath("spec", "volumeClaimTemplates")
	const instead = "with volumeClaimUpdateStrategy OnPodRollingUpdate; set it to OnDelete, so that only new claims change"
	if before, now := len(old.VolumeClaimTemplates), len(s.VolumeClaimTemplates); before != now {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("the number of templates cannot change from %d to %d ", before, now)+instead)}
	}
	var errs field.ErrorList
	for i := range s.VolumeClaimTemplates {
		c, at := &s.VolumeClaimTemplates[i], path.Index(i)
		before := claimTemplate(old.VolumeClaimTemplates, c.Name)
		switch {
		case before == nil:
			errs = append(errs, field.Forbidden(at.Child("metadata", "name"), fmt.Sprintf("template %q is new, which is not possible ", c.Name)+instead))
		case before.Spec.StorageClassName != nil && c.Spec.StorageClassName != nil && *before.Spec.StorageClassName != *c.Spec.StorageClassName:
			errs = append(errs, field.Forbidden(at.Child("spec", "storageClassName"),
				fmt.Sprintf("cannot change from %q to %q ", *before.Spec.StorageClassName, *c.Spec.StorageClassName)+instead))
		case !slices.Equal(before.Spec.AccessModes, c.Spec.AccessModes):
			errs = append(errs, field.Forbidden(at.Child("spec", "accessModes"),
				fmt.Sprintf("cannot change from %v to %v ", before.Spec.AccessModes, c.Spec.AccessModes)+instead))
		case !sameSize(&before.Spec, &c.Spec):
			errs = append(errs, expandable(c.Spec.StorageClassName, o.StorageClasses, at)...)
		}
	}
	return errs
}

func claimTemplate(list []corev1.PersistentVolumeClaim, name string) *corev1.PersistentVolumeClaim {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func sameSize(a, b *corev1.PersistentVolumeClaimSpec) bool {
	equal := func(a, b corev1.ResourceList) bool {
		x, inA := a[corev1.ResourceStorage]
		y, inB := b[corev1.ResourceStorage]
		return inA == inB && x.Cmp(y) == 0
	}
	return equal(a.Resources.Requests, b.Resources.Requests) && equal(a.Resources.Limits, b.Resources.Limits)
}

// expandable wants a class that grows volumes; nil is the default class. Without a default
// class nobody can tell, and the change is let by.
func expandable(name *string, classes map[string]*storagev1.StorageClass, path *field.Path) field.ErrorList {
	if classes == nil {
		return nil
	}
	var class *storagev1.StorageClass
	if name != nil {
		class = classes[*name]
		if class == nil {
			missing := field.NotFound(path.Child("spec", "storageClassName"), *name)
			missing.Detail = "no StorageClass of this name says whether the size can change; make it, or keep the size"
			return field.ErrorList{missing}
		}
	} else if class = defaultOf(classes); class == nil {
		return nil
	}
	if class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Child("spec", "resources"),
		fmt.Sprintf("the size cannot change: StorageClass %s does not have allowVolumeExpansion: true; set it there, or keep the size", class.Name))}
}

// defaultOf is the newest class that is marked as the default, as Kubernetes chooses it.
func defaultOf(classes map[string]*storagev1.StorageClass) *storagev1.StorageClass {
	var newest *storagev1.StorageClass
	for _, c := range classes {
		switch {
		case c.Annotations[defaultClass] != "true":
		case newest == nil, newest.CreationTimestamp.Before(&c.CreationTimestamp),
			newest.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < newest.Name:
			newest = c
		}
	}
	return newest
}

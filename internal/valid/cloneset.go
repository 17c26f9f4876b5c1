// SPDX-License-Identifier: Apache-2.0

// Package valid holds the validation rules of every kind, shared by admission and by the
// command line. A rule is a function of objects and nothing else; every fault of an object is
// reported at once, with its field path, what is wrong and what to do instead.
//
// Objects are checked in the hub version, after defaulting. Sources: cloneset.md 5.2,
// statefulset.md 5, daemonset.md 5, images.md 5, deletion-protection.md 2.
package valid

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/percent"
)

// Options tells the rules what the object alone does not.
type Options struct {
	// V1alpha1 makes field paths and messages those of the version the user wrote. Two checks
	// differ as well: pre-download annotations are read leniently in v1alpha1, and its
	// InPlaceOnly allows image changes only.
	V1alpha1 bool
	// Pods are the Pods of the namespace that spec.scaleStrategy.podsToDelete names, by name;
	// a missing key means there is no such Pod. Nil: names are not looked at (lint).
	Pods map[string]*corev1.Pod
	// VerticalScaling is the gate InPlaceWorkloadVerticalScaling: an in-place update may
	// change resources.
	VerticalScaling bool
	// ResizeClaims is the gate StatefulSetAutoResizePVCGate: changed volumeClaimTemplates of
	// a StatefulSet change claims that exist.
	ResizeClaims bool
	// StorageClasses are those of the cluster by name, needed with ResizeClaims when
	// StatefulSetResizes says so. Nil: they are not looked at (lint).
	StorageClasses map[string]*storagev1.StorageClass
}

// CloneSet returns the faults of a CloneSet at CREATE (cloneset.md 5.2, rows 1 to 18).
func CloneSet(cs *v1beta1.CloneSet, o Options) field.ErrorList {
	return append(cloneSet(cs, o), newPodsToDelete(nil, cs, o)...)
}

// CloneSetUpdate returns the faults of an UPDATE: those that CloneSet finds, less the ones that
// the stored object has already, and those of the change itself (rows 8, 16, 19). An update that
// leaves the spec alone is never refused: finalizers can always be removed.
func CloneSetUpdate(old, cs *v1beta1.CloneSet, o Options) field.ErrorList {
	if apiequality.Semantic.DeepEqual(old.Spec, cs.Spec) {
		return nil
	}
	errs := newFaults(cloneSet(old, o), cloneSet(cs, o))
	errs = append(errs, newPodsToDelete(old, cs, o)...)
	errs = append(errs, immutable(old, cs)...)
	return append(errs, inPlaceOnly(old, cs, o)...)
}

// CloneSetV1alpha1 returns the faults that the hub version cannot show: conversion makes ReCreate
// of a type that it does not know (row 14).
func CloneSetV1alpha1(cs *v1alpha1.CloneSet) field.ErrorList {
	types := []v1alpha1.CloneSetUpdateStrategyType{
		v1alpha1.RecreateCloneSetUpdateStrategyType, v1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType,
		v1alpha1.InPlaceOnlyCloneSetUpdateStrategyType, v1alpha1.OnDeleteCloneSetUpdateStrategyType,
	}
	if t := cs.Spec.UpdateStrategy.Type; t != "" && !slices.Contains(types, t) {
		return field.ErrorList{field.NotSupported(field.NewPath("spec", "updateStrategy", "type"), t, types)}
	}
	return nil
}

// CloneSetDelete returns why a CloneSet must not be deleted, nil when it may (row 20). The
// caller asks only while the gate ResourcesDeletionProtection is on, and answers 403.
func CloneSetDelete(cs *v1beta1.CloneSet) error {
	return protected(&cs.ObjectMeta, cs.Spec.Replicas)
}

func cloneSet(cs *v1beta1.CloneSet, o Options) field.ErrorList {
	spec := field.NewPath("spec")
	errs := metadata(cs.ObjectMeta, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, replicas(cs.Spec.Replicas, spec.Child("replicas"))...)
	errs = append(errs, selectorAndLabels(cs.Spec.Selector, cs.Spec.Template.Labels, "cloneset", spec)...)
	errs = append(errs, podTemplate(&cs.Spec.Template, cs.Spec.VolumeClaimTemplates, "CloneSet", spec)...)
	errs = append(errs, scaleStrategy(&cs.Spec.ScaleStrategy, spec.Child("scaleStrategy"))...)
	errs = append(errs, updateStrategy(cs, spec.Child("updateStrategy"), o)...)
	errs = append(errs, lifecycle(cs.Spec.Lifecycle, spec.Child("lifecycle"))...)
	errs = append(errs, notNegative(int64(cs.Spec.MinReadySeconds), spec.Child("minReadySeconds"))...)
	if n := cs.Spec.RevisionHistoryLimit; n != nil {
		errs = append(errs, notNegative(int64(*n), spec.Child("revisionHistoryLimit"))...)
	}
	return append(errs, progressDeadline(cs, spec.Child("progressDeadlineSeconds"))...)
}

// scaleStrategy is row 7 and the check of maxUnavailable that row 9 misses.
func scaleStrategy(s *v1beta1.CloneSetScaleStrategy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range s.PodsToDelete {
		if slices.Contains(s.PodsToDelete[:i], name) {
			errs = append(errs, field.Duplicate(path.Child("podsToDelete").Index(i), name))
		}
	}
	return append(errs, amount(s.MaxUnavailable, path.Child("maxUnavailable"))...)
}

// amount refuses negative numbers and strings that are no percentage; nil passes.
func amount(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	switch {
	case v == nil:
		return nil
	case v.Type == intstr.Int && v.IntVal < 0:
		return field.ErrorList{field.Invalid(path, v.IntVal, "must be 0 or more")}
	case percent.Check(*v) != nil:
		return field.ErrorList{field.Invalid(path, v.StrVal, `must be a number without quotes or a percentage such as "20%"`)}
	}
	return nil
}

// newPodsToDelete is row 8, for both versions: a name that the update adds must be that of a
// Pod of this CloneSet, so that a typing error does not go unnoticed.
func newPodsToDelete(old, cs *v1beta1.CloneSet, o Options) field.ErrorList {
	if o.Pods == nil {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "scaleStrategy", "podsToDelete")
	for i, name := range cs.Spec.ScaleStrategy.PodsToDelete {
		if old != nil && slices.Contains(old.Spec.ScaleStrategy.PodsToDelete, name) {
			continue
		}
		pod := o.Pods[name]
		switch {
		case pod == nil:
			errs = append(errs, field.Invalid(path.Index(i), name, "there is no such Pod in the namespace; name an existing Pod of this CloneSet"))
		case pod.DeletionTimestamp != nil:
			errs = append(errs, field.Invalid(path.Index(i), name, "this Pod is terminating already; leave it out"))
		case !metav1.IsControlledBy(pod, cs):
			errs = append(errs, field.Invalid(path.Index(i), name, "this Pod is not owned by this CloneSet; name one that is"))
		}
	}
	return errs
}

// progressDeadline is row 15, for both versions.
func progressDeadline(cs *v1beta1.CloneSet, path *field.Path) field.ErrorList {
	n := cs.Spec.ProgressDeadlineSeconds
	switch {
	case n == nil || *n == math.MaxInt32:
		return nil
	case *n < 0:
		return field.ErrorList{field.Invalid(path, *n, "must be 0 or more")}
	case *n <= cs.Spec.MinReadySeconds:
		return field.ErrorList{field.Invalid(path, *n, fmt.Sprintf("must be greater than minReadySeconds (%d)", cs.Spec.MinReadySeconds))}
	}
	return nil
}

// immutable is row 19. The selector is all that is left of the spec beside the fields named.
func immutable(old, cs *v1beta1.CloneSet) field.ErrorList {
	if apiequality.Semantic.DeepEqual(old.Spec.Selector, cs.Spec.Selector) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "selector"),
		"updates to cloneset spec for fields other than 'replicas', 'template', 'lifecycle', 'scaleStrategy', 'updateStrategy', "+
			"'minReadySeconds', 'progressDeadlineSeconds', 'volumeClaimTemplates' and 'revisionHistoryLimit' are forbidden")}
}

// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// DaemonSet returns the faults of a DaemonSet at CREATE (daemonset.md 2 and 5.2). The template
// is the defaulted one, although it is not stored that way.
func DaemonSet(ds *v1beta1.DaemonSet, _ Options) field.ErrorList {
	s := &ds.Spec
	spec := field.NewPath("spec")
	errs := metadata(ds.ObjectMeta, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, selectorAndLabels(s.Selector, s.Template.Labels, "daemonset", spec)...)
	errs = append(errs, podTemplate(&s.Template, nil, "DaemonSet", spec)...)
	errs = append(errs, daemonSetUpdateStrategy(&s.UpdateStrategy, spec.Child("updateStrategy"))...)
	errs = append(errs, notNegative(int64(s.MinReadySeconds), spec.Child("minReadySeconds"))...)
	errs = append(errs, oneOrMore(s.BurstReplicas, spec.Child("burstReplicas"))...)
	if n := s.RevisionHistoryLimit; n != nil {
		errs = append(errs, notNegative(int64(*n), spec.Child("revisionHistoryLimit"))...)
	}
	if s.Lifecycle != nil && s.Lifecycle.InPlaceUpdate != nil {
		errs = append(errs, field.Forbidden(spec.Child("lifecycle", "inPlaceUpdate"), "the inPlaceUpdate hook is not supported for daemonset; remove it"))
		return errs
	}
	return append(errs, lifecycle(s.Lifecycle, spec.Child("lifecycle"))...)
}

// DaemonSetUpdate returns the faults of an UPDATE: those that DaemonSet finds, less the ones that
// the stored object has already, and a change of the selector, which is all that is left of the
// spec beside the fields that may change. An update that leaves the spec alone is never refused.
func DaemonSetUpdate(old, ds *v1beta1.DaemonSet, o Options) field.ErrorList {
	if apiequality.Semantic.DeepEqual(old.Spec, ds.Spec) {
		return nil
	}
	errs := newFaults(DaemonSet(old, o), DaemonSet(ds, o))
	if !apiequality.Semantic.DeepEqual(old.Spec.Selector, ds.Spec.Selector) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "selector"),
			"updates to daemonset spec are forbidden for selector: put the old value back, or make a new DaemonSet"))
	}
	return errs
}

func daemonSetUpdateStrategy(u *v1beta1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch u.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil // a rollingUpdate block, if there is one, has no effect
	case appsv1.RollingUpdateDaemonSetStrategyType, "":
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), u.Type, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType,
		})}
	}
	r := u.RollingUpdate
	path = path.Child("rollingUpdate")
	if r == nil {
		return field.ErrorList{field.Required(path, "set it, if only to {}, or set type to OnDelete")}
	}
	var errs field.ErrorList
	switch r.RollingUpdateType {
	case v1beta1.StandardRollingUpdateType, v1beta1.InplaceRollingUpdateType, "":
	default:
		errs = append(errs, field.NotSupported(path.Child("rollingUpdateType"), r.RollingUpdateType,
			[]v1beta1.RollingUpdateType{v1beta1.StandardRollingUpdateType, v1beta1.InplaceRollingUpdateType}))
	}
	errs = append(errs, partOfNodes(r.Partition, path.Child("partition"))...)
	limits := append(partOfNodes(r.MaxUnavailable, path.Child("maxUnavailable")), partOfNodes(r.MaxSurge, path.Child("maxSurge"))...)
	errs = append(errs, limits...)
	if len(limits) == 0 {
		errs = append(errs, oneOfBoth(r, path)...)
	}
	if r.Selector != nil { // of nodes; an empty one means all of them
		errs = append(errs, metavalidation.ValidateLabelSelector(r.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	return errs
}

// oneOfBoth wants nodes to be updated either by taking a Pod away or by adding one. The limits
// are well-formed.
func oneOfBoth(r *v1beta1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	less, more := !zero(r.MaxUnavailable), !zero(r.MaxSurge)
	switch {
	case more && r.RollingUpdateType == v1beta1.InplaceRollingUpdateType:
		return field.ErrorList{field.Invalid(path.Child("maxSurge"), written(r.MaxSurge),
			"must be 0 with rollingUpdateType InPlaceIfPossible: no Pod is created for an update in place")}
	case less && more:
		return field.ErrorList{field.Invalid(path.Child("maxSurge"), written(r.MaxSurge),
			"exactly one of maxUnavailable and maxSurge must be other than 0; set one of them to 0")}
	case !less && !more:
		return field.ErrorList{field.Invalid(path.Child("maxUnavailable"), written(r.MaxUnavailable),
			"exactly one of maxUnavailable and maxSurge must be other than 0: no Pod could be updated; raise one of them")}
	}
	return nil
}

var upToAll = regexp.MustCompile(`^0*(100|[0-9][0-9]?)%$`)

// partOfNodes wants a number of nodes, or a whole percentage of them up to 100%; nil passes.
func partOfNodes(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	switch {
	case v == nil:
		return nil
	case v.Type == intstr.Int:
		return notNegative(int64(v.IntVal), path)
	case !wholePercent.MatchString(v.StrVal):
		return field.ErrorList{field.Invalid(path, v.StrVal, `must be a number without quotes or a whole percentage such as "20%"`)}
	case !upToAll.MatchString(v.StrVal):
		return field.ErrorList{field.Invalid(path, v.StrVal, "must not be more than 100%")}
	}
	return nil
}

func zero(v *intstr.IntOrString) bool {
	return v == nil || v.Type == intstr.Int && v.IntVal == 0 || v.Type == intstr.String && strings.Trim(v.StrVal, "0") == "%"
}

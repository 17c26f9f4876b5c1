// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/ordinal"
)

// maxMinReadySeconds is the longest time that a StatefulSet may wait for one Pod.
const maxMinReadySeconds = 300

// StatefulSet returns the faults of a StatefulSet at CREATE (statefulset.md 2 and 5.2). Of the
// Pod spec only what ends Pods is looked at: the rest shows when the first Pod is created.
func StatefulSet(set *v1beta1.StatefulSet, _ Options) field.ErrorList {
	s := &set.Spec
	spec := field.NewPath("spec")
	errs := metadata(set.ObjectMeta, apivalidation.NameIsDNSLabel)
	errs = append(errs, replicas(s.Replicas, spec.Child("replicas"))...)
	errs = append(errs, selectorAndLabels(s.Selector, s.Template.Labels, "statefulset", spec)...)
	errs = append(errs, templateMetadata(&s.Template, spec.Child("template", "metadata"))...)
	pod := s.Template.Spec
	if pod.RestartPolicy == "" { // the API server makes it Always
		pod.RestartPolicy = corev1.RestartPolicyAlways
	}
	errs = append(errs, runsForever(&pod, "StatefulSet", spec.Child("template", "spec"))...)
	switch s.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement, "":
	default:
		errs = append(errs, field.NotSupported(spec.Child("podManagementPolicy"), s.PodManagementPolicy,
			[]appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement}))
	}
	errs = append(errs, statefulSetUpdateStrategy(s, spec.Child("updateStrategy"))...)
	if n := s.RevisionHistoryLimit; n != nil {
		errs = append(errs, notNegative(int64(*n), spec.Child("revisionHistoryLimit"))...)
	}
	errs = append(errs, reserveOrdinals(s.ReserveOrdinals, spec.Child("reserveOrdinals"))...)
	if s.Ordinals != nil {
		errs = append(errs, notNegative(int64(s.Ordinals.Start), spec.Child("ordinals", "start"))...)
	}
	errs = append(errs, lifecycle(s.Lifecycle, spec.Child("lifecycle"))...)
	if s.ScaleStrategy != nil {
		errs = append(errs, statefulSetUnavailable(s, s.ScaleStrategy.MaxUnavailable, spec.Child("scaleStrategy", "maxUnavailable"))...)
	}
	errs = append(errs, retention(s.PersistentVolumeClaimRetentionPolicy, spec.Child("persistentVolumeClaimRetentionPolicy"))...)
	return append(errs, claimUpdate(s.VolumeClaimUpdateStrategy.Type, spec.Child("volumeClaimUpdateStrategy", "type"))...)
}

// StatefulSetUpdate returns the faults of an UPDATE: those that StatefulSet finds, less the ones
// that the stored object has already, and those of the change itself (statefulset.md 5.3). An
// update that leaves the spec alone is never refused: finalizers can always be removed.
func StatefulSetUpdate(old, set *v1beta1.StatefulSet, o Options) field.ErrorList {
	if apiequality.Semantic.DeepEqual(old.Spec, set.Spec) {
		return nil
	}
	errs := newFaults(StatefulSet(old, o), StatefulSet(set, o))
	errs = append(errs, immutableIdentity(&old.Spec, &set.Spec)...)
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.PodUpdatePolicy == v1beta1.InPlaceOnlyPodUpdatePolicyType {
		errs = append(errs, onlyInPlace(&old.Spec.Template.Spec, &set.Spec.Template.Spec, o.VerticalScaling)...)
	}
	return append(errs, resize(&old.Spec, &set.Spec, o)...)
}

// StatefulSetDelete returns why a StatefulSet must not be deleted, nil when it may. The caller
// asks only while the gate ResourcesDeletionProtection is on, and answers 403.
func StatefulSetDelete(set *v1beta1.StatefulSet) error {
	return protected(&set.ObjectMeta, set.Spec.Replicas)
}

// immutableIdentity refuses changes of what Pods and claims of a StatefulSet are known by.
func immutableIdentity(old, s *v1beta1.StatefulSetSpec) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		same bool
	}{
		{"selector", apiequality.Semantic.DeepEqual(old.Selector, s.Selector)},
		{"serviceName", old.ServiceName == s.ServiceName},
		{"podManagementPolicy", ordered(old) == ordered(s)},
	} {
		if !f.same {
			errs = append(errs, field.Forbidden(field.NewPath("spec", f.name),
				"updates to statefulset spec are forbidden for "+f.name+": put the old value back, or make a new StatefulSet"))
		}
	}
	return errs
}

func ordered(s *v1beta1.StatefulSetSpec) bool {
	return s.PodManagementPolicy != appsv1.ParallelPodManagement
}

func statefulSetUpdateStrategy(s *v1beta1.StatefulSetSpec, path *field.Path) field.ErrorList {
	u := &s.UpdateStrategy
	switch u.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if u.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(path.Child("rollingUpdate"), "must be absent when type is OnDelete; remove it, or set type to RollingUpdate")}
		}
		return nil
	case appsv1.RollingUpdateStatefulSetStrategyType, "":
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), u.Type, []appsv1.StatefulSetUpdateStrategyType{
			appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType,
		})}
	}
	r := u.RollingUpdate
	if r == nil {
		return field.ErrorList{field.Required(path.Child("rollingUpdate"), "set it, if only to {}, or set type to OnDelete")}
	}
	path = path.Child("rollingUpdate")
	var errs field.ErrorList
	if n := r.Partition; n != nil {
		errs = append(errs, notNegative(int64(*n), path.Child("partition"))...)
	}
	errs = append(errs, statefulSetUnavailable(s, r.MaxUnavailable, path.Child("maxUnavailable"))...)
	if n := r.MinReadySeconds; n != nil && (*n < 0 || *n > maxMinReadySeconds) {
		errs = append(errs, field.Invalid(path.Child("minReadySeconds"), *n, fmt.Sprintf("must be between 0 and %d", maxMinReadySeconds)))
	}
	errs = append(errs, readinessGate(r.PodUpdatePolicy, &s.Template.Spec, path.Child("podUpdatePolicy"))...)
	if r.UnorderedUpdate != nil {
		at := path.Child("unorderedUpdate")
		if ordered(s) {
			errs = append(errs, field.Forbidden(at, "unorderedUpdate needs podManagementPolicy Parallel: OrderedReady updates by ordinal; remove it"))
		}
		errs = append(errs, priority(r.UnorderedUpdate.PriorityStrategy, at.Child("priorityStrategy"))...)
	}
	return append(errs, preDownload(r.InPlaceUpdateStrategy, path.Child("inPlaceUpdateStrategy"))...)
}

// readinessGate wants, with the in-place policies, the gate that takes a Pod out of service
// while it is updated. Pods cannot get it later.
func readinessGate(policy v1beta1.PodUpdatePolicyType, pod *corev1.PodSpec, path *field.Path) field.ErrorList {
	switch policy {
	case v1beta1.RecreatePodUpdatePolicyType, "":
		return nil
	case v1beta1.InPlaceIfPossiblePodUpdatePolicyType, v1beta1.InPlaceOnlyPodUpdatePolicyType:
	default:
		return field.ErrorList{field.NotSupported(path, policy, policies)}
	}
	if slices.Contains(pod.ReadinessGates, corev1.PodReadinessGate{ConditionType: v1beta1.InPlaceUpdateReady}) {
		return nil
	}
	return field.ErrorList{field.Required(field.NewPath("spec", "template", "spec", "readinessGates"),
		fmt.Sprintf("podUpdatePolicy %s needs the readiness gate %s; add {conditionType: %[2]s}", policy, v1beta1.InPlaceUpdateReady))}
}

var wholePercent = regexp.MustCompile(`^[0-9]+%$`)

// oneOrMore wants a number of Pods, or a whole percentage that is not 0%; nil passes.
func oneOrMore(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	switch {
	case v == nil:
		return nil
	case v.Type == intstr.Int && v.IntVal < 1:
		return field.ErrorList{field.Invalid(path, v.IntVal, "must be 1 or more, or a percentage such as \"20%\"")}
	case v.Type == intstr.String && !wholePercent.MatchString(v.StrVal):
		return field.ErrorList{field.Invalid(path, v.StrVal, `must be a number without quotes, 1 or more, or a whole percentage such as "20%"`)}
	case v.Type == intstr.String && strings.Trim(v.StrVal, "0") == "%":
		return field.ErrorList{field.Invalid(path, v.StrVal, "must be more than 0%")}
	}
	return nil
}

// statefulSetUnavailable is oneOrMore, and exactly 1 for Pods that go one by one anyway.
func statefulSetUnavailable(s *v1beta1.StatefulSetSpec, v *intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := oneOrMore(v, path)
	if len(errs) == 0 && v != nil && ordered(s) && *v != intstr.FromInt32(1) {
		return field.ErrorList{field.Invalid(path, written(v), "must be the number 1 with podManagementPolicy OrderedReady; remove it, or make a new StatefulSet with Parallel")}
	}
	return errs
}

// preDownload checks the same fields as inPlaceOptions; here the parallelism may be a
// percentage, as an ImagePullJob has it.
func preDownload(s *v1beta1.InPlaceUpdateStrategy, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	rest := *s
	rest.ImagePreDownloadParallelism = nil
	errs := inPlaceOptions(&rest, path, Options{})
	if v := s.ImagePreDownloadParallelism; v != nil && !wholePercent.MatchString(v.String()) && len(wholeNumber(v, path)) > 0 {
		errs = append(errs, field.Invalid(path.Child("imagePreDownloadParallelism"), written(v), `must be a whole number, 0 or more, or a whole percentage such as "20%"`))
	}
	return errs
}

// reserveOrdinals wants what the controller can read: numbers, and ranges that are not backwards.
func reserveOrdinals(list []intstr.IntOrString, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		if _, err := ordinal.ParseInterval(list[i]); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), written(&list[i]),
				err.Error()+`; write a number without quotes, 0 or more, or a range with the lower end first`))
		}
	}
	return errs
}

// retention wants both members: the defaults, if their gate is on, have filled them in.
func retention(p *v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	for _, m := range []struct {
		name  string
		value appsv1.PersistentVolumeClaimRetentionPolicyType
	}{{"whenDeleted", p.WhenDeleted}, {"whenScaled", p.WhenScaled}} {
		if m.value != appsv1.RetainPersistentVolumeClaimRetentionPolicyType && m.value != appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
			errs = append(errs, field.NotSupported(path.Child(m.name), m.value, []appsv1.PersistentVolumeClaimRetentionPolicyType{
				appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			}))
		}
	}
	return errs
}

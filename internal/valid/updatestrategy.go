// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/percent"
)

var policies = []v1beta1.PodUpdatePolicyType{
	v1beta1.RecreatePodUpdatePolicyType,
	v1beta1.InPlaceIfPossiblePodUpdatePolicyType,
	v1beta1.InPlaceOnlyPodUpdatePolicyType,
}

// updateStrategy is rows 9 to 14, 17 and 18.
func updateStrategy(cs *v1beta1.CloneSet, path *field.Path, o Options) field.ErrorList {
	s := &cs.Spec.UpdateStrategy
	switch s.Type {
	case v1beta1.OnDeleteCloneSetUpdateStrategyType:
		return nil // a rollingUpdate block, if there is one, has no effect
	case v1beta1.RollingUpdateCloneSetUpdateStrategyType, "":
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), s.Type, []v1beta1.CloneSetUpdateStrategyType{
			v1beta1.RollingUpdateCloneSetUpdateStrategyType, v1beta1.OnDeleteCloneSetUpdateStrategyType,
		})}
	}
	r := s.RollingUpdate
	if r == nil {
		return field.ErrorList{field.Required(path.Child("rollingUpdate"), "set it, if only to {}, or set type to OnDelete")}
	}
	policyPath := path.Child("type")
	if !o.V1alpha1 {
		path = path.Child("rollingUpdate")
		policyPath = path.Child("podUpdatePolicy")
	}
	var errs field.ErrorList
	if r.PodUpdatePolicy != "" && !slices.Contains(policies, r.PodUpdatePolicy) {
		errs = append(errs, field.NotSupported(policyPath, r.PodUpdatePolicy, policies))
	}
	if r.Partition == nil {
		errs = append(errs, field.Required(path.Child("partition"), "set how many Pods stay at the current revision, 0 for none"))
	}
	errs = append(errs, amount(r.Partition, path.Child("partition"))...)
	limits := append(amount(r.MaxUnavailable, path.Child("maxUnavailable")), amount(r.MaxSurge, path.Child("maxSurge"))...)
	errs = append(errs, limits...)
	if len(limits) == 0 {
		errs = append(errs, surge(cs, path, o)...)
	}
	errs = append(errs, priority(r.PriorityStrategy, path.Child("priorityStrategy"))...)
	errs = append(errs, scatter(r.ScatterStrategy, path.Child("scatterStrategy"))...)
	return append(errs, inPlaceOptions(r.InPlaceUpdateStrategy, path.Child("inPlaceUpdateStrategy"), o)...)
}

// surge is rows 10 and 11. maxUnavailable and maxSurge are well-formed.
func surge(cs *v1beta1.CloneSet, path *field.Path, o Options) field.ErrorList {
	r := cs.Spec.UpdateStrategy.RollingUpdate
	var replicas, maxSurge int32
	if cs.Spec.Replicas != nil {
		replicas = *cs.Spec.Replicas
	}
	if r.MaxSurge != nil {
		maxSurge = pods(*r.MaxSurge, replicas)
	}
	maxUnavailable := intstr.FromString(v1beta1.DefaultMaxUnavailable)
	if r.MaxUnavailable != nil {
		maxUnavailable = *r.MaxUnavailable
	}
	var errs field.ErrorList
	if r.PodUpdatePolicy == v1beta1.InPlaceOnlyPodUpdatePolicyType && maxSurge > 0 {
		kind := "podUpdatePolicy"
		if o.V1alpha1 {
			kind = "strategy type"
		}
		errs = append(errs, field.Invalid(path.Child("maxSurge"), written(r.MaxSurge),
			fmt.Sprintf("can not use maxSurge with %s InPlaceOnly: no Pod is ever created for an update; set it to 0", kind)))
	}
	if replicas > 0 && maxSurge < 1 && pods(maxUnavailable, replicas) < 1 {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), written(&maxUnavailable),
			"maxUnavailable and maxSurge should not both be less than 1: no Pod could be updated; raise one of them"))
	}
	return errs
}

func pods(v intstr.IntOrString, replicas int32) int32 {
	n, err := percent.Of(v, replicas, percent.Up)
	if err != nil { // amount has reported it
		return 0
	}
	return n
}

// priority is row 12.
func priority(s *v1beta1.UpdatePriorityStrategy, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if len(s.WeightPriority) > 0 && len(s.OrderPriority) > 0 {
		errs = append(errs, field.Forbidden(path, "weightPriority and orderPriority exclude each other; keep one of them"))
	}
	for i := range s.WeightPriority {
		term, termPath := &s.WeightPriority[i], path.Child("weightPriority").Index(i)
		if term.Weight < 0 || term.Weight > 100 {
			errs = append(errs, field.Invalid(termPath.Child("weight"), term.Weight, "must be between 0 and 100"))
		}
		selector := termPath.Child("matchSelector")
		if empty(&term.MatchSelector) {
			errs = append(errs, field.Required(selector, "an empty selector would match every Pod; set matchLabels"))
		}
		errs = append(errs, metavalidation.ValidateLabelSelector(&term.MatchSelector,
			metavalidation.LabelSelectorValidationOptions{}, selector)...)
	}
	for i, term := range s.OrderPriority {
		if term.OrderedKey == "" {
			errs = append(errs, field.Required(path.Child("orderPriority").Index(i).Child("orderedKey"), "name a label of the Pods"))
		}
	}
	return errs
}

// scatter is row 13.
func scatter(s v1beta1.CloneSetUpdateScatterStrategy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, term := range s {
		if term.Key == "" {
			errs = append(errs, field.Required(path.Index(i).Child("key"), "name a label of the Pods"))
		}
		if slices.Contains(s[:i], term) {
			errs = append(errs, field.Duplicate(path.Index(i), term.Key+"="+term.Value))
		}
	}
	return errs
}

// inPlaceOptions is row 17.
func inPlaceOptions(s *v1beta1.InPlaceUpdateStrategy, path *field.Path, o Options) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := notNegative(int64(s.GracePeriodSeconds), path.Child("gracePeriodSeconds"))
	if o.V1alpha1 { // the rest comes from annotations, which the user cannot get wrong
		return errs
	}
	errs = append(errs, wholeNumber(s.ImagePreDownloadParallelism, path.Child("imagePreDownloadParallelism"))...)
	if n := s.ImagePreDownloadTimeoutSeconds; n != nil {
		errs = append(errs, notNegative(int64(*n), path.Child("imagePreDownloadTimeoutSeconds"))...)
	}
	if n := s.ImagePreDownloadMinUpdatedReadyPods; n != nil {
		errs = append(errs, notNegative(int64(*n), path.Child("imagePreDownloadMinUpdatedReadyPods"))...)
	}
	return errs
}

// wholeNumber wants 0 or more, as a number or as its decimal text; no percentage.
func wholeNumber(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	text := v.String()
	if n, err := strconv.ParseInt(text, 10, 32); err != nil || n < 0 {
		return field.ErrorList{field.Invalid(path, text, "must be a whole number, 0 or more; a percentage is not possible here")}
	}
	return nil
}

var (
	imagePath    = regexp.MustCompile(`^/containers/[0-9]+/image$`)
	resourcePath = regexp.MustCompile(`^/containers/[0-9]+/resources(/|$)`)
)

// inPlaceOnly is row 16, for both versions: with InPlaceOnly, a change of the Pod spec that
// cannot be made in place would only end in errors.
func inPlaceOnly(old, cs *v1beta1.CloneSet, o Options) field.ErrorList {
	s := &cs.Spec.UpdateStrategy
	if s.Type == v1beta1.OnDeleteCloneSetUpdateStrategyType || s.RollingUpdate == nil ||
		s.RollingUpdate.PodUpdatePolicy != v1beta1.InPlaceOnlyPodUpdatePolicyType {
		return nil
	}
	return onlyInPlace(&old.Spec.Template.Spec, &cs.Spec.Template.Spec, !o.V1alpha1 && o.VerticalScaling)
}

// onlyInPlace refuses changes of a Pod spec other than of images and, if allowed, resources.
func onlyInPlace(old, obj *corev1.PodSpec, resources bool) field.ErrorList {
	for _, d := range difference("", tree(old), tree(obj)) {
		if d.op == "replace" && imagePath.MatchString(d.path) || resources && resourcePath.MatchString(d.path) {
			continue
		}
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "template", "spec"),
			fmt.Sprintf("only allowed to update images in spec for InPlaceOnly, but found %s %s; use InPlaceIfPossible if Pods may be recreated for it", d.op, d.path))}
	}
	return nil
}

// change is one line of a JSON patch, without the value.
type change struct{ op, path string }

// tree is v as encoding/json reads it back.
func tree(v any) any {
	var out any
	if text, err := json.Marshal(v); err == nil {
		_ = json.Unmarshal(text, &out) // what Marshal wrote is JSON
	}
	return out
}

// difference lists what turns old into obj, in the order of keys and indexes.
func difference(path string, old, obj any) []change {
	var out []change
	switch a := old.(type) {
	case map[string]any:
		b, ok := obj.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			keyPath := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			was, before := a[key]
			is, after := b[key]
			switch {
			case !after:
				out = append(out, change{"remove", keyPath})
			case !before:
				out = append(out, change{"add", keyPath})
			default:
				out = append(out, difference(keyPath, was, is)...)
			}
		}
		return out
	case []any:
		b, ok := obj.([]any)
		if !ok {
			break
		}
		for i := range max(len(a), len(b)) {
			itemPath := path + "/" + strconv.Itoa(i)
			switch {
			case i >= len(b):
				out = append(out, change{"remove", itemPath})
			case i >= len(a):
				out = append(out, change{"add", itemPath})
			default:
				out = append(out, difference(itemPath, a[i], b[i])...)
			}
		}
		return out
	}
	if reflect.DeepEqual(old, obj) {
		return nil
	}
	return []change{{"replace", path}}
}

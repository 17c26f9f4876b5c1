// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// What follows holds for every workload: CloneSet, StatefulSet and DaemonSet.

// metadata checks name, labels and the rest; name says what names the kind may have. A
// manifest on disk may leave the namespace to the command line, and the name to the server.
func metadata(meta metav1.ObjectMeta, name apivalidation.ValidateNameFunc) field.ErrorList {
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = meta.GenerateName + "0"
	}
	return apivalidation.ValidateObjectMeta(&meta, meta.Namespace != "", name, field.NewPath("metadata"))
}

func replicas(n *int32, path *field.Path) field.ErrorList {
	if n == nil {
		return field.ErrorList{field.Required(path, "set the wanted number of Pods, 0 or more")}
	}
	return notNegative(int64(*n), path)
}

// selectorAndLabels wants a selector that selects something, and a template that it selects.
// kind is in lower case, as in the messages of OpenKruise.
func selectorAndLabels(s *metav1.LabelSelector, template map[string]string, kind string, spec *field.Path) field.ErrorList {
	path := spec.Child("selector")
	if s == nil {
		return field.ErrorList{field.Required(path, "set matchLabels to labels that template.metadata.labels has")}
	}
	errs := metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)
	if empty(s) {
		return append(errs, field.Invalid(path, "{}", "empty selector is invalid for "+kind+": it would select every Pod; set matchLabels"))
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		if len(errs) == 0 {
			errs = append(errs, field.Invalid(path, metav1.FormatLabelSelector(s), err.Error()))
		}
		return errs
	}
	if !selector.Matches(labels.Set(template)) {
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), template,
			fmt.Sprintf("`selector` does not match template `labels`: the labels must satisfy %q", selector)))
	}
	return errs
}

func empty(s *metav1.LabelSelector) bool {
	return len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// lifecycle checks that hooks name labels and finalizers that a Pod can carry.
func lifecycle(l *v1beta1.Lifecycle, path *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	for _, h := range []struct {
		name string
		hook *v1beta1.LifecycleHook
	}{{"preNormal", l.PreNormal}, {"preDelete", l.PreDelete}, {"inPlaceUpdate", l.InPlaceUpdate}} {
		if h.hook == nil {
			continue
		}
		hookPath := path.Child(h.name)
		errs = append(errs, metavalidation.ValidateLabels(h.hook.LabelsHandler, hookPath.Child("labelsHandler"))...)
		errs = append(errs, apivalidation.ValidateFinalizers(h.hook.FinalizersHandler, hookPath.Child("finalizersHandler"))...)
	}
	return errs
}

// written is v as the user wrote it, for messages; absent means 0.
func written(v *intstr.IntOrString) any {
	switch {
	case v == nil:
		return int32(0)
	case v.Type == intstr.Int:
		return v.IntVal
	}
	return v.StrVal
}

func notNegative(n int64, path *field.Path) field.ErrorList {
	if n < 0 {
		return field.ErrorList{field.Invalid(path, n, "must be 0 or more")}
	}
	return nil
}

// newFaults returns the faults of now that before does not have: an object that no rule of
// today would admit stays writable.
func newFaults(before, now field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(now, func(e *field.Error) bool {
		return slices.ContainsFunc(before, func(b *field.Error) bool { return b.Error() == e.Error() })
	})
}

// protected returns why a workload must not be deleted, nil when it may
// (deletion-protection.md 2).
func protected(meta *metav1.ObjectMeta, replicas *int32) error {
	if meta.DeletionTimestamp != nil {
		return nil
	}
	const label = v1beta1.DeleteProtectionLabel
	switch value := meta.Labels[label]; {
	case value == "Always":
		return fmt.Errorf("forbidden by ResourcesProtectionDeletion for %s=%s", label, value)
	case value == "Cascading" && replicas != nil && *replicas > 0:
		return fmt.Errorf("forbidden by ResourcesProtectionDeletion for %s=%s and replicas %d>0", label, value, *replicas)
	}
	return nil
}

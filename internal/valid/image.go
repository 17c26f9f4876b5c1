// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// MaxNodeImages is how many images one NodeImage may list.
const MaxNodeImages = 256

// ImagePullJob returns the faults of a defaulted ImagePullJob (images.md 2.1 and 5).
func ImagePullJob(job *v1beta1.ImagePullJob) field.ErrorList {
	spec := field.NewPath("spec")
	errs := imageReference(job.Spec.Image, spec.Child("image"))
	errs = append(errs, imagePullJobTemplate(&job.Spec.ImagePullJobTemplate, spec)...)
	if deadline, timeout, early := endsEarly(&job.Spec.ImagePullJobTemplate); early {
		errs = append(errs, field.Invalid(spec.Child("completionPolicy", "activeDeadlineSeconds"), deadline,
			fmt.Sprintf("must be at least pullPolicy.timeoutSeconds (%d), or the job ends before its first pull may; raise it or lower the timeout", timeout)))
	}
	return errs
}

// endsEarly reports whether a job ends before the time of one attempt is over.
func endsEarly(t *v1beta1.ImagePullJobTemplate) (deadline int64, timeout int32, early bool) {
	c, p := t.CompletionPolicy, t.PullPolicy
	if c.Type == v1beta1.Never || c.ActiveDeadlineSeconds == nil || p == nil || p.TimeoutSeconds == nil {
		return 0, 0, false
	}
	return *c.ActiveDeadlineSeconds, *p.TimeoutSeconds, *c.ActiveDeadlineSeconds < int64(*p.TimeoutSeconds)
}

// ImagePullJobUpdate returns the faults of an UPDATE: those that ImagePullJob finds, less the ones
// that the stored object has already.
func ImagePullJobUpdate(old, job *v1beta1.ImagePullJob) field.ErrorList {
	stored := old.DeepCopy()
	v1beta1.SetDefaultsImagePullJob(stored)
	return newFaults(ImagePullJob(stored), ImagePullJob(job))
}

// ImagePullJobDenial returns why an update must be denied with 403, nil when it may go ahead.
func ImagePullJobDenial(old, job *v1beta1.ImagePullJob) *field.Error {
	if slices.Equal(old.Spec.PullSecrets, job.Spec.PullSecrets) {
		return nil
	}
	return field.Forbidden(field.NewPath("spec", "pullSecrets"), "spec.pullSecrets is immutable; create a new ImagePullJob")
}

func imageReference(image string, path *field.Path) field.ErrorList {
	if image == "" {
		return field.ErrorList{field.Required(path, "name the image to pull")}
	}
	if _, err := reference.ParseNormalizedNamed(image); err != nil {
		return field.ErrorList{field.Invalid(path, image, fmt.Sprintf("must be an image reference such as nginx:1.27: %v", err))}
	}
	return nil
}

// imagePullJobTemplate is what ImagePullJob and ImageListPullJob have in common.
func imagePullJobTemplate(t *v1beta1.ImagePullJobTemplate, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := t.Selector; s != nil {
		path := spec.Child("selector")
		if t.PodSelector != nil {
			errs = append(errs, field.Forbidden(path, "selector and podSelector exclude each other; keep one of them"))
		}
		if len(s.Names) > 0 && !empty(&s.LabelSelector) {
			errs = append(errs, field.Forbidden(path.Child("names"), "names and label terms exclude each other; keep one of them"))
		}
		for i, name := range s.Names {
			if slices.Contains(s.Names[:i], name) {
				errs = append(errs, field.Duplicate(path.Child("names").Index(i), name))
			}
		}
		errs = append(errs, labelSelector(&s.LabelSelector, path)...)
	}
	if s := t.PodSelector; s != nil {
		errs = append(errs, labelSelector(&s.LabelSelector, spec.Child("podSelector"))...)
	}
	errs = append(errs, wholeNumber(t.Parallelism, spec.Child("parallelism"))...)
	return append(errs, completion(t.CompletionPolicy, spec.Child("completionPolicy"))...)
}

func labelSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)
}

func completion(c v1beta1.CompletionPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch c.Type {
	case v1beta1.Always, "":
	case v1beta1.Never:
		if c.ActiveDeadlineSeconds != nil {
			errs = append(errs, field.Forbidden(path.Child("activeDeadlineSeconds"), "a job of type Never does not end; remove it or set type to Always"))
		}
		if c.TTLSecondsAfterFinished != nil {
			errs = append(errs, field.Forbidden(path.Child("ttlSecondsAfterFinished"), "a job of type Never does not end; remove it or set type to Always"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), c.Type, []v1beta1.CompletionPolicyType{v1beta1.Always, v1beta1.Never}))
	}
	return errs
}

// NodeImage returns the faults of a defaulted NodeImage (images.md 5).
func NodeImage(ni *v1beta1.NodeImage) field.ErrorList {
	return nodeImage(ni, MaxNodeImages)
}

// NodeImageUpdate returns the faults of an UPDATE: those that NodeImage finds, less the ones that
// the stored object has already. A list that is too long may still become shorter.
func NodeImageUpdate(old, ni *v1beta1.NodeImage) field.ErrorList {
	return newFaults(nodeImage(old, len(old.Spec.Images)), nodeImage(ni, max(MaxNodeImages, len(old.Spec.Images))))
}

func nodeImage(ni *v1beta1.NodeImage, limit int) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "images")
	if n := len(ni.Spec.Images); n > limit {
		fault := field.TooMany(path, n, MaxNodeImages)
		fault.Detail += "; a node works on no more at a time: wait until other jobs are done, or delete some, or shorten their ttlSecondsAfterFinished"
		errs = append(errs, fault)
	}
	for _, name := range slices.Sorted(maps.Keys(ni.Spec.Images)) {
		at := path.Key(name)
		if strings.TrimSpace(name) == "" {
			errs = append(errs, field.Invalid(at, name, "an image needs a name"))
		}
		seen := map[string]bool{}
		for i := range ni.Spec.Images[name].Tags {
			tag := &ni.Spec.Images[name].Tags[i]
			errs = append(errs, imageTag(tag, at.Child("tags").Index(i))...)
			if seen[tag.Tag] {
				errs = append(errs, field.Duplicate(at.Child("tags").Index(i).Child("tag"), tag.Tag))
			}
			seen[tag.Tag] = true
		}
	}
	return errs
}

func imageTag(t *v1beta1.ImageTagSpec, path *field.Path) field.ErrorList {
	errs := required(t.Tag, path.Child("tag"), "set a tag or a digest")
	if t.CreatedAt == nil {
		errs = append(errs, field.Required(path.Child("createdAt"), "set the time when the tag was added"))
	}
	errs = append(errs, notNegative(t.Version, path.Child("version"))...)
	switch {
	case t.PullPolicy == nil:
		errs = append(errs, field.Required(path.Child("pullPolicy"), "set ttlSecondsAfterFinished in it"))
	case t.PullPolicy.TTLSecondsAfterFinished == nil:
		errs = append(errs, field.Required(path.Child("pullPolicy", "ttlSecondsAfterFinished"), "say when the tag may be removed from the list"))
	}
	return errs
}

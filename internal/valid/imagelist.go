// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// MaxListImages is how many images one ImageListPullJob may list.
const MaxListImages = 255

// ImageListPullJob returns the faults of a defaulted ImageListPullJob (images.md 5).
//
// A deadline below the timeout is none, though no ImagePullJob may have it: OpenKruise stores such
// a list, and manifests that it takes must not fail here. It is a warning, and the controller says
// what becomes of it.
func ImageListPullJob(job *v1beta1.ImageListPullJob) field.ErrorList {
	spec := field.NewPath("spec")
	path := spec.Child("images")
	var errs field.ErrorList
	switch n := len(job.Spec.Images); {
	case n == 0:
		errs = append(errs, field.Required(path, "name the images to pull"))
	case n > MaxListImages:
		fault := field.TooMany(path, n, MaxListImages)
		fault.Detail += "; spread them over several jobs"
		errs = append(errs, fault)
	}
	for i, image := range job.Spec.Images {
		errs = append(errs, imageReference(image, path.Index(i))...)
		if slices.Contains(job.Spec.Images[:i], image) {
			errs = append(errs, field.Duplicate(path.Index(i), image))
		}
	}
	return append(errs, imagePullJobTemplate(&job.Spec.ImagePullJobTemplate, spec)...)
}

// ImageListPullJobUpdate returns the faults of an UPDATE: those that ImageListPullJob finds, less
// the ones that the stored object has already.
func ImageListPullJobUpdate(old, job *v1beta1.ImageListPullJob) field.ErrorList {
	return newFaults(ImageListPullJob(old), ImageListPullJob(job))
}

// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// What follows is no fault, as OpenKruise takes it: sentences about what the author of an object
// has probably not meant, for a client to print.

// warning is one sentence about a field.
func warning(path *field.Path, format string, args ...any) string {
	return path.String() + ": " + fmt.Sprintf(format, args...)
}

// ImagePullJobWarnings returns what to tell the author of a valid ImagePullJob.
func ImagePullJobWarnings(job *v1beta1.ImagePullJob) []string {
	spec := field.NewPath("spec")
	out := imageWarnings(job.Spec.Image, spec.Child("image"))
	out = append(out, imageTemplateWarnings(&job.Spec.ImagePullJobTemplate, spec)...)
	if metav1.GetControllerOfNoCopy(job) == nil { // a controller cannot read
		out = append(out, retryWarnings(&job.Spec.ImagePullJobTemplate, spec)...)
	}
	return out
}

// ImageListPullJobWarnings returns what to tell the author of a valid ImageListPullJob.
func ImageListPullJobWarnings(job *v1beta1.ImageListPullJob) []string {
	spec := field.NewPath("spec")
	var out []string
	first := map[imageref.Ref]string{}
	for i, image := range job.Spec.Images {
		path := spec.Child("images").Index(i)
		out = append(out, imageWarnings(image, path)...)
		ref, err := imageref.Parse(image)
		if err != nil {
			continue
		}
		if other, ok := first[ref]; ok {
			out = append(out, warning(path, "%q is the same image as %q and is pulled twice; leave one of them out", image, other))
			continue
		}
		first[ref] = image
	}
	out = append(out, imageTemplateWarnings(&job.Spec.ImagePullJobTemplate, spec)...)
	if deadline, timeout, early := endsEarly(&job.Spec.ImagePullJobTemplate); early {
		return append(out, warning(spec.Child("completionPolicy", "activeDeadlineSeconds"),
			"%d is less than pullPolicy.timeoutSeconds (%d), which no ImagePullJob may have; raise it or lower the timeout", deadline, timeout))
	}
	return append(out, retryWarnings(&job.Spec.ImagePullJobTemplate, spec)...)
}

// NodeImageWarnings returns what to tell the author of a valid NodeImage.
func NodeImageWarnings(ni *v1beta1.NodeImage) []string {
	var out []string
	path := field.NewPath("spec", "images")
	for _, name := range slices.Sorted(maps.Keys(ni.Spec.Images)) {
		if ref, err := imageref.Parse(name); err != nil || ref.Name != name {
			out = append(out, warning(path.Key(name), "is not the short name of an image without tag, such as nginx or quay.io/acme/app, and cannot be pulled"))
		}
		for i := range ni.Spec.Images[name].Tags {
			tag := &ni.Spec.Images[name].Tags[i]
			out = append(out, pullPolicyWarnings(tag.ImagePullPolicy, path.Key(name).Child("tags").Index(i).Child("imagePullPolicy"))...)
		}
	}
	return out
}

func imageWarnings(image string, path *field.Path) []string {
	if name, digest, ok := strings.Cut(image, "@"); ok && strings.Contains(name[strings.LastIndex(name, "/")+1:], ":") {
		return []string{warning(path, "the tag has no effect beside the digest %s", digest)}
	}
	return nil
}

func pullPolicyWarnings(p v1beta1.ImagePullPolicy, path *field.Path) []string {
	if p == "" || p == v1beta1.PullAlways || p == v1beta1.PullIfNotPresent {
		return nil
	}
	return []string{warning(path, "%q is not known and has the effect of Always; use Always or IfNotPresent", p)}
}

// imageTemplateWarnings are those that ImagePullJob and ImageListPullJob have in common.
func imageTemplateWarnings(t *v1beta1.ImagePullJobTemplate, spec *field.Path) []string {
	out := pullPolicyWarnings(t.ImagePullPolicy, spec.Child("imagePullPolicy"))
	if s := t.Selector; s != nil && s.Names != nil && len(s.Names) == 0 && empty(&s.LabelSelector) {
		out = append(out, warning(spec.Child("selector", "names"), "an empty list selects no node; leave the selector out to select all"))
	}
	if s := t.PodSelector; s != nil && empty(&s.LabelSelector) {
		out = append(out, warning(spec.Child("podSelector"), "selects the nodes of all Pods of the namespace; set matchLabels"))
	}
	for i, name := range t.PullSecrets {
		switch path := spec.Child("pullSecrets").Index(i); {
		case name == "":
			out = append(out, warning(path, "is empty and has no effect"))
		case slices.Contains(t.PullSecrets[:i], name):
			out = append(out, warning(path, "%q is listed twice", name))
		}
	}
	if p := t.PullPolicy; p != nil {
		if n := p.TimeoutSeconds; n != nil && *n <= 0 {
			out = append(out, warning(spec.Child("pullPolicy", "timeoutSeconds"), "%d leaves no time for a pull; set some minutes", *n))
		}
		if n := p.BackoffLimit; n != nil && *n < 0 {
			out = append(out, warning(spec.Child("pullPolicy", "backoffLimit"), "%d has the effect of 0: a failed pull is not tried again", *n))
		}
	}
	if n := t.CompletionPolicy.TTLSecondsAfterFinished; n != nil && *n < 0 {
		out = append(out, warning(spec.Child("completionPolicy", "ttlSecondsAfterFinished"), "%d has the effect of 0: the job is deleted as soon as it is complete", *n))
	}
	return out
}

// retryWarnings is for a deadline that ends the job before it has tried as often as it says.
func retryWarnings(t *v1beta1.ImagePullJobTemplate, spec *field.Path) []string {
	deadline, timeout, early := endsEarly(t)
	if early || deadline == 0 || timeout <= 0 || t.PullPolicy.BackoffLimit == nil {
		return nil
	}
	if retries := *t.PullPolicy.BackoffLimit; retries > 0 && deadline < int64(timeout)*(int64(retries)+1) {
		return []string{warning(spec.Child("completionPolicy", "activeDeadlineSeconds"),
			"%d may end the job before its %d retries of pullPolicy.timeoutSeconds (%d) are over", deadline, retries, timeout)}
	}
	return nil
}

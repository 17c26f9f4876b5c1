// SPDX-License-Identifier: Apache-2.0

// Package imagepulljob registers admission and conversion of ImagePullJobs. The rules are
// in internal/valid and apis (images.md 5).
package imagepulljob

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/valid"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

// Register serves admission of ImagePullJobs under the paths that platform.md 3.5 fixes.
func Register(hs admit.Handlers, set *features.Set) {
	rules := admit.Rules[*v1beta1.ImagePullJob]{
		Kind: v1beta1.GroupVersion.WithKind("ImagePullJob"),
		Versions: []admit.Version[*v1beta1.ImagePullJob]{
			admit.Hub("v1beta1", func(_, job *v1beta1.ImagePullJob) { v1beta1.SetDefaultsImagePullJob(job) }),
			admit.Spoke("v1alpha1", v1alpha1.ImagePullJobToHub, func(old, job *v1alpha1.ImagePullJob) {
				v1alpha1.SetDefaultsImagePullJob(job, old == nil)
			}),
		},
		Gates:    []features.Gate{features.KruiseDaemon, features.ImagePullJobGate},
		Features: set,
		Code:     http.StatusBadRequest,
		Validate: validate,
		Deny:     deny,
		Warn: func(_ context.Context, r admit.Request[*v1beta1.ImagePullJob]) []string {
			return valid.ImagePullJobWarnings(r.New)
		},
	}
	hs.Add(rules.Mutator(), "/mutate-apps-kruise-io-imagepulljob", "/mutate-apps-kruise-io-v1alpha1-imagepulljob")
	hs.Add(rules.Validator(), "/validate-apps-kruise-io-imagepulljob", "/validate-apps-kruise-io-v1alpha1-imagepulljob")
}

// Converter converts ImagePullJobs of all versions for /convert.
func Converter() (*v1beta1.ImagePullJob, conversion.SpokeConverter[*v1beta1.ImagePullJob]) {
	return &v1beta1.ImagePullJob{}, conversion.NewSpokeConverter(&v1alpha1.ImagePullJob{}, v1alpha1.ImagePullJobFromHub, v1alpha1.ImagePullJobToHub)
}

func validate(_ context.Context, r admit.Request[*v1beta1.ImagePullJob]) (field.ErrorList, error) {
	if r.Old == nil {
		return valid.ImagePullJob(r.New), nil
	}
	return valid.ImagePullJobUpdate(r.Old, r.New), nil
}

func deny(r admit.Request[*v1beta1.ImagePullJob]) error {
	if fault := valid.ImagePullJobDenial(r.Old, r.New); fault != nil {
		return fault
	}
	return nil
}

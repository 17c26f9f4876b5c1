// SPDX-License-Identifier: Apache-2.0

// Package imagelistpulljob registers admission and conversion of ImageListPullJobs. The rules
// are in internal/valid and apis (images.md 5).
package imagelistpulljob

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

// Register serves admission of ImageListPullJobs under the paths that platform.md 3.5 fixes.
func Register(hs admit.Handlers, set *features.Set) {
	rules := admit.Rules[*v1beta1.ImageListPullJob]{
		Kind: v1beta1.GroupVersion.WithKind("ImageListPullJob"),
		Versions: []admit.Version[*v1beta1.ImageListPullJob]{
			admit.Hub("v1beta1", func(_, job *v1beta1.ImageListPullJob) { v1beta1.SetDefaultsImageListPullJob(job) }),
			admit.Spoke("v1alpha1", v1alpha1.ImageListPullJobToHub, func(_, job *v1alpha1.ImageListPullJob) {
				v1alpha1.SetDefaultsImageListPullJob(job)
			}),
		},
		Gates:    []features.Gate{features.KruiseDaemon, features.ImagePullJobGate},
		Features: set,
		Code:     http.StatusBadRequest,
		Validate: validate,
		Warn: func(_ context.Context, r admit.Request[*v1beta1.ImageListPullJob]) []string {
			return valid.ImageListPullJobWarnings(r.New)
		},
	}
	hs.Add(rules.Mutator(), "/mutate-apps-kruise-io-imagelistpulljob", "/mutate-apps-kruise-io-v1alpha1-imagelistpulljob")
	hs.Add(rules.Validator(), "/validate-apps-kruise-io-imagelistpulljob", "/validate-apps-kruise-io-v1alpha1-imagelistpulljob")
}

// Converter converts ImageListPullJobs of all versions for /convert.
func Converter() (*v1beta1.ImageListPullJob, conversion.SpokeConverter[*v1beta1.ImageListPullJob]) {
	return &v1beta1.ImageListPullJob{}, conversion.NewSpokeConverter(&v1alpha1.ImageListPullJob{}, v1alpha1.ImageListPullJobFromHub, v1alpha1.ImageListPullJobToHub)
}

func validate(_ context.Context, r admit.Request[*v1beta1.ImageListPullJob]) (field.ErrorList, error) {
	if r.Old != nil {
		return valid.ImageListPullJobUpdate(r.Old, r.New), nil
	}
	return valid.ImageListPullJob(r.New), nil
}

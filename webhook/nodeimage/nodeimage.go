// SPDX-License-Identifier: Apache-2.0

// Package nodeimage registers admission and conversion of NodeImages. The rules are in
// internal/valid and apis (images.md 5).
package nodeimage

import (
	"context"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/valid"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

// Register serves admission of NodeImages under the paths that platform.md 3.5 fixes.
func Register(hs admit.Handlers, set *features.Set, c clock.PassiveClock) {
	rules := admit.Rules[*v1beta1.NodeImage]{
		Kind: v1beta1.GroupVersion.WithKind("NodeImage"),
		Versions: []admit.Version[*v1beta1.NodeImage]{
			admit.Hub("v1beta1", func(old, ni *v1beta1.NodeImage) {
				if old != nil {
					keepTimes(old.Spec.Images, ni.Spec.Images)
				}
				setDefaults(ni.Spec.Images, func() { v1beta1.SetDefaultsNodeImage(ni, metav1.NewTime(c.Now())) })
			}),
			admit.Spoke("v1alpha1", v1alpha1.NodeImageToHub, func(old, ni *v1alpha1.NodeImage) {
				if old != nil {
					keepTimes(old.Spec.Images, ni.Spec.Images)
				}
				setDefaults(ni.Spec.Images, func() { v1alpha1.SetDefaultsNodeImage(ni, metav1.NewTime(c.Now())) })
			}),
		},
		Gates:    []features.Gate{features.KruiseDaemon},
		Features: set,
		Code:     http.StatusBadRequest,
		Validate: func(_ context.Context, r admit.Request[*v1beta1.NodeImage]) (field.ErrorList, error) {
			if r.Old != nil {
				return valid.NodeImageUpdate(r.Old, r.New), nil
			}
			return valid.NodeImage(r.New), nil
		},
		Warn: func(_ context.Context, r admit.Request[*v1beta1.NodeImage]) []string {
			return valid.NodeImageWarnings(r.New)
		},
	}
	hs.Add(rules.Mutator(), "/mutate-apps-kruise-io-nodeimage", "/mutate-apps-kruise-io-v1alpha1-nodeimage")
	hs.Add(rules.Validator(), "/validate-apps-kruise-io-nodeimage", "/validate-apps-kruise-io-v1alpha1-nodeimage")
}

// Converter converts NodeImages of all versions for /convert.
func Converter() (*v1beta1.NodeImage, conversion.SpokeConverter[*v1beta1.NodeImage]) {
	return &v1beta1.NodeImage{}, conversion.NewSpokeConverter(&v1alpha1.NodeImage{}, v1alpha1.NodeImageFromHub, v1alpha1.NodeImageToHub)
}

// setDefaults runs f without the image that has no name: it is about to be refused, and the API
// server cannot apply a patch to what is below an empty key.
func setDefaults(images map[string]v1beta1.ImageSpec, f func()) {
	nameless, ok := images[""]
	delete(images, "")
	f()
	if ok {
		images[""] = nameless
	}
}

// keepTimes leaves the time of a tag as it is when an update says nothing about it, as the same
// manifest does that is applied again. A new version is a new task and gets a new time.
func keepTimes(old, images map[string]v1beta1.ImageSpec) {
	for name, image := range images {
		for i := range image.Tags { // the slice is shared with the map's value
			tag := &image.Tags[i]
			was := slices.IndexFunc(old[name].Tags, func(t v1beta1.ImageTagSpec) bool { return t.Tag == tag.Tag && t.Version == tag.Version })
			if tag.CreatedAt == nil && was >= 0 {
				tag.CreatedAt = old[name].Tags[was].CreatedAt.DeepCopy()
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package podprobemarker registers admission of PodProbeMarkers, which have one version and no
// defaults. The rules are in internal/valid (podprobe.md 2).
package podprobemarker

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/valid"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

// Register serves admission of PodProbeMarkers under the path that platform.md 3.5 fixes.
func Register(hs admit.Handlers, set *features.Set) {
	rules := admit.Rules[*v1alpha1.PodProbeMarker]{
		Kind: v1alpha1.GroupVersion.WithKind("PodProbeMarker"),
		Versions: []admit.Version[*v1alpha1.PodProbeMarker]{
			admit.Hub("v1alpha1", func(_, _ *v1alpha1.PodProbeMarker) {}),
		},
		Gates:    []features.Gate{features.KruiseDaemon, features.PodProbeMarkerGate},
		Features: set,
		Code:     http.StatusBadRequest,
		Validate: validate,
		Warn:     func(r admit.Request[*v1alpha1.PodProbeMarker]) []string { return valid.PodProbeMarkerWarnings(r.New) },
	}
	hs.Add(rules.Validator(), "/validate-apps-kruise-io-podprobemarker")
}

func validate(_ context.Context, r admit.Request[*v1alpha1.PodProbeMarker]) (field.ErrorList, error) {
	if r.Old != nil {
		return valid.PodProbeMarkerUpdate(r.Old, r.New), nil
	}
	return valid.PodProbeMarker(r.New), nil
}

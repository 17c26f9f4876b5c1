// SPDX-License-Identifier: Apache-2.0

// Package podprobemarker registers admission of PodProbeMarkers, which have one version and no
// defaults. The rules are in internal/valid (podprobe.md 2).
package podprobemarker

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/valid"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

// Options are what admission of PodProbeMarkers needs.
type Options struct {
	Features *features.Set
	// Markers reads the other PodProbeMarkers of a namespace, to warn of two that contradict each
	// other; it may be a cache.
	Markers client.Reader
}

// Register serves admission of PodProbeMarkers under the path that platform.md 3.5 fixes.
func Register(hs admit.Handlers, o Options) {
	rules := admit.Rules[*v1alpha1.PodProbeMarker]{
		Kind: v1alpha1.GroupVersion.WithKind("PodProbeMarker"),
		Versions: []admit.Version[*v1alpha1.PodProbeMarker]{
			admit.Hub("v1alpha1", func(_, _ *v1alpha1.PodProbeMarker) {}),
		},
		Gates:    []features.Gate{features.KruiseDaemon, features.PodProbeMarkerGate},
		Features: o.Features,
		Code:     http.StatusBadRequest,
		Validate: validate,
		Warn:     o.warn,
	}
	hs.Add(rules.Validator(), "/validate-apps-kruise-io-podprobemarker")
}

func validate(_ context.Context, r admit.Request[*v1alpha1.PodProbeMarker]) (field.ErrorList, error) {
	if r.Old != nil {
		return valid.PodProbeMarkerUpdate(r.Old, r.New), nil
	}
	return valid.PodProbeMarker(r.New), nil
}

func (o Options) warn(ctx context.Context, r admit.Request[*v1alpha1.PodProbeMarker]) []string {
	out := valid.PodProbeMarkerWarnings(r.New)
	others := &v1alpha1.PodProbeMarkerList{}
	if err := o.Markers.List(ctx, others, client.InNamespace(r.New.Namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Other PodProbeMarkers are not compared", "namespace", r.New.Namespace)
		return out
	}
	return append(out, valid.PodProbeMarkerConflicts(r.New, others.Items)...)
}

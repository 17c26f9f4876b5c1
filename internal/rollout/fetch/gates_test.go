// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
)

// Without a look at the manager, diagnoses assume the gates of an installation that sets none.
func TestDefaultGatesAreThoseOfTheRegistry(t *testing.T) {
	ignore := cmp.Comparer(func(a, b inplace.Options) bool {
		return a.VerticalScaling == b.VerticalScaling && a.EnvFromMetadata == b.EnvFromMetadata &&
			a.RecreateOnVolumeClaimTemplateChange == b.RecreateOnVolumeClaimTemplateChange
	})
	if diff := cmp.Diff(GatesOf(features.New()), diagnose.DefaultGates(), ignore); diff != "" {
		t.Errorf("the defaults differ (-registry +assumed):\n%s", diff)
	}
}

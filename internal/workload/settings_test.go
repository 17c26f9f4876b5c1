// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/workload"
)

func TestCompleteFillsInWhatIsMissing(t *testing.T) {
	s := workload.Settings{Features: features.New(), ServerVersion: "v1.37.2", Workers: 7}
	require.NoError(t, s.Complete(nil, "CloneSet"))
	require.Equal(t, 7, s.Workers)
	require.Equal(t, 32, s.Parallel)
	require.Equal(t, 5*time.Minute, s.ExpectationTimeout)
	require.NotNil(t, s.RateLimiter)
	require.NotNil(t, s.Clock)
	require.Len(t, s.NewID(), 5)

	none := workload.Settings{ServerVersion: "v1.37.2"}
	require.ErrorContains(t, none.Complete(nil, "CloneSet"), "CloneSet controller: no feature gates given")
}

func TestLeakageIsCountedPerObjectAndRegisteredOnce(t *testing.T) {
	for range 2 { // a second manager in the same process
		count, err := workload.Leakage("workload_test_leakage", "CloneSet")
		require.NoError(t, err)
		count(types.NamespacedName{Namespace: "shop", Name: "web"})
	}
	n, err := testutil.GatherAndCount(metrics.Registry, "workload_test_leakage")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// D1: one Pod on every node, and a deleted one comes back.
func TestEveryNodeHasAPod(t *testing.T) {
	inBothVersions(t, func(s suite) {
		s.create()
		s.waitOn(s.nodes())
		gone := s.Pods(agentName)[0]
		require.NoError(s.T, s.Client.Delete(s.Ctx(), &gone))
		s.Eventually("the deleted Pod is gone", harness.Short, func() string {
			for _, p := range s.all() {
				if p.UID == gone.UID {
					return "it still exists"
				}
			}
			return ""
		})
		s.waitOn(s.nodes())
	})
}

// D4 and D5 as a user does it: kruisectl changes the image in the Pods that are there; another
// environment takes other Pods.
func TestImageChangesInPlaceThroughKruisectl(t *testing.T) {
	t.Parallel()
	s := newSuite(t, beta{})
	s.create(func(f fields) {
		f.Rolling.RollingUpdateType, f.Rolling.MaxUnavailable = v1beta1.InplaceRollingUpdateType, new(intstr.FromInt32(5))
	})
	s.waitComplete()
	before := harness.Identities(s.Pods(agentName))

	s.Kruisectl("set", "image", "ads/"+agentName, "busybox="+harness.Nginx2)
	s.Kruisectl("rollout", "status", "ads/"+agentName, "--timeout", "6m")
	s.waitComplete()
	s.RequireSamePods(agentName, before)
	s.requireGate(s.Pods(agentName))
	for _, p := range s.Pods(agentName) {
		require.Equal(t, harness.Nginx2, harness.Image(p, "busybox"), "image of %s", p.Name)
		require.EqualValues(t, 1, harness.Restarts(p, "busybox"), "restarts of %s", p.Name)
	}

	s.Kruisectl("rollout", "undo", "ads/"+agentName, "--yes")
	s.Kruisectl("rollout", "status", "ads/"+agentName, "--timeout", "6m")
	s.waitComplete()
	s.RequireSamePods(agentName, before)
	require.Equal(t, len(before), harness.CountImage(s.Pods(agentName), "busybox", harness.Nginx1))
}

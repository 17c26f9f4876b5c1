//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package statefulset_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// S1: Pods come one after the other, each with a volume of its own that outlives it.
func TestPodsKeepNameAndVolume(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(3, withClaim, func(set *v1beta1.StatefulSet) {
		app(set).ReadinessProbe = probe("test -e /data/started")
		set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "home", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"},
		}}}
		app(set).VolumeMounts = append(app(set).VolumeMounts, corev1.VolumeMount{Name: "home", MountPath: "/home"})
	}))
	for ordinal, all := range [][]string{{"web-0"}, {"web-0", "web-1"}, {"web-0", "web-1", "web-2"}} {
		s.waitRunning(ordinal)
		require.Equal(t, all, s.names(), "Pods while %s is not ready", name(ordinal))
		s.inside(ordinal, "hostname > /data/id && touch /data/started")
	}
	s.waitReady(3)
	require.Equal(t, "web", s.set().Spec.ServiceName)

	s.scale(0)
	s.waitGone()
	s.scale(3)
	s.waitReady(3)
	for ordinal := range 3 {
		p := s.pod(ordinal)
		require.Equal(t, name(ordinal)+"\n", s.inside(ordinal, "cat /data/id"), "what %s finds in its volume", p.Name)
		require.Equal(t, name(ordinal)+"\n", s.inside(ordinal, "hostname"))
		require.Equal(t, [2]string{name(ordinal), "web"}, [2]string{p.Spec.Hostname, p.Spec.Subdomain})
	}
}

// S4: an update goes from the highest ordinal down, and its rollback ends in the first revision.
func TestUpdateAndRollback(t *testing.T) {
	t.Parallel()
	updateAndRollback(t)
}

func updateAndRollback(t *testing.T, edit ...func(*v1beta1.StatefulSet)) {
	s := newSuite(t)
	s.Create(web(3, edit...))
	first := s.waitComplete(3)
	s.requireRevision(first.CurrentRevision, 0, 1, 2)

	update := func(image string) v1beta1.StatefulSetStatus {
		s.breakPod(1)
		s.waitReadyCount(2)
		before := s.waitObserved()
		s.image(image)
		during := s.waitObserved()
		require.NotEqual(t, during.CurrentRevision, during.UpdateRevision, "revisions in the middle of an update")
		require.Equal(t, before.CurrentRevision, during.CurrentRevision)
		watch := s.watchOrder()
		s.repairPod(1)
		s.waitComplete(3)
		_, deleted := watch.end()
		require.Equal(t, []string{"web-2", "web-1", "web-0"}, deleted, "order of the update")
		after := s.waitComplete(3)
		require.Equal(t, during.UpdateRevision, after.CurrentRevision)
		s.requireRevision(after.UpdateRevision, 0, 1, 2)
		for ordinal := range 3 {
			require.Equal(t, image, harness.Image(s.pod(ordinal), "app"), "image of %s", name(ordinal))
		}
		return after
	}
	second := update(harness.Nginx2)
	require.NotEqual(t, first.CurrentRevision, second.CurrentRevision)
	third := update(harness.Nginx1)
	require.Equal(t, first.CurrentRevision, third.CurrentRevision, "a rollback goes back to the revision, not to a new one")
}

// S8 as a user does it: kruisectl changes the image, the Pods stay, kruisectl goes back.
func TestImageChangesInPlaceThroughKruisectl(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(3, inPlace))
	first := s.waitComplete(3)
	before := harness.Identities(s.Pods("web"))
	watch := s.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})

	s.Kruisectl("set", "image", "asts/web", "app="+harness.Nginx2)
	s.Kruisectl("rollout", "status", "asts/web", "--timeout", "6m")
	second := s.waitComplete(3)
	s.requireRevision(second.UpdateRevision, 0, 1, 2)
	for _, p := range s.Pods("web") {
		require.Equal(t, harness.Nginx2, harness.Image(p, "app"), "image of %s", p.Name)
		require.EqualValues(t, 1, harness.Restarts(p, "app"), "restarts of %s", p.Name)
	}

	s.Kruisectl("rollout", "undo", "asts/web", "--yes")
	s.Kruisectl("rollout", "status", "asts/web", "--timeout", "6m")
	require.Equal(t, first.UpdateRevision, s.waitComplete(3).UpdateRevision)
	watch.Check(s.Env)
	s.RequireSamePods("web", before)
}

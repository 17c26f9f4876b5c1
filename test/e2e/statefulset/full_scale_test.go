//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package statefulset_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// S3: an unready Pod holds back those after it, but never one before it.
func TestAMissingLowerPodIsMadeBesideAnUnreadyOne(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(2, func(set *v1beta1.StatefulSet) { app(set).ReadinessProbe = probe("test -e /tmp/go") }))
	s.waitRunning(0)
	s.stays("web-0")
	s.inside(0, "touch /tmp/go")
	second := s.waitRunning(1)

	s.forceDelete(0)
	s.waitRunning(0)
	require.Equal(t, second.UID, s.pod(1).UID)
	one := s.pod(1)
	require.False(t, harness.Ready(&one))
	s.inside(0, "touch /tmp/go")
	s.inside(1, "touch /tmp/go")
	s.waitComplete(2)
}

// S11: in order, scaling stops at a Pod that is not ready, up and down.
func TestOrderedScalingStopsAtAnUnreadyPod(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	watch := s.watchOrder()
	s.Create(web(1))
	s.waitReady(1)
	s.breakPod(0)
	s.waitReadyCount(0)
	s.scale(3)
	s.waitObserved()
	s.stays("web-0")
	s.repairPod(0)
	s.waitReady(3)
	created, deleted := watch.end()
	require.Equal(t, []string{"web-0", "web-1", "web-2"}, created)
	require.Empty(t, deleted)

	for ordinal := range 3 {
		s.breakPod(ordinal)
	}
	s.waitReadyCount(0)
	watch = s.watchOrder()
	s.scale(0)
	s.waitObserved()
	s.stays("web-0", "web-1", "web-2")
	for _, ordinal := range []int{2, 1, 0} {
		s.repairUnlessGone(ordinal)
	}
	s.waitGone()
	created, deleted = watch.end()
	require.Empty(t, created)
	require.Equal(t, []string{"web-2", "web-1", "web-0"}, deleted)
}

// repairUnlessGone repairs a Pod that may be deleted meanwhile: the lowest of the unready ones
// is, ready or not.
func (s suite) repairUnlessGone(ordinal int) {
	s.T.Helper()
	s.Eventually("repairing Pod "+name(ordinal), harness.Short, func() string {
		p := &corev1.Pod{}
		if err := s.Client.Get(s.Ctx(), s.Key(name(ordinal)), p); err != nil || p.DeletionTimestamp != nil {
			return text(client.IgnoreNotFound(err))
		}
		r, err := harness.Run(s.Ctx(), "", harness.Kubectl(), "-n", s.Namespace, "exec", name(ordinal), "-c", "app", "--", "rm", "-f", broken)
		require.NoError(s.T, err)
		if r.Code != 0 {
			return r.Text()
		}
		return ""
	})
}

// S12: in parallel, it does not wait.
func TestParallelScalingDoesNotWait(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(1, parallel))
	s.waitReady(1)
	s.breakPod(0)
	s.waitReadyCount(0)
	s.scale(3)
	s.waitStatus("three Pods, two of them ready", func(st v1beta1.StatefulSetStatus) bool {
		return st.Replicas == 3 && st.ReadyReplicas == 2
	})
	s.breakPod(1)
	s.breakPod(2)
	s.waitReadyCount(0)
	s.scale(0)
	s.waitGone()
}

// S20: a claim that goes while its Pod is unscheduled is made again.
func TestAClaimIsMadeAgainForAPendingPod(t *testing.T) {
	s := newSuite(t) // not parallel: a node is cordoned
	s.Create(web(1, withClaim))
	s.waitReady(1)
	node := s.pod(0).Spec.NodeName
	s.change(func(set *v1beta1.StatefulSet) {
		set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	})
	pinned := s.waitComplete(1)
	s.cordon(node, true)
	t.Cleanup(func() { s.cordon(node, false) })

	old := s.pod(0)
	require.NoError(t, s.Client.Delete(s.Ctx(), &old))
	s.waitReplaced(old)
	s.waitStatus("the Pod that waits for its node counts", func(st v1beta1.StatefulSetStatus) bool {
		return st.CurrentReplicas == 1 && st.ReadyReplicas == 0
	})
	claim := &corev1.PersistentVolumeClaim{}
	key := s.Key("data-web-0")
	require.NoError(t, s.Client.Get(s.Ctx(), key, claim))
	uid := claim.UID
	require.NoError(t, s.Client.Delete(s.Ctx(), claim))
	s.Eventually("the claim is made again", harness.Long, func() string {
		claim := &corev1.PersistentVolumeClaim{}
		if err := s.Client.Get(s.Ctx(), key, claim); err != nil {
			return err.Error()
		}
		if claim.UID == uid {
			return "the old one still exists"
		}
		return ""
	})
	waiting := s.pod(0)
	require.Empty(t, waiting.Spec.NodeName)

	s.cordon(node, false)
	require.Equal(t, pinned.UpdateRevision, s.waitComplete(1).UpdateRevision)
	require.Equal(t, node, s.pod(0).Spec.NodeName)
}

// cordon makes a node unschedulable, or schedulable again.
func (s suite) cordon(node string, yes bool) {
	s.T.Helper()
	ctx := s.Background()
	s.EventuallyIn(ctx, "cordoning "+node, harness.Short, func() string {
		n := &corev1.Node{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
			return err.Error()
		}
		n.Spec.Unschedulable = yes
		return text(s.Client.Update(ctx, n))
	})
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package statefulset_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The leader dies in the middle of an update: its successor goes on, and no promise breaks.
func TestLeaderKilledInTheMiddleOfAnUpdate(t *testing.T) {
	s := newSuite(t) // not parallel: every controller stops for a while
	s.Create(web(5, inPlace))
	s.waitComplete(5)
	before := harness.Identities(s.Pods("web"))
	watch := s.Observe("web", harness.Limits{MinReady: 4, MaxPods: 5, KeepPods: true})
	s.image(harness.Nginx2)
	s.Eventually("the update is on its way", harness.Long, func() string {
		if harness.CountImage(s.Pods("web"), "app", harness.Nginx2) == 0 {
			return "no Pod is updated yet"
		}
		return ""
	})
	t.Logf("killed the leader %s", s.KillLeader())
	after := s.waitComplete(5)
	watch.Check(s.Env)
	s.RequireSamePods("web", before)
	s.requireRevision(after.UpdateRevision, 0, 1, 2, 3, 4)
}

// S13: the kubelet turns a Pod away whose port is taken. The Pod is made again until the port
// is free.
func TestAPodThatItsNodeTurnsAwayIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	nodes := &corev1.NodeList{}
	require.NoError(t, s.Client.List(s.Ctx(), nodes))
	node, port := nodes.Items[0].Name, []corev1.ContainerPort{{ContainerPort: 21017, HostPort: 21017}}
	holder := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "holder"},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{
			Name: "app", Image: harness.Nginx1, ImagePullPolicy: corev1.PullIfNotPresent, Ports: port,
		}}},
	}
	s.Create(holder)
	s.Eventually("the port is taken", harness.Long, func() string {
		p := &corev1.Pod{}
		if err := s.Client.Get(s.Ctx(), s.Key("holder"), p); err != nil || !harness.Ready(p) {
			return "not yet: " + text(err)
		}
		return ""
	})
	s.Create(web(1, func(set *v1beta1.StatefulSet) {
		set.Spec.Template.Spec.NodeName = node
		app(set).Ports = port
	}))
	first := s.pod(0)
	s.waitReplaced(first)
	require.NoError(t, s.Client.Delete(s.Ctx(), holder))
	s.waitReady(1)
	require.NotEqual(t, first.UID, s.pod(0).UID)
}

// A client of v1alpha1 reads, changes and writes a set whose ordinals it knows nothing of.
func TestAV1alpha1ClientLosesNothingOfV1beta1(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(2, parallel, func(set *v1beta1.StatefulSet) {
		set.Spec.ReserveOrdinals = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("3-4")}
		set.Spec.ScaleStrategy = &v1beta1.StatefulSetScaleStrategy{MaxUnavailable: new(intstr.FromString("50%"))}
	}))
	s.waitReady(2)
	require.Equal(t, []string{"web-0", "web-2"}, s.names())
	before := s.set()

	s.Eventually("writing through v1alpha1", harness.Short, func() string {
		old := &v1alpha1.StatefulSet{}
		err := s.Client.Get(s.Ctx(), s.Key("web"), old)
		if err == nil {
			old.Spec.Replicas = new(int32(3))
			err = s.Client.Update(s.Ctx(), old)
		}
		return text(err)
	})
	s.waitReady(3)
	require.Equal(t, []string{"web-0", "web-2", "web-5"}, s.names())
	after := s.set()
	before.Spec.Replicas = after.Spec.Replicas
	require.Equal(t, before.Spec, after.Spec)
	require.NotContains(t, after.Annotations, v1beta1.V1beta1FieldsAnnotation)
}

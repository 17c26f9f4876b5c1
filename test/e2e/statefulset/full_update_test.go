//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package statefulset_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// S5: S4 with claims.
func TestUpdateAndRollbackWithClaims(t *testing.T) {
	t.Parallel()
	updateAndRollback(t, withClaim)
}

// S8: in place with a grace period, partition by partition.
func TestInPlaceWithAGracePeriodAndAPartition(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(3, inPlace, func(set *v1beta1.StatefulSet) {
		rolling(set).InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{GracePeriodSeconds: 10}
	}))
	first := s.waitComplete(3)
	require.NoError(t, s.Client.DeleteAllOf(s.Ctx(), &corev1.Pod{}, client.InNamespace(s.Namespace), client.MatchingLabels{"foo": "bar"}))
	s.waitReadyCount(0)
	again := s.waitComplete(3)
	require.Equal(t, first.CurrentRevision, again.CurrentRevision)
	s.requireRevision(first.CurrentRevision, 0, 1, 2)
	before := harness.Identities(s.Pods("web"))

	s.change(func(set *v1beta1.StatefulSet) {
		app(set).Image = harness.Nginx2
		rolling(set).Partition = new(int32(3))
	})
	held := s.waitObserved()
	require.NotEqual(t, held.CurrentRevision, held.UpdateRevision)
	s.Throughout("a partition of all keeps every Pod", harness.Still, func() string {
		if n := harness.CountImage(s.Pods("web"), "app", harness.Nginx1); n != 3 {
			return "a Pod was updated"
		}
		return ""
	})
	s.change(func(set *v1beta1.StatefulSet) { rolling(set).Partition = new(int32(0)) })
	s.waitComplete(3)
	s.RequireSamePods("web", before)
	s.requireRevision(held.UpdateRevision, 0, 1, 2)
	require.Equal(t, 3, harness.CountImage(s.Pods("web"), "app", harness.Nginx2))
}

// withEnv gives the container a variable from label test-env.
func withEnv(set *v1beta1.StatefulSet) {
	set.Spec.Template.Labels["test-env"] = "foo"
	app(set).Env = []corev1.EnvVar{{Name: "TEST_ENV", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels['test-env']"},
	}}}
}

// S9: env from a label changes in place, with one restart.
func TestEnvFromALabelChangesInPlace(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(3, inPlace, withEnv))
	s.waitComplete(3)
	before := harness.Identities(s.Pods("web"))
	watch := s.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})
	s.change(func(set *v1beta1.StatefulSet) { set.Spec.Template.Labels["test-env"] = "bar" })
	after := s.waitComplete(3)
	watch.Check(s.Env)
	s.RequireSamePods("web", before)
	s.requireRevision(after.UpdateRevision, 0, 1, 2)
	for ordinal := range 3 {
		require.EqualValues(t, 1, harness.Restarts(s.pod(ordinal), "app"), "restarts of %s", name(ordinal))
		require.Equal(t, "bar\n", s.inside(ordinal, "echo $TEST_ENV"))
	}
}

func requirements(cpu, memory, cpuLimit, memoryLimit string) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(cpuLimit, memoryLimit)}
}

var (
	larger  = requirements("20m", "32Mi", "100m", "128Mi")
	smaller = requirements("10m", "24Mi", "80m", "160Mi")
)

// S10: another QoS class is another Pod.
func TestAnotherQOSClassRecreates(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(2, inPlace, withEnv, func(set *v1beta1.StatefulSet) { app(set).Resources = larger }))
	s.waitComplete(2)
	before := harness.Identities(s.Pods("web"))
	s.change(func(set *v1beta1.StatefulSet) { app(set).Resources.Requests = larger.Limits })
	after := s.waitComplete(2)
	s.requireRevision(after.UpdateRevision, 0, 1)
	for _, p := range s.Pods("web") {
		require.NotEqual(t, before[p.Name].UID, p.UID, "UID of %s", p.Name)
		require.EqualValues(t, 0, harness.Restarts(p, "app"), "restarts of %s", p.Name)
		require.Equal(t, corev1.PodQOSGuaranteed, p.Status.QOSClass)
	}
}

// 15.3: resources change in the running Pods, and back.
func TestResourcesChangeInPlaceAndBack(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		replicas int32
		edit     func(*v1beta1.StatefulSet)
	}{
		"with claims":    {2, withClaim},
		"without claims": {3, func(*v1beta1.StatefulSet) {}},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t)
			s.Create(web(c.replicas, inPlace, c.edit, func(set *v1beta1.StatefulSet) { app(set).Resources = larger }))
			first := s.waitComplete(c.replicas)
			before := harness.Identities(s.Pods("web"))
			for _, want := range []corev1.ResourceRequirements{smaller, larger} {
				s.change(func(set *v1beta1.StatefulSet) { app(set).Resources = want })
				after := s.waitComplete(c.replicas)
				s.RequireSamePods("web", before)
				for _, p := range s.Pods("web") {
					require.Equal(t, after.UpdateRevision, p.Labels["controller-revision-hash"], "revision of %s", p.Name)
					require.Equal(t, harness.Nginx1, harness.Image(p, "app"))
					got := p.Status.ContainerStatuses[0].Resources
					require.NotNil(t, got, "resources that the kubelet reports")
					require.Zero(t, want.Limits.Memory().Cmp(*got.Limits.Memory()), "memory limit of %s", p.Name)
					require.Zero(t, want.Requests.Cpu().Cmp(*got.Requests.Cpu()), "cpu request of %s", p.Name)
				}
			}
			require.Equal(t, first.CurrentRevision, s.waitObserved().CurrentRevision, "back at the first revision")
		})
	}
}

// S15: a set of which no Pod is ready can still be updated.
func TestAllUnreadyPodsCanBeUpdated(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(3, parallel, inPlace, func(set *v1beta1.StatefulSet) {
		*app(set) = corev1.Container{
			Name: "app", Image: harness.Sidecar1, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "3600"},
		}
		rolling(set).MinReadySeconds = new(int32(3))
		set.Spec.ScaleStrategy = &v1beta1.StatefulSetScaleStrategy{MaxUnavailable: new(intstr.FromInt32(2))}
	}))
	s.waitReady(3)
	s.scale(10)
	s.waitReady(10)

	s.change(func(set *v1beta1.StatefulSet) {
		all := intstr.FromString("100%")
		set.Spec.ScaleStrategy.MaxUnavailable, rolling(set).MaxUnavailable = &all, &all
		app(set).Command = nil // a shell, which ends at once
	})
	s.waitStatus("ten Pods run, none of them ready", func(st v1beta1.StatefulSetStatus) bool {
		return st.Replicas == 10 && st.ReadyReplicas == 0 && st.UpdatedReplicas == 10
	})
	s.change(func(set *v1beta1.StatefulSet) {
		app(set).Command = []string{"sleep", "180"}
		set.Spec.Template.Labels["test-update"] = "yes"
	})
	after := s.waitComplete(10)
	pods := s.Pods("web")
	require.Len(t, pods, 10)
	for _, p := range pods {
		require.Equal(t, after.UpdateRevision, p.Labels["controller-revision-hash"], "revision of %s", p.Name)
		require.Equal(t, "yes", p.Labels["test-update"])
	}
}

// S22: Pods that are marked go and come back under their names, at the revision of their place.
func TestSpecifiedDeletionUnderAPartition(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(4, inPlace))
	first := s.waitComplete(4)
	replace := func(ordinal int) {
		t.Helper()
		old := s.pod(ordinal)
		s.label(ordinal, v1beta1.SpecifiedDeleteLabel, "true")
		s.waitReplaced(old)
		s.waitPodReady(ordinal)
	}
	replace(1)
	s.waitComplete(4)

	s.change(func(set *v1beta1.StatefulSet) {
		app(set).Image = harness.Nginx2
		rolling(set).Partition = new(int32(2))
	})
	s.waitStatus("two Pods are updated", func(st v1beta1.StatefulSetStatus) bool {
		return st.UpdatedReadyReplicas == 2 && st.ReadyReplicas == 4
	})
	replace(2)
	replace(1)
	after := s.waitReady(4)
	require.Equal(t, first.CurrentRevision, after.CurrentRevision)
	require.NotEqual(t, after.CurrentRevision, after.UpdateRevision)
	s.requireRevision(after.UpdateRevision, 2, 3)
	s.requireRevision(after.CurrentRevision, 0, 1)
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestDefaultsOfCloneSet(t *testing.T) {
	limits := v1alpha1.CloneSetUpdateStrategy{
		Partition: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromString("20%")), MaxSurge: new(intstr.FromInt32(0)),
	}
	with := func(change func(*v1alpha1.CloneSetUpdateStrategy)) v1alpha1.CloneSetUpdateStrategy {
		s := *limits.DeepCopy()
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		in, want v1alpha1.CloneSetUpdateStrategy
	}{
		"nothing": {want: with(func(s *v1alpha1.CloneSetUpdateStrategy) { s.Type = "ReCreate" })},
		"in-place types get their options": {
			in: v1alpha1.CloneSetUpdateStrategy{Type: "InPlaceIfPossible"},
			want: with(func(s *v1alpha1.CloneSetUpdateStrategy) {
				s.Type, s.InPlaceUpdateStrategy = "InPlaceIfPossible", &v1beta1.InPlaceUpdateStrategy{}
			}),
		},
		"OnDelete has no limits": {
			in:   v1alpha1.CloneSetUpdateStrategy{Type: "OnDelete"},
			want: v1alpha1.CloneSetUpdateStrategy{Type: "OnDelete"},
		},
		"what is set stays": {
			in: v1alpha1.CloneSetUpdateStrategy{Type: "InPlaceOnly", Partition: new(intstr.FromInt32(3)), MaxUnavailable: new(intstr.FromInt32(1)), InPlaceUpdateStrategy: &v1beta1.InPlaceUpdateStrategy{GracePeriodSeconds: 9}},
			want: with(func(s *v1alpha1.CloneSetUpdateStrategy) {
				s.Type, s.Partition, s.MaxUnavailable = "InPlaceOnly", new(intstr.FromInt32(3)), new(intstr.FromInt32(1))
				s.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{GracePeriodSeconds: 9}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			cs := &v1alpha1.CloneSet{Spec: v1alpha1.CloneSetSpec{UpdateStrategy: c.in}}
			v1alpha1.SetDefaultsCloneSet(cs, v1beta1.DefaultOptions{})
			require.Equal(t, c.want, cs.Spec.UpdateStrategy)
			require.Equal(t, [2]int32{1, 10}, [2]int32{*cs.Spec.Replicas, *cs.Spec.RevisionHistoryLimit})
		})
	}
}

// Both ways into storage end in the same object.
func TestDefaultsAgreeAcrossVersions(t *testing.T) {
	for _, kind := range []v1alpha1.CloneSetUpdateStrategyType{"", "ReCreate", "InPlaceIfPossible", "InPlaceOnly", "OnDelete"} {
		in := &v1alpha1.CloneSet{Spec: v1alpha1.CloneSetSpec{UpdateStrategy: v1alpha1.CloneSetUpdateStrategy{Type: kind}}}
		later := toHub(t, in)
		v1beta1.SetDefaultsCloneSet(later, v1beta1.DefaultOptions{})
		v1alpha1.SetDefaultsCloneSet(in, v1beta1.DefaultOptions{})
		require.Equal(t, later.Spec, toHub(t, in).Spec, kind)
	}
}

func TestTemplateDefaultsAreTheCallersChoice(t *testing.T) {
	cs := &v1alpha1.CloneSet{Spec: v1alpha1.CloneSetSpec{VolumeClaimTemplates: make([]corev1.PersistentVolumeClaim, 1)}}
	v1alpha1.SetDefaultsCloneSet(cs, v1beta1.DefaultOptions{})
	require.Empty(t, cs.Spec.Template.Name)
	v1alpha1.SetDefaultsCloneSet(cs, v1beta1.DefaultOptions{
		Template: func(t *corev1.PodTemplateSpec) { t.Name = "seen" },
		Claim:    func(c *corev1.PersistentVolumeClaim) { c.Name = "seen" },
	})
	require.Equal(t, "seen", cs.Spec.Template.Name)
	require.Equal(t, "seen", cs.Spec.VolumeClaimTemplates[0].Name)
}

func TestDefaultsOfImagePullJob(t *testing.T) {
	job := &v1alpha1.ImagePullJob{}
	v1alpha1.SetDefaultsImagePullJob(job, true)
	require.Equal(t, []string{v1beta1.ImagePullJobFinalizer}, job.Finalizers)
	require.Equal(t, v1beta1.Always, job.Spec.CompletionPolicy.Type)
	require.Equal(t, v1beta1.PullIfNotPresent, job.Spec.ImagePullPolicy)
	require.Equal(t, [2]int32{600, 3}, [2]int32{*job.Spec.PullPolicy.TimeoutSeconds, *job.Spec.PullPolicy.BackoffLimit})
	v1alpha1.SetDefaultsImagePullJob(job, true)
	require.Len(t, job.Finalizers, 1)
	job.Finalizers = nil
	v1alpha1.SetDefaultsImagePullJob(job, false)
	require.Empty(t, job.Finalizers, "an update may remove it")
}

func TestDefaultsOfNodeImage(t *testing.T) {
	now := metav1.NewTime(time.Unix(7, 0))
	earlier := metav1.NewTime(time.Unix(3, 0))
	ni := &v1alpha1.NodeImage{}
	ni.Spec.Images = map[string]v1beta1.ImageSpec{"nginx": {Tags: []v1beta1.ImageTagSpec{{Tag: "b"}, {Tag: "a", CreatedAt: &earlier}}}}
	ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"nginx": {Tags: []v1beta1.ImageTagStatus{{Tag: "d"}, {Tag: "c"}}}}
	v1alpha1.SetDefaultsNodeImage(ni, now)
	tags := ni.Spec.Images["nginx"].Tags
	require.Equal(t, []string{"a", "b"}, []string{tags[0].Tag, tags[1].Tag})
	require.Equal(t, []metav1.Time{earlier, now}, []metav1.Time{*tags[0].CreatedAt, *tags[1].CreatedAt})
	require.Equal(t, [2]int32{600, 3}, [2]int32{*tags[0].PullPolicy.TimeoutSeconds, *tags[0].PullPolicy.BackoffLimit})
	require.Nil(t, tags[0].PullPolicy.TTLSecondsAfterFinished, "it has no default")
	require.Empty(t, tags[0].ImagePullPolicy, "it has no default")
	require.Equal(t, "c", ni.Status.ImageStatuses["nginx"].Tags[0].Tag)
}

func TestDefaultsOfListAndRecreate(t *testing.T) {
	list := &v1alpha1.ImageListPullJob{}
	v1alpha1.SetDefaultsImageListPullJob(list)
	want := &v1beta1.ImageListPullJob{}
	v1beta1.SetDefaultsImageListPullJob(want)
	require.Equal(t, want, list.ToHub())
	require.Empty(t, list.Finalizers)

	crr := &v1alpha1.ContainerRecreateRequest{}
	v1alpha1.SetDefaultsContainerRecreateRequest(crr)
	require.Equal(t, &v1alpha1.RecreateStrategy{FailurePolicy: "Fail"}, crr.Spec.Strategy)
}

func TestDefaultsOfSets(t *testing.T) {
	set := &v1alpha1.StatefulSet{}
	v1alpha1.SetDefaultsStatefulSet(set, v1beta1.DefaultOptions{AutoDeletePVC: true, AutoResizePVC: true})
	hub := &v1beta1.StatefulSet{}
	v1beta1.SetDefaultsStatefulSet(hub, v1beta1.DefaultOptions{})
	require.Equal(t, hub, set.ToHub(), "what only v1beta1 has gets no default")

	one, zero, two := intstr.FromInt32(1), intstr.FromInt32(0), intstr.FromInt32(2)
	type rolling = v1beta1.RollingUpdateDaemonSet
	for name, c := range map[string]struct{ in, want *rolling }{
		"nothing":                   {nil, &rolling{RollingUpdateType: "Standard", MaxUnavailable: &one, MaxSurge: &zero}},
		"Surging":                   {&rolling{RollingUpdateType: "Surging"}, &rolling{RollingUpdateType: "Standard", MaxUnavailable: &zero, MaxSurge: &one}},
		"Surging with its limit":    {&rolling{RollingUpdateType: "Surging", MaxSurge: &two}, &rolling{RollingUpdateType: "Standard", MaxUnavailable: &zero, MaxSurge: &two}},
		"Surging, refused later on": {&rolling{RollingUpdateType: "Surging", MaxUnavailable: &two}, &rolling{RollingUpdateType: "Standard", MaxUnavailable: &two, MaxSurge: &one}},
	} {
		t.Run(name, func(t *testing.T) {
			ds := &v1alpha1.DaemonSet{Spec: v1alpha1.DaemonSetSpec{UpdateStrategy: v1alpha1.DaemonSetUpdateStrategy{RollingUpdate: c.in}}}
			v1alpha1.SetDefaultsDaemonSet(ds, v1beta1.DefaultOptions{})
			require.Equal(t, c.want, ds.Spec.UpdateStrategy.RollingUpdate)
			require.EqualValues(t, "RollingUpdate", ds.Spec.UpdateStrategy.Type)
			require.Equal(t, intstr.FromInt32(250), *ds.Spec.BurstReplicas)
			require.EqualValues(t, 10, *ds.Spec.RevisionHistoryLimit)
		})
	}
}

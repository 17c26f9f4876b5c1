// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestDefaultsOfStatefulSet(t *testing.T) {
	rolling := func(change func(*v1beta1.RollingUpdateStatefulSetStrategy)) v1beta1.StatefulSetUpdateStrategy {
		r := &v1beta1.RollingUpdateStatefulSetStrategy{
			PodUpdatePolicy: "ReCreate", Partition: new(int32(0)), MaxUnavailable: new(intstr.FromInt32(1)), MinReadySeconds: new(int32(0)),
		}
		change(r)
		return v1beta1.StatefulSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: r}
	}
	for name, c := range map[string]struct {
		in, want v1beta1.StatefulSetUpdateStrategy
	}{
		"nothing": {want: rolling(func(*v1beta1.RollingUpdateStatefulSetStrategy) {})},
		"what is set stays": {
			in: v1beta1.StatefulSetUpdateStrategy{RollingUpdate: &v1beta1.RollingUpdateStatefulSetStrategy{
				PodUpdatePolicy: "InPlaceOnly", Partition: new(int32(2)), Paused: true,
			}},
			want: rolling(func(r *v1beta1.RollingUpdateStatefulSetStrategy) {
				r.PodUpdatePolicy, r.Partition, r.Paused = "InPlaceOnly", new(int32(2)), true
			}),
		},
		"OnDelete stays as it is": {
			in:   v1beta1.StatefulSetUpdateStrategy{Type: "OnDelete"},
			want: v1beta1.StatefulSetUpdateStrategy{Type: "OnDelete"},
		},
		"an unknown type is left to validation": {
			in:   v1beta1.StatefulSetUpdateStrategy{Type: "Odd"},
			want: v1beta1.StatefulSetUpdateStrategy{Type: "Odd"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1beta1.StatefulSet{Spec: v1beta1.StatefulSetSpec{UpdateStrategy: c.in}}
			v1beta1.SetDefaultsStatefulSet(set, v1beta1.DefaultOptions{})
			require.Equal(t, c.want, set.Spec.UpdateStrategy)
			require.Equal(t, [2]int32{1, 10}, [2]int32{*set.Spec.Replicas, *set.Spec.RevisionHistoryLimit})
			require.EqualValues(t, "OrderedReady", set.Spec.PodManagementPolicy)
			require.Nil(t, set.Spec.PersistentVolumeClaimRetentionPolicy, "the gate is off")
			require.Empty(t, set.Spec.VolumeClaimUpdateStrategy.Type, "the gate is off")
			again := set.DeepCopy()
			v1beta1.SetDefaultsStatefulSet(again, v1beta1.DefaultOptions{})
			require.Equal(t, set, again, "defaults are final")
		})
	}
}

func TestGatedDefaultsOfStatefulSet(t *testing.T) {
	all := v1beta1.DefaultOptions{
		AutoDeletePVC: true, AutoResizePVC: true,
		Template: func(t *corev1.PodTemplateSpec) { t.Name = "seen" },
		Claim:    func(c *corev1.PersistentVolumeClaim) { c.Name = "seen" },
	}
	type policy = v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy
	for name, c := range map[string]struct{ in, want *policy }{
		"absent":      {nil, &policy{WhenDeleted: "Retain", WhenScaled: "Retain"}},
		"half of it":  {&policy{WhenScaled: "Delete"}, &policy{WhenDeleted: "Retain", WhenScaled: "Delete"}},
		"other half":  {&policy{WhenDeleted: "Delete"}, &policy{WhenDeleted: "Delete", WhenScaled: "Retain"}},
		"all present": {&policy{WhenDeleted: "Odd", WhenScaled: "Delete"}, &policy{WhenDeleted: "Odd", WhenScaled: "Delete"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1beta1.StatefulSet{Spec: v1beta1.StatefulSetSpec{
				PersistentVolumeClaimRetentionPolicy: c.in, VolumeClaimTemplates: make([]corev1.PersistentVolumeClaim, 1),
			}}
			v1beta1.SetDefaultsStatefulSet(set, all)
			require.Equal(t, c.want, set.Spec.PersistentVolumeClaimRetentionPolicy)
			require.Equal(t, v1beta1.OnDeleteVolumeClaimUpdateStrategyType, set.Spec.VolumeClaimUpdateStrategy.Type)
			require.Equal(t, [2]string{"seen", "seen"}, [2]string{set.Spec.Template.Name, set.Spec.VolumeClaimTemplates[0].Name})
		})
	}
	kept := &v1beta1.StatefulSet{Spec: v1beta1.StatefulSetSpec{VolumeClaimUpdateStrategy: v1beta1.VolumeClaimUpdateStrategy{Type: "Odd"}}}
	v1beta1.SetDefaultsStatefulSet(kept, all)
	require.EqualValues(t, "Odd", kept.Spec.VolumeClaimUpdateStrategy.Type)
}

func TestDefaultsOfDaemonSet(t *testing.T) {
	type rolling = v1beta1.RollingUpdateDaemonSet
	one, zero, percent := intstr.FromInt32(1), intstr.FromInt32(0), intstr.FromString("50%")
	for name, c := range map[string]struct {
		in, want v1beta1.DaemonSetUpdateStrategy
	}{
		"nothing": {want: v1beta1.DaemonSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &rolling{
			RollingUpdateType: "Standard", MaxUnavailable: &one, MaxSurge: &zero,
		}}},
		"one limit leaves the other absent": {
			in: v1beta1.DaemonSetUpdateStrategy{RollingUpdate: &rolling{MaxSurge: &percent}},
			want: v1beta1.DaemonSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &rolling{
				RollingUpdateType: "Standard", MaxSurge: &percent,
			}},
		},
		"in place": {
			in: v1beta1.DaemonSetUpdateStrategy{RollingUpdate: &rolling{RollingUpdateType: "InPlaceIfPossible", MaxUnavailable: &percent}},
			want: v1beta1.DaemonSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &rolling{
				RollingUpdateType: "InPlaceIfPossible", MaxUnavailable: &percent,
			}},
		},
		"OnDelete stays as it is": {
			in:   v1beta1.DaemonSetUpdateStrategy{Type: "OnDelete", RollingUpdate: &rolling{}},
			want: v1beta1.DaemonSetUpdateStrategy{Type: "OnDelete", RollingUpdate: &rolling{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ds := &v1beta1.DaemonSet{Spec: v1beta1.DaemonSetSpec{UpdateStrategy: c.in}}
			v1beta1.SetDefaultsDaemonSet(ds, v1beta1.DefaultOptions{Template: func(*corev1.PodTemplateSpec) { t.Error("the template is stored as written") }})
			require.Equal(t, c.want, ds.Spec.UpdateStrategy)
			require.Equal(t, intstr.FromInt32(250), *ds.Spec.BurstReplicas)
			require.EqualValues(t, 10, *ds.Spec.RevisionHistoryLimit)
			again := ds.DeepCopy()
			v1beta1.SetDefaultsDaemonSet(again, v1beta1.DefaultOptions{})
			require.Equal(t, ds, again, "defaults are final")
		})
	}
}

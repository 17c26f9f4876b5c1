// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// The rules of cloneset.md 4, one by one; that nothing is lost is a matter of the properties.
func TestV1alpha1ToV1beta1(t *testing.T) {
	convert := func(change func(*v1alpha1.CloneSet)) *v1beta1.CloneSet {
		in := &v1alpha1.CloneSet{}
		in.Labels, in.Annotations = map[string]string{}, map[string]string{}
		change(in)
		return toHub(t, in)
	}
	require.True(t, convert(func(*v1alpha1.CloneSet) {}).Spec.ScaleStrategy.EnablePVCReuse, "the default is the opposite")
	require.False(t, convert(func(cs *v1alpha1.CloneSet) { cs.Spec.ScaleStrategy.DisablePVCReuse = true }).Spec.ScaleStrategy.EnablePVCReuse)

	for value, want := range map[string]bool{"true": true, "True": false, "": false, "false": false} {
		got := convert(func(cs *v1alpha1.CloneSet) { cs.Labels[v1beta1.ExcludePreparingDeleteLabel] = value })
		require.Equal(t, want, got.Spec.ScaleStrategy.ExcludePreparingDelete, value)
		require.Equal(t, value, got.Labels[v1beta1.ExcludePreparingDeleteLabel], "the label stays")
	}
	for in, want := range map[v1alpha1.CloneSetUpdateStrategyType]v1beta1.PodUpdatePolicyType{
		"": "ReCreate", "ReCreate": "ReCreate", "Odd": "ReCreate", "InPlaceIfPossible": "InPlaceIfPossible", "InPlaceOnly": "InPlaceOnly",
	} {
		got := convert(func(cs *v1alpha1.CloneSet) {
			cs.Spec.UpdateStrategy = v1alpha1.CloneSetUpdateStrategy{Type: in, Partition: new(intstr.FromInt32(3)), Paused: true}
		}).Spec.UpdateStrategy
		require.Equal(t, v1beta1.CloneSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{
			PodUpdatePolicy: want, Partition: new(intstr.FromInt32(3)), Paused: true,
		}}, got)
	}
	onDelete := convert(func(cs *v1alpha1.CloneSet) {
		cs.Spec.UpdateStrategy = v1alpha1.CloneSetUpdateStrategy{Type: "OnDelete", Partition: new(intstr.FromInt32(3))}
	})
	require.Equal(t, v1beta1.CloneSetUpdateStrategy{Type: "OnDelete"}, onDelete.Spec.UpdateStrategy)

	inPlace := func(change func(*v1alpha1.CloneSet)) *v1beta1.InPlaceUpdateStrategy {
		return convert(change).Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy
	}
	require.Nil(t, inPlace(func(*v1alpha1.CloneSet) {}))
	require.Equal(t, &v1beta1.InPlaceUpdateStrategy{
		GracePeriodSeconds: 3, ImagePreDownloadParallelism: new(intstr.FromString("50%")), ImagePreDownloadTimeoutSeconds: new(int32(60)),
	}, inPlace(func(cs *v1alpha1.CloneSet) {
		cs.Spec.UpdateStrategy.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{GracePeriodSeconds: 3, ImagePreDownloadTimeoutSeconds: new(int32(1))}
		cs.Annotations[v1beta1.ImagePreDownloadParallelismAnnotation] = "50%"
		cs.Annotations[v1beta1.ImagePreDownloadTimeoutSecondsAnnotation] = "60"
		cs.Annotations[v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation] = "10%" // skipped
	}), "annotations count, fields do not")
}

func TestV1beta1ToV1alpha1(t *testing.T) {
	convert := func(change func(*v1beta1.CloneSet)) *v1alpha1.CloneSet {
		in := &v1beta1.CloneSet{}
		in.Labels, in.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
		in.Spec.UpdateStrategy = v1beta1.CloneSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{PodUpdatePolicy: "InPlaceOnly"}}
		change(in)
		return fromHub(t, in)
	}
	ordinary := convert(func(cs *v1beta1.CloneSet) { v1beta1.SetDefaultsCloneSet(cs, v1beta1.DefaultOptions{}) })
	require.Equal(t, map[string]string{"a": "b"}, ordinary.Annotations, "an ordinary object needs no annotation of ours")
	require.True(t, ordinary.Spec.ScaleStrategy.DisablePVCReuse)

	excluding := convert(func(cs *v1beta1.CloneSet) { cs.Spec.ScaleStrategy.ExcludePreparingDelete = true })
	require.Equal(t, "true", excluding.Labels[v1beta1.ExcludePreparingDeleteLabel])
	stale := convert(func(cs *v1beta1.CloneSet) { cs.Labels[v1beta1.ExcludePreparingDeleteLabel] = "true" })
	require.NotContains(t, stale.Labels, v1beta1.ExcludePreparingDeleteLabel, "a v1alpha1 write would turn the field on")

	fields := convert(func(cs *v1beta1.CloneSet) {
		cs.Annotations[v1beta1.ImagePreDownloadParallelismAnnotation] = "9"
		cs.Annotations[v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation] = "4"
		cs.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{
			ImagePreDownloadParallelism: new(intstr.FromInt32(5)), ImagePreDownloadTimeoutSeconds: new(int32(60)),
		}
	})
	require.Equal(t, &v1beta1.InPlaceUpdateStrategy{}, fields.Spec.UpdateStrategy.InPlaceUpdateStrategy)
	require.Equal(t, "5", fields.Annotations[v1beta1.ImagePreDownloadParallelismAnnotation], "the field overwrites")
	require.Equal(t, "60", fields.Annotations[v1beta1.ImagePreDownloadTimeoutSecondsAnnotation])
	require.NotContains(t, fields.Annotations, v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation, "the field is gone")
	percent := convert(func(cs *v1beta1.CloneSet) {
		cs.Annotations[v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation] = "10%"
	})
	require.Equal(t, "10%", percent.Annotations[v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation], "a percentage is kept")

	for _, c := range []struct {
		in   v1beta1.CloneSetUpdateStrategy
		want v1alpha1.CloneSetUpdateStrategyType
	}{
		{v1beta1.CloneSetUpdateStrategy{}, "ReCreate"},
		{v1beta1.CloneSetUpdateStrategy{RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{PodUpdatePolicy: "Odd"}}, "ReCreate"},
		{v1beta1.CloneSetUpdateStrategy{Type: "OnDelete", RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{PodUpdatePolicy: "InPlaceOnly"}}, "OnDelete"},
	} {
		require.Equal(t, c.want, convert(func(cs *v1beta1.CloneSet) { cs.Spec.UpdateStrategy = c.in }).Spec.UpdateStrategy.Type)
	}
}

// What OnDelete has no use for comes back when a v1alpha1 client leaves OnDelete.
func TestRollingFieldsSurviveOnDelete(t *testing.T) {
	in := &v1alpha1.CloneSet{}
	in.Spec.UpdateStrategy = v1alpha1.CloneSetUpdateStrategy{Type: "OnDelete", Partition: new(intstr.FromInt32(3)), Paused: true}
	stored := toHub(t, in)
	require.Nil(t, stored.Spec.UpdateStrategy.RollingUpdate)
	stored.Spec.Replicas = new(int32(9))
	view := fromHub(t, stored)
	require.Equal(t, in.Spec.UpdateStrategy, view.Spec.UpdateStrategy)
	view.Spec.UpdateStrategy.Type = "InPlaceIfPossible"
	back := toHub(t, view)
	require.Equal(t, new(intstr.FromInt32(3)), back.Spec.UpdateStrategy.RollingUpdate.Partition)
	require.Empty(t, back.Annotations)
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// testSets goes through admission of the manager itself, with the rights that it has in a
// cluster: both versions are defaulted, a change that no StorageClass allows is refused, and a
// protected StatefulSet stays.
func testSets(t *testing.T, c *cluster) {
	ctx := t.Context()
	c.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Provisioner: "example.com/x"})
	size := func(text string) []corev1.PersistentVolumeClaim {
		return []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fixed"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(text)}},
		}}}
	}
	db := &v1beta1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Labels: map[string]string{"policy.kruise.io/delete-protection": "Always"}},
		Spec: v1beta1.StatefulSetSpec{
			Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
			VolumeClaimTemplates: size("1Gi"), VolumeClaimUpdateStrategy: v1beta1.VolumeClaimUpdateStrategy{Type: v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType},
		},
	}
	require.NoError(t, c.client.Create(ctx, db))
	require.Equal(t, int32(1), db.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal)
	require.EqualValues(t, "Retain", db.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted)

	grown := db.DeepCopy()
	grown.Spec.VolumeClaimTemplates = size("2Gi")
	err := c.client.Patch(ctx, grown, client.MergeFrom(db))
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "spec.volumeClaimTemplates[0].spec.resources: Forbidden: the size cannot change: StorageClass fixed")

	err = c.client.Delete(ctx, db)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "forbidden by ResourcesProtectionDeletion")
	require.NoError(t, c.client.Patch(ctx, db, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))))
	require.NoError(t, c.client.Delete(ctx, db))

	agent := &v1alpha1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent"},
		Spec: v1alpha1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(), UpdateStrategy: v1alpha1.DaemonSetUpdateStrategy{
			RollingUpdate: &v1beta1.RollingUpdateDaemonSet{RollingUpdateType: v1alpha1.SurgingRollingUpdateType},
		}},
	}
	require.NoError(t, c.client.Create(ctx, agent))
	require.Equal(t, v1beta1.StandardRollingUpdateType, agent.Spec.UpdateStrategy.RollingUpdate.RollingUpdateType)
	require.Equal(t, int32(1), agent.Spec.UpdateStrategy.RollingUpdate.MaxSurge.IntVal)
	require.Empty(t, agent.Spec.Template.Spec.RestartPolicy, "the template is stored as written")
	require.NoError(t, c.client.Delete(ctx, agent))
}

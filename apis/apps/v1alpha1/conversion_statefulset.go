// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// statefulSetHubFields is the value of v1beta1.V1beta1FieldsAnnotation on a StatefulSet: all
// that v1alpha1 has no field for. A v1alpha1 writer who drops the annotation means to drop
// these; one who keeps it, as every client does that reads before it writes, keeps them.
type statefulSetHubFields struct {
	VolumeClaimUpdateStrategy            *v1beta1.VolumeClaimUpdateStrategy                       `json:"volumeClaimUpdateStrategy,omitempty"`
	ReserveOrdinals                      []intstr.IntOrString                                     `json:"reserveOrdinals,omitempty"`
	Lifecycle                            *v1beta1.Lifecycle                                       `json:"lifecycle,omitempty"`
	ScaleStrategy                        *v1beta1.StatefulSetScaleStrategy                        `json:"scaleStrategy,omitempty"`
	PersistentVolumeClaimRetentionPolicy *v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty"`
	Ordinals                             *v1beta1.StatefulSetOrdinals                             `json:"ordinals,omitempty"`
	Status                               *statefulSetHubStatus                                    `json:"status,omitempty"`
}

// statefulSetHubStatus is the part of the status that v1alpha1 has no field for.
type statefulSetHubStatus struct {
	UpdatedReadyReplicas     int32                       `json:"updatedReadyReplicas,omitempty"`
	UpdatedAvailableReplicas int32                       `json:"updatedAvailableReplicas,omitempty"`
	VolumeClaims             []v1beta1.VolumeClaimStatus `json:"volumeClaims,omitempty"`
}

// ToHub returns the hub version of the object, without TypeMeta.
func (src *StatefulSet) ToHub() *v1beta1.StatefulSet {
	dst := &v1beta1.StatefulSet{}
	src.intoHub(dst)
	return dst
}

// StatefulSetToHub converts src to the hub version (statefulset.md 4) and gives it back what
// the annotation kept for it.
func StatefulSetToHub(_ context.Context, src *StatefulSet, dst *v1beta1.StatefulSet) error {
	src.intoHub(dst)
	return nil
}

func (src *StatefulSet) intoHub(dst *v1beta1.StatefulSet) {
	in := src.DeepCopy()
	setOrDelete(&in.Annotations, v1beta1.V1alpha1FieldsAnnotation, nil)
	var kept statefulSetHubFields
	takeAnnotation(&in.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, &kept)

	dst.ObjectMeta = in.ObjectMeta
	dst.Spec = v1beta1.StatefulSetSpec{
		Replicas:                             in.Spec.Replicas,
		Selector:                             in.Spec.Selector,
		Template:                             in.Spec.Template,
		VolumeClaimTemplates:                 in.Spec.VolumeClaimTemplates,
		ServiceName:                          in.Spec.ServiceName,
		PodManagementPolicy:                  in.Spec.PodManagementPolicy,
		UpdateStrategy:                       in.Spec.UpdateStrategy,
		RevisionHistoryLimit:                 in.Spec.RevisionHistoryLimit,
		ReserveOrdinals:                      kept.ReserveOrdinals,
		Lifecycle:                            kept.Lifecycle,
		ScaleStrategy:                        kept.ScaleStrategy,
		PersistentVolumeClaimRetentionPolicy: kept.PersistentVolumeClaimRetentionPolicy,
		Ordinals:                             kept.Ordinals,
	}
	if kept.VolumeClaimUpdateStrategy != nil {
		dst.Spec.VolumeClaimUpdateStrategy = *kept.VolumeClaimUpdateStrategy
	}
	dst.Status = v1beta1.StatefulSetStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		Replicas:           in.Status.Replicas,
		ReadyReplicas:      in.Status.ReadyReplicas,
		AvailableReplicas:  in.Status.AvailableReplicas,
		CurrentReplicas:    in.Status.CurrentReplicas,
		UpdatedReplicas:    in.Status.UpdatedReplicas,
		CurrentRevision:    in.Status.CurrentRevision,
		UpdateRevision:     in.Status.UpdateRevision,
		CollisionCount:     in.Status.CollisionCount,
		Conditions:         in.Status.Conditions,
		LabelSelector:      in.Status.LabelSelector,
	}
	if s := kept.Status; s != nil {
		dst.Status.UpdatedReadyReplicas = s.UpdatedReadyReplicas
		dst.Status.UpdatedAvailableReplicas = s.UpdatedAvailableReplicas
		dst.Status.VolumeClaims = s.VolumeClaims
	}
}

// StatefulSetFromHub converts src from the hub version (statefulset.md 4). What v1alpha1 has
// no field for goes into v1beta1.V1beta1FieldsAnnotation.
func StatefulSetFromHub(_ context.Context, src *v1beta1.StatefulSet, dst *StatefulSet) error {
	dst.FromHub(src)
	return nil
}

// FromHub is StatefulSetFromHub for callers that have no context.
func (dst *StatefulSet) FromHub(src *v1beta1.StatefulSet) {
	in := src.DeepCopy()
	setOrDelete(&in.Annotations, v1beta1.V1alpha1FieldsAnnotation, nil)

	dst.ObjectMeta = in.ObjectMeta
	dst.Spec = StatefulSetSpec{
		Replicas:             in.Spec.Replicas,
		Selector:             in.Spec.Selector,
		Template:             in.Spec.Template,
		VolumeClaimTemplates: in.Spec.VolumeClaimTemplates,
		ServiceName:          in.Spec.ServiceName,
		PodManagementPolicy:  in.Spec.PodManagementPolicy,
		UpdateStrategy:       in.Spec.UpdateStrategy,
		RevisionHistoryLimit: in.Spec.RevisionHistoryLimit,
	}
	dst.Status = StatefulSetStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		Replicas:           in.Status.Replicas,
		ReadyReplicas:      in.Status.ReadyReplicas,
		AvailableReplicas:  in.Status.AvailableReplicas,
		CurrentReplicas:    in.Status.CurrentReplicas,
		UpdatedReplicas:    in.Status.UpdatedReplicas,
		CurrentRevision:    in.Status.CurrentRevision,
		UpdateRevision:     in.Status.UpdateRevision,
		CollisionCount:     in.Status.CollisionCount,
		Conditions:         in.Status.Conditions,
		LabelSelector:      in.Status.LabelSelector,
	}
	kept := statefulSetHubFields{
		VolumeClaimUpdateStrategy:            unlessZero(in.Spec.VolumeClaimUpdateStrategy),
		ReserveOrdinals:                      in.Spec.ReserveOrdinals,
		Lifecycle:                            in.Spec.Lifecycle,
		ScaleStrategy:                        in.Spec.ScaleStrategy,
		PersistentVolumeClaimRetentionPolicy: in.Spec.PersistentVolumeClaimRetentionPolicy,
		Ordinals:                             in.Spec.Ordinals,
		Status: unlessZero(statefulSetHubStatus{
			UpdatedReadyReplicas:     in.Status.UpdatedReadyReplicas,
			UpdatedAvailableReplicas: in.Status.UpdatedAvailableReplicas,
			VolumeClaims:             in.Status.VolumeClaims,
		}),
	}
	putAnnotation(&dst.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, kept)
}

// unlessZero is a pointer to v, nil when v is the zero value.
func unlessZero[T any](v T) *T {
	if reflect.ValueOf(v).IsZero() {
		return nil
	}
	return &v
}

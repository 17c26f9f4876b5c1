// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// StatefulSetSpec is the wanted state of a StatefulSet (statefulset.md 2).
//
// +kubebuilder:validation:XValidation:rule="(has(self.serviceName) && size(self.serviceName) > 0) ? (has(oldSelf.serviceName) && self.serviceName == oldSelf.serviceName) : (!has(oldSelf.serviceName) || size(oldSelf.serviceName) == 0)",fieldPath=".serviceName",reason=FieldValueForbidden,message="updates to statefulset spec are forbidden for serviceName"
// +kubebuilder:validation:XValidation:rule="(has(self.podManagementPolicy) && self.podManagementPolicy == 'Parallel') == (has(oldSelf.podManagementPolicy) && oldSelf.podManagementPolicy == 'Parallel')",fieldPath=".podManagementPolicy",reason=FieldValueForbidden,message="updates to statefulset spec are forbidden for podManagementPolicy"
// +kubebuilder:validation:XValidation:rule="(has(self.podManagementPolicy) && self.podManagementPolicy == 'Parallel') || !has(self.updateStrategy) || !has(self.updateStrategy.rollingUpdate) || !has(self.updateStrategy.rollingUpdate.maxUnavailable) || self.updateStrategy.rollingUpdate.maxUnavailable == 1",fieldPath=".updateStrategy.rollingUpdate.maxUnavailable",message="maxUnavailable must be 1 with podManagementPolicy OrderedReady"
// +kubebuilder:validation:XValidation:rule="(has(self.podManagementPolicy) && self.podManagementPolicy == 'Parallel') || !has(self.updateStrategy) || !has(self.updateStrategy.rollingUpdate) || !has(self.updateStrategy.rollingUpdate.unorderedUpdate)",fieldPath=".updateStrategy.rollingUpdate.unorderedUpdate",message="unorderedUpdate needs podManagementPolicy Parallel"
// +kubebuilder:validation:XValidation:rule="(has(self.podManagementPolicy) && self.podManagementPolicy == 'Parallel') || !has(self.scaleStrategy) || !has(self.scaleStrategy.maxUnavailable) || self.scaleStrategy.maxUnavailable == 1",fieldPath=".scaleStrategy.maxUnavailable",message="scaleStrategy.maxUnavailable must be 1 with podManagementPolicy OrderedReady"
type StatefulSetSpec struct {
	// Replicas is the wanted number of Pods; 1 when absent. Reserved ordinals do not count.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="replicas must be 0 or more"
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Selector must select the labels of template. It is immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",reason=FieldValueForbidden,message="updates to statefulset spec are forbidden for selector"
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="empty selector is invalid for statefulset: it would select every Pod"
	Selector *metav1.LabelSelector `json:"selector"`
	// Template describes the Pods. It is the only part of the spec that revisions hold.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Template corev1.PodTemplateSpec `json:"template"`
	// VolumeClaimTemplates give every ordinal one claim each, which outlives its Pod.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +optional
	VolumeClaimTemplates []corev1.PersistentVolumeClaim `json:"volumeClaimTemplates,omitempty"`
	// VolumeClaimUpdateStrategy says what a change of volumeClaimTemplates does to claims that exist.
	// +optional
	VolumeClaimUpdateStrategy VolumeClaimUpdateStrategy `json:"volumeClaimUpdateStrategy,omitempty"`
	// ServiceName is the governing Service, the subdomain of every Pod. It is immutable.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// PodManagementPolicy is OrderedReady (default) or Parallel. It is immutable.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'OrderedReady', 'Parallel']",message="podManagementPolicy must be OrderedReady or Parallel"
	// +optional
	PodManagementPolicy appsv1.PodManagementPolicyType `json:"podManagementPolicy,omitempty"`
	// UpdateStrategy says which Pods are updated, when and how.
	// +optional
	UpdateStrategy StatefulSetUpdateStrategy `json:"updateStrategy,omitempty"`
	// RevisionHistoryLimit is how many revisions that no Pod uses are kept; 10 when absent.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="revisionHistoryLimit must be 0 or more"
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// ReserveOrdinals are ordinals without a Pod: numbers, and ranges such as "4-6" that
	// include both ends.
	// +optional
	ReserveOrdinals []intstr.IntOrString `json:"reserveOrdinals,omitempty"`
	// Lifecycle holds hooks that other controllers use to gate state changes of Pods.
	// +optional
	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`
	// ScaleStrategy limits creation of Pods.
	// +optional
	ScaleStrategy *StatefulSetScaleStrategy `json:"scaleStrategy,omitempty"`
	// PersistentVolumeClaimRetentionPolicy says when claims go with what they were made for.
	// +optional
	PersistentVolumeClaimRetentionPolicy *StatefulSetPersistentVolumeClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty"`
	// Ordinals says where counting begins.
	// +optional
	Ordinals *StatefulSetOrdinals `json:"ordinals,omitempty"`
}

// VolumeClaimUpdateStrategyType says what a change of volumeClaimTemplates does.
type VolumeClaimUpdateStrategyType string

const (
	// OnPodRollingUpdateVolumeClaimUpdateStrategyType expands claims along with the rolling update.
	OnPodRollingUpdateVolumeClaimUpdateStrategyType VolumeClaimUpdateStrategyType = "OnPodRollingUpdate"
	// OnDeleteVolumeClaimUpdateStrategyType uses the new templates for new claims only.
	OnDeleteVolumeClaimUpdateStrategyType VolumeClaimUpdateStrategyType = "OnDelete"
)

// VolumeClaimUpdateStrategy says what a change of volumeClaimTemplates does to claims that
// exist (statefulset.md 10).
type VolumeClaimUpdateStrategy struct {
	// Type is OnPodRollingUpdate or OnDelete. Any other text acts as OnDelete.
	// +optional
	Type VolumeClaimUpdateStrategyType `json:"type,omitempty"`
}

// StatefulSetUpdateStrategy says which Pods are updated, when and how.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'OnDelete' || !has(self.rollingUpdate)",fieldPath=".rollingUpdate",message="rollingUpdate must be absent when type is OnDelete"
type StatefulSetUpdateStrategy struct {
	// Type is RollingUpdate (default) or OnDelete.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'RollingUpdate', 'OnDelete']",message="type must be RollingUpdate or OnDelete"
	// +optional
	Type appsv1.StatefulSetUpdateStrategyType `json:"type,omitempty"`
	// RollingUpdate holds the limits of type RollingUpdate.
	// +optional
	RollingUpdate *RollingUpdateStatefulSetStrategy `json:"rollingUpdate,omitempty"`
}

// RollingUpdateStatefulSetStrategy holds the limits of a rolling update (statefulset.md 2).
type RollingUpdateStatefulSetStrategy struct {
	// Partition is how many Pods stay at the current revision; 0 when absent. It counts
	// Pods, lowest ordinals first, and is not an ordinal.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="partition must be 0 or more"
	// +optional
	Partition *int32 `json:"partition,omitempty"`
	// MaxUnavailable is how many Pods may be unavailable during the update; 1 when absent.
	// A percentage is of replicas, rounded down, at least 1.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : self.matches('^0*[1-9][0-9]*%$')",message="maxUnavailable must be 1 or more, or a percentage such as 20%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// PodUpdatePolicy is ReCreate (default), InPlaceIfPossible or InPlaceOnly.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ReCreate', 'InPlaceIfPossible', 'InPlaceOnly']",message="podUpdatePolicy must be ReCreate, InPlaceIfPossible or InPlaceOnly"
	// +optional
	PodUpdatePolicy PodUpdatePolicyType `json:"podUpdatePolicy,omitempty"`
	// Paused stops updates and specified deletion; scaling goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// UnorderedUpdate, when present, lets Pods be updated in another order than by ordinal.
	// +optional
	UnorderedUpdate *UnorderedUpdateStrategy `json:"unorderedUpdate,omitempty"`
	// InPlaceUpdateStrategy tunes in-place updates.
	// +optional
	InPlaceUpdateStrategy *InPlaceUpdateStrategy `json:"inPlaceUpdateStrategy,omitempty"`
	// MinReadySeconds is how long a Pod must have been ready before it counts as
	// available, from 0 to 300; 0 when absent.
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 300",message="minReadySeconds must be between 0 and 300"
	// +optional
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
}

// UnorderedUpdateStrategy orders an update by something else than ordinals.
type UnorderedUpdateStrategy struct {
	// PriorityStrategy orders the update by labels of Pods; ties go by ordinal, highest first.
	// +optional
	PriorityStrategy *UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
}

// StatefulSetScaleStrategy limits creation of Pods.
type StatefulSetScaleStrategy struct {
	// MaxUnavailable is how many Pods may be unavailable while Pods are created. A
	// percentage is of replicas, rounded down, at least 1. Absent: no limit.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : self.matches('^0*[1-9][0-9]*%$')",message="maxUnavailable must be 1 or more, or a percentage such as 20%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// StatefulSetPersistentVolumeClaimRetentionPolicy says when claims go with what they were
// made for (statefulset.md 9). The values are those of the built-in StatefulSet; any other
// one acts as Retain.
type StatefulSetPersistentVolumeClaimRetentionPolicy struct {
	// WhenDeleted is Retain (default) or Delete: what becomes of claims when the StatefulSet goes.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'Retain', 'Delete']",message="whenDeleted must be Retain or Delete"
	// +optional
	WhenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType `json:"whenDeleted,omitempty"`
	// WhenScaled is Retain (default) or Delete: what becomes of claims whose Pod is scaled away.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'Retain', 'Delete']",message="whenScaled must be Retain or Delete"
	// +optional
	WhenScaled appsv1.PersistentVolumeClaimRetentionPolicyType `json:"whenScaled,omitempty"`
}

// StatefulSetOrdinals says where counting begins.
type StatefulSetOrdinals struct {
	// Start is the first ordinal; 0 when absent.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="start must be 0 or more"
	// +optional
	Start int32 `json:"start,omitempty"`
}

// StatefulSetStatus is the observed state of a StatefulSet (statefulset.md 3).
type StatefulSetStatus struct {
	// ObservedGeneration is the metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is the number of Pods that exist, terminating ones included.
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of running and ready Pods.
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas is the number of Pods in state Normal that have been ready for minReadySeconds.
	AvailableReplicas int32 `json:"availableReplicas"`
	// CurrentReplicas is the number of Pods at the current revision that do not terminate.
	CurrentReplicas int32 `json:"currentReplicas"`
	// UpdatedReplicas is the number of Pods at the update revision that do not terminate.
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// UpdatedReadyReplicas is the number of ready Pods at the update revision.
	// +optional
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas,omitempty"`
	// UpdatedAvailableReplicas is the number of available Pods at the update revision.
	// +optional
	UpdatedAvailableReplicas int32 `json:"updatedAvailableReplicas,omitempty"`
	// CurrentRevision names the revision that Pods kept back by partition stay at.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// UpdateRevision names the ControllerRevision of the present template.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// CollisionCount counts hash collisions of revision names.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Conditions are FailedCreatePod and FailedUpdatePod.
	// +optional
	Conditions []StatefulSetCondition `json:"conditions,omitempty"`
	// LabelSelector is the text form of spec.selector, read by the scale subresource.
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
	// VolumeClaims says, per volume claim template and in their order, how far its claims
	// are brought in line with it.
	// +optional
	VolumeClaims []VolumeClaimStatus `json:"volumeClaims,omitempty"`
}

// StatefulSetConditionType names a condition of a StatefulSet.
type StatefulSetConditionType string

const (
	// StatefulSetConditionFailedCreatePod is True while a Pod or its claims cannot be created.
	StatefulSetConditionFailedCreatePod StatefulSetConditionType = "FailedCreatePod"
	// StatefulSetConditionFailedUpdatePod is True while a Pod or its claims cannot be changed.
	StatefulSetConditionFailedUpdatePod StatefulSetConditionType = "FailedUpdatePod"
)

// StatefulSetCondition is one condition of a StatefulSet.
type StatefulSetCondition struct {
	Type   StatefulSetConditionType `json:"type"`
	Status corev1.ConditionStatus   `json:"status"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// VolumeClaimStatus counts the claims of one volume claim template (statefulset.md 10.4).
type VolumeClaimStatus struct {
	// VolumeClaimName is the name of the template.
	VolumeClaimName string `json:"volumeClaimName"`
	// CompatibleReplicas is the number of claims that ask for at least what the template does.
	CompatibleReplicas int32 `json:"compatibleReplicas"`
	// CompatibleReadyReplicas is the number of those that also have the capacity they ask for.
	CompatibleReadyReplicas int32 `json:"compatibleReadyReplicas"`
}

// StatefulSet runs Pods with a stable identity and updates them in place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=sts;asts
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.labelSelector
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".spec.replicas",description="The wanted number of Pods."
// +kubebuilder:printcolumn:name="CURRENT",type="integer",JSONPath=".status.replicas",description="The number of Pods."
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedReplicas",description="The number of Pods at the update revision."
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyReplicas",description="The number of ready Pods."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation."
// +kubebuilder:printcolumn:name="CONTAINERS",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].name",description="The containers of the template."
// +kubebuilder:printcolumn:name="IMAGES",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].image",description="The images of the template."
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || (size(self.metadata.name) <= 63 && !self.metadata.name.contains('.'))",optionalOldSelf=true,fieldPath=".metadata",message="metadata.name must be a DNS label, at most 63 characters without a dot: Pods of a StatefulSet have it in their host name"
type StatefulSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   StatefulSetSpec   `json:"spec,omitempty"`
	Status StatefulSetStatus `json:"status,omitempty"`
}

// StatefulSetList is a list of StatefulSets.
//
// +kubebuilder:object:root=true
type StatefulSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StatefulSet `json:"items"`
}

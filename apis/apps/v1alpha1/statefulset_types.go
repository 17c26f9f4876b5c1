// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// StatefulSetSpec is the wanted state of a StatefulSet (statefulset.md 2). What only v1beta1 has
// is kept in v1beta1.V1beta1FieldsAnnotation.
//
// +kubebuilder:validation:XValidation:rule="(has(self.serviceName) && size(self.serviceName) > 0) ? (has(oldSelf.serviceName) && self.serviceName == oldSelf.serviceName) : (!has(oldSelf.serviceName) || size(oldSelf.serviceName) == 0)",fieldPath=".serviceName",reason=FieldValueForbidden,message="updates to statefulset spec are forbidden for serviceName"
// +kubebuilder:validation:XValidation:rule="(has(self.podManagementPolicy) && self.podManagementPolicy == 'Parallel') == (has(oldSelf.podManagementPolicy) && oldSelf.podManagementPolicy == 'Parallel')",fieldPath=".podManagementPolicy",reason=FieldValueForbidden,message="updates to statefulset spec are forbidden for podManagementPolicy"
// +kubebuilder:validation:XValidation:rule="(has(self.podManagementPolicy) && self.podManagementPolicy == 'Parallel') || !has(self.updateStrategy) || !has(self.updateStrategy.rollingUpdate) || !has(self.updateStrategy.rollingUpdate.maxUnavailable) || self.updateStrategy.rollingUpdate.maxUnavailable == 1",fieldPath=".updateStrategy.rollingUpdate.maxUnavailable",message="maxUnavailable must be 1 with podManagementPolicy OrderedReady"
// +kubebuilder:validation:XValidation:rule="(has(self.podManagementPolicy) && self.podManagementPolicy == 'Parallel') || !has(self.updateStrategy) || !has(self.updateStrategy.rollingUpdate) || !has(self.updateStrategy.rollingUpdate.unorderedUpdate)",fieldPath=".updateStrategy.rollingUpdate.unorderedUpdate",message="unorderedUpdate needs podManagementPolicy Parallel"
type StatefulSetSpec struct {
	// Replicas is the wanted number of Pods; 1 when absent.
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
	// ServiceName is the governing Service, the subdomain of every Pod. It is immutable.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// PodManagementPolicy is OrderedReady (default) or Parallel. It is immutable.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'OrderedReady', 'Parallel']",message="podManagementPolicy must be OrderedReady or Parallel"
	// +optional
	PodManagementPolicy appsv1.PodManagementPolicyType `json:"podManagementPolicy,omitempty"`
	// UpdateStrategy says which Pods are updated, when and how.
	// +optional
	UpdateStrategy v1beta1.StatefulSetUpdateStrategy `json:"updateStrategy,omitempty"`
	// RevisionHistoryLimit is how many revisions that no Pod uses are kept; 10 when absent.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="revisionHistoryLimit must be 0 or more"
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
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
	Conditions []v1beta1.StatefulSetCondition `json:"conditions,omitempty"`
	// LabelSelector is the text form of spec.selector, read by the scale subresource.
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
}

// StatefulSet runs Pods with a stable identity and updates them in place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=sts;asts
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

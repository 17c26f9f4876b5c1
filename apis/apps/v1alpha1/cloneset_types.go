// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// CloneSetUpdateStrategyType says how one Pod is brought to another revision. In this
// version the type of the strategy and the policy for a Pod are one field.
type CloneSetUpdateStrategyType string

const (
	// RecreateCloneSetUpdateStrategyType deletes the Pod and makes a new one.
	RecreateCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "ReCreate"
	// InPlaceIfPossibleCloneSetUpdateStrategyType updates in place, or recreates where that is impossible.
	InPlaceIfPossibleCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "InPlaceIfPossible"
	// InPlaceOnlyCloneSetUpdateStrategyType updates in place, or refuses with an error.
	InPlaceOnlyCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "InPlaceOnly"
	// OnDeleteCloneSetUpdateStrategyType updates a Pod only when somebody deletes it.
	OnDeleteCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "OnDelete"
)

// CloneSetSpec is the wanted state of a CloneSet (cloneset.md 2).
//
// +kubebuilder:validation:XValidation:rule="!has(self.progressDeadlineSeconds) || self.progressDeadlineSeconds > (has(self.minReadySeconds) ? self.minReadySeconds : 0) || self.progressDeadlineSeconds == 2147483647",message="progressDeadlineSeconds must be greater than minReadySeconds"
type CloneSetSpec struct {
	// Replicas is the wanted number of Pods; 1 when absent.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="replicas must be 0 or more"
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Selector must select the labels of template. It is immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="updates to cloneset spec for fields other than 'replicas', 'template', 'lifecycle', 'scaleStrategy', 'updateStrategy', 'minReadySeconds', 'progressDeadlineSeconds', 'volumeClaimTemplates' and 'revisionHistoryLimit' are forbidden"
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="empty selector is invalid for cloneset: it would select every Pod"
	Selector *metav1.LabelSelector `json:"selector"`
	// Template describes the Pods. Labels, annotations and finalizers are copied to each Pod.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Template corev1.PodTemplateSpec `json:"template"`
	// VolumeClaimTemplates give every Pod one claim each, bound by instance id.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +optional
	VolumeClaimTemplates []corev1.PersistentVolumeClaim `json:"volumeClaimTemplates,omitempty"`
	// ScaleStrategy limits and directs creation and deletion of Pods.
	// +optional
	ScaleStrategy CloneSetScaleStrategy `json:"scaleStrategy,omitempty"`
	// UpdateStrategy says which Pods are updated, when and how.
	// +optional
	UpdateStrategy CloneSetUpdateStrategy `json:"updateStrategy,omitempty"`
	// RevisionHistoryLimit is how many revisions that no Pod uses are kept; 10 when absent.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="revisionHistoryLimit must be 0 or more"
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// MinReadySeconds is how long a Pod must have been ready before it counts as available.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="minReadySeconds must be 0 or more"
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Lifecycle holds hooks that other controllers use to gate state changes of Pods.
	// +optional
	Lifecycle *v1beta1.Lifecycle `json:"lifecycle,omitempty"`
	// ProgressDeadlineSeconds is how long a rollout may take before the Progressing
	// condition turns False. Absent or 2147483647: no such condition.
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
}

// CloneSetScaleStrategy limits and directs creation and deletion of Pods.
type CloneSetScaleStrategy struct {
	// PodsToDelete names Pods to delete first. The controller removes names of Pods that are gone.
	// +optional
	PodsToDelete []string `json:"podsToDelete,omitempty"`
	// MaxUnavailable limits creation: no Pod is created while so many are unavailable.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[0-9]+([.][0-9]+)?%$')",message="maxUnavailable must be 0 or more, without quotes, or a percentage such as 20%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// DisablePVCReuse drops the claims of a Pod that somebody else deleted. The default is
	// opposite to that of v1beta1.
	// +optional
	DisablePVCReuse bool `json:"disablePVCReuse,omitempty"`
}

// CloneSetUpdateStrategy says which Pods are updated, when and how.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'InPlaceOnly' || !has(self.maxSurge) || type(self.maxSurge) != int || self.maxSurge <= 0",message="can not use maxSurge with strategy type InPlaceOnly: no Pod is ever created for an update; set it to 0"
type CloneSetUpdateStrategy struct {
	// Type is ReCreate (default), InPlaceIfPossible, InPlaceOnly or OnDelete.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ReCreate', 'InPlaceIfPossible', 'InPlaceOnly', 'OnDelete']",message="type must be ReCreate, InPlaceIfPossible, InPlaceOnly or OnDelete"
	// +optional
	Type CloneSetUpdateStrategyType `json:"type,omitempty"`
	// Partition is how many Pods stay at the current revision; 0 when absent.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[0-9]+([.][0-9]+)?%$')",message="partition must be 0 or more, or a percentage such as 20%"
	// +optional
	Partition *intstr.IntOrString `json:"partition,omitempty"`
	// MaxUnavailable is how many Pods may be unavailable during the update; 20% when absent.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[0-9]+([.][0-9]+)?%$')",message="maxUnavailable must be 0 or more, without quotes, or a percentage such as 20%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is how many Pods may exist above replicas during the update; 0 when absent.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[0-9]+([.][0-9]+)?%$')",message="maxSurge must be 0 or more, without quotes, or a percentage such as 20%"
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
	// Paused stops updates; scaling goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// PriorityStrategy orders the update by labels of Pods.
	// +optional
	PriorityStrategy *v1beta1.UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
	// ScatterStrategy spreads Pods with given labels over the whole update.
	// +optional
	ScatterStrategy v1beta1.CloneSetUpdateScatterStrategy `json:"scatterStrategy,omitempty"`
	// InPlaceUpdateStrategy tunes in-place updates. The imagePreDownload fields have no
	// effect in this version; annotations of the CloneSet take their place.
	// +optional
	InPlaceUpdateStrategy *v1beta1.InPlaceUpdateStrategy `json:"inPlaceUpdateStrategy,omitempty"`
}

// CloneSet runs interchangeable Pods and updates them in place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=clone
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.labelSelector
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".spec.replicas",description="The wanted number of Pods."
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedReplicas",description="The number of Pods at the update revision."
// +kubebuilder:printcolumn:name="UPDATED_READY",type="integer",JSONPath=".status.updatedReadyReplicas",description="The number of ready Pods at the update revision."
// +kubebuilder:printcolumn:name="UPDATED_AVAILABLE",type="integer",JSONPath=".status.updatedAvailableReplicas",description="The number of available Pods at the update revision."
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyReplicas",description="The number of ready Pods."
// +kubebuilder:printcolumn:name="TOTAL",type="integer",JSONPath=".status.replicas",description="The number of Pods."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation."
// +kubebuilder:printcolumn:name="CONTAINERS",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].name",description="The containers of the template."
// +kubebuilder:printcolumn:name="IMAGES",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].image",description="The images of the template."
// +kubebuilder:printcolumn:name="SELECTOR",type="string",priority=1,JSONPath=".status.labelSelector",description="The selector of the Pods."
type CloneSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CloneSetSpec           `json:"spec,omitempty"`
	Status v1beta1.CloneSetStatus `json:"status,omitempty"`
}

// CloneSetList is a list of CloneSets.
//
// +kubebuilder:object:root=true
type CloneSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CloneSet `json:"items"`
}

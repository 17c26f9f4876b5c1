// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CloneSetUpdateStrategyType says whether the controller updates Pods by itself.
type CloneSetUpdateStrategyType string

const (
	// RollingUpdateCloneSetUpdateStrategyType updates Pods within the limits of rollingUpdate.
	RollingUpdateCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "RollingUpdate"
	// OnDeleteCloneSetUpdateStrategyType updates a Pod only when somebody deletes it.
	OnDeleteCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "OnDelete"
)

// PodUpdatePolicyType says how one Pod is brought to another revision.
type PodUpdatePolicyType string

const (
	// RecreatePodUpdatePolicyType deletes the Pod and makes a new one.
	RecreatePodUpdatePolicyType PodUpdatePolicyType = "ReCreate"
	// InPlaceIfPossiblePodUpdatePolicyType updates in place, or recreates where that is impossible.
	InPlaceIfPossiblePodUpdatePolicyType PodUpdatePolicyType = "InPlaceIfPossible"
	// InPlaceOnlyPodUpdatePolicyType updates in place, or refuses with an error.
	InPlaceOnlyPodUpdatePolicyType PodUpdatePolicyType = "InPlaceOnly"
)

// CloneSetSpec is the wanted state of a CloneSet (cloneset.md 2).
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
	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`
	// ProgressDeadlineSeconds is how long a rollout may take before the Progressing
	// condition turns False. Absent or 2147483647: no such condition.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="progressDeadlineSeconds must be 0 or more"
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
}

// CloneSetScaleStrategy limits and directs creation and deletion of Pods.
type CloneSetScaleStrategy struct {
	// PodsToDelete names Pods to delete first. The controller removes names of Pods that are gone.
	// +optional
	PodsToDelete []string `json:"podsToDelete,omitempty"`
	// MaxUnavailable limits creation: no Pod is created while so many are unavailable.
	// A percentage is of replicas, rounded up. Absent: no limit.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[0-9]+([.][0-9]+)?%$')",message="maxUnavailable must be 0 or more, without quotes, or a percentage such as 20%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// EnablePVCReuse keeps the claims of a Pod that somebody else deleted for its replacement.
	// +kubebuilder:default=false
	// +optional
	EnablePVCReuse bool `json:"enablePVCReuse,omitempty"`
	// ExcludePreparingDelete keeps Pods in PreparingDelete out of the replica count.
	// +optional
	ExcludePreparingDelete bool `json:"excludePreparingDelete,omitempty"`
}

// CloneSetUpdateStrategy says which Pods are updated, when and how.
type CloneSetUpdateStrategy struct {
	// Type is RollingUpdate (default) or OnDelete.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'RollingUpdate', 'OnDelete']",message="type must be RollingUpdate or OnDelete"
	// +optional
	Type CloneSetUpdateStrategyType `json:"type,omitempty"`
	// RollingUpdate holds the limits of type RollingUpdate.
	// +optional
	RollingUpdate *RollingUpdateCloneSetStrategy `json:"rollingUpdate,omitempty"`
}

// RollingUpdateCloneSetStrategy holds the limits of a rolling update (cloneset.md 2.2, 2.3).
//
// +kubebuilder:validation:XValidation:rule="!has(self.podUpdatePolicy) || self.podUpdatePolicy != 'InPlaceOnly' || !has(self.maxSurge) || type(self.maxSurge) != int || self.maxSurge <= 0",message="can not use maxSurge with podUpdatePolicy InPlaceOnly: no Pod is ever created for an update; set it to 0"
type RollingUpdateCloneSetStrategy struct {
	// PodUpdatePolicy is ReCreate (default), InPlaceIfPossible or InPlaceOnly.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ReCreate', 'InPlaceIfPossible', 'InPlaceOnly']",message="podUpdatePolicy must be ReCreate, InPlaceIfPossible or InPlaceOnly"
	// +optional
	PodUpdatePolicy PodUpdatePolicyType `json:"podUpdatePolicy,omitempty"`
	// Partition is how many Pods stay at the current revision; 0 when absent.
	// A percentage is of replicas, rounded up.
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
	PriorityStrategy *UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
	// ScatterStrategy spreads Pods with given labels over the whole update.
	// +optional
	ScatterStrategy CloneSetUpdateScatterStrategy `json:"scatterStrategy,omitempty"`
	// InPlaceUpdateStrategy tunes in-place updates.
	// +optional
	InPlaceUpdateStrategy *InPlaceUpdateStrategy `json:"inPlaceUpdateStrategy,omitempty"`
}

// InPlaceUpdateStrategy tunes in-place updates.
type InPlaceUpdateStrategy struct {
	// GracePeriodSeconds is the time between turning a Pod not ready and changing it.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="gracePeriodSeconds must be 0 or more"
	// +optional
	GracePeriodSeconds int32 `json:"gracePeriodSeconds,omitempty"`
	// ImagePreDownloadParallelism is how many nodes pull the new image at once; 1 when absent.
	// +optional
	ImagePreDownloadParallelism *intstr.IntOrString `json:"imagePreDownloadParallelism,omitempty"`
	// ImagePreDownloadTimeoutSeconds is the timeout of one pull; 300 when absent.
	// +optional
	ImagePreDownloadTimeoutSeconds *int32 `json:"imagePreDownloadTimeoutSeconds,omitempty"`
	// ImagePreDownloadMinUpdatedReadyPods delays pre-download until so many Pods are updated and ready.
	// +optional
	ImagePreDownloadMinUpdatedReadyPods *int32 `json:"imagePreDownloadMinUpdatedReadyPods,omitempty"`
}

// CloneSetUpdateScatterStrategy is a list of label terms.
type CloneSetUpdateScatterStrategy []CloneSetUpdateScatterTerm

// CloneSetUpdateScatterTerm matches Pods whose label key has exactly value.
type CloneSetUpdateScatterTerm struct {
	// +kubebuilder:validation:MinLength=1
	Key   string `json:"key"`
	Value string `json:"value"`
}

// UpdatePriorityStrategy orders an update; only one of the lists may be set.
//
// +kubebuilder:validation:XValidation:rule="!has(self.orderPriority) || !has(self.weightPriority) || size(self.orderPriority) == 0 || size(self.weightPriority) == 0",message="weightPriority and orderPriority exclude each other"
type UpdatePriorityStrategy struct {
	// OrderPriority sorts by the trailing number of the first label that a Pod has.
	// +optional
	OrderPriority []UpdatePriorityOrderTerm `json:"orderPriority,omitempty"`
	// WeightPriority sorts by the sum of the weights of all matching terms, higher first.
	// +optional
	WeightPriority []UpdatePriorityWeightTerm `json:"weightPriority,omitempty"`
}

// UpdatePriorityOrderTerm names a label whose trailing number orders Pods, larger first.
type UpdatePriorityOrderTerm struct {
	// +kubebuilder:validation:MinLength=1
	OrderedKey string `json:"orderedKey"`
}

// UpdatePriorityWeightTerm adds Weight to every Pod that MatchSelector selects.
type UpdatePriorityWeightTerm struct {
	// Weight is between 0 and 100.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight        int32                `json:"weight"`
	MatchSelector metav1.LabelSelector `json:"matchSelector"`
}

// Lifecycle holds the hooks of a Pod's lifecycle (cloneset.md 7).
type Lifecycle struct {
	// PreNormal must be on the Pod before it counts as Normal.
	// +optional
	PreNormal *LifecycleHook `json:"preNormal,omitempty"`
	// PreDelete, while on the Pod, holds back its deletion by the controller.
	// +optional
	PreDelete *LifecycleHook `json:"preDelete,omitempty"`
	// InPlaceUpdate, while on the Pod, holds back its in-place update.
	// +optional
	InPlaceUpdate *LifecycleHook `json:"inPlaceUpdate,omitempty"`
}

// LifecycleHook names the labels and finalizers that make up a hook.
type LifecycleHook struct {
	// +optional
	LabelsHandler map[string]string `json:"labelsHandler,omitempty"`
	// +optional
	FinalizersHandler []string `json:"finalizersHandler,omitempty"`
	// MarkPodNotReady keeps the Pod not ready while the hook holds it.
	// +optional
	MarkPodNotReady bool `json:"markPodNotReady,omitempty"`
}

// CloneSetStatus is the observed state of a CloneSet (cloneset.md 3).
type CloneSetStatus struct {
	// ObservedGeneration is the metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is the number of active Pods.
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of ready Pods.
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas is the number of Pods in state Normal that have been ready for minReadySeconds.
	AvailableReplicas int32 `json:"availableReplicas"`
	// UpdatedReplicas is the number of Pods at the update revision.
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// UpdatedReadyReplicas is the number of ready Pods at the update revision.
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas"`
	// UpdatedAvailableReplicas is the number of available Pods at the update revision.
	// +optional
	UpdatedAvailableReplicas int32 `json:"updatedAvailableReplicas,omitempty"`
	// ExpectedUpdatedReplicas is replicas less partition.
	// +optional
	ExpectedUpdatedReplicas int32 `json:"expectedUpdatedReplicas,omitempty"`
	// UpdateRevision names the ControllerRevision of the present template.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// CurrentRevision names the revision that Pods kept back by partition stay at.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// CollisionCount counts hash collisions of revision names.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Conditions are FailedScale, FailedUpdate and Progressing.
	// +optional
	Conditions []CloneSetCondition `json:"conditions,omitempty"`
	// LabelSelector is the text form of spec.selector, read by the scale subresource.
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
}

// CloneSetConditionType names a condition of a CloneSet.
type CloneSetConditionType string

const (
	// CloneSetConditionFailedScale is True while the last scale pass ended in an error.
	CloneSetConditionFailedScale CloneSetConditionType = "FailedScale"
	// CloneSetConditionFailedUpdate is True while the last update pass ended in an error.
	CloneSetConditionFailedUpdate CloneSetConditionType = "FailedUpdate"
	// CloneSetConditionProgressing exists while progressDeadlineSeconds is set.
	CloneSetConditionProgressing CloneSetConditionType = "Progressing"
)

// Reasons of CloneSetConditionProgressing, as on the wire (cloneset.md 11.2).
const (
	CloneSetReasonUpdated                = "CloneSetUpdated"
	CloneSetReasonAvailable              = "CloneSetAvailable"
	CloneSetReasonPaused                 = "CloneSetPaused"
	CloneSetReasonPartitionAvailable     = "ProgressPartitionAvailable"
	CloneSetReasonProgressDeadlineExceed = "ProgressDeadlineExceeded"
)

// CloneSetCondition is one condition of a CloneSet.
type CloneSetCondition struct {
	Type   CloneSetConditionType  `json:"type"`
	Status corev1.ConditionStatus `json:"status"`
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// CloneSet runs interchangeable Pods and updates them in place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=clone
// +kubebuilder:storageversion
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

	Spec   CloneSetSpec   `json:"spec,omitempty"`
	Status CloneSetStatus `json:"status,omitempty"`
}

// CloneSetList is a list of CloneSets.
//
// +kubebuilder:object:root=true
type CloneSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CloneSet `json:"items"`
}

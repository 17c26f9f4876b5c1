// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// ContainerRecreateRequestSpec says which containers of which Pod to stop, so that kubelet starts
// them again (container-recreate.md 2.1). It is frozen at creation.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",reason=FieldValueForbidden,message="spec of ContainerRecreateRequest is immutable"
type ContainerRecreateRequestSpec struct {
	// PodName names a Pod of the same namespace.
	// +kubebuilder:validation:MinLength=1
	PodName string `json:"podName"`
	// Containers are stopped in this order.
	// +kubebuilder:validation:MinItems=1
	Containers []v1beta1.RecreateContainer `json:"containers"`
	// Strategy says how; {} when absent.
	// +optional
	Strategy *RecreateStrategy `json:"strategy,omitempty"`
	// ActiveDeadlineSeconds, since creation, after which the request is completed as it is; at least 3.
	// +kubebuilder:validation:XValidation:rule="self >= 3",message="activeDeadlineSeconds must be 3 or more"
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// TTLSecondsAfterFinished, since completionTime, after which the request is deleted; absent: never.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// RecreateStrategy is v1beta1.RecreateStrategy without limits in the schema.
type RecreateStrategy struct {
	// FailurePolicy is Fail (default) or Ignore.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'Fail', 'Ignore']",message="failurePolicy must be Fail or Ignore"
	// +optional
	FailurePolicy v1beta1.RecreateFailurePolicy `json:"failurePolicy,omitempty"`
	// OrderedRecreate stops a container only when the one before it has succeeded.
	// +optional
	OrderedRecreate bool `json:"orderedRecreate,omitempty"`
	// ForceRecreate stops each container once, even if it restarted since the request was made.
	// +optional
	ForceRecreate bool `json:"forceRecreate,omitempty"`
	// TerminationGracePeriodSeconds for preStop hook and stop together; that of the Pod when absent.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="terminationGracePeriodSeconds must be 0 or more"
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// UnreadyGracePeriodSeconds between making the Pod not ready and the first stop; absent: the
	// Pod stays ready; 0: it becomes not ready and nothing waits for that.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="unreadyGracePeriodSeconds must be 0 or more"
	// +optional
	UnreadyGracePeriodSeconds *int64 `json:"unreadyGracePeriodSeconds,omitempty"`
	// MinStartedSeconds that a restarted container must have run longer than to have succeeded.
	// +optional
	MinStartedSeconds int32 `json:"minStartedSeconds,omitempty"`
}

// ContainerRecreateRequestStatus is v1beta1.ContainerRecreateRequestStatus without snapshot and
// conditions, which this version shows as annotations, and without enums in the schema.
type ContainerRecreateRequestStatus struct {
	// Phase is Pending, Recreating or Completed; empty until the node agent answers.
	Phase v1beta1.RecreatePhase `json:"phase"`
	// CompletionTime is set together with phase Completed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Message is empty when the request ran to its end.
	// +optional
	Message string `json:"message,omitempty"`
	// ContainerRecreateStates are in the order of spec.containers.
	// +optional
	ContainerRecreateStates []RecreateState `json:"containerRecreateStates,omitempty"`
}

// RecreateState is how far one container is.
type RecreateState struct {
	Name string `json:"name"`
	// Phase is Pending, Recreating, Succeeded or Failed.
	Phase v1beta1.RecreatePhase `json:"phase"`
	// IsKilled says that the node agent stopped the container, or found it restarted.
	// +optional
	IsKilled bool `json:"isKilled,omitempty"`
	// Message says why the container waits or failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// ContainerRecreateRequest restarts containers of a running Pod without deleting the Pod. It
// ends once.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=crr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="PHASE",type="string",JSONPath=".status.phase",description="How far the request is."
// +kubebuilder:printcolumn:name="POD",type="string",JSONPath=".spec.podName",description="The Pod whose containers restart."
// +kubebuilder:printcolumn:name="NODE",type="string",JSONPath=`.metadata.labels.crr\.apps\.kruise\.io/node-name`,description="The node of the Pod."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation."
type ContainerRecreateRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ContainerRecreateRequestSpec `json:"spec,omitempty"`
	// Status is left out while it says nothing.
	Status ContainerRecreateRequestStatus `json:"status,omitzero"`
}

// ContainerRecreateRequestList is a list of ContainerRecreateRequests.
//
// +kubebuilder:object:root=true
type ContainerRecreateRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ContainerRecreateRequest `json:"items"`
}

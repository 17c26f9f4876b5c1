// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RecreatePhase is how far a request, or one container of it, is (container-recreate.md 2.2).
// No phase means that the node agent has not answered.
type RecreatePhase string

const (
	// RecreatePending waits: a container for its turn, a request for an earlier one of its Pod.
	RecreatePending RecreatePhase = "Pending"
	// RecreateRecreating is being worked on.
	RecreateRecreating RecreatePhase = "Recreating"
	// RecreateSucceeded is a container that runs again and is ready. Never the phase of a request.
	RecreateSucceeded RecreatePhase = "Succeeded"
	// RecreateFailed is a container that could not be stopped. Never the phase of a request.
	RecreateFailed RecreatePhase = "Failed"
	// RecreateCompleted is a request that has ended, well or not. Never the phase of a container.
	RecreateCompleted RecreatePhase = "Completed"
)

// RecreateFailurePolicy says what the failure of one container means for the next ones.
type RecreateFailurePolicy string

const (
	// RecreateFailurePolicyFail ends the request with the first container that fails.
	RecreateFailurePolicyFail RecreateFailurePolicy = "Fail"
	// RecreateFailurePolicyIgnore goes on with the next container.
	RecreateFailurePolicyIgnore RecreateFailurePolicy = "Ignore"
)

// PreRecreateGraceCondition is the type of the condition that is True, with the type as its
// reason, from the moment the Pod was made not ready for unreadyGracePeriodSeconds. The grace
// period counts from its lastTransitionTime.
const PreRecreateGraceCondition = "PreRecreateGrace"

// PreRecreateGraceMessage is the message of a PreRecreateGraceCondition that is True.
const PreRecreateGraceMessage = "Pod has been forced to not-ready for unreadyGracePeriodSeconds drain"

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
	Containers []RecreateContainer `json:"containers"`
	// Strategy says how; {} when absent.
	// +optional
	Strategy *RecreateStrategy `json:"strategy,omitempty"`
	// ActiveDeadlineSeconds, since creation, after which the request is completed as it is; at least 3.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= 3",message="activeDeadlineSeconds must be 3 or more"
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// TTLSecondsAfterFinished, since completionTime, after which the request is deleted; absent: never.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// RecreateContainer is one container to stop. Users give the name; admission fills in the rest
// and rejects a request that brings it along.
type RecreateContainer struct {
	// Name of a container of the Pod, once in the list.
	Name string `json:"name"`
	// PreStop is the hook of the container. Read-only.
	// +optional
	PreStop *RecreatePreStop `json:"preStop,omitempty"`
	// Ports are those of the container, present only when preStop has an httpGet. Read-only.
	// +optional
	Ports []corev1.ContainerPort `json:"ports,omitempty"`
	// StatusContext is the container as it ran when the request was made. Read-only.
	// +optional
	StatusContext *RecreateContainerContext `json:"statusContext,omitempty"`
}

// RecreatePreStop is the preStop hook of a container; at most one field is set.
type RecreatePreStop struct {
	// +optional
	Exec *corev1.ExecAction `json:"exec,omitempty"`
	// +optional
	HTTPGet *corev1.HTTPGetAction `json:"httpGet,omitempty"`
	// +optional
	TCPSocket *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	// Sleep has no counterpart in OpenKruise, which leaves such a hook out.
	// +optional
	Sleep *corev1.SleepAction `json:"sleep,omitempty"`
}

// RecreateContainerContext identifies the container to stop: once the Pod has another id or a
// higher restart count, the container has been recreated.
type RecreateContainerContext struct {
	// ContainerID with the name of the runtime as scheme, such as containerd://….
	ContainerID  string `json:"containerID"`
	RestartCount int32  `json:"restartCount"`
}

// RecreateStrategy says how containers are stopped.
type RecreateStrategy struct {
	// FailurePolicy is Fail (default) or Ignore.
	// +kubebuilder:validation:Enum=Fail;Ignore
	// +optional
	FailurePolicy RecreateFailurePolicy `json:"failurePolicy,omitempty"`
	// OrderedRecreate stops a container only when the one before it has succeeded.
	// +optional
	OrderedRecreate bool `json:"orderedRecreate,omitempty"`
	// ForceRecreate stops each container once, even if it restarted since the request was made.
	// +optional
	ForceRecreate bool `json:"forceRecreate,omitempty"`
	// TerminationGracePeriodSeconds for preStop hook and stop together; that of the Pod when absent.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// UnreadyGracePeriodSeconds between making the Pod not ready and the first stop; absent: the
	// Pod stays ready; 0: it becomes not ready and nothing waits for that.
	// +kubebuilder:validation:Minimum=0
	// +optional
	UnreadyGracePeriodSeconds *int64 `json:"unreadyGracePeriodSeconds,omitempty"`
	// MinStartedSeconds that a restarted container must have run longer than to have succeeded.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinStartedSeconds int32 `json:"minStartedSeconds,omitempty"`
}

// ContainerRecreateRequestStatus is written by the node agent (phase, containerRecreateStates)
// and by the manager (the rest; container-recreate.md 2.2).
type ContainerRecreateRequestStatus struct {
	// Phase is Pending, Recreating or Completed; empty until the node agent answers. There is no
	// phase for failure: see message and the states.
	// +kubebuilder:validation:Enum=Pending;Recreating;Succeeded;Failed;Completed
	Phase RecreatePhase `json:"phase"`
	// CompletionTime is set together with phase Completed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Message is empty when the request ran to its end.
	// +optional
	Message string `json:"message,omitempty"`
	// ContainerRecreateStates are in the order of spec.containers.
	// +optional
	ContainerRecreateStates []RecreateState `json:"containerRecreateStates,omitempty"`
	// ContainerStatusSnapshot is what the manager saw in the Pod of containers that run since the
	// request was made, in the order of spec.containers.
	// +optional
	ContainerStatusSnapshot []ContainerSnapshot `json:"containerStatusSnapshot,omitempty"`
	// Conditions holds the PreRecreateGraceCondition.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RecreateState is how far one container is.
type RecreateState struct {
	Name string `json:"name"`
	// Phase is Pending, Recreating, Succeeded or Failed.
	// +kubebuilder:validation:Enum=Pending;Recreating;Succeeded;Failed;Completed
	Phase RecreatePhase `json:"phase"`
	// IsKilled says that the node agent stopped the container, or found it restarted.
	// +optional
	IsKilled bool `json:"isKilled,omitempty"`
	// Message says why the container waits or failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// ContainerSnapshot is the status of a container in the Pod.
type ContainerSnapshot struct {
	Name         string `json:"name"`
	Ready        bool   `json:"ready"`
	RestartCount int32  `json:"restartCount"`
	// +optional
	ContainerID string `json:"containerID,omitempty"`
}

// ContainerRecreateRequest restarts containers of a running Pod without deleting the Pod. It
// ends once.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
	// Status is left out while it says nothing: an empty phase is no valid phase.
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

// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PullSecretModeBatch marks secret references made by the shared-copy scheme.
const PullSecretModeBatch = "batch"

// NodeImageSpec lists what a node has to pull (images.md 4).
type NodeImageSpec struct {
	// Images maps a familiar image name (without tag) to its tags; at most 256 entries.
	// +optional
	Images map[string]ImageSpec `json:"images,omitempty"`
}

// ImageSpec lists the tags of one image.
type ImageSpec struct {
	// +optional
	PullSecrets []ReferenceObject `json:"pullSecrets,omitempty"`
	// Tags is sorted by tag.
	Tags []ImageTagSpec `json:"tags"`
	// SandboxConfig holds for all tags; the last writer wins.
	// +optional
	SandboxConfig *SandboxConfig `json:"sandboxConfig,omitempty"`
}

// ReferenceObject names a Secret.
type ReferenceObject struct {
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// Mode is empty or PullSecretModeBatch.
	// +optional
	Mode string `json:"mode,omitempty"`
}

// ImageTagSpec is one pull task.
type ImageTagSpec struct {
	// Tag is a tag, or a digest such as sha256:….
	Tag string `json:"tag"`
	// CreatedAt starts the clock of the daemon's answer.
	// +optional
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`
	// +optional
	PullPolicy *ImageTagPullPolicy `json:"pullPolicy,omitempty"`
	// OwnerReferences name the jobs that want the tag.
	// +optional
	OwnerReferences []corev1.ObjectReference `json:"ownerReferences,omitempty"`
	// Version restarts the pull when it grows.
	// +optional
	Version int64 `json:"version,omitempty"`
	// ImagePullPolicy: only IfNotPresent skips the pull of a present image.
	// +optional
	ImagePullPolicy ImagePullPolicy `json:"imagePullPolicy,omitempty"`
}

// ImageTagPullPolicy bounds one pull task.
type ImageTagPullPolicy struct {
	// TimeoutSeconds bounds one attempt; 600 when absent.
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// BackoffLimit is the number of retries after the first attempt; 3 when absent.
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// TTLSecondsAfterFinished, since completion, after which the tag is removed. Mandatory.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// ActiveDeadlineSeconds, since createdAt, after which the task fails.
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
}

// ImagePullPhase is the state of one pull task.
type ImagePullPhase string

// The phases of a pull task.
const (
	ImagePhaseWaiting   ImagePullPhase = "Waiting"
	ImagePhasePulling   ImagePullPhase = "Pulling"
	ImagePhaseSucceeded ImagePullPhase = "Succeeded"
	ImagePhaseFailed    ImagePullPhase = "Failed"
)

// NodeImageStatus is what the daemon of the node reports. Counts are of tags.
type NodeImageStatus struct {
	Desired int32 `json:"desired"`
	// +optional
	Succeeded int32 `json:"succeeded"`
	// +optional
	Failed int32 `json:"failed"`
	// +optional
	Pulling int32 `json:"pulling"`
	// +optional
	Waiting int32 `json:"waiting"`
	// ImageStatuses has the keys of spec.images.
	// +optional
	ImageStatuses map[string]ImageStatus `json:"imageStatuses,omitempty"`
	// +optional
	FirstSyncStatus *SyncStatus `json:"firstSyncStatus,omitempty"`
}

// SyncStatus is the result of the daemon's first pass.
type SyncStatus struct {
	// +optional
	SyncAt metav1.Time `json:"syncAt,omitempty"`
	// +optional
	Status string `json:"status,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// ImageStatus lists the tags of one image.
type ImageStatus struct {
	// Tags is sorted by tag.
	Tags []ImageTagStatus `json:"tags"`
}

// ImageTagStatus is the state of one pull task.
type ImageTagStatus struct {
	Tag   string         `json:"tag"`
	Phase ImagePullPhase `json:"phase"`
	// Progress is between 0 and 100.
	// +optional
	Progress int32 `json:"progress,omitempty"`
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Version is that of the task that this status speaks of.
	// +optional
	Version int64 `json:"version,omitempty"`
	// ImageID is "<name>@<runtime image id>".
	// +optional
	ImageID string `json:"imageID,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// NodeImage lists the images that the node of the same name has to pull.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".status.desired",description="The number of tags."
// +kubebuilder:printcolumn:name="PULLING",type="integer",JSONPath=".status.pulling",description="The number of tags being pulled."
// +kubebuilder:printcolumn:name="SUCCEED",type="integer",JSONPath=".status.succeeded",description="The number of tags pulled."
// +kubebuilder:printcolumn:name="FAILED",type="integer",JSONPath=".status.failed",description="The number of tags given up."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation."
type NodeImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeImageSpec   `json:"spec,omitempty"`
	Status NodeImageStatus `json:"status,omitempty"`
}

// NodeImageList is a list of NodeImages.
//
// +kubebuilder:object:root=true
type NodeImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeImage `json:"items"`
}

// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ImagePullPolicy says whether an image that a node has already is pulled again.
type ImagePullPolicy string

const (
	// PullAlways pulls even when the node has the image.
	PullAlways ImagePullPolicy = "Always"
	// PullIfNotPresent leaves an image alone that the node has.
	PullIfNotPresent ImagePullPolicy = "IfNotPresent"
)

// CompletionPolicyType says whether a job ends.
type CompletionPolicyType string

const (
	// Always jobs complete when every node has succeeded or failed.
	Always CompletionPolicyType = "Always"
	// Never jobs stay active and pull again about once a day.
	Never CompletionPolicyType = "Never"
)

// ImagePullJobSpec says which image to pull on which nodes (images.md 2.1).
//
// +kubebuilder:validation:XValidation:rule="!has(self.selector) || !has(self.podSelector)",message="selector and podSelector exclude each other; keep one of them"
// +kubebuilder:validation:XValidation:rule="(has(self.pullSecrets) ? self.pullSecrets : []) == (has(oldSelf.pullSecrets) ? oldSelf.pullSecrets : [])",fieldPath=".pullSecrets",reason=FieldValueForbidden,message="spec.pullSecrets is immutable; create a new ImagePullJob"
// +kubebuilder:validation:XValidation:rule="(has(self.completionPolicy.type) && self.completionPolicy.type == 'Never') || !has(self.completionPolicy.activeDeadlineSeconds) || !has(self.pullPolicy) || !has(self.pullPolicy.timeoutSeconds) || self.completionPolicy.activeDeadlineSeconds >= self.pullPolicy.timeoutSeconds",fieldPath=".completionPolicy.activeDeadlineSeconds",message="activeDeadlineSeconds must be at least pullPolicy.timeoutSeconds, or the job ends before its first pull may"
type ImagePullJobSpec struct {
	// Image is the reference to pull, by tag or digest.
	// +kubebuilder:validation:MinLength=1
	Image                string `json:"image"`
	ImagePullJobTemplate `json:",inline"`
}

// ImagePullJobTemplate is what ImagePullJob and ImageListPullJob have in common.
type ImagePullJobTemplate struct {
	// PullSecrets names Secrets of the job's namespace. Immutable.
	// +optional
	PullSecrets []string `json:"pullSecrets,omitempty"`
	// Selector chooses nodes by name or label; absent with podSelector absent: all nodes.
	// +optional
	Selector *ImagePullJobNodeSelector `json:"selector,omitempty"`
	// PodSelector chooses the nodes that run matching active Pods of the job's namespace.
	// +optional
	PodSelector *ImagePullJobPodSelector `json:"podSelector,omitempty"`
	// Parallelism is how many nodes pull at once; 1 when absent, 0 pauses.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[+-]?[0-9]+$') && int(self) >= 0 && int(self) <= 2147483647",message="parallelism must be a whole number of 0 or more, not a percentage"
	// +optional
	Parallelism *intstr.IntOrString `json:"parallelism,omitempty"`
	// PullPolicy bounds the attempts on one node.
	// +optional
	PullPolicy *PullPolicy `json:"pullPolicy,omitempty"`
	// CompletionPolicy says when the job ends.
	CompletionPolicy CompletionPolicy `json:"completionPolicy"`
	// SandboxConfig is handed to the container runtime with the pull.
	// +optional
	SandboxConfig *SandboxConfig `json:"sandboxConfig,omitempty"`
	// ImagePullPolicy is IfNotPresent (default) or Always.
	// +optional
	ImagePullPolicy ImagePullPolicy `json:"imagePullPolicy,omitempty"`
}

// ImagePullJobNodeSelector chooses NodeImages by name, or by label.
//
// +kubebuilder:validation:XValidation:rule="!has(self.names) || size(self.names) == 0 || ((!has(self.matchLabels) || size(self.matchLabels) == 0) && (!has(self.matchExpressions) || size(self.matchExpressions) == 0))",fieldPath=".names",message="names and label terms exclude each other; keep one of them"
// +structType=atomic
type ImagePullJobNodeSelector struct {
	// Names excludes the label terms.
	// +optional
	Names                []string `json:"names,omitzero"`
	metav1.LabelSelector `json:",inline"`
}

// ImagePullJobPodSelector chooses nodes by the Pods they run.
//
// +structType=atomic
type ImagePullJobPodSelector struct {
	metav1.LabelSelector `json:",inline"`
}

// PullPolicy bounds the attempts on one node.
type PullPolicy struct {
	// TimeoutSeconds bounds one attempt; 600 when absent.
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// BackoffLimit is the number of retries after the first attempt; 3 when absent.
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
}

// CompletionPolicy says when a job ends.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'Never' || (!has(self.activeDeadlineSeconds) && !has(self.ttlSecondsAfterFinished))",message="a job of type Never does not end: remove activeDeadlineSeconds and ttlSecondsAfterFinished"
type CompletionPolicy struct {
	// Type is Always (default) or Never.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'Always', 'Never']",message="type must be Always or Never"
	// +optional
	Type CompletionPolicyType `json:"type,omitempty"`
	// ActiveDeadlineSeconds, since startTime, after which unfinished nodes count as failed. Always only.
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// TTLSecondsAfterFinished, since completionTime, after which the job is deleted. Always only.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// SandboxConfig is passed to the container runtime as sandbox_config of PullImage.
type SandboxConfig struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ImagePullJobStatus counts nodes (images.md 2.2).
type ImagePullJobStatus struct {
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is set once; never for jobs of type Never.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Desired is the number of matching nodes.
	Desired int32 `json:"desired"`
	// Active is the number of nodes that were given the task and have not finished.
	// +optional
	Active int32 `json:"active"`
	// +optional
	Succeeded int32 `json:"succeeded"`
	// +optional
	Failed int32 `json:"failed"`
	// +optional
	Message string `json:"message,omitempty"`
	// FailedNodes are node names, sorted.
	// +optional
	FailedNodes []string `json:"failedNodes,omitempty"`
}

// ImagePullJob pulls one image on many nodes before a workload needs it.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="TOTAL",type="integer",JSONPath=".status.desired",description="The number of matching nodes."
// +kubebuilder:printcolumn:name="ACTIVE",type="integer",JSONPath=".status.active",description="The number of nodes that are pulling."
// +kubebuilder:printcolumn:name="SUCCEED",type="integer",JSONPath=".status.succeeded",description="The number of nodes that have the image."
// +kubebuilder:printcolumn:name="FAILED",type="integer",JSONPath=".status.failed",description="The number of nodes that gave up."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation."
type ImagePullJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ImagePullJobSpec   `json:"spec,omitempty"`
	Status ImagePullJobStatus `json:"status,omitempty"`
}

// ImagePullJobList is a list of ImagePullJobs.
//
// +kubebuilder:object:root=true
type ImagePullJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImagePullJob `json:"items"`
}

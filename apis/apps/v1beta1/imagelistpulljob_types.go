// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ImageListPullJobSpec says which images to pull on which nodes (images.md 3). Each image
// becomes an ImagePullJob with the template.
//
// +kubebuilder:validation:XValidation:rule="!has(self.selector) || !has(self.podSelector)",message="selector and podSelector exclude each other; keep one of them"
type ImageListPullJobSpec struct {
	// Images are references, by tag or digest, without exact duplicates.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=255
	Images               []string `json:"images"`
	ImagePullJobTemplate `json:",inline"`
}

// ImageListPullJobStatus counts images, not nodes (images.md 3).
type ImageListPullJobStatus struct {
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is set once; never for jobs of type Never.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Desired is the number of images.
	Desired int32 `json:"desired"`
	// Active is the number of images that at least one node is pulling.
	// +optional
	Active int32 `json:"active"`
	// Completed is the number of images that every node has or gave up.
	// +optional
	Completed int32 `json:"completed"`
	// Succeeded is the number of images that every node has.
	// +optional
	Succeeded int32 `json:"succeeded"`
	// FailedImageStatuses has an entry for each image that at least one node gave up.
	// +optional
	FailedImageStatuses []FailedImageStatus `json:"failedImageStatuses,omitempty"`
}

// FailedImageStatus is an image that at least one node gave up.
type FailedImageStatus struct {
	// ImagePullJob is the name of the job of this image.
	// +optional
	ImagePullJob string `json:"imagePullJob,omitempty"`
	// Name is the image as the list has it.
	// +optional
	Name string `json:"name,omitempty"`
	// Message is for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// ImageListPullJob pulls several images on many nodes, by one ImagePullJob an image.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="TOTAL",type="integer",JSONPath=".status.desired",description="The number of images."
// +kubebuilder:printcolumn:name="SUCCEEDED",type="integer",JSONPath=".status.succeeded",description="The number of images that every node has."
// +kubebuilder:printcolumn:name="COMPLETED",type="integer",JSONPath=".status.completed",description="The number of images that every node has or gave up."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation."
type ImageListPullJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ImageListPullJobSpec   `json:"spec,omitempty"`
	Status ImageListPullJobStatus `json:"status,omitempty"`
}

// ImageListPullJobList is a list of ImageListPullJobs.
//
// +kubebuilder:object:root=true
type ImageListPullJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImageListPullJob `json:"items"`
}

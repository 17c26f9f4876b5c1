// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProbeState is the result of a probe.
type ProbeState string

// The results of a probe (podprobe.md 1).
const (
	ProbeSucceeded ProbeState = "Succeeded"
	ProbeFailed    ProbeState = "Failed"
	// ProbeUnknown is the state until the first result for the running container. No marker
	// policy has it; as a Pod condition it is False.
	ProbeUnknown ProbeState = "Unknown"
)

// PodProbeMarkerSpec says what to probe in which Pods (podprobe.md 1.1).
type PodProbeMarkerSpec struct {
	// Selector chooses Pods of the namespace. It is immutable and never matches everything.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",reason=FieldValueForbidden,message="selector must be immutable"
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="empty selector is not valid for PodProbeMarker"
	Selector *metav1.LabelSelector `json:"selector"`
	// Probes run independently of each other.
	// +kubebuilder:validation:MinItems=1
	Probes []PodContainerProbe `json:"probes"`
}

// PodContainerProbe is one probe, and what becomes of its result: a Pod condition, labels and
// annotations, or both.
//
// +kubebuilder:validation:XValidation:rule="(has(self.podConditionType) && size(self.podConditionType) > 0) || (has(self.markerPolicy) && size(self.markerPolicy) > 0)",message="podConditionType and markerPolicy cannot both be empty"
// +kubebuilder:validation:XValidation:rule="(has(self.probe.exec) ? 1 : 0) + (has(self.probe.httpGet) ? 1 : 0) + (has(self.probe.tcpSocket) ? 1 : 0) == 1",fieldPath=".probe",message="must specify exactly one of exec, httpGet and tcpSocket"
type PodContainerProbe struct {
	// Name is unique in the PodProbeMarker and has no #.
	// +kubebuilder:validation:Pattern=`^[^#]+$`
	Name string `json:"name"`
	// ContainerName is the container that is probed.
	// +kubebuilder:validation:MinLength=1
	ContainerName string `json:"containerName"`
	// Probe is exec, httpGet or tcpSocket. A number that is absent or 0 stands for 1.
	Probe ContainerProbeSpec `json:"probe"`
	// MarkerPolicy has at most one entry for Succeeded and one for Failed.
	// +optional
	MarkerPolicy []ProbeMarkerPolicy `json:"markerPolicy,omitempty"`
	// PodConditionType is the type of the Pod condition to write.
	// +optional
	PodConditionType string `json:"podConditionType,omitempty"`
}

// ContainerProbeSpec is a probe of core/v1. grpc and terminationGracePeriodSeconds have no effect.
type ContainerProbeSpec struct {
	corev1.Probe `json:",inline"`
}

// ProbeMarkerPolicy is what a Pod carries while the probe is in a state.
type ProbeMarkerPolicy struct {
	// State is Succeeded or Failed.
	// +kubebuilder:validation:Enum=Succeeded;Failed
	State ProbeState `json:"state"`
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodProbeMarkerStatus counts Pods.
type PodProbeMarkerStatus struct {
	ObservedGeneration int64 `json:"observedGeneration"`
	// MatchedPods is the number of active Pods that match, on nodes of any kind.
	// +optional
	MatchedPods int64 `json:"matchedPods,omitempty"`
}

// PodProbeMarker probes containers without restarting them, and marks their Pods by the result.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
type PodProbeMarker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PodProbeMarkerSpec   `json:"spec,omitempty"`
	Status PodProbeMarkerStatus `json:"status,omitempty"`
}

// PodProbeMarkerList is a list of PodProbeMarkers.
//
// +kubebuilder:object:root=true
type PodProbeMarkerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodProbeMarker `json:"items"`
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodePodProbeSpec lists what the node agent has to probe (podprobe.md 1.2). The manager writes it.
type NodePodProbeSpec struct {
	// PodProbes has one entry for each Pod of the node with at least one probe.
	// +optional
	PodProbes []PodProbe `json:"podProbes,omitempty"`
}

// PodProbe is what to probe in one Pod.
type PodProbe struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
	// IP of the Pod, for httpGet and tcpSocket; empty until the Pod has one.
	IP string `json:"IP"`
	// +optional
	Probes []ContainerProbe `json:"probes,omitempty"`
}

// ContainerProbe is one probe of one container.
type ContainerProbe struct {
	// Name is <PodProbeMarker>#<probe>.
	Name          string             `json:"name"`
	ContainerName string             `json:"containerName"`
	Probe         ContainerProbeSpec `json:"probe"`
}

// NodePodProbeStatus lists results. The node agent writes it.
type NodePodProbeStatus struct {
	// +optional
	PodProbeStatuses []PodProbeStatus `json:"podProbeStatuses,omitempty"`
}

// PodProbeStatus is the results of one Pod.
type PodProbeStatus struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
	// +optional
	ProbeStates []ContainerProbeState `json:"probeStates,omitempty"`
}

// ContainerProbeState is the result of one probe.
type ContainerProbeState struct {
	// Name is <PodProbeMarker>#<probe>.
	Name string `json:"name"`
	// State is Succeeded, Failed or Unknown.
	State ProbeState `json:"state"`
	// +optional
	LastProbeTime metav1.Time `json:"lastProbeTime,omitzero"`
	// LastTransitionTime is when the state became what it is.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Message is output of the probe, at most 1024 bytes.
	// +optional
	Message string `json:"message,omitempty"`
}

// NodePodProbe lists the probes that the node of the same name has to run, and their results.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
type NodePodProbe struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodePodProbeSpec   `json:"spec,omitempty"`
	Status NodePodProbeStatus `json:"status,omitempty"`
}

// NodePodProbeList is a list of NodePodProbes.
//
// +kubebuilder:object:root=true
type NodePodProbeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePodProbe `json:"items"`
}

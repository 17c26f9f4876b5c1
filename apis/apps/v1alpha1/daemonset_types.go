// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// DaemonSetSpec is the wanted state of a DaemonSet (daemonset.md 2).
type DaemonSetSpec struct {
	// Selector must select the labels of template. It is immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",reason=FieldValueForbidden,message="updates to daemonset spec are forbidden for selector"
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="empty selector is invalid for daemonset: it would select every Pod"
	Selector *metav1.LabelSelector `json:"selector"`
	// Template describes the Pods, one on each node that it fits.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Template corev1.PodTemplateSpec `json:"template"`
	// UpdateStrategy says which Pods are updated, when and how.
	// +optional
	UpdateStrategy DaemonSetUpdateStrategy `json:"updateStrategy,omitempty"`
	// MinReadySeconds is how long a Pod must have been ready before it counts as available.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="minReadySeconds must be 0 or more"
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// BurstReplicas is how many Pods one pass creates, deletes or updates in place, each
	// for itself; 250 when absent. A percentage is of the desired nodes, rounded down.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : self.matches('^0*[1-9][0-9]*%$')",message="burstReplicas must be 1 or more, or a percentage such as 20%"
	// +optional
	BurstReplicas *intstr.IntOrString `json:"burstReplicas,omitempty"`
	// RevisionHistoryLimit is how many revisions that no Pod uses are kept; 10 when absent.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="revisionHistoryLimit must be 0 or more"
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// Lifecycle holds the hook preDelete. The hook preNormal has no effect, inPlaceUpdate
	// is refused.
	// +kubebuilder:validation:XValidation:rule="!has(self.inPlaceUpdate)",fieldPath=".inPlaceUpdate",reason=FieldValueForbidden,message="the inPlaceUpdate hook is not supported for daemonset"
	// +optional
	Lifecycle *v1beta1.Lifecycle `json:"lifecycle,omitempty"`
}

// DaemonSetUpdateStrategy says which Pods are updated, when and how. With type OnDelete
// nothing in rollingUpdate is looked at.
//
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'OnDelete') || !has(self.rollingUpdate) || !has(self.rollingUpdate.rollingUpdateType) || size(self.rollingUpdate.rollingUpdateType) == 0 || self.rollingUpdate.rollingUpdateType in ['Standard', 'Surging', 'InPlaceIfPossible']",fieldPath=".rollingUpdate.rollingUpdateType",message="rollingUpdateType must be Standard, Surging or InPlaceIfPossible"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'OnDelete') || !has(self.rollingUpdate) || !has(self.rollingUpdate.partition) || (type(self.rollingUpdate.partition) == int ? self.rollingUpdate.partition >= 0 : self.rollingUpdate.partition.matches('^0*(100|[0-9][0-9]?)%$'))",fieldPath=".rollingUpdate.partition",message="partition must be 0 or more, or a percentage up to 100%"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'OnDelete') || !has(self.rollingUpdate) || !has(self.rollingUpdate.maxUnavailable) || (type(self.rollingUpdate.maxUnavailable) == int ? self.rollingUpdate.maxUnavailable >= 0 : self.rollingUpdate.maxUnavailable.matches('^0*(100|[0-9][0-9]?)%$'))",fieldPath=".rollingUpdate.maxUnavailable",message="maxUnavailable must be 0 or more, or a percentage up to 100%"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'OnDelete') || !has(self.rollingUpdate) || !has(self.rollingUpdate.maxSurge) || (type(self.rollingUpdate.maxSurge) == int ? self.rollingUpdate.maxSurge >= 0 : self.rollingUpdate.maxSurge.matches('^0*(100|[0-9][0-9]?)%$'))",fieldPath=".rollingUpdate.maxSurge",message="maxSurge must be 0 or more, or a percentage up to 100%"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'OnDelete') || !has(self.rollingUpdate) || (!has(self.rollingUpdate.maxUnavailable) && !has(self.rollingUpdate.maxSurge)) || (has(self.rollingUpdate.maxUnavailable) && (type(self.rollingUpdate.maxUnavailable) == int ? self.rollingUpdate.maxUnavailable != 0 : !self.rollingUpdate.maxUnavailable.matches('^0+%$'))) != (has(self.rollingUpdate.maxSurge) ? (type(self.rollingUpdate.maxSurge) == int ? self.rollingUpdate.maxSurge != 0 : !self.rollingUpdate.maxSurge.matches('^0+%$')) : (has(self.rollingUpdate.rollingUpdateType) && self.rollingUpdate.rollingUpdateType == 'Surging'))",fieldPath=".rollingUpdate",message="exactly one of maxUnavailable and maxSurge must be other than 0"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'OnDelete') || !has(self.rollingUpdate) || !has(self.rollingUpdate.rollingUpdateType) || self.rollingUpdate.rollingUpdateType != 'InPlaceIfPossible' || !has(self.rollingUpdate.maxSurge) || (type(self.rollingUpdate.maxSurge) == int ? self.rollingUpdate.maxSurge == 0 : self.rollingUpdate.maxSurge.matches('^0+%$'))",fieldPath=".rollingUpdate.maxSurge",message="maxSurge must be 0 with rollingUpdateType InPlaceIfPossible"
type DaemonSetUpdateStrategy struct {
	// Type is RollingUpdate (default) or OnDelete.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'RollingUpdate', 'OnDelete']",message="type must be RollingUpdate or OnDelete"
	// +optional
	Type appsv1.DaemonSetUpdateStrategyType `json:"type,omitempty"`
	// RollingUpdate holds the limits of type RollingUpdate.
	// +optional
	RollingUpdate *v1beta1.RollingUpdateDaemonSet `json:"rollingUpdate,omitempty"`
}

// SurgingRollingUpdateType is the old word for Standard with maxSurge 1 instead of
// maxUnavailable 1 where both are absent. It is stored as Standard.
const SurgingRollingUpdateType v1beta1.RollingUpdateType = "Surging"

// DaemonSetStatus is the observed state of a DaemonSet (daemonset.md 3).
type DaemonSetStatus struct {
	// CurrentNumberScheduled is the number of nodes that should run a Pod and have one.
	CurrentNumberScheduled int32 `json:"currentNumberScheduled"`
	// NumberMisscheduled is the number of nodes that should not run a Pod and have one.
	NumberMisscheduled int32 `json:"numberMisscheduled"`
	// DesiredNumberScheduled is the number of nodes that should run a Pod.
	DesiredNumberScheduled int32 `json:"desiredNumberScheduled"`
	// NumberReady is the number of desired nodes whose Pod is ready.
	NumberReady int32 `json:"numberReady"`
	// ObservedGeneration is the metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// UpdatedNumberScheduled is the number of desired nodes whose Pod has the present template.
	UpdatedNumberScheduled int32 `json:"updatedNumberScheduled"`
	// NumberAvailable is the number of desired nodes whose Pod has been ready for minReadySeconds.
	// +optional
	NumberAvailable int32 `json:"numberAvailable,omitempty"`
	// NumberUnavailable is the number of the other desired nodes.
	// +optional
	NumberUnavailable int32 `json:"numberUnavailable,omitempty"`
	// CollisionCount counts hash collisions of revision names.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Conditions are part of the contract; the controller writes none.
	// +optional
	Conditions []v1beta1.DaemonSetCondition `json:"conditions,omitempty"`
	// DaemonSetHash is the hash of the present template, the value of the Pods' label
	// controller-revision-hash. It does not name a ControllerRevision.
	// +optional
	DaemonSetHash string `json:"daemonSetHash,omitempty"`
}

// DaemonSet runs one Pod on each node that fits and updates them in place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=daemon;ads
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".status.desiredNumberScheduled",description="The number of nodes that should run a Pod."
// +kubebuilder:printcolumn:name="CURRENT",type="integer",JSONPath=".status.currentNumberScheduled",description="The number of those that have a Pod."
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.numberReady",description="The number of those whose Pod is ready."
// +kubebuilder:printcolumn:name="UP-TO-DATE",type="integer",JSONPath=".status.updatedNumberScheduled",description="The number of those whose Pod has the present template."
// +kubebuilder:printcolumn:name="AVAILABLE",type="integer",JSONPath=".status.numberAvailable",description="The number of those whose Pod is available."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation."
// +kubebuilder:printcolumn:name="CONTAINERS",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].name",description="The containers of the template."
// +kubebuilder:printcolumn:name="IMAGES",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].image",description="The images of the template."
type DaemonSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DaemonSetSpec   `json:"spec,omitempty"`
	Status DaemonSetStatus `json:"status,omitempty"`
}

// DaemonSetList is a list of DaemonSets.
//
// +kubebuilder:object:root=true
type DaemonSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DaemonSet `json:"items"`
}

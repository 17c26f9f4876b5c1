// SPDX-License-Identifier: Apache-2.0

package v1beta1

import corev1 "k8s.io/api/core/v1"

// Labels and annotations that are part of the wire contract (cloneset.md 6, inplace-update.md 2.1).
const (
	// InstanceIDLabel is the 5-character id that binds a Pod to its PVCs.
	InstanceIDLabel = "apps.kruise.io/cloneset-instance-id"
	// SpecifiedDeleteLabel marks a Pod that is to be deleted, and replaced if the
	// replicas stay. Any value counts, also the empty one; controllers write "true".
	SpecifiedDeleteLabel = "apps.kruise.io/specified-delete"
	// ExcludePreparingDeleteLabel on a v1alpha1 CloneSet, when exactly "true", keeps
	// Pods in PreparingDelete out of the replica count.
	ExcludePreparingDeleteLabel = "apps.kruise.io/cloneset-scaling-exclude-preparing-delete"

	// LifecycleStateLabel holds a LifecycleState.
	LifecycleStateLabel = "lifecycle.apps.kruise.io/state"
	// LifecycleTimestampAnnotation is the RFC 3339 time of the last state change.
	LifecycleTimestampAnnotation = "lifecycle.apps.kruise.io/timestamp"

	// PodTemplateHashLabel always holds the short revision hash.
	PodTemplateHashLabel = "pod-template-hash"
	// RevisionHashLabel is the hash label of ControllerRevisions and ImagePullJobs.
	RevisionHashLabel = "controller.kubernetes.io/hash"
	// VolumeClaimTemplateHashAnnotation is the hash of volumeClaimTemplates on a ControllerRevision.
	VolumeClaimTemplateHashAnnotation = "kruise.io/cloneset-volumeclaimtemplate-hash"

	// ImagePreDownloadCreatedLabel on a ControllerRevision: the pre-download jobs exist.
	// The doubled "pre" is on the wire.
	ImagePreDownloadCreatedLabel = "apps.kruise.io/pre-predownload-created"
	// ImagePreDownloadIgnoredLabel on a ControllerRevision: no pre-download wanted.
	ImagePreDownloadIgnoredLabel = "apps.kruise.io/image-predownload-ignored"
	// ImagePreDownloadParallelismAnnotation is the v1alpha1 form of imagePreDownloadParallelism.
	ImagePreDownloadParallelismAnnotation = "apps.kruise.io/image-predownload-parallelism"
	// ImagePreDownloadTimeoutSecondsAnnotation is the v1alpha1 form of imagePreDownloadTimeoutSeconds.
	ImagePreDownloadTimeoutSecondsAnnotation = "apps.kruise.io/image-predownload-timeout-seconds"
	// ImagePreDownloadMinUpdatedReadyPodsAnnotation is the v1alpha1 form of imagePreDownloadMinUpdatedReadyPods.
	ImagePreDownloadMinUpdatedReadyPodsAnnotation = "apps.kruise.io/image-predownload-min-updated-ready-pods"

	// InPlaceUpdateStateAnnotation holds the JSON state of the last in-place update.
	InPlaceUpdateStateAnnotation = "apps.kruise.io/inplace-update-state"
	// InPlaceUpdateStateAnnotationOld is read when the new key is absent, and removed on write.
	InPlaceUpdateStateAnnotationOld = "inplace-update-state"
	// InPlaceUpdateGraceAnnotation holds the JSON update spec during a grace period.
	InPlaceUpdateGraceAnnotation = "apps.kruise.io/inplace-update-grace"
	// InPlaceUpdateGraceAnnotationOld is read when the new key is absent, and removed on write.
	InPlaceUpdateGraceAnnotationOld = "inplace-update-grace"
	// RuntimeContainersMetaAnnotation holds the JSON that the node daemon reports.
	RuntimeContainersMetaAnnotation = "apps.kruise.io/runtime-containers-meta"
	// SidecarSetHashAnnotation marks Pods that a SidecarSet injected into.
	SidecarSetHashAnnotation = "kruise.io/sidecarset-hash"

	// OwnedByStatefulSetAnnotation on a claim names the StatefulSet, in the namespace of the
	// claim, that expands it. Changes of such a claim wake the controller.
	OwnedByStatefulSetAnnotation = "apps.kruise.io/owned-by-asts"
	// DaemonSetProgressiveCreateAnnotation on a v1alpha1 DaemonSet, when exactly "true", is
	// scaleStrategy.partitionedScaling of v1beta1.
	DaemonSetProgressiveCreateAnnotation = "daemonset.kruise.io/progressive-create-pod"
	// PodTemplateGenerationLabel on a Pod of a DaemonSet is the value of the DaemonSet's
	// annotation deprecated.daemonset.template.generation (appsv1.DeprecatedTemplateGeneration).
	PodTemplateGenerationLabel = "pod-template-generation"

	// DeleteProtectionLabel with value Always or Cascading protects an object from deletion.
	DeleteProtectionLabel = "policy.kruise.io/delete-protection"

	// V1beta1FieldsAnnotation is on v1alpha1 views only: JSON of what v1beta1 says and
	// v1alpha1 cannot. Conversion writes it, reads it back and strips it from v1beta1.
	V1beta1FieldsAnnotation = "apps.kruise.io/v1beta1-fields"
	// V1alpha1FieldsAnnotation is on v1beta1 objects only: JSON of what was written in
	// v1alpha1 and has no effect in v1beta1. Conversion strips it from v1alpha1 views.
	V1alpha1FieldsAnnotation = "apps.kruise.io/v1alpha1-fields"

	// RecreatePodUIDLabel on a ContainerRecreateRequest is the UID of its Pod. Immutable.
	RecreatePodUIDLabel = "crr.apps.kruise.io/pod-uid"
	// RecreateNodeNameLabel on a ContainerRecreateRequest is the node of its Pod, or a hash where
	// that name is too long for a label. Immutable; the node agent watches by it.
	RecreateNodeNameLabel = "crr.apps.kruise.io/node-name"
	// RecreateNodeNameAnnotation is the name of the node where that is too long for the label.
	RecreateNodeNameAnnotation = "crr.apps.kruise.io/node-name"
	// RecreateActiveLabel is "true" on a ContainerRecreateRequest until after it has completed.
	RecreateActiveLabel = "crr.apps.kruise.io/active"
	// RecreateUnreadyFinalizer is on a ContainerRecreateRequest that may hold a not-ready key on its Pod.
	RecreateUnreadyFinalizer = "crr.apps.kruise.io/unready-acquired"
	// RecreateUnreadyAcquiredAnnotation is on v1alpha1 views only: the RFC 3339 UTC time since
	// which PreRecreateGraceCondition is True.
	RecreateUnreadyAcquiredAnnotation = "crr.apps.kruise.io/unready-acquired"
	// RecreateSnapshotAnnotation is on v1alpha1 views only: status.containerStatusSnapshot as JSON.
	RecreateSnapshotAnnotation = "crr.apps.kruise.io/sync-container-statuses"

	// PodProbeMarkerFinalizer is on every PodProbeMarker until its probes are gone from the NodePodProbes.
	PodProbeMarkerFinalizer = "kruise.io/node-pod-probe-cleanup"
	// PodProbeAnnotation on a Pod holds, as JSON, the probes that a serverless node has to run.
	PodProbeAnnotation = "kruise.io/podprobe"
	// PodProbeMarkerListAnnotation on a Pod names the PodProbeMarkers behind PodProbeAnnotation,
	// sorted and separated by commas.
	PodProbeMarkerListAnnotation = "kruise.io/podprobemarker-list"
	// VirtualKubeletLabel on a Node, when it is VirtualKubelet, says that no node agent runs there.
	VirtualKubeletLabel = "type"
	// VirtualKubelet is the value of VirtualKubeletLabel.
	VirtualKubelet = "virtual-kubelet"

	// FakeNodeImageLabel keeps a NodeImage that has no Node.
	FakeNodeImageLabel = "apps.kruise.io/fake-nodeimage"
	// ImagePullJobFinalizer is on every ImagePullJob that is neither complete nor deleted.
	ImagePullJobFinalizer = "apps.kruise.io/deletion-protection"
)

// Pod condition types that are also readiness gates (inplace-update.md 11).
const (
	// InPlaceUpdateReady is False while a Pod is updated in place.
	InPlaceUpdateReady corev1.PodConditionType = "InPlaceUpdateReady"
	// KruisePodReady is False while any party holds a key in its message.
	KruisePodReady corev1.PodConditionType = "KruisePodReady"
)

// LifecycleState is the value of LifecycleStateLabel (cloneset.md 7).
type LifecycleState string

// The lifecycle states of a Pod. No label means LifecycleNormal.
const (
	LifecyclePreparingNormal LifecycleState = "PreparingNormal"
	LifecycleNormal          LifecycleState = "Normal"
	LifecyclePreparingUpdate LifecycleState = "PreparingUpdate"
	LifecycleUpdating        LifecycleState = "Updating"
	LifecycleUpdated         LifecycleState = "Updated"
	LifecyclePreparingDelete LifecycleState = "PreparingDelete"
)

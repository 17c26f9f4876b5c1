// SPDX-License-Identifier: Apache-2.0

// Package features is the one registry of feature gates that manager, daemon and CLI
// share. It knows every gate with its stage, default, effect and dependencies as data,
// reads the value of --feature-gates and answers what is effectively on.
//
// A Set is a value: there is no global state, programs pass theirs to what needs it.
// The rules come from feature-gates.md.
package features

import "k8s.io/component-base/featuregate"

// Gate is the name of a feature gate, as users write it in --feature-gates.
type Gate = featuregate.Feature

// The gates, in the order in which lists print them. What each one does is the Effect of
// its Info.
const (
	PodWebhook                                Gate = "PodWebhook"
	KruiseDaemon                              Gate = "KruiseDaemon"
	DaemonWatchingPod                         Gate = "DaemonWatchingPod"
	CloneSetShortHash                         Gate = "CloneSetShortHash"
	KruisePodReadinessGate                    Gate = "KruisePodReadinessGate"
	PreDownloadImageForInPlaceUpdate          Gate = "PreDownloadImageForInPlaceUpdate"
	PreDownloadImageForDaemonSetUpdate        Gate = "PreDownloadImageForDaemonSetUpdate"
	CloneSetPartitionRollback                 Gate = "CloneSetPartitionRollback"
	ResourcesDeletionProtection               Gate = "ResourcesDeletionProtection"
	DeletionProtectionForCRDCascadingGate     Gate = "DeletionProtectionForCRDCascadingGate"
	WorkloadSpread                            Gate = "WorkloadSpread"
	PodUnavailableBudgetDeleteGate            Gate = "PodUnavailableBudgetDeleteGate"
	PodUnavailableBudgetUpdateGate            Gate = "PodUnavailableBudgetUpdateGate"
	TemplateNoDefaults                        Gate = "TemplateNoDefaults"
	InPlaceUpdateEnvFromMetadata              Gate = "InPlaceUpdateEnvFromMetadata"
	InPlaceWorkloadVerticalScaling            Gate = "InPlaceWorkloadVerticalScaling"
	InPlacePodVerticalScaling                 Gate = "InPlacePodVerticalScaling"
	StatefulSetAutoDeletePVC                  Gate = "StatefulSetAutoDeletePVC"
	StatefulSetAutoResizePVCGate              Gate = "StatefulSetAutoResizePVCGate"
	StatefulSetStartOrdinal                   Gate = "StatefulSetStartOrdinal"
	PodIndexLabel                             Gate = "PodIndexLabel"
	RecreatePodWhenChangeVCTInCloneSetGate    Gate = "RecreatePodWhenChangeVCTInCloneSetGate"
	PreparingUpdateAsUpdate                   Gate = "PreparingUpdateAsUpdate"
	CloneSetEventHandlerOptimization          Gate = "CloneSetEventHandlerOptimization"
	ForceDeleteTimeoutExpectationGate         Gate = "ForceDeleteTimeoutExpectationGate"
	SidecarSetPatchPodMetadataDefaultsAllowed Gate = "SidecarSetPatchPodMetadataDefaultsAllowed"
	SidecarTerminator                         Gate = "SidecarTerminator"
	EnableSortSidecarContainerByName          Gate = "EnableSortSidecarContainerByName"
	PodProbeMarkerGate                        Gate = "PodProbeMarkerGate"
	EnablePodProbeMarkerOnServerless          Gate = "EnablePodProbeMarkerOnServerless"
	EnhancedLivenessProbe                     Gate = "EnhancedLivenessProbe"
	ImagePullJobGate                          Gate = "ImagePullJobGate"
	ResourceDistributionGate                  Gate = "ResourceDistributionGate"
	EnableExternalCerts                       Gate = "EnableExternalCerts"
	DefaultHostNetworkHostPortsInPodTemplates Gate = "DefaultHostNetworkHostPortsInPodTemplates"
	DaemonSetPruneIneligibleNodes             Gate = "DaemonSetPruneIneligibleNodes"
)

// Stage is how settled a gate is. No gate is GA or locked.
type Stage string

// The stages. AllAlpha and AllBeta set all gates of one of them.
const (
	Alpha Stage = "Alpha"
	Beta  Stage = "Beta"
)

// Info is what is known about a gate whatever a program was started with.
type Info struct {
	Name    Gate
	Stage   Stage
	Default bool
	// Effect is one sentence about what is different when the gate is on.
	Effect string
	// DependsOn are gates that force this one off when any of them is off.
	DependsOn []Gate
	// TurnedOnBy are gates that force this one on when any of them is on. It is weaker
	// than DependsOn of those gates themselves, which is looked at first.
	TurnedOnBy []Gate
	// Risky says why "enable everything" should leave this gate out, or is empty.
	Risky string
}

// registry returns the table of feature-gates.md 2 in its order.
func registry() []Info {
	return []Info{
		{Name: PodWebhook, Stage: Beta, Default: true,
			Effect: "Serves admission of Pods; without it there is no sidecar injection, no KruisePodReady readiness gate, no PodUnavailableBudget, no WorkloadSpread, no launch priority and no PersistentPodState."},
		{Name: KruiseDaemon, Stage: Beta, Default: true,
			Effect: "Runs the controllers that work through the node daemon: NodeImage, ImagePullJob, ImageListPullJob, ContainerRecreateRequest and NodePodProbe."},
		{Name: DaemonWatchingPod, Stage: Beta, Default: true, DependsOn: []Gate{KruiseDaemon},
			Effect: "The node daemon watches the Pods of its node and reports what their containers really run, which in-place updates to an identical image ID and of env from metadata need."},
		{Name: CloneSetShortHash, Stage: Alpha,
			Effect: "The Pod label controller-revision-hash of a CloneSet holds only the hash, and CloneSet names may be longer than 54 characters."},
		{Name: KruisePodReadinessGate, Stage: Alpha, DependsOn: []Gate{PodWebhook},
			Effect: "Every admitted Pod gets the readiness gate KruisePodReady, not only Pods that a Kruise workload owns."},
		{Name: PreDownloadImageForInPlaceUpdate, Stage: Alpha, DependsOn: []Gate{KruiseDaemon},
			Effect: "CloneSet and Advanced StatefulSet pull new images to the nodes before they update Pods in place."},
		{Name: PreDownloadImageForDaemonSetUpdate, Stage: Alpha, DependsOn: []Gate{KruiseDaemon},
			Effect: "Advanced DaemonSet pulls new images to the nodes before it updates Pods in place."},
		{Name: CloneSetPartitionRollback, Stage: Alpha,
			Effect: "Raising the partition of a CloneSet rolls surplus updated Pods back to the current revision."},
		{Name: ResourcesDeletionProtection, Stage: Beta,
			Effect: "Objects with label policy.kruise.io/delete-protection cannot be deleted, always or while they own something."},
		{Name: DeletionProtectionForCRDCascadingGate, Stage: Alpha, DependsOn: []Gate{ResourcesDeletionProtection},
			Effect: "Deletion protection of CustomResourceDefinitions may be Cascading: denied while custom resources exist."},
		{Name: WorkloadSpread, Stage: Beta, Default: true, DependsOn: []Gate{PodWebhook},
			Effect: "Runs WorkloadSpread: its controller, its part of Pod admission and its validation."},
		{Name: PodUnavailableBudgetDeleteGate, Stage: Beta, Default: true, DependsOn: []Gate{PodWebhook},
			Effect: "A PodUnavailableBudget limits deletion and eviction of Pods."},
		{Name: PodUnavailableBudgetUpdateGate, Stage: Alpha, DependsOn: []Gate{PodWebhook},
			Effect: "A PodUnavailableBudget also limits updates and resizes of Pods, and the CloneSet controller asks it first."},
		{Name: TemplateNoDefaults, Stage: Alpha,
			Effect: "Admission writes no API defaults into Pod and volume claim templates.",
			Risky:  "existing templates lose or gain defaults, which makes new revisions; once on it must stay on"},
		{Name: InPlaceUpdateEnvFromMetadata, Stage: Beta, Default: true, DependsOn: []Gate{KruiseDaemon},
			Effect: "A change of labels or annotations that environment variables refer to is made in place, and restarts the containers that use it."},
		{Name: InPlaceWorkloadVerticalScaling, Stage: Alpha,
			Effect: "A change of cpu or memory in the template of a workload is made in place instead of by recreating Pods."},
		{Name: InPlacePodVerticalScaling, Stage: Alpha,
			Effect: "A PodUnavailableBudget treats a resize without restart as RESIZE and not as UPDATE."},
		{Name: StatefulSetAutoDeletePVC, Stage: Beta, Default: true,
			Effect: "Advanced StatefulSet defaults and honours persistentVolumeClaimRetentionPolicy."},
		{Name: StatefulSetAutoResizePVCGate, Stage: Alpha,
			Effect: "Advanced StatefulSet defaults and honours volumeClaimUpdateStrategy; the manager then needs to read StorageClasses."},
		{Name: StatefulSetStartOrdinal, Stage: Alpha,
			Effect: "Advanced StatefulSet honours spec.ordinals.start."},
		{Name: PodIndexLabel, Stage: Beta, Default: true,
			Effect: "Pods of an Advanced StatefulSet get label apps.kubernetes.io/pod-index."},
		{Name: RecreatePodWhenChangeVCTInCloneSetGate, Stage: Alpha,
			Effect: "A change of volumeClaimTemplates of a CloneSet recreates its Pods with new volume claims."},
		{Name: PreparingUpdateAsUpdate, Stage: Alpha,
			Effect: "Pods in lifecycle state PreparingUpdate count as updated when a CloneSet scales."},
		{Name: CloneSetEventHandlerOptimization, Stage: Alpha,
			Effect: "The CloneSet controller ignores Pod updates that cannot matter to it."},
		{Name: ForceDeleteTimeoutExpectationGate, Stage: Alpha,
			Effect: "A CloneSet whose scale expectation timed out drops it and goes on after 10 seconds."},
		{Name: SidecarSetPatchPodMetadataDefaultsAllowed, Stage: Alpha, DependsOn: []Gate{PodWebhook},
			Effect: "A SidecarSet may patch any Pod annotation while no white list is configured."},
		{Name: SidecarTerminator, Stage: Alpha, DependsOn: []Gate{KruiseDaemon},
			Effect: "Sidecars of a job Pod are stopped when its main containers have ended."},
		{Name: EnableSortSidecarContainerByName, Stage: Alpha,
			Effect: "Injected sidecar containers are sorted by name across SidecarSets."},
		{Name: PodProbeMarkerGate, Stage: Beta, Default: true, DependsOn: []Gate{KruiseDaemon},
			Effect: "Runs PodProbeMarker: its controllers and the prober of the node daemon."},
		{Name: EnablePodProbeMarkerOnServerless, Stage: Alpha, DependsOn: []Gate{PodWebhook},
			Effect: "Probes of a PodProbeMarker are written into Pod annotations at creation and their results read from Pod conditions."},
		{Name: EnhancedLivenessProbe, Stage: Alpha, DependsOn: []Gate{PodWebhook, KruiseDaemon},
			Effect: "Liveness probes of Pods that ask for it are taken from kubelet and run by Kruise."},
		{Name: ImagePullJobGate, Stage: Alpha, DependsOn: []Gate{KruiseDaemon},
			TurnedOnBy: []Gate{PreDownloadImageForInPlaceUpdate, PreDownloadImageForDaemonSetUpdate},
			Effect:     "Runs ImagePullJob and ImageListPullJob."},
		{Name: ResourceDistributionGate, Stage: Beta,
			Effect: "Runs ResourceDistribution."},
		{Name: EnableExternalCerts, Stage: Alpha,
			Effect: "Webhook certificates are read from a Secret that somebody else fills, and the manager patches no configuration.",
			Risky:  "without a prepared Secret the manager does not start"},
		{Name: DefaultHostNetworkHostPortsInPodTemplates, Stage: Alpha,
			Effect: "In templates with hostNetwork, hostPort defaults to containerPort."},
		{Name: DaemonSetPruneIneligibleNodes, Stage: Alpha,
			Effect: "An Advanced DaemonSet rolling update first deletes Pods on nodes that are no longer eligible, so that they do not use up maxUnavailable."},
	}
}

// aliases are spellings that documents use for a gate of another name. They are accepted
// with a warning.
func aliases() map[string]Gate {
	return map[string]Gate{
		"EnhancedLivenessProbeGate":                EnhancedLivenessProbe,
		"ForceDeleteTimeoutExpectationFeatureGate": ForceDeleteTimeoutExpectationGate,
	}
}

// rule is one step of the normalisation of feature-gates.md 1: when gate has value when,
// the others get value then, whatever they were set to.
type rule struct {
	gate       Gate
	when, then bool
	others     []Gate
}

// rules returns the normalisation in the order in which it is applied: PodWebhook,
// KruiseDaemon, the gates that turn others on, then the rest. The steps are derived from
// DependsOn and TurnedOnBy so that they cannot disagree with what lists print.
func rules(infos []Info) []rule {
	var off, on []rule
	for _, of := range infos {
		r := rule{gate: of.Name, when: false, then: false}
		t := rule{gate: of.Name, when: true, then: true}
		for _, i := range infos {
			for _, d := range i.DependsOn {
				if d == of.Name {
					r.others = append(r.others, i.Name)
				}
			}
			for _, b := range i.TurnedOnBy {
				if b == of.Name {
					t.others = append(t.others, i.Name)
				}
			}
		}
		if len(r.others) > 0 {
			off = append(off, r)
		}
		if len(t.others) > 0 {
			on = append(on, t)
		}
	}
	return append(off, on...)
}

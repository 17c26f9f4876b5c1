// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Options are the settings of a workload and of the feature gates. The zero value
// updates images and metadata, without a grace period.
type Options struct {
	// GracePeriodSeconds is how long a Pod stays not ready before its containers change.
	GracePeriodSeconds int32
	// IgnoreVolumeClaimTemplates: a difference of the volumeClaimTemplates does not
	// forbid an in-place update (policy InPlaceOnly).
	IgnoreVolumeClaimTemplates bool
	// RecreateOnVolumeClaimTemplateChange is the gate RecreatePodWhenChangeVCTInCloneSetGate.
	RecreateOnVolumeClaimTemplateChange bool
	// VerticalScaling is the gate InPlaceWorkloadVerticalScaling: cpu and memory may change.
	VerticalScaling bool
	// EnvFromMetadata is the gate InPlaceUpdateEnvFromMetadata: containers whose
	// environment comes from changed labels or annotations are restarted.
	EnvFromMetadata bool
	// ResizeSubresource: the server has pods/resize (SupportsResize); otherwise
	// resources are changed by the Pod update itself.
	ResizeSubresource bool

	// RevisionKey names a revision in the Pod's annotations; nil is the object's name.
	RevisionKey func(*appsv1.ControllerRevision) string
	// AtRevision tells whether the labels of the Pod say that it is at the revision so
	// named; nil is SameRevision with the label controller-revision-hash.
	AtRevision func(pod *corev1.Pod, revision string) bool
	// SetRevision writes the revision labels to the Pod; nil writes
	// controller-revision-hash with the revision's key.
	SetRevision func(pod *corev1.Pod, target *appsv1.ControllerRevision)
}

func (o Options) revisionKey(r *appsv1.ControllerRevision) string {
	if o.RevisionKey != nil {
		return o.RevisionKey(r)
	}
	return r.Name
}

func (o Options) atRevision(pod *corev1.Pod, revision string) bool {
	if o.AtRevision != nil {
		return o.AtRevision(pod, revision)
	}
	return SameRevision(pod.Labels[appsv1.ControllerRevisionHashLabelKey], revision)
}

// LabelRevision writes the labels that say the Pod is at target.
func (o Options) LabelRevision(pod *corev1.Pod, target *appsv1.ControllerRevision) {
	if o.SetRevision != nil {
		o.SetRevision(pod, target)
		return
	}
	setKey(&pod.Labels, appsv1.ControllerRevisionHashLabelKey, o.revisionKey(target))
}

// SameRevision compares two revision names or short hashes by the text after the last
// dash, so that labels in both forms match (cloneset.md 8.3). Two empty names differ.
func SameRevision(a, b string) bool {
	a, b = a[strings.LastIndex(a, "-")+1:], b[strings.LastIndex(b, "-")+1:]
	return a != "" && a == b
}

func setKey(m *map[string]string, k, v string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[k] = v
}

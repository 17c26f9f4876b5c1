// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// In v1alpha1 partitionedScaling is the annotation DaemonSetProgressiveCreateAnnotation, which
// only means something as "true". In v1beta1 the field is the truth: on the way up an
// annotation that says "true" becomes the field and goes, on the way down it is made from the
// field alone. Other values mean nothing in either version and stay where they are. An
// annotation that a v1beta1 object has although the field says something else, or the same, is
// remembered by the view, so that a v1alpha1 client that changes nothing changes nothing.

// daemonSetHubFields is the value of v1beta1.V1beta1FieldsAnnotation on a DaemonSet.
type daemonSetHubFields struct {
	// ScaleStrategy is set when the stored object has the block without anything in it.
	ScaleStrategy *v1beta1.DaemonSetScaleStrategy `json:"scaleStrategy,omitempty"`
	// Annotations hold stored values that the way up would change; nil: not stored.
	Annotations map[string]*string `json:"annotations,omitempty"`
}

// daemonSetSpokeFields is the value of v1beta1.V1alpha1FieldsAnnotation on a DaemonSet.
type daemonSetSpokeFields struct {
	// UpdateStrategy is the v1alpha1 strategy as written, when it says Surging. It holds as
	// long as it still converts to the stored strategy.
	UpdateStrategy *DaemonSetUpdateStrategy `json:"updateStrategy,omitempty"`
}

// ToHub returns the hub version of the object, without TypeMeta.
func (src *DaemonSet) ToHub() *v1beta1.DaemonSet {
	dst := &v1beta1.DaemonSet{}
	src.intoHub(dst)
	return dst
}

// DaemonSetToHub converts src to the hub version (daemonset.md 4). The word Surging, which
// v1beta1 does not have, goes into v1beta1.V1alpha1FieldsAnnotation.
func DaemonSetToHub(_ context.Context, src *DaemonSet, dst *v1beta1.DaemonSet) error {
	src.intoHub(dst)
	return nil
}

func (src *DaemonSet) intoHub(dst *v1beta1.DaemonSet) {
	const key = v1beta1.DaemonSetProgressiveCreateAnnotation
	in := src.DeepCopy()
	setOrDelete(&in.Annotations, v1beta1.V1alpha1FieldsAnnotation, nil)
	var kept daemonSetHubFields
	takeAnnotation(&in.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, &kept)

	shown := lookup(in.Annotations, key)
	progressive := shown != nil && *shown == "true"
	dst.ObjectMeta = in.ObjectMeta
	setOrDelete(&dst.Annotations, key, stripTrue(shown))
	if old, ok := kept.Annotations[key]; ok && equal(renderLabel(progressive, old), shown) {
		setOrDelete(&dst.Annotations, key, old)
	}

	dst.Spec = v1beta1.DaemonSetSpec{
		Selector:             in.Spec.Selector,
		Template:             in.Spec.Template,
		UpdateStrategy:       daemonSetStrategyToHub(in.Spec.UpdateStrategy),
		MinReadySeconds:      in.Spec.MinReadySeconds,
		BurstReplicas:        in.Spec.BurstReplicas,
		RevisionHistoryLimit: in.Spec.RevisionHistoryLimit,
		Lifecycle:            in.Spec.Lifecycle,
	}
	switch {
	case progressive:
		dst.Spec.ScaleStrategy = &v1beta1.DaemonSetScaleStrategy{PartitionedScaling: true}
	case kept.ScaleStrategy != nil:
		dst.Spec.ScaleStrategy = &v1beta1.DaemonSetScaleStrategy{}
	}
	if r := in.Spec.UpdateStrategy.RollingUpdate; r != nil && r.RollingUpdateType == SurgingRollingUpdateType {
		putAnnotation(&dst.ObjectMeta, v1beta1.V1alpha1FieldsAnnotation,
			daemonSetSpokeFields{UpdateStrategy: in.Spec.UpdateStrategy.DeepCopy()})
	}
	dst.Status = v1beta1.DaemonSetStatus{
		CurrentNumberScheduled: in.Status.CurrentNumberScheduled,
		NumberMisscheduled:     in.Status.NumberMisscheduled,
		DesiredNumberScheduled: in.Status.DesiredNumberScheduled,
		NumberReady:            in.Status.NumberReady,
		ObservedGeneration:     in.Status.ObservedGeneration,
		UpdatedNumberScheduled: in.Status.UpdatedNumberScheduled,
		NumberAvailable:        in.Status.NumberAvailable,
		NumberUnavailable:      in.Status.NumberUnavailable,
		CollisionCount:         in.Status.CollisionCount,
		Conditions:             in.Status.Conditions,
		UpdateRevision:         in.Status.DaemonSetHash,
	}
}

// DaemonSetFromHub converts src from the hub version (daemonset.md 4).
func DaemonSetFromHub(_ context.Context, src *v1beta1.DaemonSet, dst *DaemonSet) error {
	dst.FromHub(src)
	return nil
}

// FromHub is DaemonSetFromHub for callers that have no context.
func (dst *DaemonSet) FromHub(src *v1beta1.DaemonSet) {
	const key = v1beta1.DaemonSetProgressiveCreateAnnotation
	in := src.DeepCopy()
	setOrDelete(&in.Annotations, v1beta1.V1beta1FieldsAnnotation, nil)
	var written daemonSetSpokeFields
	takeAnnotation(&in.ObjectMeta, v1beta1.V1alpha1FieldsAnnotation, &written)

	var kept daemonSetHubFields
	progressive := in.Spec.ScaleStrategy != nil && in.Spec.ScaleStrategy.PartitionedScaling
	if !progressive {
		kept.ScaleStrategy = in.Spec.ScaleStrategy
	}
	dst.ObjectMeta = in.ObjectMeta
	stored := lookup(in.Annotations, key)
	shown := renderLabel(progressive, stored)
	setOrDelete(&dst.Annotations, key, shown)
	if !equal(stripTrue(shown), stored) {
		kept.Annotations = map[string]*string{key: stored}
	}

	dst.Spec = DaemonSetSpec{
		Selector:             in.Spec.Selector,
		Template:             in.Spec.Template,
		UpdateStrategy:       DaemonSetUpdateStrategy{Type: in.Spec.UpdateStrategy.Type, RollingUpdate: in.Spec.UpdateStrategy.RollingUpdate},
		MinReadySeconds:      in.Spec.MinReadySeconds,
		BurstReplicas:        in.Spec.BurstReplicas,
		RevisionHistoryLimit: in.Spec.RevisionHistoryLimit,
		Lifecycle:            in.Spec.Lifecycle,
	}
	if s := written.UpdateStrategy; s != nil && apiequality.Semantic.DeepEqual(daemonSetStrategyToHub(*s), in.Spec.UpdateStrategy) {
		dst.Spec.UpdateStrategy = *s
	}
	dst.Status = DaemonSetStatus{
		CurrentNumberScheduled: in.Status.CurrentNumberScheduled,
		NumberMisscheduled:     in.Status.NumberMisscheduled,
		DesiredNumberScheduled: in.Status.DesiredNumberScheduled,
		NumberReady:            in.Status.NumberReady,
		ObservedGeneration:     in.Status.ObservedGeneration,
		UpdatedNumberScheduled: in.Status.UpdatedNumberScheduled,
		NumberAvailable:        in.Status.NumberAvailable,
		NumberUnavailable:      in.Status.NumberUnavailable,
		CollisionCount:         in.Status.CollisionCount,
		Conditions:             in.Status.Conditions,
		DaemonSetHash:          in.Status.UpdateRevision,
	}
	putAnnotation(&dst.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, kept)
}

// daemonSetStrategyToHub turns Surging into Standard and changes nothing else. It shares no
// memory with in.
func daemonSetStrategyToHub(in DaemonSetUpdateStrategy) v1beta1.DaemonSetUpdateStrategy {
	out := v1beta1.DaemonSetUpdateStrategy{Type: in.Type, RollingUpdate: in.RollingUpdate.DeepCopy()}
	if r := out.RollingUpdate; r != nil && r.RollingUpdateType == SurgingRollingUpdateType {
		r.RollingUpdateType = v1beta1.StandardRollingUpdateType
	}
	return out
}

// stripTrue is what becomes of the annotation on the way up.
func stripTrue(value *string) *string {
	if value != nil && *value == "true" {
		return nil
	}
	return value
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"reflect"
	"strconv"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Three fields of v1beta1 are metadata in v1alpha1 (cloneset.md 4): one a label, the others
// annotations. The stored object may hold such a key too, with the same meaning, another one
// or none at all; in v1beta1 only the field counts. Both directions go by one rule, rendered:
// the v1alpha1 view shows what the field says, in the spelling of the stored key if that means
// the same. Where view and stored key differ, the view carries the stored value in
// v1beta1.V1beta1FieldsAnnotation, and the way back puts it in its place again.

// cloneSetHubFields is the value of v1beta1.V1beta1FieldsAnnotation on a CloneSet.
type cloneSetHubFields struct {
	// Type is set when the v1alpha1 type says less than v1beta1 does.
	Type *hubType `json:"type,omitempty"`
	// Parallelism is imagePreDownloadParallelism where its text form reads as another value.
	Parallelism *intstr.IntOrString `json:"imagePreDownloadParallelism,omitempty"`
	// Labels and Annotations hold stored values that the view shows differently; nil: not stored.
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"`
}

// hubType is the part of a v1beta1 update strategy that v1alpha1 has only one word for.
type hubType struct {
	Type            v1beta1.CloneSetUpdateStrategyType `json:"type"`
	PodUpdatePolicy v1beta1.PodUpdatePolicyType        `json:"podUpdatePolicy"`
	RollingUpdate   bool                               `json:"rollingUpdate"`
}

func hubTypeOf(s v1beta1.CloneSetUpdateStrategy) hubType {
	t := hubType{Type: s.Type, RollingUpdate: s.RollingUpdate != nil}
	if s.RollingUpdate != nil {
		t.PodUpdatePolicy = s.RollingUpdate.PodUpdatePolicy
	}
	return t
}

// cloneSetSpokeFields is the value of v1beta1.V1alpha1FieldsAnnotation on a CloneSet.
type cloneSetSpokeFields struct {
	// UpdateStrategy is the v1alpha1 strategy as written. It holds as long as it still
	// converts to the stored strategy.
	UpdateStrategy *CloneSetUpdateStrategy `json:"updateStrategy,omitempty"`
}

// CloneSetToHub converts src to the hub version (cloneset.md 4.1). The rolling fields of a
// strategy of type OnDelete, and fields that have no effect in v1alpha1, go into
// v1beta1.V1alpha1FieldsAnnotation.
func CloneSetToHub(_ context.Context, src *CloneSet, dst *v1beta1.CloneSet) error {
	src.intoHub(dst)
	return nil
}

func (src *CloneSet) intoHub(dst *v1beta1.CloneSet) {
	in := src.DeepCopy()
	setOrDelete(&in.Annotations, v1beta1.V1alpha1FieldsAnnotation, nil)
	var kept cloneSetHubFields
	takeAnnotation(&in.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, &kept)

	dst.ObjectMeta, dst.Status = *in.ObjectMeta.DeepCopy(), in.Status
	dst.Spec = v1beta1.CloneSetSpec{
		Replicas:             in.Spec.Replicas,
		Selector:             in.Spec.Selector,
		Template:             in.Spec.Template,
		VolumeClaimTemplates: in.Spec.VolumeClaimTemplates,
		ScaleStrategy: v1beta1.CloneSetScaleStrategy{
			PodsToDelete:           in.Spec.ScaleStrategy.PodsToDelete,
			MaxUnavailable:         in.Spec.ScaleStrategy.MaxUnavailable,
			EnablePVCReuse:         !in.Spec.ScaleStrategy.DisablePVCReuse,
			ExcludePreparingDelete: in.Labels[v1beta1.ExcludePreparingDeleteLabel] == "true",
		},
		UpdateStrategy:          strategyToHub(in.Spec.UpdateStrategy, in.Annotations),
		RevisionHistoryLimit:    in.Spec.RevisionHistoryLimit,
		MinReadySeconds:         in.Spec.MinReadySeconds,
		Lifecycle:               in.Spec.Lifecycle,
		ProgressDeadlineSeconds: in.Spec.ProgressDeadlineSeconds,
	}
	if !apiequality.Semantic.DeepEqual(strategyFromHub(dst.Spec.UpdateStrategy), in.Spec.UpdateStrategy) {
		putAnnotation(&dst.ObjectMeta, v1beta1.V1alpha1FieldsAnnotation,
			cloneSetSpokeFields{UpdateStrategy: in.Spec.UpdateStrategy.DeepCopy()})
	}
	kept.restore(in, dst)
}

// CloneSetFromHub converts src from the hub version (cloneset.md 4.2). What v1alpha1 cannot
// express goes into v1beta1.V1beta1FieldsAnnotation; ordinary objects need none.
func CloneSetFromHub(_ context.Context, src *v1beta1.CloneSet, dst *CloneSet) error {
	dst.FromHub(src)
	return nil
}

// FromHub is CloneSetFromHub for callers that have no context.
func (dst *CloneSet) FromHub(src *v1beta1.CloneSet) {
	in := src.DeepCopy()
	setOrDelete(&in.Annotations, v1beta1.V1beta1FieldsAnnotation, nil)
	var written cloneSetSpokeFields
	takeAnnotation(&in.ObjectMeta, v1beta1.V1alpha1FieldsAnnotation, &written)

	dst.ObjectMeta, dst.Status = *in.ObjectMeta.DeepCopy(), in.Status
	dst.Spec = CloneSetSpec{
		Replicas:             in.Spec.Replicas,
		Selector:             in.Spec.Selector,
		Template:             in.Spec.Template,
		VolumeClaimTemplates: in.Spec.VolumeClaimTemplates,
		ScaleStrategy: CloneSetScaleStrategy{
			PodsToDelete:    in.Spec.ScaleStrategy.PodsToDelete,
			MaxUnavailable:  in.Spec.ScaleStrategy.MaxUnavailable,
			DisablePVCReuse: !in.Spec.ScaleStrategy.EnablePVCReuse,
		},
		RevisionHistoryLimit:    in.Spec.RevisionHistoryLimit,
		MinReadySeconds:         in.Spec.MinReadySeconds,
		Lifecycle:               in.Spec.Lifecycle,
		ProgressDeadlineSeconds: in.Spec.ProgressDeadlineSeconds,
	}
	var kept cloneSetHubFields
	kept.show(in, dst)
	dst.Spec.UpdateStrategy = strategyFromHub(in.Spec.UpdateStrategy)
	if s := written.UpdateStrategy; s != nil &&
		apiequality.Semantic.DeepEqual(strategyToHub(*s, dst.Annotations), in.Spec.UpdateStrategy) {
		dst.Spec.UpdateStrategy = *s.DeepCopy()
	}
	want := hubTypeOf(in.Spec.UpdateStrategy)
	if hubTypeOf(strategyToHub(dst.Spec.UpdateStrategy, nil)) != want {
		kept.Type = &want
	}
	putAnnotation(&dst.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, kept)
}

// strategyToHub follows cloneset.md 4.1.3 to 4.1.5.
func strategyToHub(in CloneSetUpdateStrategy, annotations map[string]string) v1beta1.CloneSetUpdateStrategy {
	if in.Type == OnDeleteCloneSetUpdateStrategyType {
		return v1beta1.CloneSetUpdateStrategy{Type: v1beta1.OnDeleteCloneSetUpdateStrategyType}
	}
	rolling := rollingUpdate(in, annotations)
	rolling.PodUpdatePolicy = v1beta1.RecreatePodUpdatePolicyType
	switch in.Type {
	case InPlaceIfPossibleCloneSetUpdateStrategyType, InPlaceOnlyCloneSetUpdateStrategyType:
		rolling.PodUpdatePolicy = v1beta1.PodUpdatePolicyType(in.Type)
	}
	return v1beta1.CloneSetUpdateStrategy{
		Type:          v1beta1.RollingUpdateCloneSetUpdateStrategyType,
		RollingUpdate: rolling,
	}
}

// rollingUpdate moves everything but the type. The in-place options stay nil when the source
// is nil and no annotation has a readable value; the imagePreDownload fields of v1alpha1 have
// no effect and are left out.
func rollingUpdate(in CloneSetUpdateStrategy, annotations map[string]string) *v1beta1.RollingUpdateCloneSetStrategy {
	in = *in.DeepCopy()
	out := &v1beta1.RollingUpdateCloneSetStrategy{
		Partition:        in.Partition,
		MaxUnavailable:   in.MaxUnavailable,
		MaxSurge:         in.MaxSurge,
		Paused:           in.Paused,
		PriorityStrategy: in.PriorityStrategy,
		ScatterStrategy:  in.ScatterStrategy,
	}
	inPlace := v1beta1.InPlaceUpdateStrategy{
		ImagePreDownloadTimeoutSeconds:      parseInt32(annotations[v1beta1.ImagePreDownloadTimeoutSecondsAnnotation]),
		ImagePreDownloadMinUpdatedReadyPods: parseInt32(annotations[v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation]),
	}
	if text := annotations[v1beta1.ImagePreDownloadParallelismAnnotation]; text != "" {
		inPlace.ImagePreDownloadParallelism = new(intstr.Parse(text))
	}
	if in.InPlaceUpdateStrategy != nil {
		inPlace.GracePeriodSeconds = in.InPlaceUpdateStrategy.GracePeriodSeconds
	}
	if in.InPlaceUpdateStrategy != nil || !reflect.ValueOf(inPlace).IsZero() {
		out.InPlaceUpdateStrategy = &inPlace
	}
	return out
}

// strategyFromHub follows cloneset.md 4.2.3 to 4.2.5, except that empty in-place options stay
// empty options: turning them into nil would be one more thing that does not survive.
func strategyFromHub(in v1beta1.CloneSetUpdateStrategy) CloneSetUpdateStrategy {
	out := CloneSetUpdateStrategy{Type: RecreateCloneSetUpdateStrategyType}
	if r := in.RollingUpdate.DeepCopy(); r != nil {
		switch r.PodUpdatePolicy {
		case v1beta1.InPlaceIfPossiblePodUpdatePolicyType, v1beta1.InPlaceOnlyPodUpdatePolicyType:
			out.Type = CloneSetUpdateStrategyType(r.PodUpdatePolicy)
		}
		out.Partition = r.Partition
		out.MaxUnavailable = r.MaxUnavailable
		out.MaxSurge = r.MaxSurge
		out.Paused = r.Paused
		out.PriorityStrategy = r.PriorityStrategy
		out.ScatterStrategy = r.ScatterStrategy
		if r.InPlaceUpdateStrategy != nil {
			out.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{
				GracePeriodSeconds: r.InPlaceUpdateStrategy.GracePeriodSeconds,
			}
		}
	}
	if in.Type == v1beta1.OnDeleteCloneSetUpdateStrategyType {
		out.Type = OnDeleteCloneSetUpdateStrategyType
	}
	return out
}

// show writes the fields that are metadata in v1alpha1 to view, and records what it covers up.
func (k *cloneSetHubFields) show(stored *v1beta1.CloneSet, view *CloneSet) {
	const label = v1beta1.ExcludePreparingDeleteLabel
	old := lookup(stored.Labels, label)
	if now := renderLabel(stored.Spec.ScaleStrategy.ExcludePreparingDelete, old); !equal(now, old) {
		setOrDelete(&view.Labels, label, now)
		k.Labels = map[string]*string{label: old}
	}

	// Without a rollingUpdate block the annotations have nothing to say, and stay.
	if stored.Spec.UpdateStrategy.RollingUpdate == nil {
		return
	}
	var inPlace v1beta1.InPlaceUpdateStrategy
	if s := stored.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy; s != nil {
		inPlace = *s
	}
	for _, key := range preDownloadKeys {
		old := lookup(stored.Annotations, key)
		now := renderAnnotation(key, preDownloadText(key, inPlace), old)
		if equal(now, old) {
			continue
		}
		setOrDelete(&view.Annotations, key, now)
		if k.Annotations == nil {
			k.Annotations = map[string]*string{}
		}
		k.Annotations[key] = old
	}
	if p := inPlace.ImagePreDownloadParallelism; p != nil && (p.String() == "" || intstr.Parse(p.String()) != *p) {
		k.Parallelism = p
	}
}

// restore brings back what show recorded, piece by piece, wherever the view still says what
// show wrote or says it with another value; what a v1alpha1 client changed is not undone.
func (k *cloneSetHubFields) restore(view *CloneSet, stored *v1beta1.CloneSet) {
	const label = v1beta1.ExcludePreparingDeleteLabel
	if old, ok := k.Labels[label]; ok {
		now := lookup(view.Labels, label)
		if equal(renderLabel(now != nil && *now == "true", old), now) {
			setOrDelete(&stored.Labels, label, old)
		}
	}
	for _, key := range preDownloadKeys {
		if old, ok := k.Annotations[key]; ok {
			now := lookup(view.Annotations, key)
			if equal(renderAnnotation(key, canonical(key, now), old), now) {
				setOrDelete(&stored.Annotations, key, old)
			}
		}
	}
	k.restoreType(view, stored)

	rolling := stored.Spec.UpdateStrategy.RollingUpdate
	if k.Parallelism == nil || rolling == nil || rolling.InPlaceUpdateStrategy == nil {
		return
	}
	const key = v1beta1.ImagePreDownloadParallelismAnnotation
	if equal(canonical(key, new(k.Parallelism.String())), canonical(key, lookup(view.Annotations, key))) {
		rolling.InPlaceUpdateStrategy.ImagePreDownloadParallelism = k.Parallelism
	}
}

// restoreType applies only while the view still has the type that k.Type is shown as.
func (k *cloneSetHubFields) restoreType(view *CloneSet, stored *v1beta1.CloneSet) {
	if k.Type == nil {
		return
	}
	remembered := v1beta1.CloneSetUpdateStrategy{Type: k.Type.Type}
	if k.Type.RollingUpdate {
		remembered.RollingUpdate = &v1beta1.RollingUpdateCloneSetStrategy{PodUpdatePolicy: k.Type.PodUpdatePolicy}
	}
	if strategyFromHub(remembered).Type != view.Spec.UpdateStrategy.Type {
		return
	}
	if k.Type.RollingUpdate {
		remembered.RollingUpdate = rollingUpdate(view.Spec.UpdateStrategy, view.Annotations)
		remembered.RollingUpdate.PodUpdatePolicy = k.Type.PodUpdatePolicy
	} else {
		empty := CloneSetUpdateStrategy{Type: view.Spec.UpdateStrategy.Type}
		if !apiequality.Semantic.DeepEqual(view.Spec.UpdateStrategy, empty) {
			return
		}
	}
	stored.Spec.UpdateStrategy = remembered
	setOrDelete(&stored.Annotations, v1beta1.V1alpha1FieldsAnnotation, nil)
}

// preDownloadKeys are the annotations that v1beta1 has fields for.
var preDownloadKeys = [...]string{
	v1beta1.ImagePreDownloadParallelismAnnotation,
	v1beta1.ImagePreDownloadTimeoutSecondsAnnotation,
	v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation,
}

// preDownloadText is the canonical text of the field behind key, nil when it is not set.
func preDownloadText(key string, s v1beta1.InPlaceUpdateStrategy) *string {
	number := s.ImagePreDownloadTimeoutSeconds
	switch key {
	case v1beta1.ImagePreDownloadParallelismAnnotation:
		if s.ImagePreDownloadParallelism == nil {
			return nil
		}
		return canonical(key, new(s.ImagePreDownloadParallelism.String()))
	case v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation:
		number = s.ImagePreDownloadMinUpdatedReadyPods
	}
	if number == nil {
		return nil
	}
	return new(strconv.Itoa(int(*number)))
}

// canonical is the one spelling of the value that v1alpha1 reads from the annotation, nil
// when it reads none: two values with the same canonical text mean the same.
func canonical(key string, value *string) *string {
	if value == nil || *value == "" {
		return nil
	}
	if key == v1beta1.ImagePreDownloadParallelismAnnotation {
		parsed := intstr.Parse(*value)
		return new(parsed.String())
	}
	n := parseInt32(*value)
	if n == nil {
		return nil
	}
	return new(strconv.Itoa(int(*n)))
}

// renderAnnotation is what the view shows for a field whose canonical text is want (nil: not
// set) next to a stored annotation. One that means nothing, such as a percentage where a
// number is expected, is kept; one that means something the field does not say is dropped, so
// that it cannot come back through a v1alpha1 write.
func renderAnnotation(key string, want, stored *string) *string {
	if equal(canonical(key, stored), want) {
		return stored
	}
	return want
}

// renderLabel is renderAnnotation for the exclude label, which only means something as "true".
func renderLabel(want bool, stored *string) *string {
	switch {
	case want == (stored != nil && *stored == "true"):
		return stored
	case want:
		return new("true")
	default:
		return nil
	}
}

func equal(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// parseInt32 reads a decimal number, nil when the text is anything else.
func parseInt32(text string) *int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil
	}
	return new(int32(n))
}

// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// ReasonStart is the reason of condition InPlaceUpdateReady while a Pod is updated.
const ReasonStart = "StartInPlaceUpdate"

// NeedsNotReady tells whether the Pod must be made not ready before the update begins:
// it has the readiness gate, and the update is more than a resize without a restart
// (inplace-update.md 5). What an earlier update left undone counts too.
func NeedsNotReady(pod *corev1.Pod, spec *UpdateSpec, o Options) bool {
	if !podready.HasGate(pod, v1beta1.InPlaceUpdateReady) {
		return false
	}
	spec = withPending(pod, spec, o)
	if !o.VerticalScaling || len(spec.ContainerResources) == 0 || len(spec.ContainerImages) > 0 || len(spec.ContainerRefMetadata) > 0 {
		return true
	}
	for name, changed := range spec.ContainerResources {
		if c := container(pod, name); c != nil && restartsToResize(c, changed) {
			return true
		}
	}
	return false
}

// Resizes are all quantities that the update is to send to pods/resize, in whatever batch:
// what the server must be able to accept before the Pod is drained for it. It is empty
// for servers without the subresource.
func Resizes(pod *corev1.Pod, spec *UpdateSpec, o Options) map[string]corev1.ResourceRequirements {
	if !o.ResizeSubresource {
		return nil
	}
	var all map[string]corev1.ResourceRequirements
	for name, wanted := range withPending(pod, spec, o).ContainerResources {
		c := container(pod, name)
		if c == nil {
			continue
		}
		if left := differing(c, wanted); len(left.Requests)+len(left.Limits) > 0 {
			if all == nil {
				all = map[string]corev1.ResourceRequirements{}
			}
			all[name] = left
		}
	}
	return all
}

// NotReady returns a copy of the Pod with InPlaceUpdateReady False, and Ready after it.
// The copy may equal the Pod; it must be written all the same, as only the server's
// answer proves that the Pod is as the cache says.
func NotReady(pod *corev1.Pod, now time.Time) *corev1.Pod {
	pod = pod.DeepCopy()
	podready.SetCondition(pod, corev1.PodCondition{
		Type:   v1beta1.InPlaceUpdateReady,
		Status: corev1.ConditionFalse,
		Reason: ReasonStart,
	}, now)
	podready.RecomputeReady(pod, now)
	return pod
}

// Begin returns the Pod with the update started: with a grace period the update is only
// noted in the grace annotation, else the first batch is in the Pod. Revision labels and
// the lifecycle state are for the caller to add, in the same write.
//
// What an earlier update that is not finished has still to do is done by this one, unless
// it says otherwise: a Pod's labels name the revision before its containers are there,
// and spec is the difference to the labels.
func Begin(pod *corev1.Pod, spec *UpdateSpec, o Options, now time.Time) (Write, error) {
	pending := pendingOf(pod, o)
	spec = withPending(pod, spec, o)
	state := &State{
		Revision:              spec.Revision,
		UpdateTimestamp:       wireTime(now),
		UpdateEnvFromMetadata: spec.UpdateEnvFromMetadata,
		UpdateResources:       len(spec.ContainerResources) > 0,
		UpdateImages:          len(spec.ContainerImages) > 0,
	}
	carryOver(pod, state, o)
	pod = pod.DeepCopy()
	if pending != nil {
		if err := patchMetadata(pod, pending.MetaDataPatch); err != nil {
			return Write{}, err
		}
	}
	if spec.GraceSeconds <= 0 {
		return applyBatch(pod, spec, state, o, now)
	}
	setState(pod, state)
	setGrace(pod, spec)
	return Write{Pod: pod}, nil
}

// carryOver lets the new update also wait for what the Pod's last one has sent but the
// containers do not show yet. Without it a resize that follows an image change would
// declare the Pod ready while the old image still runs.
func carryOver(pod *corev1.Pod, state *State, o Options) {
	last, err := StateOf(pod)
	if err != nil || last == nil || !o.atRevision(pod, last.Revision) {
		return
	}
	meta, _ := runtimehash.FromObject(pod) // unreadable counts as absent
	for name, status := range last.LastContainerStatuses {
		if !behind(pod) && imageWait(pod, name, last, meta.Container(name)) == nil {
			continue
		}
		if state.LastContainerStatuses == nil {
			state.LastContainerStatuses = map[string]ContainerStatus{}
		}
		state.LastContainerStatuses[name] = status
		state.UpdateImages = true
	}
	if last.UpdateEnvFromMetadata && len(envWaits(pod, meta)) > 0 {
		state.UpdateEnvFromMetadata = true
	}
}

// withPending returns spec with what an unfinished update of the Pod has left below it,
// except for the metadata patch, which Begin applies.
func withPending(pod *corev1.Pod, spec *UpdateSpec, o Options) *UpdateSpec {
	pending := pendingOf(pod, o)
	if pending == nil {
		return spec
	}
	merged := *spec
	merged.ContainerImages = mergeMaps(pending.ContainerImages, spec.ContainerImages, func(_, b string) string { return b })
	merged.ContainerRefMetadata = mergeMaps(pending.ContainerRefMetadata, spec.ContainerRefMetadata, RefMetadata.over)
	merged.ContainerResources = mergeMaps(pending.ContainerResources, spec.ContainerResources, func(a, b corev1.ResourceRequirements) corev1.ResourceRequirements {
		a = *a.DeepCopy()
		overlay(&a, b)
		return a
	})
	merged.UpdateEnvFromMetadata = spec.UpdateEnvFromMetadata || len(merged.ContainerRefMetadata) > 0
	return &merged
}

// pendingOf is the part of the Pod's last update that is not in the Pod yet; nil if there
// is none or if it belongs to another revision than the Pod's labels say.
func pendingOf(pod *corev1.Pod, o Options) *UpdateSpec {
	if grace, err := GraceOf(pod); err == nil && grace != nil {
		if !o.atRevision(pod, grace.Revision) {
			return nil
		}
		return grace
	}
	state, err := StateOf(pod)
	if err != nil || state == nil || !state.Pending() || !o.atRevision(pod, state.Revision) {
		return nil
	}
	return state.next()
}

// next is the update that remains after the batches sent.
func (s *State) next() *UpdateSpec {
	return &UpdateSpec{
		Revision:              s.Revision,
		ContainerImages:       s.NextContainerImages,
		ContainerRefMetadata:  s.NextContainerRefMetadata,
		ContainerResources:    s.NextContainerResources,
		UpdateEnvFromMetadata: s.UpdateEnvFromMetadata,
	}
}

func mergeMaps[V any](under, over map[string]V, both func(under, over V) V) map[string]V {
	if len(under) == 0 {
		return over
	}
	merged := maps.Clone(under)
	for k, v := range over {
		if u, ok := under[k]; ok {
			v = both(u, v)
		}
		merged[k] = v
	}
	return merged
}

// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// containerWaits lists what is missing until the containers changed so far run with
// their new spec (inplace-update.md 12); it does not look at batches to come. Nothing
// here says that the containers are healthy: that is in Ready, from the kubelet.
func containerWaits(pod *corev1.Pod, s *State, o Options) []Reason {
	if behind(pod) && (s.UpdateImages || s.UpdateResources) {
		// The status may be of a container that is about to be replaced.
		return []Reason{reason(WaitKubelet, "status.observedGeneration", "kubelet has not seen generation %d of the Pod yet", pod.Generation)}
	}
	// Unreadable JSON counts as absent: it is another daemon's, and rewritten soon.
	meta, _ := runtimehash.FromObject(pod)
	var waits []Reason
	if s.UpdateEnvFromMetadata {
		waits = append(waits, envWaits(pod, meta)...)
	}
	if s.UpdateResources && o.VerticalScaling {
		waits = append(waits, resizeWaits(pod, s)...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.LastContainerStatuses)) {
		if r := imageWait(pod, name, s, meta.Container(name)); r != nil {
			waits = append(waits, *r)
		}
	}
	return waits
}

// behind tells whether the status is of an older spec. Kubelets before 1.34 do not say.
func behind(pod *corev1.Pod) bool {
	return pod.Status.ObservedGeneration > 0 && pod.Status.ObservedGeneration < pod.Generation
}

// envWaits compares the environment inside the containers with what the labels and
// annotations say now. Containers that read none have nothing to wait for.
func envWaits(pod *corev1.Pod, meta *runtimehash.ContainersMeta) []Reason {
	var waits []Reason
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if len(runtimehash.MetadataEnvs(c)) == 0 {
			continue
		}
		status, rec := containerStatus(pod, c.Name), meta.Container(c.Name)
		switch {
		case status == nil || status.ContainerID == "":
			waits = append(waits, reason(WaitStatus, statusPath(c.Name, ""), "container %s: not started yet", c.Name))
		case meta == nil || rec == nil || rec.ContainerID != status.ContainerID || rec.Hashes.ExtractedEnvFromMetadataHash == 0:
			waits = append(waits, reason(WaitRuntimeMeta, statusPath(c.Name, "containerID"), "container %s: the node daemon has not reported its environment yet", c.Name))
		case rec.Hashes.ExtractedEnvFromMetadataHash != runtimehash.ExpectedEnv(c, pod):
			waits = append(waits, reason(WaitEnv, statusPath(c.Name, "containerID"), "container %s: environment not changed yet: it still has old values of labels or annotations", c.Name))
		}
	}
	return waits
}

// imageWait tells what is missing until the container runs its new image; nil if nothing.
// Proofs, best first: the kubelet's hash of the running container; a new image ID; the
// status naming the new image; a start after the change was seen. The last ones are for
// images of the same ID where no daemon reports hashes.
func imageWait(pod *corev1.Pod, name string, s *State, rec *runtimehash.ContainerMeta) *Reason {
	c := container(pod, name)
	if c == nil {
		return nil
	}
	status := containerStatus(pod, name)
	if status == nil {
		r := reason(WaitStatus, statusPath(name, ""), "container %s: the kubelet has not reported its status yet", name)
		return &r
	}
	reported := rec != nil && status.ContainerID != "" && rec.ContainerID == status.ContainerID && rec.Hashes.PlainHash != 0
	switch {
	case reported && runtimehash.PlainFits(rec.Hashes.PlainHash, c):
		return nil
	case reported && pod.Status.ObservedGeneration > 0:
		// Such a kubelet (1.34 or newer) uses a hash form we know: the running container
		// is not of this image, whatever tag of the same ID the status names.
	case status.ImageID != s.LastContainerStatuses[name].ImageID:
		return nil
	case runsImage(c.Image, status):
		return nil
	case !reported && startedAfter(pod, status, s.sentAt(name)):
		return nil
	}
	r := reason(WaitImage, statusPath(name, "imageID"), "container %s: image not changed yet: status still reports %s", name, reportedImage(status))
	return &r
}

func reportedImage(s *corev1.ContainerStatus) string {
	if s.Image != "" {
		return s.Image
	}
	return "no image"
}

func statusPath(name, field string) string {
	return strings.TrimSuffix("status.containerStatuses["+name+"]."+field, ".")
}

// runsImage tells whether the status names the image of the spec, however it is written:
// with or without registry, tag or digest. A port in the registry is not a tag.
func runsImage(image string, status *corev1.ContainerStatus) bool {
	if image == status.Image {
		return true
	}
	want, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return false
	}
	if digested, ok := want.(reference.Digested); ok {
		suffix := "@" + digested.Digest().String()
		return strings.HasSuffix(status.Image, suffix) || strings.HasSuffix(status.ImageID, suffix)
	}
	has, err := reference.ParseNormalizedNamed(status.Image)
	if err != nil {
		return false
	}
	return reference.TagNameOnly(want).String() == reference.TagNameOnly(has).String()
}

// startedAfter tells whether the running container started after t, on a kubelet that
// says it has seen the present spec.
func startedAfter(pod *corev1.Pod, status *corev1.ContainerStatus, t time.Time) bool {
	return pod.Status.ObservedGeneration > 0 && !t.IsZero() && status.State.Running != nil && status.State.Running.StartedAt.After(t)
}

// sentAt is when the last batch with the container was sent; zero if the state is from a
// time before batches were recorded.
func (s *State) sentAt(name string) time.Time {
	for _, b := range slices.Backward(s.ContainerBatchesRecord) {
		if slices.Contains(b.Containers, name) {
			return b.Timestamp.Time
		}
	}
	return time.Time{}
}

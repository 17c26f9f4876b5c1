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
//
// The best proof is the kubelet's hash of the running container, as the daemon reports
// it. Without it an image ID that changed, or a status that names the new image, must do.
// That is not enough while the daemon has only reported a container before this one: of
// two updates in quick succession the status may show the image in between. Then the
// container must also have started after the change, or the daemon is waited for.
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
	// Kubelets that report the generation (1.34 and newer) use a hash form we know.
	modern := pod.Status.ObservedGeneration > 0
	reported := rec != nil && status.ContainerID != "" && rec.ContainerID == status.ContainerID && rec.Hashes.PlainHash != 0
	changed := status.ImageID != s.LastContainerStatuses[name].ImageID
	likely := changed || runsImage(c.Image, status)
	restarted := modern && startedAfter(status, s.sentAt(name))

	done := false
	switch {
	case reported:
		done = runtimehash.PlainFits(rec.Hashes.PlainHash, c) || !modern && likely
	case rec != nil && modern:
		done = likely && restarted
	default: // no daemon, or a kubelet of which we know less
		done = likely || restarted && rec == nil
	}
	if done {
		return nil
	}
	r := reason(WaitImage, statusPath(name, "imageID"), "container %s: image not changed yet: status still reports %s", name, reportedImage(status))
	if changed && !reported {
		r = reason(WaitRuntimeMeta, statusPath(name, "containerID"), "container %s: the node daemon has not reported the new container yet", name)
	}
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

// startedAfter tells whether the container runs and started after t. Both are in whole
// seconds; within the same second the answer is no.
func startedAfter(status *corev1.ContainerStatus, t time.Time) bool {
	return !t.IsZero() && status.State.Running != nil && status.State.Running.StartedAt.After(t)
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

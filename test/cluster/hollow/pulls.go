// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"maps"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phases of a pull, as NodeImages have them.
const (
	phasePulling   = "Pulling"
	phaseSucceeded = "Succeeded"
	phaseFailed    = "Failed"
)

// NodeImage is the part of the product's NodeImage that its node agent reads and writes. The types are not the
// product's own: this module does not depend on it, as the real agent of another version would not.
type NodeImage struct {
	Spec   NodeImageSpec   `json:"spec,omitempty"`
	Status NodeImageStatus `json:"status,omitempty"`
}

// NodeImageSpec lists what the node has to pull, by image name without tag.
type NodeImageSpec struct {
	Images map[string]ImageSpec `json:"images,omitempty"`
}

// ImageSpec lists the tags of one image.
type ImageSpec struct {
	Tags []TagSpec `json:"tags"`
}

// TagSpec is one image to pull. A new version asks for the pull of a tag that is done.
type TagSpec struct {
	Tag     string `json:"tag"` // or a digest
	Version int64  `json:"version,omitempty"`
}

// NodeImageStatus tells how far the node is; the numbers count tags.
type NodeImageStatus struct {
	Desired       int32                  `json:"desired"`
	Succeeded     int32                  `json:"succeeded"`
	Failed        int32                  `json:"failed"`
	Pulling       int32                  `json:"pulling"`
	Waiting       int32                  `json:"waiting"`
	ImageStatuses map[string]ImageStatus `json:"imageStatuses,omitempty"`
	FirstSync     map[string]any         `json:"firstSyncStatus,omitempty"` // not ours, kept
}

// ImageStatus lists the tags of one image.
type ImageStatus struct {
	Tags []TagStatus `json:"tags"`
}

// TagStatus is how far one pull is.
type TagStatus struct {
	Tag            string       `json:"tag"`
	Phase          string       `json:"phase"`
	Progress       int32        `json:"progress,omitempty"` // per cent
	StartTime      *metav1.Time `json:"startTime,omitempty"`
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	Version        int64        `json:"version,omitempty"`
	ImageID        string       `json:"imageID,omitempty"`
	Message        string       `json:"message,omitempty"`
}

// Pulls is what the node agent does about a NodeImage now.
type Pulls struct {
	Status *NodeImageStatus // to write; nil if the NodeImage says it all
	Again  time.Duration    // look again then; 0: when the NodeImage changes
}

// NextPulls decides what the agent of a node reports. Every pull is Pulling for about d, counted from the start time
// in the status, so that the agent need not remember anything; then it has succeeded, or failed if the image is on a
// host that cannot be pulled from. What has ended, whoever says so, stays as it is until its version changes.
func NextPulls(ni *NodeImage, now time.Time, d time.Duration) Pulls {
	now = now.Truncate(time.Second) // as the API has it
	status := &NodeImageStatus{FirstSync: ni.Status.FirstSync}
	var again time.Duration
	for _, name := range slices.Sorted(maps.Keys(ni.Spec.Images)) {
		var tags []TagStatus
		for _, want := range lastOfEach(ni.Spec.Images[name].Tags) {
			tag := nextPull(name, want, ni.Status.ImageStatuses[name].Tags, now, d)
			switch tag.Phase {
			case phaseSucceeded:
				status.Succeeded++
			case phaseFailed:
				status.Failed++
			default:
				status.Pulling++
				left := max(tag.StartTime.Add(d).Sub(now), time.Second)
				if again == 0 || left < again {
					again = left
				}
			}
			status.Desired++
			tags = append(tags, tag)
		}
		if len(tags) == 0 {
			continue
		}
		if status.ImageStatuses == nil {
			status.ImageStatuses = map[string]ImageStatus{}
		}
		status.ImageStatuses[name] = ImageStatus{Tags: tags}
	}
	out := Pulls{Again: again}
	if !apiequality.Semantic.DeepEqual(status, &ni.Status) {
		out.Status = status
	}
	return out
}

// nextPull is the next status of one pull. reported is what the NodeImage says about the tags of its image.
func nextPull(name string, want TagSpec, reported []TagStatus, now time.Time, d time.Duration) TagStatus {
	i := slices.IndexFunc(reported, func(t TagStatus) bool { return t.Tag == want.Tag && t.Version == want.Version })
	switch {
	case i >= 0 && reported[i].CompletionTime != nil:
		return reported[i]
	case i < 0 || reported[i].StartTime == nil:
		return TagStatus{Tag: want.Tag, Version: want.Version, Phase: phasePulling, StartTime: new(metav1.NewTime(now))}
	}
	tag := reported[i]
	if now.Before(tag.StartTime.Add(d)) {
		tag.Phase = phasePulling
		return tag
	}
	tag.CompletionTime = new(metav1.NewTime(now))
	image := imageName(name, want.Tag)
	if unpullable(image) {
		tag.Phase, tag.Message = phaseFailed, "pulling "+image+": the host does not exist"
		return tag
	}
	_, digest, _ := strings.Cut(ImageID(image), "@")
	tag.Phase, tag.Progress, tag.ImageID, tag.Message = phaseSucceeded, 100, name+"@"+digest, ""
	return tag
}

// imageName joins a name and a tag or digest.
func imageName(name, tag string) string {
	if strings.Contains(tag, ":") {
		return name + "@" + tag
	}
	return name + ":" + tag
}

// lastOfEach drops all but the last entry of each tag: it counts.
func lastOfEach(tags []TagSpec) []TagSpec {
	var kept []TagSpec
	for i, tag := range tags {
		if !slices.ContainsFunc(tags[i+1:], func(t TagSpec) bool { return t.Tag == tag.Tag }) {
			kept = append(kept, tag)
		}
	}
	return kept
}

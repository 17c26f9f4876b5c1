// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/nodestate"
)

const (
	// responseTimeout is how long a node agent may be silent about a task. A minute failed
	// pulls of large images.
	responseTimeout = 10 * time.Minute
	// keepFor is when a task that a running job keeps beyond its TTL is looked at again.
	keepFor = time.Minute
)

// Messages of tasks that the manager fails in the node agent's place.
const (
	messageSilent   = "node has not responded for a long time"
	messageDeadline = "pulling exceeds the activeDeadlineSeconds"
)

// Snapshot is all that Decide may look at. Nobody writes to it.
type Snapshot struct {
	Name      string
	Node      *corev1.Node       // nil when there is none
	NodeImage *v1beta1.NodeImage // nil when there is none
	// GoneJobs are the UIDs in owner references of tasks whose job does not exist any more.
	GoneJobs map[types.UID]bool
	// RunningJobs are those of jobs that have not ended yet and will. Their tasks are kept
	// beyond the TTL: without it the node would get the task again, and a job with many nodes
	// and little parallelism would never come to its end.
	RunningJobs map[types.UID]bool
	// GoneSecrets are the references in pullSecrets whose Secret does not exist any more.
	GoneSecrets map[types.NamespacedName]bool
	// CreationDelay is how long a node must be ready before it gets a NodeImage.
	CreationDelay time.Duration
}

// Plan is what act must do, as data. The zero Plan means "nothing to do".
type Plan struct {
	Create *v1beta1.NodeImage
	Delete bool
	// Update is the NodeImage with other labels or spec; then Status waits for the next pass.
	Update *v1beta1.NodeImage
	// Status is the NodeImage with another status.
	Status *v1beta1.NodeImage
	// Failed are the tasks that Status fails.
	Failed []FailedTask
	// Requeue is when time alone changes the answer; 0 is never.
	Requeue time.Duration
}

// FailedTask is a task that has just been failed because of its node's silence.
type FailedTask struct {
	Image, Tag, Message string
	Owners              []corev1.ObjectReference
}

// timer keeps the shortest of several waits; 0 is none.
type timer time.Duration

func (t *timer) at(left time.Duration) {
	if *t == 0 || left < time.Duration(*t) {
		*t = timer(max(left, time.Millisecond))
	}
}

// Decide returns the next step towards a NodeImage that exists exactly while its Node does,
// has the Node's labels, and no task that nobody wants (images.md 8.2). It cannot fail.
func Decide(s Snapshot, now time.Time) Plan {
	ni := s.NodeImage
	gone := s.Node == nil || s.Node.DeletionTimestamp != nil
	switch {
	case ni == nil && gone:
		return Plan{}
	case ni == nil:
		return create(s, now)
	case ni.DeletionTimestamp != nil:
		return Plan{}
	}
	if _, fake := ni.Labels[v1beta1.FakeNodeImageLabel]; gone && !fake {
		return Plan{Delete: true}
	}
	var wait timer
	changed := ni.DeepCopy()
	if !gone {
		changed.Labels = maps.Clone(s.Node.Labels)
	}
	cleanSpec(&changed.Spec, ni.Status, s, now, &wait)
	if !apiequality.Semantic.DeepEqual(ni.Labels, changed.Labels) || !apiequality.Semantic.DeepEqual(ni.Spec, changed.Spec) {
		return Plan{Update: changed}
	}
	failed := failSilent(changed, now, &wait)
	plan := Plan{Requeue: time.Duration(wait)}
	if len(failed) > 0 {
		summarize(changed)
		plan.Status, plan.Failed = changed, failed
	}
	return plan
}

func create(s Snapshot, now time.Time) Plan {
	if nodestate.IsVirtual(s.Node) {
		return Plan{}
	}
	since, ready := nodestate.ReadySince(s.Node)
	if !ready {
		return Plan{}
	}
	if left := s.CreationDelay - now.Sub(since); left > 0 {
		return Plan{Requeue: left}
	}
	// With its labels at once: without them a job that selects by label misses the node.
	return Plan{Create: &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: maps.Clone(s.Node.Labels)}}}
}

// cleanSpec removes what nobody wants any more.
func cleanSpec(spec *v1beta1.NodeImageSpec, status v1beta1.NodeImageStatus, s Snapshot, now time.Time, wait *timer) {
	for name, image := range spec.Images {
		image.Tags = slices.DeleteFunc(image.Tags, func(tag v1beta1.ImageTagSpec) bool {
			return tag.CreatedAt == nil || expired(tag, tagStatus(status, name, tag), s.RunningJobs, now, wait)
		})
		image.Tags = dropGoneOwners(image.Tags, s.GoneJobs)
		image.PullSecrets = slices.DeleteFunc(image.PullSecrets, func(ref v1beta1.ReferenceObject) bool {
			// Shared copies stay until the image goes: they are released by their jobs.
			return ref.Mode != v1beta1.PullSecretModeBatch && s.GoneSecrets[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
		})
		if len(image.PullSecrets) == 0 {
			image.PullSecrets = nil
		}
		if len(image.Tags) == 0 {
			delete(spec.Images, name)
			continue
		}
		spec.Images[name] = image
	}
	if len(spec.Images) == 0 {
		spec.Images = nil
	}
}

// dropGoneOwners removes owners that are gone, and the tasks that lose their last owner.
// A task that somebody wrote by hand has no owner and stays.
func dropGoneOwners(tags []v1beta1.ImageTagSpec, gone map[types.UID]bool) []v1beta1.ImageTagSpec {
	var kept []v1beta1.ImageTagSpec
	for _, tag := range tags {
		owned := len(tag.OwnerReferences) > 0
		tag.OwnerReferences = slices.DeleteFunc(tag.OwnerReferences, func(ref corev1.ObjectReference) bool { return gone[ref.UID] })
		if !owned || len(tag.OwnerReferences) > 0 {
			kept = append(kept, tag)
		}
	}
	return kept
}

func expired(tag v1beta1.ImageTagSpec, status *v1beta1.ImageTagStatus, running map[types.UID]bool, now time.Time, wait *timer) bool {
	if tag.PullPolicy == nil || tag.PullPolicy.TTLSecondsAfterFinished == nil || status == nil || status.CompletionTime == nil {
		return false
	}
	left := status.CompletionTime.Add(time.Duration(*tag.PullPolicy.TTLSecondsAfterFinished) * time.Second).Sub(now)
	if left > 0 {
		wait.at(left)
		return false
	}
	if slices.ContainsFunc(tag.OwnerReferences, func(ref corev1.ObjectReference) bool { return running[ref.UID] }) {
		wait.at(keepFor)
		return false
	}
	return true
}

// tagStatus finds what the node reports of exactly this version of a task, or nil.
func tagStatus(status v1beta1.NodeImageStatus, image string, tag v1beta1.ImageTagSpec) *v1beta1.ImageTagStatus {
	tags := status.ImageStatuses[image].Tags
	for i := range tags {
		if tags[i].Tag == tag.Tag && tags[i].Version == tag.Version {
			return &tags[i]
		}
	}
	return nil
}

// failSilent fails the tasks that the node agent has not answered, or not finished, in time.
func failSilent(ni *v1beta1.NodeImage, now time.Time, wait *timer) []FailedTask {
	var failed []FailedTask
	for _, name := range slices.Sorted(maps.Keys(ni.Spec.Images)) {
		for _, tag := range ni.Spec.Images[name].Tags {
			left, message := patience(tag, tagStatus(ni.Status, name, tag), now)
			if message == "" {
				continue
			}
			if left > 0 {
				wait.at(left)
				continue
			}
			setFailed(ni, name, tag, message, now)
			failed = append(failed, FailedTask{Image: name, Tag: tag.Tag, Message: message, Owners: tag.OwnerReferences})
		}
	}
	return failed
}

// patience returns how long to wait for the node, and what to say then; an empty message
// means for ever.
func patience(tag v1beta1.ImageTagSpec, status *v1beta1.ImageTagStatus, now time.Time) (time.Duration, string) {
	waited := now.Sub(tag.CreatedAt.Time)
	if status == nil {
		return responseTimeout - waited, messageSilent
	}
	if status.CompletionTime == nil && tag.PullPolicy != nil && tag.PullPolicy.ActiveDeadlineSeconds != nil {
		deadline := time.Duration(*tag.PullPolicy.ActiveDeadlineSeconds) * time.Second
		return deadline + responseTimeout - waited, messageDeadline
	}
	return 0, ""
}

func setFailed(ni *v1beta1.NodeImage, image string, tag v1beta1.ImageTagSpec, message string, now time.Time) {
	failed := v1beta1.ImageTagStatus{Tag: tag.Tag, Version: tag.Version, Phase: v1beta1.ImagePhaseFailed, CompletionTime: &metav1.Time{Time: now}, Message: message}
	if ni.Status.ImageStatuses == nil {
		ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{}
	}
	tags := ni.Status.ImageStatuses[image].Tags
	if i := slices.IndexFunc(tags, func(t v1beta1.ImageTagStatus) bool { return t.Tag == tag.Tag }); i >= 0 {
		if tags[i].Version == tag.Version {
			failed.StartTime = tags[i].StartTime
		}
		tags[i] = failed
	} else {
		tags = append(tags, failed)
	}
	slices.SortFunc(tags, func(a, b v1beta1.ImageTagStatus) int { return strings.Compare(a.Tag, b.Tag) })
	ni.Status.ImageStatuses[image] = v1beta1.ImageStatus{Tags: tags}
}

// summarize removes statuses without a task and counts the rest.
func summarize(ni *v1beta1.NodeImage) {
	counts := v1beta1.NodeImageStatus{FirstSyncStatus: ni.Status.FirstSyncStatus}
	for name, image := range ni.Status.ImageStatuses {
		kept := slices.DeleteFunc(image.Tags, func(t v1beta1.ImageTagStatus) bool {
			return !slices.ContainsFunc(ni.Spec.Images[name].Tags, func(s v1beta1.ImageTagSpec) bool { return s.Tag == t.Tag })
		})
		if len(kept) == 0 {
			continue
		}
		if counts.ImageStatuses == nil {
			counts.ImageStatuses = map[string]v1beta1.ImageStatus{}
		}
		counts.ImageStatuses[name] = v1beta1.ImageStatus{Tags: kept}
		for _, tag := range kept {
			switch tag.Phase {
			case v1beta1.ImagePhaseSucceeded:
				counts.Succeeded++
			case v1beta1.ImagePhaseFailed:
				counts.Failed++
			case v1beta1.ImagePhasePulling:
				counts.Pulling++
			case v1beta1.ImagePhaseWaiting:
				counts.Waiting++
			}
		}
	}
	for _, image := range ni.Spec.Images {
		counts.Desired += int32(len(image.Tags))
	}
	ni.Status = counts
}

// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// TTLs of a task on a node, in seconds (images.md 6.6).
const (
	alwaysJitter = 300
	neverTTL     = 86400
	neverJitter  = 1200
	neverMinimum = 1800 // of activeDeadlineSeconds
)

// taskOptions is what a new task depends on besides the job.
type taskOptions struct {
	// ExtraTTLSeconds is added to the TTL of tasks of Always jobs.
	ExtraTTLSeconds int32
	// Jitter returns a random number in [0, n), so that the tasks of many nodes do not all
	// expire at once.
	Jitter func(n int32) int32
}

// assign gives node the task, or what it lacks of it, and reports whether that made the
// task new for this job and whether anything changed. Rules: images.md 6.6.
func assign(node *v1beta1.NodeImage, s Snapshot, o taskOptions, now time.Time) (assigned, changed bool) {
	image := node.Spec.Images[s.Image.Name]
	missing := missingSecrets(image, s.Secrets)
	task := findTag(image.Tags, s.Image.Tag)
	owned := task != nil && ownedBy(task, s.Job.UID)
	if owned && len(missing) == 0 {
		return false, false
	}
	// The object may share its map and slices with a cache.
	image = *image.DeepCopy()
	image.PullSecrets = append(image.PullSecrets, missing...)
	image.SandboxConfig = s.Job.Spec.SandboxConfig.DeepCopy()
	if !owned {
		image.Tags = addTask(image.Tags, node, s, o, now)
	}
	images := maps.Clone(node.Spec.Images)
	if images == nil {
		images = map[string]v1beta1.ImageSpec{}
	}
	images[s.Image.Name] = image
	node.Spec.Images = images
	return !owned, true
}

func addTask(tags []v1beta1.ImageTagSpec, node *v1beta1.NodeImage, s Snapshot, o taskOptions, now time.Time) []v1beta1.ImageTagSpec {
	owner := corev1.ObjectReference{
		APIVersion: v1beta1.GroupVersion.String(), Kind: "ImagePullJob",
		Namespace: s.Job.Namespace, Name: s.Job.Name, UID: s.Job.UID,
	}
	if task := findTag(tags, s.Image.Tag); task != nil {
		// Another job's, possibly finished: the new version makes the node look again.
		task.Version++
		task.OwnerReferences = append(task.OwnerReferences, owner)
		task.CreatedAt = &metav1.Time{Time: now}
		task.ImagePullPolicy = s.Job.Spec.ImagePullPolicy
		return tags
	}
	tags = append(tags, v1beta1.ImageTagSpec{
		Tag:             s.Image.Tag,
		Version:         lastVersion(node, s) + 1,
		PullPolicy:      pullPolicy(s.Job, o),
		OwnerReferences: []corev1.ObjectReference{owner},
		CreatedAt:       &metav1.Time{Time: now},
		ImagePullPolicy: s.Job.Spec.ImagePullPolicy,
	})
	slices.SortFunc(tags, func(a, b v1beta1.ImageTagSpec) int { return strings.Compare(a.Tag, b.Tag) })
	return tags
}

// lastVersion is the version that the node last reported of the tag, or -1: what it still
// reports of a task that is gone must not count for the new one.
func lastVersion(node *v1beta1.NodeImage, s Snapshot) int64 {
	for _, tag := range node.Status.ImageStatuses[s.Image.Name].Tags {
		if tag.Tag == s.Image.Tag {
			return tag.Version
		}
	}
	return -1
}

// pullPolicy translates the job's policies into those of a task on one node.
func pullPolicy(job *v1beta1.ImagePullJob, o taskOptions) *v1beta1.ImageTagPullPolicy {
	policy := &v1beta1.ImageTagPullPolicy{}
	timeout, backoff := int32(600), int32(3)
	if p := job.Spec.PullPolicy; p != nil {
		policy.TimeoutSeconds, policy.BackoffLimit = p.TimeoutSeconds, p.BackoffLimit
		if p.TimeoutSeconds != nil {
			timeout = *p.TimeoutSeconds
		}
		if p.BackoffLimit != nil {
			backoff = *p.BackoffLimit
		}
	}
	completion := job.Spec.CompletionPolicy
	if completion.Type == v1beta1.Never {
		policy.TTLSecondsAfterFinished = new(neverTTL + o.Jitter(neverJitter) - neverJitter/2)
		policy.ActiveDeadlineSeconds = new(int64(max(neverMinimum, timeout)))
		return policy
	}
	base := int64(timeout) * int64(backoff)
	switch {
	case completion.TTLSecondsAfterFinished != nil:
		base = int64(*completion.TTLSecondsAfterFinished)
	case completion.ActiveDeadlineSeconds != nil:
		base = *completion.ActiveDeadlineSeconds
	}
	ttl := base + int64(o.ExtraTTLSeconds) + int64(o.Jitter(alwaysJitter))
	policy.TTLSecondsAfterFinished = new(int32(min(ttl, 1<<31-1)))
	policy.ActiveDeadlineSeconds = completion.ActiveDeadlineSeconds
	return policy
}

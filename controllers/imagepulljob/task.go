// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	if owned && len(missing) == 0 && !outdated(task, s.Job) {
		return false, false
	}
	// The object may share its map and slices with a cache.
	image = *image.DeepCopy()
	image.PullSecrets = append(image.PullSecrets, missing...)
	if !owned {
		image.SandboxConfig = s.Job.Spec.SandboxConfig.DeepCopy()
		image.Tags = addTask(image.Tags, node, s, o, now)
	} else if task := findTag(image.Tags, s.Image.Tag); outdated(task, s.Job) {
		setLimits(task, s.Job, o)
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
		setLimits(task, s.Job, o)
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

// outdated reports whether the job has other limits than its task. Of several jobs with one
// task the one that came last decides: it is for it that the node pulls now. Otherwise each
// would undo what the other wrote.
func outdated(task *v1beta1.ImageTagSpec, job *v1beta1.ImagePullJob) bool {
	owners := task.OwnerReferences
	if len(owners) == 0 || owners[len(owners)-1].UID != job.UID {
		return false
	}
	have := task.PullPolicy
	if have == nil {
		have = &v1beta1.ImageTagPullPolicy{}
	}
	want := limits(job)
	want.TTLSecondsAfterFinished = have.TTLSecondsAfterFinished
	return task.ImagePullPolicy != job.Spec.ImagePullPolicy || !equality.Semantic.DeepEqual(*have, want)
}

// setLimits makes the limits of a task those of the job. How long the task is kept after
// its end does not become shorter: other jobs may count on it, Never jobs by not pulling
// again before.
func setLimits(task *v1beta1.ImageTagSpec, job *v1beta1.ImagePullJob, o taskOptions) {
	policy := pullPolicy(job, o)
	if have := task.PullPolicy; have != nil && have.TTLSecondsAfterFinished != nil {
		policy.TTLSecondsAfterFinished = new(max(*have.TTLSecondsAfterFinished, *policy.TTLSecondsAfterFinished))
	}
	task.PullPolicy = policy
	task.ImagePullPolicy = job.Spec.ImagePullPolicy
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

// attempts returns the seconds of one attempt on a node and how often it may be repeated,
// with the defaults where the job sets nothing.
func attempts(job *v1beta1.ImagePullJob) (timeout, retries int64) {
	timeout, retries = 600, 3
	if p := job.Spec.PullPolicy; p != nil {
		if p.TimeoutSeconds != nil {
			timeout = int64(*p.TimeoutSeconds)
		}
		if p.BackoffLimit != nil {
			retries = int64(*p.BackoffLimit)
		}
	}
	return timeout, retries
}

// limits are what a task takes from the job and follows when the job is edited: all of the
// policy but the TTL, which is drawn when the task is made.
func limits(job *v1beta1.ImagePullJob) v1beta1.ImageTagPullPolicy {
	var l v1beta1.ImageTagPullPolicy
	if p := job.Spec.PullPolicy; p != nil {
		l.TimeoutSeconds, l.BackoffLimit = p.TimeoutSeconds, p.BackoffLimit
	}
	l.ActiveDeadlineSeconds = job.Spec.CompletionPolicy.ActiveDeadlineSeconds
	if job.Spec.CompletionPolicy.Type == v1beta1.Never {
		// Long enough for every attempt that the job allows.
		timeout, retries := attempts(job)
		l.ActiveDeadlineSeconds = new(max(neverMinimum, timeout*(max(0, retries)+1)))
	}
	return l
}

// pullPolicy translates the job's policies into those of a new task on one node.
func pullPolicy(job *v1beta1.ImagePullJob, o taskOptions) *v1beta1.ImageTagPullPolicy {
	policy := limits(job)
	completion := job.Spec.CompletionPolicy
	if completion.Type == v1beta1.Never {
		policy.TTLSecondsAfterFinished = new(neverTTL + o.Jitter(neverJitter) - neverJitter/2)
		return &policy
	}
	timeout, retries := attempts(job)
	base := timeout * retries
	switch {
	case completion.TTLSecondsAfterFinished != nil:
		base = int64(*completion.TTLSecondsAfterFinished)
	case completion.ActiveDeadlineSeconds != nil:
		base = *completion.ActiveDeadlineSeconds
	}
	ttl := base + int64(o.ExtraTTLSeconds) + int64(o.Jitter(alwaysJitter))
	policy.TTLSecondsAfterFinished = new(int32(min(ttl, 1<<31-1)))
	return &policy
}

// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// Snapshot is all that Decide may look at. Nobody writes to it.
type Snapshot struct {
	Job   *v1beta1.ImagePullJob // active: neither deleted nor complete
	Image imageref.Ref
	// Nodes are the NodeImages that match the job, in the order in which they get the task.
	Nodes []*v1beta1.NodeImage
	// Secrets are what each NodeImage has to refer to.
	Secrets []v1beta1.ReferenceObject
}

// Plan is what act must do, as data.
type Plan struct {
	// Status is the job's new status, before what Assign changes.
	Status v1beta1.ImagePullJobStatus
	// Assign are the nodes to give the task now.
	Assign []string
	// Refresh are nodes whose task lacks a secret reference, or that pull within limits that
	// the job had formerly. They use no slot: nothing more is pulled.
	Refresh []string
	// Full are nodes that cannot get the task: their NodeImage lists as many images as it may.
	// One of those has to go first.
	Full []string
	// Waiting is how many more nodes will get the task when others have finished.
	Waiting int
	// Requeue is when time alone changes the answer; 0 is never.
	Requeue time.Duration
}

// batch is how many nodes one pass gives the task, so that the status tells what happens
// while a job for thousands of nodes starts.
const batch = 250

// tally sorts nodes by how far they are: each is in one of pulling, succeeded, failed and
// unassigned.
type tally struct {
	pulling, succeeded, failed, unassigned []string
	// open are those of unassigned whose NodeImage has room, full are the others.
	open, full []string
	// outdated are the nodes whose task has to be written again.
	outdated []string
	// messages is what nodes that failed, or are still at it, say of the task.
	messages map[string]string
}

// Decide computes the job's status and the nodes that get the task next (images.md 6.3
// and 6.6). It cannot fail.
func Decide(s Snapshot, now time.Time) Plan {
	t := count(s)
	job, policy := s.Job, s.Job.Spec.CompletionPolicy
	status := v1beta1.ImagePullJobStatus{
		StartTime: job.Status.StartTime,
		Desired:   size(s.Nodes),
		Active:    size(t.pulling),
		Succeeded: size(t.succeeded),
		Failed:    size(t.failed),
	}
	if status.StartTime == nil {
		status.StartTime = &metav1.Time{Time: now}
	}
	ends := policy.Type != v1beta1.Never
	unfinished := len(t.pulling) + len(t.unassigned)

	var requeue time.Duration
	if ends && policy.ActiveDeadlineSeconds != nil && unfinished > 0 {
		left := time.Duration(*policy.ActiveDeadlineSeconds)*time.Second - now.Sub(status.StartTime.Time)
		if left <= 0 {
			return exceeded(status, t, now)
		}
		requeue = max(left, time.Second)
	}
	status.FailedNodes = slices.Sorted(slices.Values(t.failed))
	if ends && unfinished == 0 {
		status.CompletionTime = &metav1.Time{Time: now}
		status.Message = sentence("job has completed", complaints(status.FailedNodes, t.messages))
		return Plan{Status: status}
	}
	status.Message = sentence(progress(status), complaints(status.FailedNodes, t.messages), fullNodes(t.full))
	slots := min(max(0, parallelism(job)-len(t.pulling)), len(t.open))
	if slots > batch {
		slots, requeue = batch, settle
	}
	return Plan{
		Status: status, Assign: t.open[:slots], Refresh: t.outdated, Full: t.full,
		Waiting: len(t.unassigned) - slots, Requeue: requeue,
	}
}

// exceeded ends a job at its deadline: whatever has not finished has failed.
func exceeded(status v1beta1.ImagePullJobStatus, t tally, now time.Time) Plan {
	status.CompletionTime = &metav1.Time{Time: now}
	status.FailedNodes = slices.Concat(t.failed, t.pulling, t.unassigned)
	status.Failed, status.Active = size(status.FailedNodes), 0
	status.Message = sentence("job exceeds activeDeadlineSeconds", complaints(status.FailedNodes, t.messages), fullNodes(t.full))
	return Plan{Status: status}
}

func count(s Snapshot) tally {
	t := tally{messages: map[string]string{}}
	for _, node := range s.Nodes {
		image, listed := node.Spec.Images[s.Image.Name]
		task := findTag(image.Tags, s.Image.Tag)
		if task == nil || !ownedBy(task, s.Job.UID) {
			t.unassigned = append(t.unassigned, node.Name)
			if !listed && full(node) {
				t.full = append(t.full, node.Name)
			} else {
				t.open = append(t.open, node.Name)
			}
			continue
		}
		stale := len(missingSecrets(image, s.Secrets)) > 0
		reported := reportOf(node, s.Image, task.Version)
		if reported.Message != "" {
			t.messages[node.Name] = reported.Message
		}
		switch reported.Phase {
		case v1beta1.ImagePhaseSucceeded:
			t.succeeded = append(t.succeeded, node.Name)
		case v1beta1.ImagePhaseFailed:
			t.failed = append(t.failed, node.Name)
		default:
			t.pulling = append(t.pulling, node.Name)
			stale = stale || outdated(task, s.Job)
		}
		if stale {
			t.outdated = append(t.outdated, node.Name)
		}
	}
	return t
}

// reportOf returns what the node reports of exactly this version of the task; what it
// reports of an older one says nothing.
func reportOf(node *v1beta1.NodeImage, image imageref.Ref, version int64) v1beta1.ImageTagStatus {
	for _, tag := range node.Status.ImageStatuses[image.Name].Tags {
		if tag.Tag == image.Tag && tag.Version == version {
			return tag
		}
	}
	return v1beta1.ImageTagStatus{}
}

func findTag(tags []v1beta1.ImageTagSpec, tag string) *v1beta1.ImageTagSpec {
	for i := range tags {
		if tags[i].Tag == tag {
			return &tags[i]
		}
	}
	return nil
}

func ownedBy(tag *v1beta1.ImageTagSpec, job types.UID) bool {
	return slices.ContainsFunc(tag.OwnerReferences, func(r corev1.ObjectReference) bool { return r.UID == job })
}

func missingSecrets(image v1beta1.ImageSpec, wanted []v1beta1.ReferenceObject) []v1beta1.ReferenceObject {
	var missing []v1beta1.ReferenceObject
	for _, secret := range wanted {
		has := slices.ContainsFunc(image.PullSecrets, func(have v1beta1.ReferenceObject) bool {
			return have.Namespace == secret.Namespace && have.Name == secret.Name
		})
		if !has {
			missing = append(missing, secret)
		}
	}
	return missing
}

// parallelism is how many nodes may pull at once. Validation admits only whole numbers, as
// a number or as text; what slipped past it counts as the default, 1.
func parallelism(job *v1beta1.ImagePullJob) int {
	p := job.Spec.Parallelism
	if p == nil {
		return 1
	}
	if p.Type == 0 {
		return max(0, int(p.IntVal))
	}
	var n int
	if _, err := fmt.Sscanf(p.StrVal, "%d", &n); err != nil || fmt.Sprint(n) != p.StrVal {
		return 1
	}
	return max(0, n)
}

// size is the length of a list as the API counts.
func size[T any](list []T) int32 { return int32(len(list)) }

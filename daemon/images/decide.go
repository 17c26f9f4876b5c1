// SPDX-License-Identifier: Apache-2.0

package images

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// Defaults of a task's pull policy, for objects that no webhook has completed.
const (
	defaultTimeout = 600 * time.Second
	defaultRetries = 3
)

// Task is one image to pull, as the NodeImage asks for it.
type Task struct {
	Ref     imageref.Ref
	Version int64
	// Timeout bounds one attempt, Retries come after the first one, Deadline bounds all
	// attempts together; 0 is no deadline.
	Timeout     time.Duration
	Retries     int
	Deadline    time.Duration
	SkipPresent bool // an image that the node has is not pulled again
	Secrets     []v1beta1.ReferenceObject
	Labels      map[string]string
	Annotations map[string]string
	Owners      []corev1.ObjectReference
}

// Work is what a worker of this process last said of its task.
type Work struct {
	Task   Task
	Status v1beta1.ImageTagStatus
}

// done reports whether the worker has come to an end.
func (w Work) done() bool { return w.Status.CompletionTime != nil }

// Plan is what has to happen, as data.
type Plan struct {
	Start []Task
	Stop  []imageref.Ref
	// Update are tasks under way whose policies, logins or owners have changed.
	Update []Task
	// Status is what the NodeImage has to say. Its maps are not shared with the input.
	Status v1beta1.NodeImageStatus
}

// Decide compares what a NodeImage asks for with what the workers of this process do
// (daemon.md 4.1 and 4.2). A task whose end the NodeImage tells already is not started
// again, so a restarted agent pulls nothing twice. What a worker of this process has
// finished counts more than what the NodeImage says: the manager may have failed a task
// of a node that was cut off. The first time that all has ended is noted in
// status.firstSyncStatus, for who waits until a new node has its images.
func Decide(ni *v1beta1.NodeImage, work map[imageref.Ref]Work, now time.Time) Plan {
	plan := Plan{Status: v1beta1.NodeImageStatus{FirstSyncStatus: ni.Status.FirstSyncStatus}}
	wanted, finished := map[imageref.Ref]bool{}, false
	for _, name := range slices.Sorted(maps.Keys(ni.Spec.Images)) {
		image := ni.Spec.Images[name]
		var statuses []v1beta1.ImageTagStatus
		for _, tag := range lastOfEach(image.Tags) {
			ref := imageref.Ref{Name: name, Tag: tag.Tag}
			wanted[ref] = true
			reported := reportedStatus(ni, name, tag)
			running, exists := work[ref]
			exists = exists && running.Task.Version == tag.Version
			switch {
			case exists && (running.done() || reported == nil || reported.CompletionTime == nil):
				statuses = append(statuses, running.Status)
				finished = finished || running.done()
				if task := newTask(ref, tag, image); !running.done() && !reflect.DeepEqual(running.Task, task) {
					plan.Update = append(plan.Update, task)
				}
			case reported != nil && reported.CompletionTime != nil:
				// Ended, possibly by the manager while we still pull.
				statuses = append(statuses, *reported.DeepCopy())
				if _, any := work[ref]; any {
					plan.Stop = append(plan.Stop, ref)
				}
			default:
				if reported != nil {
					statuses = append(statuses, *reported.DeepCopy())
				}
				plan.Start = append(plan.Start, newTask(ref, tag, image))
			}
		}
		plan.Status.Desired = int32(len(wanted))
		if len(statuses) > 0 {
			if plan.Status.ImageStatuses == nil {
				plan.Status.ImageStatuses = map[string]v1beta1.ImageStatus{}
			}
			plan.Status.ImageStatuses[name] = v1beta1.ImageStatus{Tags: statuses}
		}
		tally(&plan.Status, statuses)
	}
	for ref := range work {
		if !wanted[ref] {
			plan.Stop = append(plan.Stop, ref)
		}
	}
	if finished {
		firstSync(&plan.Status, now)
	}
	slices.SortFunc(plan.Stop, func(a, b imageref.Ref) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Tag, b.Tag))
	})
	return plan
}

// firstSync notes the first time that all is done. What another agent has done before this
// one is too old to note.
func firstSync(s *v1beta1.NodeImageStatus, now time.Time) {
	if s.FirstSyncStatus != nil || s.Desired == 0 || s.Succeeded+s.Failed < s.Desired {
		return
	}
	s.FirstSyncStatus = &v1beta1.SyncStatus{SyncAt: *seconds(now), Status: string(v1beta1.ImagePhaseSucceeded)}
	if s.Failed > 0 {
		s.FirstSyncStatus.Status = string(v1beta1.ImagePhaseFailed)
		s.FirstSyncStatus.Message = fmt.Sprintf("%d of %d images failed", s.Failed, s.Desired)
	}
}

func tally(status *v1beta1.NodeImageStatus, tags []v1beta1.ImageTagStatus) {
	for _, tag := range tags {
		switch tag.Phase {
		case v1beta1.ImagePhaseSucceeded:
			status.Succeeded++
		case v1beta1.ImagePhaseFailed:
			status.Failed++
		case v1beta1.ImagePhasePulling:
			status.Pulling++
		case v1beta1.ImagePhaseWaiting:
			status.Waiting++
		}
	}
}

// lastOfEach drops all but the last entry of each tag, in the order of the last ones.
func lastOfEach(tags []v1beta1.ImageTagSpec) []v1beta1.ImageTagSpec {
	var kept []v1beta1.ImageTagSpec
	for i, tag := range tags {
		later := slices.ContainsFunc(tags[i+1:], func(t v1beta1.ImageTagSpec) bool { return t.Tag == tag.Tag })
		if !later {
			kept = append(kept, tag)
		}
	}
	return kept
}

// reportedStatus is what the NodeImage says of exactly this version of a task, or nil.
func reportedStatus(ni *v1beta1.NodeImage, name string, tag v1beta1.ImageTagSpec) *v1beta1.ImageTagStatus {
	tags := ni.Status.ImageStatuses[name].Tags
	for i := range tags {
		if tags[i].Tag == tag.Tag && tags[i].Version == tag.Version {
			return &tags[i]
		}
	}
	return nil
}

func newTask(ref imageref.Ref, tag v1beta1.ImageTagSpec, image v1beta1.ImageSpec) Task {
	task := Task{
		Ref: ref, Version: tag.Version,
		Timeout: defaultTimeout, Retries: defaultRetries,
		SkipPresent: tag.ImagePullPolicy == v1beta1.PullIfNotPresent,
		Secrets:     slices.Clone(image.PullSecrets),
		Owners:      slices.Clone(tag.OwnerReferences),
	}
	if p := tag.PullPolicy; p != nil {
		if p.TimeoutSeconds != nil {
			task.Timeout = time.Duration(*p.TimeoutSeconds) * time.Second
		}
		if p.BackoffLimit != nil && *p.BackoffLimit >= 0 {
			task.Retries = int(*p.BackoffLimit)
		}
		if p.ActiveDeadlineSeconds != nil {
			task.Deadline = time.Duration(*p.ActiveDeadlineSeconds) * time.Second
		}
	}
	if s := image.SandboxConfig; s != nil {
		task.Labels, task.Annotations = maps.Clone(s.Labels), maps.Clone(s.Annotations)
	}
	return task
}

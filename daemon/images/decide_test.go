// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

var end = &metav1.Time{Time: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}

// asking returns a NodeImage that asks for nginx:1 at a version and reports statuses.
func asking(version int64, statuses ...v1beta1.ImageTagStatus) *v1beta1.NodeImage {
	ni := &v1beta1.NodeImage{Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{"nginx": {Tags: []v1beta1.ImageTagSpec{{Tag: "1", Version: version}}}}}}
	if len(statuses) > 0 {
		ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"nginx": {Tags: statuses}}
	}
	return ni
}

func TestDecide(t *testing.T) {
	ref := imageref.Ref{Name: "nginx", Tag: "1"}
	task := func(version int64) []Task {
		return []Task{{Ref: ref, Version: version, Timeout: 10 * time.Minute, Retries: 3}}
	}
	status := func(phase v1beta1.ImagePullPhase, version int64, completed *metav1.Time) v1beta1.ImageTagStatus {
		return v1beta1.ImageTagStatus{Tag: "1", Phase: phase, Version: version, CompletionTime: completed}
	}
	working := func(s v1beta1.ImageTagStatus) map[imageref.Ref]Work {
		return map[imageref.Ref]Work{ref: {Task: task(s.Version)[0], Status: s}}
	}
	says := func(counts v1beta1.NodeImageStatus, tags ...v1beta1.ImageTagStatus) v1beta1.NodeImageStatus {
		if len(tags) > 0 {
			counts.ImageStatuses = map[string]v1beta1.ImageStatus{"nginx": {Tags: tags}}
		}
		return counts
	}
	const waiting, pulling, succeeded, failed = v1beta1.ImagePhaseWaiting, v1beta1.ImagePhasePulling, v1beta1.ImagePhaseSucceeded, v1beta1.ImagePhaseFailed
	counts := func(desired, waiting, pulling, succeeded, failed int32) v1beta1.NodeImageStatus {
		return v1beta1.NodeImageStatus{Desired: desired, Waiting: waiting, Pulling: pulling, Succeeded: succeeded, Failed: failed}
	}
	edited := func(ni *v1beta1.NodeImage, edit func(*v1beta1.ImageTagSpec)) *v1beta1.NodeImage {
		edit(&ni.Spec.Images["nginx"].Tags[0])
		return ni
	}
	firstSynced := func(s v1beta1.NodeImageStatus, result, message string) v1beta1.NodeImageStatus {
		s.FirstSyncStatus = &v1beta1.SyncStatus{SyncAt: *end, Status: result, Message: message}
		return s
	}
	cases := map[string]struct {
		ni   *v1beta1.NodeImage
		work map[imageref.Ref]Work
		want Plan
	}{
		"nothing asked for, nothing said": {&v1beta1.NodeImage{}, nil, Plan{}},
		"a new task is started and not spoken of yet": {
			asking(0), nil, Plan{Start: task(0), Status: counts(1, 0, 0, 0, 0)},
		},
		"a worker of the same version goes on": {
			asking(0), working(status(waiting, 0, nil)), Plan{Status: says(counts(1, 1, 0, 0, 0), status(waiting, 0, nil))},
		},
		"what the worker says counts more than what was reported": {
			asking(0, status(waiting, 0, nil)), working(status(pulling, 0, nil)), Plan{Status: says(counts(1, 0, 1, 0, 0), status(pulling, 0, nil))},
		},
		"a worker of another version is replaced": {
			asking(2, status(succeeded, 1, end)), working(status(succeeded, 1, end)), Plan{Start: task(2), Status: counts(1, 0, 0, 0, 0)},
		},
		"after a restart of the agent, unfinished work starts again": {
			asking(0, status(pulling, 0, nil)), nil, Plan{Start: task(0), Status: says(counts(1, 0, 1, 0, 0), status(pulling, 0, nil))},
		},
		"after a restart of the agent, finished work is believed": {
			asking(0, status(failed, 0, end)), nil, Plan{Status: says(counts(1, 0, 0, 0, 1), status(failed, 0, end))},
		},
		"a task that was failed from outside is stopped": {
			asking(0, status(failed, 0, end)), working(status(pulling, 0, nil)),
			Plan{Stop: []imageref.Ref{ref}, Status: says(counts(1, 0, 0, 0, 1), status(failed, 0, end))},
		},
		"but not one that has come to its own end": {
			asking(0, status(failed, 0, end)), working(status(succeeded, 0, end)),
			Plan{Status: says(firstSynced(counts(1, 0, 0, 1, 0), "Succeeded", ""), status(succeeded, 0, end))},
		},
		"the first end of all tasks is noted, with failures": {
			asking(0, status(pulling, 0, nil)), working(status(failed, 0, end)),
			Plan{Status: says(firstSynced(counts(1, 0, 0, 0, 1), "Failed", "1 of 1 images failed"), status(failed, 0, end))},
		},
		"a policy that changes under way is handed on": {
			edited(asking(0), func(s *v1beta1.ImageTagSpec) {
				s.PullPolicy = &v1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(5))}
			}), working(status(pulling, 0, nil)),
			Plan{Update: []Task{{Ref: ref, Timeout: 5 * time.Second, Retries: 3}}, Status: says(counts(1, 0, 1, 0, 0), status(pulling, 0, nil))},
		},
		"after the end it changes nothing": {
			edited(asking(0), func(s *v1beta1.ImageTagSpec) {
				s.PullPolicy = &v1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(5))}
			}), working(status(succeeded, 0, end)),
			Plan{Status: says(firstSynced(counts(1, 0, 0, 1, 0), "Succeeded", ""), status(succeeded, 0, end))},
		},
		"a worker whose task is gone is stopped": {
			&v1beta1.NodeImage{}, working(status(pulling, 0, nil)), Plan{Stop: []imageref.Ref{ref}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(tc.ni, tc.work, end.Time), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewTask(t *testing.T) {
	image := v1beta1.ImageSpec{
		PullSecrets:   []v1beta1.ReferenceObject{{Namespace: "config", Name: "s"}},
		SandboxConfig: &v1beta1.SandboxConfig{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
	}
	cases := map[string]struct {
		tag  v1beta1.ImageTagSpec
		want Task
	}{
		"without policy the defaults hold": {v1beta1.ImageTagSpec{}, Task{Timeout: 10 * time.Minute, Retries: 3}},
		"a negative backoffLimit is the default": {
			v1beta1.ImageTagSpec{PullPolicy: &v1beta1.ImageTagPullPolicy{BackoffLimit: new(int32(-1))}}, Task{Timeout: 10 * time.Minute, Retries: 3},
		},
		"0 retries are one attempt": {
			v1beta1.ImageTagSpec{PullPolicy: &v1beta1.ImageTagPullPolicy{BackoffLimit: new(int32(0))}}, Task{Timeout: 10 * time.Minute},
		},
		"everything given": {
			v1beta1.ImageTagSpec{
				Version: 4, ImagePullPolicy: "IfNotPresent", OwnerReferences: []corev1.ObjectReference{{Name: "job"}},
				PullPolicy: &v1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(50)), BackoffLimit: new(int32(2)), ActiveDeadlineSeconds: new(int64(60))},
			},
			Task{Version: 4, Timeout: 50 * time.Second, Retries: 2, Deadline: time.Minute, SkipPresent: true, Owners: []corev1.ObjectReference{{Name: "job"}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ref := imageref.Ref{Name: "nginx", Tag: "1"}
			tc.want.Ref, tc.want.Secrets = ref, image.PullSecrets
			tc.want.Labels, tc.want.Annotations = image.SandboxConfig.Labels, image.SandboxConfig.Annotations
			if diff := cmp.Diff(tc.want, newTask(ref, tc.tag, image), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("newTask() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecideAddsUp draws any spec, report and work: each task is started, under way or
// through, each status is counted once, and a second pass asks for nothing new.
func TestDecideAddsUp(t *testing.T) {
	phases := []v1beta1.ImagePullPhase{v1beta1.ImagePhaseWaiting, v1beta1.ImagePhasePulling, v1beta1.ImagePhaseSucceeded, v1beta1.ImagePhaseFailed}
	drawStatus := func(t *rapid.T, tag string) v1beta1.ImageTagStatus {
		s := v1beta1.ImageTagStatus{Tag: tag, Phase: rapid.SampledFrom(phases).Draw(t, "phase"), Version: rapid.Int64Range(0, 2).Draw(t, "version")}
		if s.Phase == v1beta1.ImagePhaseSucceeded || s.Phase == v1beta1.ImagePhaseFailed {
			s.CompletionTime = end
		}
		return s
	}
	rapid.Check(t, func(t *rapid.T) {
		ni := &v1beta1.NodeImage{Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{}}, Status: v1beta1.NodeImageStatus{ImageStatuses: map[string]v1beta1.ImageStatus{}}}
		work := map[imageref.Ref]Work{}
		for _, name := range []string{"nginx", "redis"} {
			var image v1beta1.ImageSpec
			var reported v1beta1.ImageStatus
			for i := range 3 {
				tag := fmt.Sprint(i)
				if rapid.Bool().Draw(t, "asked") {
					image.Tags = append(image.Tags, v1beta1.ImageTagSpec{Tag: tag, Version: rapid.Int64Range(0, 2).Draw(t, "asked version")})
				}
				if rapid.Bool().Draw(t, "reported") {
					reported.Tags = append(reported.Tags, drawStatus(t, tag))
				}
				if rapid.Bool().Draw(t, "worked on") {
					s := drawStatus(t, tag)
					work[imageref.Ref{Name: name, Tag: tag}] = Work{Task: Task{Version: s.Version}, Status: s}
				}
			}
			ni.Spec.Images[name], ni.Status.ImageStatuses[name] = image, reported
		}
		plan := Decide(ni, work, end.Time)
		total := 0
		for name, image := range plan.Status.ImageStatuses {
			total += len(image.Tags)
			for _, s := range image.Tags {
				asked := slices.ContainsFunc(ni.Spec.Images[name].Tags, func(a v1beta1.ImageTagSpec) bool { return a.Tag == s.Tag && a.Version == s.Version })
				if !asked {
					t.Fatalf("status of a task that nobody asked for: %s %+v", name, s)
				}
			}
		}
		s := plan.Status
		if int(s.Waiting+s.Pulling+s.Succeeded+s.Failed) != total || total > int(s.Desired) || total+len(plan.Start) < int(s.Desired) {
			t.Fatalf("counts do not add up: %+v, %d started", s, len(plan.Start))
		}
		for _, ref := range plan.Stop {
			delete(work, ref)
		}
		for _, task := range plan.Start {
			work[task.Ref] = Work{Task: task, Status: v1beta1.ImageTagStatus{Tag: task.Ref.Tag, Version: task.Version, Phase: v1beta1.ImagePhaseWaiting}}
		}
		if again := Decide(ni, work, end.Time); len(again.Start)+len(again.Stop) > 0 {
			t.Fatalf("a second pass starts %+v and stops %v", again.Start, again.Stop)
		}
	})
}

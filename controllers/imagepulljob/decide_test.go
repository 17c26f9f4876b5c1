// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func status(change func(*v1beta1.ImagePullJobStatus)) v1beta1.ImagePullJobStatus {
	s := v1beta1.ImagePullJobStatus{StartTime: &metav1.Time{Time: t0}}
	change(&s)
	return s
}

func TestDecide(t *testing.T) {
	const succeeded, failed, pulling = v1beta1.ImagePhaseSucceeded, v1beta1.ImagePhaseFailed, v1beta1.ImagePhasePulling
	job := newJob()
	now := t0.Add(50 * time.Second)
	end := &metav1.Time{Time: now}
	cases := map[string]struct {
		snap Snapshot
		want Plan
	}{
		"a job that matches no node completes at once": {
			snap: snapshot(job),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) { s.CompletionTime, s.Message = end, "job has completed" })},
		},
		"a Never job that matches no node goes on": {
			snap: snapshot(job.never()),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) { s.Message = "job is running, no progress" })},
		},
		"startTime is set once": {
			snap: snapshot(job.notStarted().never()),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) { s.StartTime, s.Message = end, "job is running, no progress" })},
		},
		"without parallelism one node gets the task": {
			snap: snapshot(job, newNode("a"), newNode("b"), newNode("c")),
			want: Plan{
				Status: status(func(s *v1beta1.ImagePullJobStatus) { s.Desired, s.Message = 3, "job is running, progress 0.0%" }),
				Assign: []string{"a"}, Waiting: 2,
			},
		},
		"nodes that pull use up parallelism": {
			snap: snapshot(job.parallelism(2), newNode("a").task(0, "job"), newNode("b"), newNode("c")),
			want: Plan{
				Status: status(func(s *v1beta1.ImagePullJobStatus) {
					s.Desired, s.Active, s.Message = 3, 1, "job is running, progress 0.0%"
				}),
				Assign: []string{"b"}, Waiting: 1,
			},
		},
		"parallelism 0 pauses": {
			snap: snapshot(job.parallelism(0), newNode("a")),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) { s.Desired, s.Message = 1, "job is running, progress 0.0%" }), Waiting: 1},
		},
		"nodes that are through are counted and free their slot": {
			snap: snapshot(job, newNode("a").task(0, "job").reports(succeeded, 0), newNode("b").task(0, "job").reports(failed, 0), newNode("c")),
			want: Plan{
				Status: status(func(s *v1beta1.ImagePullJobStatus) {
					s.Desired, s.Succeeded, s.Failed, s.FailedNodes, s.Message = 3, 1, 1, []string{"b"}, "job is running, progress 66.7%"
				}),
				Assign: []string{"c"},
			},
		},
		"a report of an older version counts as pulling": {
			snap: snapshot(job, newNode("a").task(1, "job").reports(succeeded, 0)),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) {
				s.Desired, s.Active, s.Message = 1, 1, "job is running, progress 0.0%"
			})},
		},
		"another job's task does not count": {
			snap: snapshot(job, newNode("a").task(0, "other").reports(succeeded, 0)),
			want: Plan{
				Status: status(func(s *v1beta1.ImagePullJobStatus) { s.Desired, s.Message = 1, "job is running, progress 0.0%" }),
				Assign: []string{"a"},
			},
		},
		"an Always job completes when all nodes are through": {
			snap: snapshot(job, newNode("b").task(0, "job").reports(failed, 0), newNode("a").task(0, "job").reports(failed, 0), newNode("c").task(3, "job").reports(succeeded, 3)),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) {
				s.Desired, s.Succeeded, s.Failed, s.FailedNodes, s.Message, s.CompletionTime = 3, 1, 2, []string{"a", "b"}, "job has completed", end
			})},
		},
		"a Never job does not complete": {
			snap: snapshot(job.never(), newNode("a").task(0, "job").reports(succeeded, 0)),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) {
				s.Desired, s.Succeeded, s.Message = 1, 1, "job is running, progress 100.0%"
			})},
		},
		"before its deadline a job asks to be woken at it": {
			snap: snapshot(job.deadline(60), newNode("a").task(0, "job").limits(job.deadline(60)).reports(pulling, 0)),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) {
				s.Desired, s.Active, s.Message = 1, 1, "job is running, progress 0.0%"
			}), Requeue: 10 * time.Second},
		},
		"at its deadline what is not through has failed, and nothing is handed out": {
			snap: snapshot(job.deadline(50).parallelism(9), newNode("a"), newNode("b").task(0, "job"), newNode("c").task(0, "job").reports(failed, 0), newNode("d").task(0, "job").reports(succeeded, 0)),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) {
				s.Desired, s.Succeeded, s.Failed, s.FailedNodes = 4, 1, 3, []string{"c", "b", "a"}
				s.Message, s.CompletionTime = "job exceeds activeDeadlineSeconds", end
			})},
		},
		"a deadline that passes when all nodes are through changes nothing": {
			snap: snapshot(job.deadline(50), newNode("a").task(0, "job").reports(succeeded, 0)),
			want: Plan{Status: status(func(s *v1beta1.ImagePullJobStatus) {
				s.Desired, s.Succeeded, s.CompletionTime, s.Message = 1, 1, end, "job has completed"
			})},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(tc.snap, now), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideRefreshes(t *testing.T) {
	secrets := []v1beta1.ReferenceObject{{Namespace: "config", Name: "s", Mode: "batch"}}
	patient := newJob().never().with(func(j *v1beta1.ImagePullJob) {
		j.Spec.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(900))}
	})
	task := newNode("a").task(0, "job").limits(patient)
	cases := map[string]struct {
		job  jobBuilder
		node nodeBuilder
		want []string
	}{
		"a node that pulls without the secret gets it, though no slot is free": {patient, task, []string{"a"}},
		"a node that has the secret in another mode is not written":            {patient, task.secret(), nil},
		"a node that is through gets it too, for the next pull":                {patient, task.reports(v1beta1.ImagePhaseFailed, 0), []string{"a"}},
		"a node that is through needs no new limits":                           {newJob().never(), task.secret().reports(v1beta1.ImagePhaseFailed, 0), nil},
		"a changed timeout reaches a node that pulls": {
			patient.with(func(j *v1beta1.ImagePullJob) { j.Spec.PullPolicy.TimeoutSeconds = new(int32(60)) }), task.secret(), []string{"a"},
		},
		"a changed number of retries reaches a node that pulls": {
			patient.with(func(j *v1beta1.ImagePullJob) { j.Spec.PullPolicy.BackoffLimit = new(int32(9)) }), task.secret(), []string{"a"},
		},
		"a changed imagePullPolicy reaches a node that pulls": {
			patient.with(func(j *v1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = v1beta1.PullAlways }), task.secret(), []string{"a"},
		},
		"a changed deadline reaches a node that pulls": {newJob().deadline(1000), newNode("a").task(0, "job").limits(newJob().deadline(900)).secret(), []string{"a"}},
		"a job that came later to the same task decides about its limits": {
			patient.with(func(j *v1beta1.ImagePullJob) { j.Spec.PullPolicy.TimeoutSeconds = new(int32(60)) }),
			newNode("a").task(1, "job", "later").limits(patient).secret(), nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := snapshot(tc.job, tc.node)
			s.Secrets = secrets
			plan := Decide(s, t0)
			if diff := cmp.Diff(tc.want, plan.Refresh, cmpopts.EquateEmpty()); diff != "" || len(plan.Assign) > 0 {
				t.Errorf("Assign %v; Refresh differs (-want +got):\n%s", plan.Assign, diff)
			}
			for range plan.Refresh {
				n := tc.node.obj.DeepCopy()
				version := n.Spec.Images["nginx"].Tags[0].Version
				if _, changed := assign(n, s, taskOptions{Jitter: func(int32) int32 { return 0 }}, t0); !changed || n.Spec.Images["nginx"].Tags[0].Version != version {
					t.Errorf("changed %v, version %d, want %d", changed, n.Spec.Images["nginx"].Tags[0].Version, version)
				}
				s.Nodes = []*v1beta1.NodeImage{n}
				if again := Decide(s, t0); len(again.Refresh) > 0 {
					t.Errorf("refreshed again: %+v", n.Spec.Images)
				}
			}
		})
	}
}

// A NodeImage that is full is left alone until it has room; the job says so and goes on.
func TestFullNodes(t *testing.T) {
	fill := func(n *v1beta1.NodeImage) {
		n.Spec.Images = map[string]v1beta1.ImageSpec{}
		for i := range 256 {
			n.Spec.Images[fmt.Sprintf("image%d", i)] = v1beta1.ImageSpec{}
		}
	}
	full := newNode("a").with(fill)
	other := newNode("c").with(func(n *v1beta1.NodeImage) {
		fill(n)
		delete(n.Spec.Images, "image7")
		n.Spec.Images["nginx"] = v1beta1.ImageSpec{Tags: []v1beta1.ImageTagSpec{{Tag: "0"}}}
	})
	plan := Decide(snapshot(newJob().parallelism(3), full, newNode("b"), other), t0)
	want := Plan{
		Status: status(func(s *v1beta1.ImagePullJobStatus) {
			s.Desired = 3
			s.Message = "job is running, progress 0.0%; a cannot get the task: the NodeImage lists 256 images, the most there may be"
		}),
		Assign: []string{"b", "c"}, Full: []string{"a"}, Waiting: 1,
	}
	if diff := cmp.Diff(want, plan, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Decide() differs (-want +got):\n%s", diff)
	}
}

func TestManyNodesTakeSeveralPasses(t *testing.T) {
	s := snapshot(newJob().parallelism(1000))
	for i := range 600 {
		s.Nodes = append(s.Nodes, newNode(fmt.Sprintf("node%03d", i)).obj)
	}
	plan := Decide(s, t0)
	if len(plan.Assign) != batch || plan.Requeue != settle || plan.Waiting != 350 {
		t.Errorf("%d nodes get the task, %d wait, again in %s", len(plan.Assign), plan.Waiting, plan.Requeue)
	}
}

func TestMessagesTellWhyNodesFailed(t *testing.T) {
	failed := func(name, message string) nodeBuilder {
		return newNode(name).task(0, "job").reports(v1beta1.ImagePhaseFailed, 0).says(message)
	}
	cases := map[string]struct {
		nodes []nodeBuilder
		want  string
	}{
		"one node":        {[]nodeBuilder{failed("a", "not found")}, "job has completed; a: not found"},
		"without reason":  {[]nodeBuilder{failed("a", "")}, "job has completed"},
		"the same reason": {[]nodeBuilder{failed("e", "not found"), failed("d", "not found"), failed("b", "not found"), failed("a", "denied"), failed("c", "not found")}, "job has completed; b, c, d and 1 more: not found; a: denied"},
		"many reasons":    {[]nodeBuilder{failed("a", "1"), failed("b", "2"), failed("c", "3"), failed("d", "4"), failed("e", "5")}, "job has completed; a: 1; b: 2; c: 3; and 2 more reasons"},
		"long and of several lines": {
			[]nodeBuilder{failed("a", "rpc error:\n\tdesc "+strings.Repeat("x", 300))},
			"job has completed; a: rpc error: desc " + strings.Repeat("x", 184) + "…",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Decide(snapshot(newJob(), tc.nodes...), t0).Status.Message; got != tc.want {
				t.Errorf("message %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParallelism(t *testing.T) {
	cases := map[string]struct {
		value *intstr.IntOrString
		want  int
	}{
		"absent is 1":                  {nil, 1},
		"a number is itself":           {new(intstr.FromInt(4)), 4},
		"0 pauses":                     {new(intstr.FromInt(0)), 0},
		"a negative number pauses":     {new(intstr.FromInt(-3)), 0},
		"a number as text is a number": {new(intstr.FromString("12")), 12},
		"a percentage is not allowed":  {new(intstr.FromString("50%")), 1},
		"other text is not allowed":    {new(intstr.FromString("many")), 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := newJob().with(func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = tc.value })
			if got := parallelism(job.obj); got != tc.want {
				t.Errorf("parallelism(%v) = %d, want %d", tc.value, got, tc.want)
			}
		})
	}
}

func TestAssign(t *testing.T) {
	now := t0.Add(time.Hour)
	options := taskOptions{ExtraTTLSeconds: 300, Jitter: func(n int32) int32 { return n - 1 }}
	assigned := func(node nodeBuilder, job jobBuilder) v1beta1.ImageTagSpec {
		n := node.obj.DeepCopy()
		s := snapshot(job)
		s.Secrets = []v1beta1.ReferenceObject{{Namespace: "config", Name: "s"}}
		assign(n, s, options, now)
		return *findTag(n.Spec.Images["nginx"].Tags, "1")
	}
	t.Run("a new task has version 0", func(t *testing.T) {
		if got := assigned(newNode("a"), newJob()); got.Version != 0 || !got.CreatedAt.Time.Equal(now) || got.ImagePullPolicy != v1beta1.PullIfNotPresent {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("what the node still reports of a former task cannot satisfy the new one", func(t *testing.T) {
		if got := assigned(newNode("a").reports(v1beta1.ImagePhaseSucceeded, 7), newJob()); got.Version != 8 {
			t.Errorf("version %d, want 8", got.Version)
		}
	})
	t.Run("another job's task gets a new version, one more owner and its limits, and lives no shorter", func(t *testing.T) {
		before := newNode("a").task(3, "other").limits(newJob().never())
		got := assigned(before, newJob().deadline(60))
		if got.Version != 4 || len(got.OwnerReferences) != 2 || got.OwnerReferences[1].UID != "job" || !got.CreatedAt.Time.Equal(now) ||
			*got.PullPolicy.ActiveDeadlineSeconds != 60 || *got.PullPolicy.TTLSecondsAfterFinished != 86400-600 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("a Never job keeps another job's task for a day", func(t *testing.T) {
		got := assigned(newNode("a").task(3, "other").limits(newJob().deadline(60)), newJob().never())
		if *got.PullPolicy.TTLSecondsAfterFinished < 80000 {
			t.Errorf("TTL %d", *got.PullPolicy.TTLSecondsAfterFinished)
		}
	})
	t.Run("an own task that lacks a secret keeps its version", func(t *testing.T) {
		n := newNode("a").task(3, "job").obj
		s := snapshot(newJob())
		s.Secrets = []v1beta1.ReferenceObject{{Namespace: "config", Name: "s"}}
		isNew, changed := assign(n, s, options, now)
		if isNew || !changed || n.Spec.Images["nginx"].Tags[0].Version != 3 || len(n.Spec.Images["nginx"].PullSecrets) != 1 {
			t.Errorf("new %v, changed %v, %+v", isNew, changed, n.Spec.Images)
		}
		if isNew, changed := assign(n, s, options, now); isNew || changed {
			t.Errorf("a second pass changes something: new %v, changed %v", isNew, changed)
		}
	})
	t.Run("tags are sorted", func(t *testing.T) {
		n := newNode("a").with(func(n *v1beta1.NodeImage) {
			n.Spec.Images = map[string]v1beta1.ImageSpec{"nginx": {Tags: []v1beta1.ImageTagSpec{{Tag: "0"}, {Tag: "2"}}}}
		}).obj
		assign(n, snapshot(newJob()), options, now)
		if tags := n.Spec.Images["nginx"].Tags; tags[0].Tag != "0" || tags[1].Tag != "1" || tags[2].Tag != "2" {
			t.Errorf("got %+v", tags)
		}
	})
	t.Run("the object that was seen is not written to", func(t *testing.T) {
		seen := newNode("a").task(3, "other").obj
		copied := seen.DeepCopy()
		n := &v1beta1.NodeImage{Spec: seen.Spec, Status: seen.Status}
		assign(n, snapshot(newJob()), options, now)
		if diff := cmp.Diff(copied, seen); diff != "" {
			t.Errorf("changed:\n%s", diff)
		}
	})
}

func TestPullPolicy(t *testing.T) {
	options := taskOptions{ExtraTTLSeconds: 300, Jitter: func(n int32) int32 { return n / 2 }}
	cases := map[string]struct {
		job  jobBuilder
		want v1beta1.ImageTagPullPolicy
	}{
		"Always without anything lives for all attempts": {newJob(), v1beta1.ImageTagPullPolicy{TTLSecondsAfterFinished: new(int32(1800 + 300 + 150))}},
		"Always with attempts lives for those": {
			newJob().with(func(j *v1beta1.ImagePullJob) {
				j.Spec.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(50)), BackoffLimit: new(int32(2))}
			}),
			v1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(50)), BackoffLimit: new(int32(2)), TTLSecondsAfterFinished: new(int32(100 + 450))},
		},
		"a deadline counts more than attempts": {newJob().deadline(60), v1beta1.ImageTagPullPolicy{ActiveDeadlineSeconds: new(int64(60)), TTLSecondsAfterFinished: new(int32(60 + 450))}},
		"a TTL counts more than a deadline": {
			newJob().deadline(60).with(func(j *v1beta1.ImagePullJob) { j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(20)) }),
			v1beta1.ImageTagPullPolicy{ActiveDeadlineSeconds: new(int64(60)), TTLSecondsAfterFinished: new(int32(20 + 450))},
		},
		"a TTL does not overflow": {
			newJob().deadline(1 << 40), v1beta1.ImageTagPullPolicy{ActiveDeadlineSeconds: new(int64(1 << 40)), TTLSecondsAfterFinished: new(int32(1<<31 - 1))},
		},
		"Never comes back after about a day": {newJob().never(), v1beta1.ImageTagPullPolicy{ActiveDeadlineSeconds: new(int64(2400)), TTLSecondsAfterFinished: new(int32(86400))}},
		"Never gives half an hour at least": {
			newJob().never().with(func(j *v1beta1.ImagePullJob) {
				j.Spec.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(60)), BackoffLimit: new(int32(0))}
			}),
			v1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(60)), BackoffLimit: new(int32(0)), ActiveDeadlineSeconds: new(int64(1800)), TTLSecondsAfterFinished: new(int32(86400))},
		},
		"Never gives every attempt its time": {
			newJob().never().with(func(j *v1beta1.ImagePullJob) {
				j.Spec.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(7200))}
			}),
			v1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(7200)), ActiveDeadlineSeconds: new(int64(4 * 7200)), TTLSecondsAfterFinished: new(int32(86400))},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(&tc.want, pullPolicy(tc.job.obj, options)); diff != "" {
				t.Errorf("pullPolicy() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func ExampleDecide() {
	job := newJob().parallelism(2)
	plan := Decide(snapshot(job, newNode("a"), newNode("b"), newNode("c")), t0)
	fmt.Println(plan.Status.Message, plan.Assign, plan.Waiting)
	// Output: job is running, progress 0.0% [a b] 1
}

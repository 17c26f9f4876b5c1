// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

var t0 = time.Unix(1000, 0)

type (
	strategy = v1beta1.RecreateStrategy
	states   = []v1beta1.RecreateState
)

// working is a request for app and proxy that has begun.
func working(s strategy, before ...v1beta1.RecreateState) *v1beta1.ContainerRecreateRequest {
	return &v1beta1.ContainerRecreateRequest{
		Spec: v1beta1.ContainerRecreateRequestSpec{Strategy: &s, Containers: []v1beta1.RecreateContainer{
			{Name: "app", StatusContext: &v1beta1.RecreateContainerContext{ContainerID: "containerd://a1", RestartCount: 4}},
			{Name: "proxy", StatusContext: &v1beta1.RecreateContainerContext{ContainerID: "containerd://p1"}},
		}},
		Status: v1beta1.ContainerRecreateRequestStatus{Phase: v1beta1.RecreateRecreating, ContainerRecreateStates: before},
	}
}

// seenReady is what the manager has reported of the container a2.
func seenReady(r *v1beta1.ContainerRecreateRequest, ready bool) *v1beta1.ContainerRecreateRequest {
	r.Status.ContainerStatusSnapshot = []v1beta1.ContainerSnapshot{{Name: "app", Ready: ready, ContainerID: "containerd://a2"}}
	return r
}

func running(id string, restarts int32) Container {
	return Container{ID: id, State: cri.StateRunning, RestartCount: restarts, Started: t0.Add(-5 * time.Second)}
}

func exited(id string) Container { return Container{ID: id, State: cri.StateExited, RestartCount: 4} }

func TestDecide(t *testing.T) {
	pending := func(name string) v1beta1.RecreateState { return v1beta1.RecreateState{Name: name, Phase: "Pending"} }
	killed := func(name string) v1beta1.RecreateState {
		return v1beta1.RecreateState{Name: name, Phase: "Recreating", IsKilled: true}
	}
	done := func(name string) v1beta1.RecreateState { return succeeded(name)[0] }
	failed := v1beta1.RecreateState{Name: "app", Phase: "Failed", Message: "kill container error: no"}
	ordered, force, ignore := strategy{OrderedRecreate: true}, strategy{ForceRecreate: true}, strategy{FailurePolicy: "Ignore"}
	drain := strategy{UnreadyGracePeriodSeconds: new(int64(10))}
	at := func(r *v1beta1.ContainerRecreateRequest, phase v1beta1.RecreatePhase) *v1beta1.ContainerRecreateRequest {
		r.Status.Phase = phase
		return r
	}
	drained := func(since time.Duration) *v1beta1.ContainerRecreateRequest {
		r := working(drain)
		r.Status.Conditions = []metav1.Condition{{Type: "PreRecreateGrace", Status: "True", LastTransitionTime: metav1.NewTime(t0.Add(-since))}}
		return r
	}
	both := map[string]Container{"app": running("a1", 4), "proxy": running("p1", 0)}
	with := func(app Container) map[string]Container {
		return map[string]Container{"app": app, "proxy": running("p1", 0)}
	}
	cases := map[string]struct {
		request    *v1beta1.ContainerRecreateRequest
		containers map[string]Container
		noRuntime  string
		pod        *corev1.Pod
		kills      map[string]Kill
		want       Plan
	}{
		"no runtime, no work":            {request: at(working(strategy{}), ""), noRuntime: "none", want: Plan{End: &recreate.End{Reason: "RuntimeNotFound", Message: "failed to find runtime service: none"}}},
		"it begins with the states":      {request: at(working(strategy{}), ""), containers: both, want: Plan{Begin: true, States: states{pending("app"), pending("proxy")}, Stop: &Target{"app", "a1"}}},
		"a waiting one begins as well":   {request: at(working(strategy{}), "Pending"), containers: both, want: Plan{Begin: true, States: states{pending("app"), pending("proxy")}, Stop: &Target{"app", "a1"}}},
		"with a drain it only begins":    {request: at(working(drain), ""), containers: both, want: Plan{Begin: true}},
		"then it waits for the manager":  {request: working(drain), containers: both},
		"then for the grace period":      {request: drained(4 * time.Second), containers: both, want: Plan{Requeue: 6*time.Second + 100*time.Millisecond}},
		"then it stops":                  {request: drained(10 * time.Second), containers: both, want: Plan{States: states{pending("app"), pending("proxy")}, Stop: &Target{"app", "a1"}}},
		"row 1: a missing container":     {request: working(strategy{}), containers: map[string]Container{"proxy": running("p1", 0)}, want: Plan{States: states{{Name: "app", Phase: "Pending", Message: "not found container on Node"}, pending("proxy")}, Requeue: poll}},
		"row 2: one that has exited":     {request: working(strategy{}), containers: with(exited("a1")), want: Plan{States: states{killed("app"), pending("proxy")}, Stop: &Target{"proxy", "p1"}}},
		"row 2: in order the next waits": {request: working(ordered), containers: with(exited("a1")), want: Plan{States: states{killed("app"), pending("proxy")}, Requeue: poll}},
		"row 3: by force also a restarted one is stopped, and that is written down before": {
			request: working(force), containers: with(running("a2", 5)),
			want: Plan{States: states{{Name: "app", Phase: "Pending", Message: "stopping container a2"}, pending("proxy")}, Stop: &Target{"app", "a2"}},
		},
		"row 3: one that was written down and is not there any more has been stopped": {
			request: working(force, v1beta1.RecreateState{Name: "app", Phase: "Pending", Message: "stopping container a2"}), containers: with(running("a3", 6)),
			want: Plan{States: states{killed("app"), {Name: "proxy", Phase: "Pending", Message: "stopping container p1"}}, Stop: &Target{"proxy", "p1"}},
		},
		"row 3: one that still runs is stopped again": {
			request: working(force, v1beta1.RecreateState{Name: "app", Phase: "Pending", Message: "stopping container a2"}), containers: with(running("a2", 5)),
			want: Plan{States: states{{Name: "app", Phase: "Pending", Message: "stopping container a2"}, pending("proxy")}, Stop: &Target{"app", "a2"}},
		},
		"row 3: one that does not run counts as stopped": {request: working(force, killed("proxy")), containers: map[string]Container{"app": exited("a1"), "proxy": running("p2", 1)}, want: Plan{States: states{killed("app"), killed("proxy")}, Requeue: poll}},
		"row 4: another ID":                     {request: working(ordered), containers: with(running("a2", 5)), want: Plan{States: states{killed("app"), pending("proxy")}, Requeue: poll}},
		"row 4: the same ID with more restarts": {request: working(ordered), containers: with(running("a1", 5)), want: Plan{States: states{killed("app"), pending("proxy")}, Requeue: poll}},
		"row 4: ready":                          {request: seenReady(working(ordered, killed("app")), true), containers: with(running("a2", 5)), want: Plan{States: states{done("app"), pending("proxy")}, Stop: &Target{"proxy", "p1"}}},
		"row 4: not ready":                      {request: seenReady(working(ordered, killed("app")), false), containers: with(running("a2", 5)), want: Plan{States: states{killed("app"), pending("proxy")}, Requeue: poll}},
		"row 4: another one was ready":          {request: seenReady(working(ordered, killed("app")), true), containers: with(running("a3", 6)), want: Plan{States: states{killed("app"), pending("proxy")}, Requeue: poll}},
		"row 4: not for long enough": {
			request: seenReady(working(strategy{OrderedRecreate: true, MinStartedSeconds: 6}, killed("app")), true), containers: with(running("a2", 5)),
			want: Plan{States: states{killed("app"), pending("proxy")}, Requeue: time.Second + 50*time.Millisecond},
		},
		"row 4: exactly so long is not longer": {
			request: seenReady(working(strategy{OrderedRecreate: true, MinStartedSeconds: 5}, killed("app")), true), containers: with(running("a2", 5)),
			want: Plan{States: states{killed("app"), pending("proxy")}, Requeue: 50 * time.Millisecond},
		},
		"row 5: stopped by us a moment ago, and still listed": {
			request: working(ordered, killed("app")), containers: both, kills: map[string]Kill{"app": {ID: "a1", At: t0.Add(-9 * time.Second)}},
			want: Plan{States: states{killed("app"), pending("proxy")}, Requeue: poll},
		},
		"row 5: stopped by us long ago, and still there": {
			request: working(ordered, killed("app")), containers: both, kills: map[string]Kill{"app": {ID: "a1", At: t0.Add(-10 * time.Second)}},
			want: Plan{States: states{{Name: "app", Phase: "Pending", IsKilled: true}, pending("proxy")}, Stop: &Target{"app", "a1"}},
		},
		"a failure ends it":                      {request: working(strategy{FailurePolicy: "Fail"}, failed), containers: both, want: Plan{States: states{failed, pending("proxy")}, End: &recreate.End{Reason: "ContainerFailed"}}},
		"or does not":                            {request: working(ignore, failed), containers: both, want: Plan{States: states{failed, pending("proxy")}, Stop: &Target{"proxy", "p1"}}},
		"what has succeeded stays so":            {request: working(ordered, done("app"), done("proxy")), containers: with(exited("a2")), want: Plan{States: states{done("app"), done("proxy")}, End: &recreate.End{Reason: "Recreated"}}},
		"a failure that was borne is no success": {request: working(ignore, failed, done("proxy")), containers: both, want: Plan{States: states{failed, done("proxy")}, End: &recreate.End{Reason: "ContainerFailed"}}},
		"a Pod that has failed ends it, also without containers": {
			request: working(ordered, killed("app")), containers: map[string]Container{}, pod: &corev1.Pod{Status: corev1.PodStatus{Phase: "Failed"}},
			want: Plan{States: states{
				{Name: "app", Phase: "Failed", IsKilled: true, Message: "the container is not started again: the Pod's phase is Failed"},
				{Name: "proxy", Phase: "Failed", Message: "the container is not started again: the Pod's phase is Failed"},
			}, End: &recreate.End{Reason: "ContainerNotRestarted", Message: "container app has exited and is not started again: the Pod's phase is Failed"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Decide(Snapshot{Request: tc.request, Containers: tc.containers, NoRuntime: tc.noRuntime, Pod: tc.pod, Kills: tc.kills}, t0)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnded(t *testing.T) {
	before := states{{Name: "app", Phase: "Pending", Message: "stopping container a1"}, {Name: "proxy", Phase: "Succeeded", IsKilled: true}}
	want := states{{Name: "app", Phase: "Recreating", IsKilled: true}, before[1]}
	if diff := cmp.Diff(want, Ended(before, "app", nil)); diff != "" {
		t.Error(diff)
	}
	want = states{{Name: "app", Phase: "Failed", Message: "kill container error: no"}, before[1]}
	if diff := cmp.Diff(want, Ended(before, "app", errors.New("no"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, Ended(before, "proxy", errors.New("no"))); diff != "" {
		t.Error("what has ended stays so", diff)
	}
}

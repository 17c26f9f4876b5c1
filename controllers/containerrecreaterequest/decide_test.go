// SPDX-License-Identifier: Apache-2.0

package containerrecreaterequest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

var t0 = time.Unix(1000, 0)

type change = func(*v1beta1.ContainerRecreateRequest)

// request is one at work, made at t0.
func request(changes ...change) *v1beta1.ContainerRecreateRequest {
	r := &v1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "restart", CreationTimestamp: metav1.NewTime(t0),
			Labels: map[string]string{"crr.apps.kruise.io/pod-uid": "1", "crr.apps.kruise.io/active": "true"},
		},
		Spec: v1beta1.ContainerRecreateRequestSpec{PodName: "web", Strategy: &v1beta1.RecreateStrategy{}, Containers: []v1beta1.RecreateContainer{
			{Name: "app", StatusContext: &v1beta1.RecreateContainerContext{ContainerID: "containerd://a1"}},
			{Name: "proxy", StatusContext: &v1beta1.RecreateContainerContext{ContainerID: "containerd://p1"}},
		}},
		Status: v1beta1.ContainerRecreateRequestStatus{Phase: v1beta1.RecreateRecreating},
	}
	for _, c := range changes {
		c(r)
	}
	return r
}

func phase(p v1beta1.RecreatePhase) change {
	return func(r *v1beta1.ContainerRecreateRequest) { r.Status.Phase = p }
}

func ended(at time.Duration, ttl *int32) change {
	return func(r *v1beta1.ContainerRecreateRequest) {
		r.Status.Phase, r.Status.CompletionTime = v1beta1.RecreateCompleted, &metav1.Time{Time: t0.Add(at)}
		r.Spec.TTLSecondsAfterFinished = ttl
	}
}

func inactive(r *v1beta1.ContainerRecreateRequest) {
	r.Labels = map[string]string{"crr.apps.kruise.io/pod-uid": "1"}
}

func deleting(r *v1beta1.ContainerRecreateRequest) { r.DeletionTimestamp = &metav1.Time{Time: t0} }

func holding(r *v1beta1.ContainerRecreateRequest) {
	r.Finalizers = []string{"other", "crr.apps.kruise.io/unready-acquired"}
}

func deadline(r *v1beta1.ContainerRecreateRequest) { r.Spec.ActiveDeadlineSeconds = new(int64(10)) }

func grace(r *v1beta1.ContainerRecreateRequest) {
	r.Spec.Strategy.UnreadyGracePeriodSeconds = new(int64(0))
}

func withDrain(r *v1beta1.ContainerRecreateRequest) {
	r.Status.Conditions = []metav1.Condition{{Type: "PreRecreateGrace", Status: "True"}}
}

func snapshot(s ...v1beta1.ContainerSnapshot) change {
	return func(r *v1beta1.ContainerRecreateRequest) { r.Status.ContainerStatusSnapshot = s }
}

func pod(statuses ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}, Status: corev1.PodStatus{ContainerStatuses: statuses}}
}

// runs is a running container, started after t0 by so much, on the node's clock.
func runs(name, id string, ready bool, after time.Duration) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id, Ready: ready, RestartCount: 1, State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0.Add(after))},
	}}
}

func seen(name, id string, ready bool) v1beta1.ContainerSnapshot {
	return v1beta1.ContainerSnapshot{Name: name, Ready: ready, RestartCount: 1, ContainerID: "containerd://" + id}
}

func TestDecide(t *testing.T) {
	gone := Plan{End: &recreate.End{Reason: "PodGone", Message: "pod has gone"}}
	late := Plan{End: &recreate.End{Reason: "DeadlineExceeded", Message: "recreating has exceeded the activeDeadlineSeconds"}}
	cases := map[string]struct {
		request *v1beta1.ContainerRecreateRequest
		pod     *corev1.Pod
		after   time.Duration
		want    Plan
	}{
		"a request that has ended lets everything go in one write": {request: request(ended(5*time.Second, nil), holding), want: Plan{Release: true, Deactivate: true}},
		"then nothing is left":                              {request: request(ended(5*time.Second, nil), inactive)},
		"unless it has a TTL":                               {request: request(ended(5*time.Second, new(int32(10))), inactive), after: 8 * time.Second, want: Plan{Requeue: 7 * time.Second}},
		"which deletes it":                                  {request: request(ended(5*time.Second, new(int32(10))), inactive), after: 15 * time.Second, want: Plan{Delete: true}},
		"but not before its label is gone":                  {request: request(ended(5*time.Second, new(int32(0)))), after: 15 * time.Second, want: Plan{Deactivate: true}},
		"an empty label goes as well":                       {request: request(ended(0, nil), func(r *v1beta1.ContainerRecreateRequest) { r.Labels["crr.apps.kruise.io/active"] = "" }), want: Plan{Deactivate: true}},
		"one that is deleted in flight lets the Pod go":     {request: request(deleting, holding), pod: pod(), want: Plan{Release: true}},
		"one that is deleted and holds nothing is not ours": {request: request(deleting), pod: pod()},
		"the Pod is gone":                                   {request: request(), want: gone},
		"the Pod is being deleted":                          {request: request(), pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", DeletionTimestamp: &metav1.Time{Time: t0}}}, want: gone},
		"another Pod has the name":                          {request: request(), pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2"}}, want: gone},
		"the agent has a minute to answer":                  {request: request(phase("")), pod: pod(), after: 59 * time.Second, want: Plan{Requeue: time.Second}},
		"and no more":                                       {request: request(phase("")), pod: pod(), after: time.Minute, want: Plan{End: &recreate.End{Reason: "AgentNotResponding", Message: "daemon has not responded for a long time"}}},
		"the deadline may come before":                      {request: request(phase(""), deadline), pod: pod(), after: 4 * time.Second, want: Plan{Requeue: 6 * time.Second}},
		"the deadline ends it unanswered":                   {request: request(phase(""), deadline), pod: pod(), after: 10 * time.Second, want: late},
		"the deadline ends it waiting":                      {request: request(phase("Pending"), deadline), pod: pod(), after: 11 * time.Second, want: late},
		"the deadline ends it at work":                      {request: request(deadline), pod: pod(), after: 10 * time.Second, want: late},
		"one that waits for another may wait for ever":      {request: request(phase("Pending")), pod: pod(runs("app", "a2", true, 5*time.Second)), after: time.Hour},
		"the containers that it was made for are no news":   {request: request(), pod: pod(runs("app", "a1", true, -time.Hour)), want: Plan{Requeue: 3 * time.Second}},
		"nor when the node's clock is ahead":                {request: request(), pod: pod(runs("app", "a1", true, time.Hour)), want: Plan{Requeue: 3 * time.Second}},
		"new ones are, also when the node's clock is behind": {
			request: request(), pod: pod(runs("app", "a2", false, -time.Hour)),
			want: Plan{Containers: []v1beta1.ContainerSnapshot{seen("app", "a2", false)}, Requeue: 3 * time.Second},
		},
		"they come in the order of the spec, native sidecars as well": {
			request: request(), pod: func() *corev1.Pod {
				p := pod(runs("proxy", "p2", true, time.Second), runs("other", "o2", true, time.Second))
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{runs("app", "a2", true, time.Second)}
				return p
			}(),
			want: Plan{Containers: []v1beta1.ContainerSnapshot{seen("app", "a2", true), seen("proxy", "p2", true)}, Requeue: 3 * time.Second},
		},
		"what is written already is not written again": {
			request: request(snapshot(seen("app", "a2", true))), pod: pod(runs("app", "a2", true, time.Second)), want: Plan{Requeue: 3 * time.Second},
		},
		"readiness counts": {
			request: request(snapshot(seen("app", "a2", false))), pod: pod(runs("app", "a2", true, time.Second)),
			want: Plan{Containers: []v1beta1.ContainerSnapshot{seen("app", "a2", true)}, Requeue: 3 * time.Second},
		},
		"while nothing runs the last snapshot stays": {request: request(snapshot(seen("app", "a2", true))), pod: pod(), want: Plan{Requeue: 3 * time.Second}},
		"a request that met no admission goes by the clock": {
			request: request(func(r *v1beta1.ContainerRecreateRequest) { r.Spec.Containers[0].StatusContext = nil }),
			pod:     pod(runs("app", "a1", true, 0)),
			want:    Plan{Containers: []v1beta1.ContainerSnapshot{seen("app", "a1", true)}, Requeue: 3 * time.Second},
		},
		"the drain begins when the agent has begun": {request: request(grace), pod: pod(), want: Plan{Drain: true, Requeue: 3 * time.Second}},
		"not before":    {request: request(grace, phase("Pending")), pod: pod()},
		"and only once": {request: request(grace, withDrain), pod: pod(), want: Plan{Requeue: 3 * time.Second}},
		"a deadline before the next look comes first": {request: request(deadline), pod: pod(), after: 9 * time.Second, want: Plan{Requeue: time.Second}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(Snapshot{Request: tc.request, Pod: tc.pod}, t0.Add(tc.after))); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package containerrecreaterequest

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

const (
	// answerWithin is how long the node agent may be silent after the creation.
	answerWithin = 60 * time.Second
	// poll is how often a request under way is looked at: kubelet writes no status while a
	// postStart hook runs, so that events about the Pod alone are late or do not come.
	poll = 3 * time.Second
)

// Snapshot is all that Decide may look at. Nobody writes to it.
type Snapshot struct {
	Request *v1beta1.ContainerRecreateRequest
	// Pod is the one that has the name now; nil when none has.
	Pod *corev1.Pod
}

// Plan is what to do, in the order of its fields. The zero Plan means to wait for an event.
type Plan struct {
	// Release lets the Pod be ready again and takes the finalizer off.
	Release bool
	// Deactivate takes the label off that makes the node agent watch the request.
	Deactivate bool
	// Delete deletes the request, whose time after its end is over.
	Delete bool
	// End completes the request.
	End *recreate.End
	// Containers is the new status.containerStatusSnapshot; nil leaves it.
	Containers []v1beta1.ContainerSnapshot
	// Drain takes the Pod out of service and says since when.
	Drain bool
	// Requeue is when time alone changes the answer; 0 is never.
	Requeue time.Duration
}

// Decide returns what the manager has to do for one request. Rules: container-recreate.md 4.2.
func Decide(s Snapshot, now time.Time) Plan {
	r := s.Request
	if recreate.Finished(r) || r.DeletionTimestamp != nil {
		return cleanUp(r, now)
	}
	if s.Pod == nil || s.Pod.DeletionTimestamp != nil || string(s.Pod.UID) != r.Labels[v1beta1.RecreatePodUIDLabel] {
		return Plan{End: &recreate.End{Reason: recreate.ReasonPodGone, Message: recreate.MessagePodGone}}
	}
	var p Plan
	if r.Status.Phase == "" && !p.waits(r.CreationTimestamp.Add(answerWithin), now) {
		return Plan{End: &recreate.End{Reason: recreate.ReasonNoAnswer, Message: recreate.MessageNoAnswer}}
	}
	if limit := r.Spec.ActiveDeadlineSeconds; limit != nil && !p.waits(r.CreationTimestamp.Add(time.Duration(*limit)*time.Second), now) {
		return Plan{End: &recreate.End{Reason: recreate.ReasonDeadlineExceeded, Message: recreate.MessageDeadlineExceeded}}
	}
	if r.Status.Phase != v1beta1.RecreateRecreating {
		return p
	}
	if seen := running(r, s.Pod); len(seen) > 0 && !slices.Equal(seen, r.Status.ContainerStatusSnapshot) {
		p.Containers = seen
	}
	if _, drained := recreate.DrainedSince(r); !drained && recreate.Strategy(r).UnreadyGracePeriodSeconds != nil {
		p.Drain = true
	}
	p.waits(now.Add(poll), now)
	return p
}

// waits makes sure that the request is looked at again at that time. It returns false when
// the time has come.
func (p *Plan) waits(until, now time.Time) bool {
	left := until.Sub(now)
	if left <= 0 {
		return false
	}
	if p.Requeue == 0 || left < p.Requeue {
		p.Requeue = left
	}
	return true
}

// cleanUp is what remains to be done for a request that has ended or is being deleted.
func cleanUp(r *v1beta1.ContainerRecreateRequest, now time.Time) Plan {
	p := Plan{Release: slices.Contains(r.Finalizers, v1beta1.RecreateUnreadyFinalizer)}
	if r.DeletionTimestamp != nil {
		return p
	}
	_, p.Deactivate = r.Labels[v1beta1.RecreateActiveLabel]
	if p.Release || p.Deactivate {
		return p // the event of that write leads on
	}
	ttl := r.Spec.TTLSecondsAfterFinished
	if ttl == nil || r.Status.CompletionTime == nil {
		return p
	}
	p.Delete = !p.waits(r.Status.CompletionTime.Add(time.Duration(*ttl)*time.Second), now)
	return p
}

// running lists the containers of the request that run and were started for it. Which ones
// these are is told by their IDs: the clocks of node and API server may disagree
// (container-recreate.md 4.3). Only without an ID the time of the start has to do.
func running(r *v1beta1.ContainerRecreateRequest, pod *corev1.Pod) []v1beta1.ContainerSnapshot {
	var seen []v1beta1.ContainerSnapshot
	for _, c := range r.Spec.Containers {
		status := recreate.ContainerStatus(pod, c.Name)
		if status == nil || status.State.Running == nil {
			continue
		}
		isNew := !status.State.Running.StartedAt.Time.Before(r.CreationTimestamp.Time)
		if c.StatusContext != nil {
			isNew = status.ContainerID != c.StatusContext.ContainerID
		}
		if isNew {
			seen = append(seen, v1beta1.ContainerSnapshot{
				Name: c.Name, Ready: status.Ready, RestartCount: status.RestartCount, ContainerID: status.ContainerID,
			})
		}
	}
	return seen
}

// holds tells whether making the Pod not ready is up to us: without the readiness gate the
// grace period just elapses.
func holds(pod *corev1.Pod) bool { return podready.HasGate(pod, v1beta1.KruisePodReady) }

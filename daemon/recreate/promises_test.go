// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

// seen holds the promises about what is written.
func (l *life) seen(before, after *v1beta1.ContainerRecreateRequest) {
	name := after.Name
	if end, ok := l.ends[name]; ok {
		if after.Status.CompletionTime == nil || !after.Status.CompletionTime.Time.Equal(end) || after.Status.Phase != v1beta1.RecreateCompleted {
			l.breaks("%s ended and is %s now", name, after.Status.Phase)
		}
		if before != nil && before.Status.Message != after.Status.Message {
			l.breaks("%s ended with %q and says %q now", name, before.Status.Message, after.Status.Message)
		}
	} else if recreate.Finished(after) {
		l.ends[name] = after.Status.CompletionTime.Time
		l.note("%s ends: %q %v", name, after.Status.Message, after.Status.ContainerRecreateStates)
	}
	if since, ok := recreate.DrainedSince(after); ok {
		if at, known := l.drained[name]; known && !at.Equal(since) {
			l.breaks("%s: the start of the grace period moves", name)
		}
		l.drained[name] = since
	} else if _, known := l.drained[name]; known {
		l.breaks("%s: the start of the grace period is forgotten", name)
	}
	if before == nil {
		return
	}
	for _, s := range before.Status.ContainerRecreateStates {
		now, ok := recreate.StateOf(after.Status.ContainerRecreateStates, s.Name)
		if !ok || settled(s) && now != s || s.IsKilled && !now.IsKilled && now.Phase != v1beta1.RecreateFailed {
			l.breaks("%s: state %+v becomes %+v", name, s, now)
		}
	}
}

// mayStop holds the promises about stops.
func (l *life) mayStop(f *flight, b *box) {
	r, ok := l.server.requests[f.request]
	if !ok {
		r = l.find(f.request)
	}
	if b == nil || r == nil {
		l.breaks("%s stops %s: one of them does not exist", f.request, f.target)
		return
	}
	strategy := recreate.Strategy(r)
	if seen := l.agentSees.requests[r.Name]; seen != nil && recreate.Finished(seen) {
		l.breaks("%s has ended, and stops %s", r.Name, b.ID)
	}
	if string(b.podUID) != r.Labels[v1beta1.RecreatePodUIDLabel] {
		l.breaks("%s stops %s of another Pod", r.Name, b.ID)
	}
	if done := l.stops[r.Name][b.Name]; len(done) > 0 {
		l.breaks("%s stops %s after %v", r.Name, b.ID, done)
	}
	l.stops[r.Name][b.Name] = append(l.stops[r.Name][b.Name], b.ID)
	c := r.Spec.Containers[slices.IndexFunc(r.Spec.Containers, func(c v1beta1.RecreateContainer) bool { return c.Name == b.Name })]
	if !strategy.ForceRecreate && c.StatusContext.ContainerID != "containerd://"+b.ID {
		l.breaks("%s stops %s, which has restarted already", r.Name, b.ID)
	}
	for _, other := range r.Spec.Containers {
		state, _ := recreate.StateOf(r.Status.ContainerRecreateStates, other.Name)
		if strategy.FailurePolicy == v1beta1.RecreateFailurePolicyFail && state.Phase == v1beta1.RecreateFailed {
			l.breaks("%s stops %s although %s has failed", r.Name, b.ID, other.Name)
		}
		if other.Name == b.Name {
			break
		}
		stuck := l.forGood(types.UID(r.Labels[v1beta1.RecreatePodUIDLabel]), other.Name)
		if strategy.OrderedRecreate && !settled(state) && !(stuck && strategy.FailurePolicy == v1beta1.RecreateFailurePolicyIgnore) {
			l.breaks("%s stops %s while %s is %s", r.Name, b.ID, other.Name, state.Phase)
		}
	}
	for _, other := range l.server.requests {
		if other.Name != r.Name && KeyOf(other) == KeyOf(r) && other.Status.Phase == v1beta1.RecreateRecreating && !recreate.Finished(other) && other.DeletionTimestamp == nil {
			l.breaks("%s stops %s while %s is at work", r.Name, b.ID, other.Name)
		}
	}
	if grace := strategy.UnreadyGracePeriodSeconds; grace != nil {
		since, ok := recreate.DrainedSince(r)
		if !ok || l.clock.Now().Sub(since) < time.Duration(*grace)*time.Second {
			l.breaks("%s stops %s before the grace period is over", r.Name, b.ID)
		}
		pod := l.server.pods["web"]
		if pod != nil && pod.UID == b.podUID && podready.HasGate(pod, v1beta1.KruisePodReady) && !recreate.Finished(r) && r.DeletionTimestamp == nil &&
			!slices.Contains(podready.Holders(pod), recreate.Holder(r)) {
			l.breaks("%s stops %s of a Pod in service", r.Name, b.ID)
		}
	}
}

// forGood tells whether a container has exited for good.
func (l *life) forGood(pod types.UID, name string) bool {
	b := l.newest(pod, name)
	for _, s := range l.server.history {
		if p := s.pods["web"]; p != nil && p.UID == pod && b != nil && b.State == cri.StateExited {
			if _, restarts := recreate.Restarts(p, name, b.ExitCode); !restarts {
				return true
			}
		}
	}
	return b == nil
}

func (l *life) find(name string) *v1beta1.ContainerRecreateRequest {
	for _, s := range slices.Backward(l.server.history) {
		if r := s.requests[name]; r != nil {
			return r
		}
	}
	return nil
}

// atRest holds the promises about the end.
func (l *life) atRest() {
	for _, pod := range l.server.pods {
		if holders := podready.Holders(pod); len(holders) > 0 {
			l.breaks("Pod %s is held by %v", pod.Name, holders)
		}
	}
	for _, r := range l.server.requests {
		switch {
		case r.DeletionTimestamp != nil:
			l.breaks("%s cannot be deleted", r.Name)
		case !recreate.Finished(r):
			l.breaks("%s never ends: %+v", r.Name, r.Status)
		case len(r.Finalizers) > 0:
			l.breaks("%s keeps its finalizer", r.Name)
		case active(r):
			l.breaks("%s is active", r.Name)
		case r.Spec.TTLSecondsAfterFinished != nil:
			l.breaks("%s outlives its TTL", r.Name)
		}
		l.ended(r)
	}
}

// ended compares the end of a request with what has happened.
func (l *life) ended(r *v1beta1.ContainerRecreateRequest) {
	result := r.Status.Conditions[len(r.Status.Conditions)-1]
	if (result.Type == recreate.ConditionComplete) != (result.Reason == recreate.ReasonRecreated) {
		l.breaks("%s: condition %s with reason %s", r.Name, result.Type, result.Reason)
	}
	for i, c := range r.Spec.Containers {
		state, ok := recreate.StateOf(r.Status.ContainerRecreateStates, c.Name)
		if ok && r.Status.ContainerRecreateStates[i].Name != c.Name {
			l.breaks("%s: states are not in the order of the spec", r.Name)
		}
		if result.Type == recreate.ConditionComplete && (state.Phase != v1beta1.RecreateSucceeded || state.Message != "") {
			l.breaks("%s is complete with %+v", r.Name, state)
		}
		if recreate.Strategy(r).ForceRecreate && state.Phase == v1beta1.RecreateSucceeded && !state.IsKilled {
			l.breaks("%s has not stopped %s", r.Name, c.Name)
		}
		if state.Phase == v1beta1.RecreateSucceeded && fmt.Sprint(r.Status.ContainerStatusSnapshot) == "[]" {
			l.breaks("%s succeeded without a snapshot", r.Name)
		}
	}
}

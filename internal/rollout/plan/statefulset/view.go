// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/ordinal"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// readySince returns when a running and ready Pod became ready.
func readySince(pod *corev1.Pod) (since time.Time, ready bool) {
	if pod.Status.Phase != corev1.PodRunning {
		return time.Time{}, false
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time, c.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// IsReady tells whether a Pod runs and is ready; its lifecycle state does not matter.
func IsReady(pod *corev1.Pod) bool {
	_, ready := readySince(pod)
	return ready
}

// Available tells whether a Pod counts as available. When only time is missing, wait is
// how long; otherwise it is zero.
func Available(pod *corev1.Pod, minReadySeconds int32, now time.Time) (available bool, wait time.Duration) {
	since, ready := readySince(pod)
	if !ready || lifecycle.State(pod) != v1beta1.LifecycleNormal {
		return false, 0
	}
	return readyFor(since, minReadySeconds, now)
}

func readyFor(since time.Time, minReadySeconds int32, now time.Time) (available bool, wait time.Duration) {
	wait = time.Duration(minReadySeconds)*time.Second - now.Sub(since)
	if minReadySeconds <= 0 || wait <= 0 {
		return true, 0
	}
	return false, wait
}

// IsTerminal tells whether a Pod has ended and is to be replaced.
func IsTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// view is what is read from one Pod, once per decision. An ordinal in range without a Pod
// has a view without one.
type view struct {
	ordinal int
	name    string
	inRange bool
	// position is how many ordinals in range are below.
	position int
	pod      *corev1.Pod // nil: the ordinal is missing

	state       v1beta1.LifecycleState
	terminating bool
	terminal    bool
	ready       bool
	available   bool
	availableIn time.Duration // positive when only time separates the Pod from being available
	specified   bool
	// updated: at the update revision, by label; of a missing one, whether it will be.
	updated bool

	// What Decide adds.
	candidate bool          // the update may reach the Pod: the partition does not keep it
	next      *inplace.Step // of the in-place engine; nil when it is done
	complete  bool          // no in-place update is in progress
	lacks     string        // the first claim template that the Pod has no volume for
	completed bool          // claims are in line with their templates, or will be with a new start
	growing   []growth      // claims that are to be expanded
	forbidden *Step         // why they cannot; nil when they can
	restart   bool          // a file system grows only when the Pod starts anew
	owning    bool          // owners of a claim are written in this pass
	expanding bool          // a claim is being expanded
	down      bool          // does not serve, or will not once the plan is carried out
	touched   bool          // has a step
	leaving   bool          // the step deletes it, or begins to
	held      bool          // is in Held
}

// healthy: in state Normal, running, ready, not terminating (statefulset.md 7.5).
func (v *view) healthy() bool {
	return v.pod != nil && v.ready && !v.terminating && v.state == v1beta1.LifecycleNormal
}

func (v *view) inUnavailable() bool { return v.down || v.expanding }

// due tells whether the Pod itself must change to be as the spec wants it.
func (v *view) due() bool { return !v.updated || v.lacks != "" }

func (v *view) at(r *appsv1.ControllerRevision) bool {
	return revision.SameRevision(RevisionOf(v.pod), r.Name)
}

// views are the Pods by ordinal, lowest first.
func (s *Snapshot) views(r ordinal.Range, now time.Time) []*view {
	list := make([]*view, 0, len(s.Pods))
	block := make([]view, len(s.Pods))
	minReady := MinReadySeconds(s.Set)
	for i, p := range s.Pods {
		n, ok := OrdinalOf(s.Set.Name, p.Name)
		if !ok {
			continue
		}
		v := &block[i]
		*v = view{
			ordinal: n, name: p.Name, inRange: r.Contains(n), position: r.Position(n), pod: p,
			state:       lifecycle.State(p),
			terminating: p.DeletionTimestamp != nil,
			terminal:    IsTerminal(p),
		}
		var since time.Time
		since, v.ready = readySince(p)
		if v.ready && v.state == v1beta1.LifecycleNormal {
			v.available, v.availableIn = readyFor(since, minReady, now)
		}
		_, v.specified = p.Labels[v1beta1.SpecifiedDeleteLabel]
		v.updated = v.at(s.Update)
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *view) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return list
}

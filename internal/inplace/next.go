// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// Action is what a Step asks for.
type Action string

const (
	// Done: nothing is left to do; a Pod that was never updated is done, too.
	Done Action = "Done"
	// Wait: something else must happen first: Step.Waiting says what.
	Wait Action = "Wait"
	// DropGrace: the Pod was moved to another revision during the grace period; write
	// the Pod without the grace annotation.
	DropGrace Action = "DropGrace"
	// SendBatch: write the Pod with the next batch of containers changed.
	SendBatch Action = "SendBatch"
	// Ready: write the status with InPlaceUpdateReady True, once and only if the server
	// still has exactly the version of the Pod that was decided on.
	Ready Action = "Ready"
	// Invalid: the Pod's annotations cannot be understood; Step.Err says why.
	Invalid Action = "Invalid"
)

// Step is the next thing to do with a Pod, as data.
type Step struct {
	Action Action
	// After is when time alone brings the next step, in whole seconds; 0 is never.
	After time.Duration
	// Waiting is what the Pod waits for, for Wait.
	Waiting []Reason
	// Write is for DropGrace, SendBatch and Ready.
	Write Write
	// Err is for Invalid.
	Err error
}

// errNoState is a grace annotation without the state it needs.
var errNoState = errors.New("the Pod has a grace annotation but no " + v1beta1.InPlaceUpdateStateAnnotation)

// Next decides the next step of the Pod's in-place update (inplace-update.md 7): end of
// the grace period, next batch, ready. It is asked for every Pod in every pass, also for
// Pods that were just created: their first condition InPlaceUpdateReady comes from here.
func Next(pod *corev1.Pod, o Options, now time.Time) Step {
	state, err := StateOf(pod)
	if err != nil {
		return Step{Action: Invalid, Err: err}
	}
	grace, err := GraceOf(pod)
	if err != nil {
		return Step{Action: Invalid, Err: err}
	}
	if grace != nil {
		return nextInGrace(pod, state, grace, o, now)
	}
	if state != nil {
		if waits := containerWaits(pod, state, o); len(waits) > 0 {
			return Step{Action: Wait, Waiting: waits}
		}
		if state.Pending() {
			if waits := readyWaits(pod, state); len(waits) > 0 {
				return Step{Action: Wait, Waiting: waits}
			}
			return batchStep(pod, state.next(), state, o, now)
		}
	}
	if !podready.HasGate(pod, v1beta1.InPlaceUpdateReady) {
		return Step{Action: Done}
	}
	if c := podready.Condition(pod, v1beta1.InPlaceUpdateReady); c != nil && c.Status == corev1.ConditionTrue {
		return Step{Action: Done}
	}
	pod = pod.DeepCopy()
	podready.SetCondition(pod, corev1.PodCondition{Type: v1beta1.InPlaceUpdateReady, Status: corev1.ConditionTrue}, now)
	return Step{Action: Ready, Write: Write{Pod: pod}}
}

// Settled tells that Next has nothing to write for the Pod and will not have anything by
// the passing of time. It costs next to nothing, as it reads no JSON: most Pods keep the
// state of their last update for good, and a workload asks for each of them in each pass.
// When it is false, Next knows.
func Settled(pod *corev1.Pod) bool {
	for _, key := range []string{v1beta1.InPlaceUpdateGraceAnnotation, v1beta1.InPlaceUpdateGraceAnnotationOld} {
		if _, ok := pod.Annotations[key]; ok {
			return false
		}
	}
	state, ok := pod.Annotations[v1beta1.InPlaceUpdateStateAnnotation]
	if !ok {
		state = pod.Annotations[v1beta1.InPlaceUpdateStateAnnotationOld]
	}
	if strings.Contains(state, "nextContainer") { // the fields of batches to come
		return false
	}
	if !podready.HasGate(pod, v1beta1.InPlaceUpdateReady) {
		return true
	}
	c := podready.Condition(pod, v1beta1.InPlaceUpdateReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func nextInGrace(pod *corev1.Pod, state *State, grace *UpdateSpec, o Options, now time.Time) Step {
	if state == nil {
		return Step{Action: Invalid, Err: errNoState}
	}
	if !o.atRevision(pod, grace.Revision) {
		pod = pod.DeepCopy()
		dropGrace(pod)
		return Step{Action: DropGrace, Write: Write{Pod: pod}}
	}
	left := graceEnd(state, grace).Sub(now)
	if left <= 0 {
		return batchStep(pod, grace, state, o, now)
	}
	left = (left + time.Second - 1).Truncate(time.Second)
	return Step{
		Action:  Wait,
		After:   left,
		Waiting: []Reason{reason(WaitGracePeriod, "", "grace period ends in %s", left)},
	}
}

func graceEnd(state *State, grace *UpdateSpec) time.Time {
	return state.UpdateTimestamp.Add(time.Duration(grace.GraceSeconds) * time.Second)
}

func batchStep(pod *corev1.Pod, spec *UpdateSpec, state *State, o Options, now time.Time) Step {
	w, err := applyBatch(pod, spec, state, o, now)
	if err != nil {
		return Step{Action: Invalid, Err: err}
	}
	return Step{Action: SendBatch, Write: w}
}

// PendingBatch returns the batch that a SendBatch step has for the Pod, without asking
// again whether it is due. It is for the rest of a batch after its resize was sent: the
// kubelet has not seen that resize yet, and Next would wait for it.
func PendingBatch(pod *corev1.Pod, o Options, now time.Time) (Write, error) {
	state, err := StateOf(pod)
	if err != nil {
		return Write{}, err
	}
	spec, err := GraceOf(pod)
	switch {
	case err != nil:
		return Write{}, err
	case state == nil:
		return Write{}, errNoState
	case spec == nil:
		spec = state.next()
	}
	return applyBatch(pod, spec, state, o, now)
}

// readyWaits lists the containers of the last batch that must be ready first.
func readyWaits(pod *corev1.Pod, state *State) []Reason {
	if state.PreCheckBeforeNext == nil {
		return nil
	}
	var missing []string
	for _, name := range state.PreCheckBeforeNext.ContainersRequiredReady {
		if s := containerStatus(pod, name); s == nil || !s.Ready {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []Reason{reason(WaitContainersReady, "status.containerStatuses["+missing[0]+"].ready",
		"waiting for containers [%s] to be ready before the next batch", strings.Join(missing, ", "))}
}

// Complete tells whether nothing is left of the Pod's in-place update but, perhaps, to
// make the Pod ready (inplace-update.md 12).
func Complete(pod *corev1.Pod, o Options) bool { return len(Waiting(pod, o)) == 0 }

// Waiting lists what the Pod's in-place update waits for; nothing if the Pod is complete.
// It needs no clock: the end of a grace period is a point in time. Next words it as the
// time left.
func Waiting(pod *corev1.Pod, o Options) []Reason {
	state, err := StateOf(pod)
	if err != nil {
		return []Reason{reason(WaitInvalidState, "metadata.annotations["+v1beta1.InPlaceUpdateStateAnnotation+"]", "%v", err)}
	}
	grace, err := GraceOf(pod)
	if err != nil {
		return []Reason{reason(WaitInvalidState, "metadata.annotations["+v1beta1.InPlaceUpdateGraceAnnotation+"]", "%v", err)}
	}
	switch {
	case grace != nil && state == nil:
		return []Reason{reason(WaitInvalidState, "metadata.annotations["+v1beta1.InPlaceUpdateGraceAnnotation+"]", "%v", errNoState)}
	case grace != nil:
		return []Reason{reason(WaitGracePeriod, "", "grace period of %ds ends at %s", grace.GraceSeconds, graceEnd(state, grace).UTC().Format(time.RFC3339))}
	case state == nil:
		return nil
	}
	waits := containerWaits(pod, state, o)
	if state.Pending() {
		if ready := readyWaits(pod, state); len(ready) > 0 {
			return append(waits, ready...)
		}
		waits = append(waits, reason(WaitNextBatch, "", "next batch of containers [%s] is due", strings.Join(state.next().containers(), ", ")))
	}
	return waits
}

// containers are the names that the update changes, sorted.
func (u *UpdateSpec) containers() []string {
	var list []string
	for name := range u.ContainerImages {
		list = append(list, name)
	}
	for name := range u.ContainerRefMetadata {
		list = append(list, name)
	}
	for name := range u.ContainerResources {
		list = append(list, name)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// String is the action and what it waits for, for logs.
func (s Step) String() string {
	if s.Err != nil {
		return fmt.Sprintf("%s: %v", s.Action, s.Err)
	}
	var waits []string
	for _, r := range s.Waiting {
		waits = append(waits, r.Message)
	}
	return strings.TrimSuffix(string(s.Action)+": "+strings.Join(waits, "; "), ": ")
}

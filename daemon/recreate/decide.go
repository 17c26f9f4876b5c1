// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

const (
	// poll is how often a request that waits is looked at: nobody tells the agent that a
	// container has exited, or has appeared.
	poll = 3 * time.Second
	// stopLag is how long a runtime may list a container as running that it has stopped.
	stopLag = 10 * time.Second
	// drainSlack is added to the wait for unreadyGracePeriodSeconds, whose start is known in
	// whole seconds.
	drainSlack = 100 * time.Millisecond
	// startSlack is added to the wait for minStartedSeconds, which must be exceeded.
	startSlack = 50 * time.Millisecond
)

// Messages of the state of a container.
const (
	messageNotFound = "not found container on Node"
	messageStopping = "stopping container " // and its ID
	messageKilled   = "kill container error: "
)

// Line is who is served next of the requests of one Pod.
type Line struct {
	// Next is nil when nobody waits.
	Next *v1beta1.ContainerRecreateRequest
	// Unanswered have to be told that they wait: their phase becomes Pending.
	Unanswered []*v1beta1.ContainerRecreateRequest
}

// Order lines the requests of one Pod up: those that were begun, those that wait, new ones;
// each kind by age and name (container-recreate.md 6.2). Requests that have ended or are
// being deleted hold nobody up.
func Order(requests []*v1beta1.ContainerRecreateRequest) Line {
	open := slices.DeleteFunc(slices.Clone(requests), func(r *v1beta1.ContainerRecreateRequest) bool {
		return recreate.Finished(r) || r.DeletionTimestamp != nil
	})
	if len(open) == 0 {
		return Line{}
	}
	slices.SortFunc(open, func(a, b *v1beta1.ContainerRecreateRequest) int {
		return cmp.Or(rank(a)-rank(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	line := Line{Next: open[0]}
	for _, r := range open[1:] {
		if r.Status.Phase == "" {
			line.Unanswered = append(line.Unanswered, r)
		}
	}
	return line
}

func rank(r *v1beta1.ContainerRecreateRequest) int {
	switch r.Status.Phase {
	case v1beta1.RecreateRecreating:
		return 0
	case "":
		return 2
	default:
		return 1
	}
}

// Snapshot is all that Decide may look at. Nobody writes to it.
type Snapshot struct {
	Request *v1beta1.ContainerRecreateRequest
	// Containers are the newest of each name that the runtime has.
	Containers map[string]Container
	// NoRuntime says why no runtime can be asked; then Containers is empty.
	NoRuntime string
	// Pod is nil when it was not asked for or is not known.
	Pod *corev1.Pod
	// Kills is what this process did for the request, by name of the container.
	Kills map[string]Kill
}

// Container is the newest container of a name. Times are by the node's clock.
type Container struct {
	// ID has no scheme.
	ID           string
	State        cri.State
	RestartCount int32
	Started      time.Time
	ExitCode     int32
}

// Kill is a container that this process has stopped.
type Kill struct {
	ID string
	At time.Time // by the node's clock
}

// Plan is what to do next, in the order of its fields. The zero Plan means to wait for an
// event.
type Plan struct {
	// Begin sets the phase Recreating.
	Begin bool
	// States are those of the containers, to be written if they differ; nil leaves them.
	States []v1beta1.RecreateState
	// Stop is the container to stop after that; Ended tells how that went.
	Stop *Target
	// End completes the request.
	End *recreate.End
	// Requeue is when time alone changes the answer; 0 is never.
	Requeue time.Duration
}

// Target is a container to stop.
type Target struct {
	Name, ID string
}

// Decide returns the next step of the request whose turn it is. It stops one container at a
// time, and only after the states say so. Rules: container-recreate.md 6.2 to 6.5.
func Decide(s Snapshot, now time.Time) Plan {
	r := s.Request
	if s.NoRuntime != "" {
		return Plan{End: &recreate.End{Reason: recreate.ReasonNoRuntime, Message: "failed to find runtime service: " + s.NoRuntime}}
	}
	begun := r.Status.Phase == v1beta1.RecreateRecreating
	if recreate.Strategy(r).UnreadyGracePeriodSeconds != nil {
		if !begun {
			return Plan{Begin: true} // only then the manager takes the Pod out of service
		}
		if wait, over := drain(r, now); !over {
			return Plan{Requeue: wait}
		}
	}
	p := walk(s, now)
	p.Begin = !begun && p.End == nil
	return p
}

// drain tells whether the grace period before the first stop is over, and if not, how long to
// wait; 0 is for the manager's word that it has begun.
func drain(r *v1beta1.ContainerRecreateRequest, now time.Time) (time.Duration, bool) {
	since, ok := recreate.DrainedSince(r)
	if !ok {
		return 0, false
	}
	grace := time.Duration(*recreate.Strategy(r).UnreadyGracePeriodSeconds) * time.Second
	left := since.Add(grace).Sub(now)
	return left + drainSlack, left <= 0
}

// walker is one walk along the containers of a request.
type walker struct {
	Snapshot
	strategy v1beta1.RecreateStrategy
	now      time.Time
	plan     Plan
	// ended are the containers that need nothing more; stuck those that have exited for good.
	ended, stuck int
	why          []string // of the stuck ones
}

func walk(s Snapshot, now time.Time) Plan {
	w := &walker{Snapshot: s, strategy: recreate.Strategy(s.Request), now: now}
	containers := s.Request.Spec.Containers
	for _, c := range containers {
		w.plan.States = append(w.plan.States, w.evaluate(c))
	}
	for i, c := range containers {
		if !w.visit(c, &w.plan.States[i]) {
			break
		}
	}
	switch {
	case w.plan.Stop != nil || w.plan.End != nil:
		w.plan.Requeue = 0
	case w.ended+w.stuck == len(containers):
		w.finish()
	default:
		w.after(poll)
	}
	return w.plan
}

// visit handles one container in its turn and tells whether the next one has a turn now.
func (w *walker) visit(c v1beta1.RecreateContainer, state *v1beta1.RecreateState) bool {
	cur, found := w.Containers[c.Name]
	if why, stuck := w.exitedForGood(c.Name); stuck && !settled(*state) {
		return w.giveUp(c.Name, state, why)
	}
	switch state.Phase {
	case v1beta1.RecreateSucceeded:
		w.ended++
	case v1beta1.RecreateFailed:
		w.ended++
		if w.strategy.FailurePolicy != v1beta1.RecreateFailurePolicyIgnore {
			w.plan.End = &recreate.End{Reason: recreate.ReasonContainerFailed}
			return false
		}
	case v1beta1.RecreateRecreating:
		state.IsKilled = true // also when it restarted by itself: clients compare it
		return !w.strategy.OrderedRecreate
	default:
		if !found {
			return false
		}
		w.plan.Stop = &Target{Name: c.Name, ID: cur.ID}
		if w.strategy.ForceRecreate {
			// An agent that starts anew must know whether it has stopped the container: here, that
			// it runs again is no sign of it.
			state.Message = messageStopping + cur.ID
		}
		return false
	}
	return true
}

// giveUp handles a container that will not run again. Without order the others still get
// their turn, as they do where nobody can tell.
func (w *walker) giveUp(name string, state *v1beta1.RecreateState, why string) bool {
	state.Phase, state.IsKilled = v1beta1.RecreateRecreating, true
	w.stuck++
	w.why = append(w.why, "container "+name+" has exited and is not started again: "+why)
	if !w.strategy.OrderedRecreate || w.strategy.FailurePolicy == v1beta1.RecreateFailurePolicyIgnore {
		return true
	}
	w.finish()
	return false
}

// finish ends the request; containers that have exited for good have failed.
func (w *walker) finish() {
	if w.stuck == 0 {
		w.plan.End = &recreate.End{Reason: recreate.ReasonRecreated}
		if slices.ContainsFunc(w.plan.States, func(s v1beta1.RecreateState) bool { return s.Phase == v1beta1.RecreateFailed }) {
			w.plan.End.Reason = recreate.ReasonContainerFailed
		}
		return
	}
	for i := range w.plan.States {
		s := &w.plan.States[i]
		if why, stuck := w.exitedForGood(s.Name); stuck && !settled(*s) {
			s.Phase, s.Message = v1beta1.RecreateFailed, "the container is not started again: "+why
		}
	}
	w.plan.End = &recreate.End{Reason: recreate.ReasonNotRestarted, Message: strings.Join(w.why, "; ")}
}

// exitedForGood tells whether the container has exited and kubelet will not start it again.
func (w *walker) exitedForGood(name string) (string, bool) {
	cur, found := w.Containers[name]
	if w.Pod == nil || found && cur.State != cri.StateExited {
		return "", false
	}
	if !found {
		// Whether it will appear is up to the Pod as a whole.
		if p := w.Pod.Status.Phase; p != corev1.PodFailed && p != corev1.PodSucceeded {
			return "", false
		}
	}
	why, restarts := recreate.Restarts(w.Pod, name, cur.ExitCode)
	return why, !restarts
}

func settled(s v1beta1.RecreateState) bool {
	return s.Phase == v1beta1.RecreateSucceeded || s.Phase == v1beta1.RecreateFailed
}

// evaluate is the table of container-recreate.md 6.4.
func (w *walker) evaluate(c v1beta1.RecreateContainer) v1beta1.RecreateState {
	previous, ok := recreate.StateOf(w.Request.Status.ContainerRecreateStates, c.Name)
	if !ok {
		previous = v1beta1.RecreateState{Name: c.Name, Phase: v1beta1.RecreatePending}
	}
	if settled(previous) {
		return previous
	}
	cur, found := w.Containers[c.Name]
	state := v1beta1.RecreateState{Name: c.Name, Phase: v1beta1.RecreatePending, IsKilled: previous.IsKilled || w.killed(previous, cur, found)}
	kill, byUs := w.Kills[c.Name]
	switch {
	case !found:
		state.Message = messageNotFound
	case cur.State == cri.StateExited:
		state.Phase = v1beta1.RecreateRecreating
	case byUs && kill.ID == cur.ID && w.now.Sub(kill.At) < stopLag:
		// The runtime said that it has stopped and lists it as running: asking again at once
		// would not make it better.
		state.Phase = v1beta1.RecreateRecreating
	case w.strategy.ForceRecreate && !state.IsKilled:
	case restarted(c, cur):
		state.Phase = v1beta1.RecreateRecreating
		if w.ready(c.Name, cur) && w.startedLongEnough(cur) {
			state.Phase = v1beta1.RecreateSucceeded
		}
	}
	return state
}

// killed tells whether a container that must be stopped by force counts as stopped although
// nobody wrote that down: it does not run, or the one that was to be stopped is not there
// any more.
func (w *walker) killed(previous v1beta1.RecreateState, cur Container, found bool) bool {
	if !w.strategy.ForceRecreate {
		return false
	}
	id, stopping := strings.CutPrefix(previous.Message, messageStopping)
	switch {
	case stopping && (!found || cur.ID != id):
		return true
	case w.Kills[previous.Name].ID != "":
		return true
	}
	return found && cur.State == cri.StateExited
}

// restarted tells whether cur is another container than the one that the request was made
// for. Clocks have no say: node and API server may disagree.
func restarted(c v1beta1.RecreateContainer, cur Container) bool {
	if c.StatusContext == nil {
		return false
	}
	_, own := recreate.SplitID(c.StatusContext.ContainerID)
	return cur.ID != own || cur.RestartCount > c.StatusContext.RestartCount
}

// ready tells whether the manager has seen exactly this container ready.
func (w *walker) ready(name string, cur Container) bool {
	return slices.ContainsFunc(w.Request.Status.ContainerStatusSnapshot, func(s v1beta1.ContainerSnapshot) bool {
		_, own := recreate.SplitID(s.ContainerID)
		return s.Name == name && s.Ready && own == cur.ID
	})
}

func (w *walker) startedLongEnough(cur Container) bool {
	atLeast := time.Duration(w.strategy.MinStartedSeconds) * time.Second
	if atLeast == 0 {
		return true
	}
	ran := w.now.Sub(cur.Started)
	if ran > atLeast {
		return true
	}
	w.after(atLeast - ran + startSlack)
	return false
}

// after makes sure that the request is looked at again within d.
func (w *walker) after(d time.Duration) {
	if w.plan.Requeue == 0 || d < w.plan.Requeue {
		w.plan.Requeue = d
	}
}

// Ended returns the states after a container was stopped, or could not be.
func Ended(states []v1beta1.RecreateState, name string, err error) []v1beta1.RecreateState {
	states = slices.Clone(states)
	for i := range states {
		if s := &states[i]; s.Name == name && !settled(*s) {
			if err != nil {
				*s = v1beta1.RecreateState{Name: name, Phase: v1beta1.RecreateFailed, Message: messageKilled + err.Error()}
			} else {
				*s = v1beta1.RecreateState{Name: name, Phase: v1beta1.RecreateRecreating, IsKilled: true}
			}
		}
	}
	return states
}

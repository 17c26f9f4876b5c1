// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"strings"
	"time"
	"unicode/utf8"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

// maxMessage bounds the message of a result, in bytes: a NodePodProbe holds those of all
// Pods of a node.
const maxMessage = 1024

// refresh is the age at which a result that does not change is stored again, so that its
// time shows that somebody still probes.
const refresh = 600 * time.Second

// Key identifies a probe of a Pod. Two probes of one container have two keys.
type Key struct {
	UID  types.UID // of the Pod
	Name string    // <PodProbeMarker>#<probe>
}

// Task is one probe of one Pod as the NodePodProbe wants it.
type Task struct {
	Key            Key
	Namespace, Pod string
	IP             string
	Container      string
	Probe          v1alpha1.ContainerProbeSpec
}

// Tasks lists what spec wants. Of two probes with one name in one Pod the first counts.
func Tasks(spec v1alpha1.NodePodProbeSpec) map[Key]Task {
	tasks := map[Key]Task{}
	for i := range spec.PodProbes {
		pod := &spec.PodProbes[i]
		for j := range pod.Probes {
			probe := &pod.Probes[j]
			key := Key{UID: pod.UID, Name: probe.Name}
			if _, ok := tasks[key]; !ok {
				tasks[key] = Task{
					Key: key, Namespace: pod.Namespace, Pod: pod.Name, IP: pod.IP,
					Container: probe.ContainerName, Probe: probe.Probe,
				}
			}
		}
	}
	return tasks
}

// another reports whether after probes something else than before, so that the results of
// one say nothing about the other.
func another(before, after Task) bool {
	return before.Container != after.Container || !apiequality.Semantic.DeepEqual(before.Probe.ProbeHandler, after.Probe.ProbeHandler)
}

// atLeastOne is a number of a probe, for which 0 stands for 1.
func atLeastOne(n int32) int { return max(1, int(n)) }

func (t Task) period() time.Duration {
	return time.Duration(atLeastOne(t.Probe.PeriodSeconds)) * time.Second
}
func (t Task) timeout() time.Duration {
	return time.Duration(atLeastOne(t.Probe.TimeoutSeconds)) * time.Second
}

// Result is what a probe says about its container.
type Result struct {
	State   v1alpha1.ProbeState
	Message string
}

// Stored is a result and when it was stored.
type Stored struct {
	Result
	At time.Time
}

// outdates reports whether r has to be stored at now in place of s.
func (r Result) outdates(s Stored, now time.Time) bool {
	return r != s.Result || now.Sub(s.At) >= refresh
}

// Sight is what the runtime says about a container. The zero value is no container.
type Sight struct {
	ID      string
	Running bool
	Started time.Time // by the node's clock
}

// Tracker follows one probe. The zero value knows nothing; Seed is the result of an earlier
// life of the agent.
type Tracker struct {
	Seed Stored

	container string
	last      v1alpha1.ProbeState // the state that was seen count times in a row
	count     int
}

// Look takes a look at the container into account. It returns a result to publish, nil for
// none, and whether to probe now (podprobe.md 6.2, steps 3 to 5).
func (t *Tracker) Look(task Task, sight Sight, now time.Time) (publish *Result, probe bool) {
	if sight.ID != t.container {
		seeded := t.container == "" && sight.Running && t.Seed.State != "" &&
			!sight.Started.Truncate(time.Second).After(t.Seed.At)
		*t = Tracker{container: sight.ID}
		if !seeded {
			publish = &Result{State: v1alpha1.ProbeUnknown}
		}
	}
	if !sight.Running {
		t.last, t.count = "", 0
		return &Result{State: v1alpha1.ProbeFailed, Message: "Container(" + task.Container + ") is Non-running"}, false
	}
	delay := time.Duration(atLeastOne(task.Probe.InitialDelaySeconds)) * time.Second
	return publish, now.Sub(sight.Started).Truncate(time.Second) >= delay
}

// Count takes the result of a probe into account and returns what to publish: nothing until
// enough results in a row agree (step 7).
func (t *Tracker) Count(task Task, r Result) *Result {
	if r.State != t.last {
		t.last, t.count = r.State, 0
	}
	t.count++
	threshold := atLeastOne(task.Probe.FailureThreshold)
	if r.State == v1alpha1.ProbeSucceeded {
		threshold = atLeastOne(task.Probe.SuccessThreshold)
	}
	if t.count < threshold {
		return nil
	}
	r.Message = cut(r.Message)
	return &r
}

// cut makes text fit: valid UTF-8 of at most maxMessage bytes.
func cut(text string) string {
	if len(text) > maxMessage {
		end := maxMessage
		for end > maxMessage-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return strings.ToValidUTF8(text, "")
}

// Change is a result that differs from what the status said.
type Change struct {
	Task Task
	Result
	// NewState is false when only the message differs.
	NewState bool
}

// Merge returns the status that a NodePodProbe is to have, in the order of its spec, and what
// changes. A probe without a stored result keeps what the status says (podprobe.md 6.4).
func Merge(npp *v1alpha1.NodePodProbe, stored map[Key]Stored, now time.Time) (v1alpha1.NodePodProbeStatus, []Change) {
	current := map[Key]v1alpha1.ContainerProbeState{}
	for _, pod := range npp.Status.PodProbeStatuses {
		for _, state := range pod.ProbeStates {
			current[Key{UID: pod.UID, Name: state.Name}] = state
		}
	}
	var status v1alpha1.NodePodProbeStatus
	var changes []Change
	tasks := Tasks(npp.Spec)
	for _, pod := range npp.Spec.PodProbes {
		entry := v1alpha1.PodProbeStatus{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		for _, probe := range pod.Probes {
			key := Key{UID: pod.UID, Name: probe.Name}
			task, first := tasks[key]
			if !first {
				continue
			}
			delete(tasks, key)
			state, known := current[key]
			if result, ok := stored[key]; ok {
				if !known || state.State != result.State || state.Message != result.Message {
					changes = append(changes, Change{Task: task, Result: result.Result, NewState: state.State != result.State})
				}
				state = next(state, result, probe.Name, now)
			} else if !known {
				continue
			}
			entry.ProbeStates = append(entry.ProbeStates, state)
		}
		if len(entry.ProbeStates) > 0 {
			status.PodProbeStatuses = append(status.PodProbeStatuses, entry)
		}
	}
	return status, changes
}

// next is the state of a probe after a result. Times have the resolution of the API.
func next(is v1alpha1.ContainerProbeState, r Stored, name string, now time.Time) v1alpha1.ContainerProbeState {
	changed := is.LastTransitionTime
	if is.State != r.State || changed.IsZero() {
		changed = metav1.NewTime(now.Truncate(time.Second))
	}
	return v1alpha1.ContainerProbeState{
		Name: name, State: r.State, Message: r.Message,
		LastProbeTime: metav1.NewTime(r.At.Truncate(time.Second)), LastTransitionTime: changed,
	}
}

// seed finds the result of an earlier life of the agent.
func seed(status v1alpha1.NodePodProbeStatus, key Key) Stored {
	for i := range status.PodProbeStatuses {
		pod := &status.PodProbeStatuses[i]
		if pod.UID != key.UID {
			continue
		}
		for _, state := range pod.ProbeStates {
			if state.Name == key.Name {
				return Stored{Result: Result{State: state.State, Message: state.Message}, At: state.LastProbeTime.Time}
			}
		}
	}
	return Stored{}
}

// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/property"
)

// life is a world in which things go wrong, and what was promised about it.
type life struct {
	*world
	t *rapid.T
	// stops are the containers that the agent began to stop for a request, by name of the
	// request and of the container: each instance once.
	stops map[string]map[string][]string
	// ends are the completion times of requests.
	ends     map[string]time.Time
	drained  map[string]time.Time
	requests []*v1beta1.ContainerRecreateRequest
	pods     int
	// luck decides which calls fail; nil is none.
	luck   *rand.Rand
	broken string // the first promise that was
}

// Each request ends once, stops each container once at most, keeps order and failure policy,
// waits for the drain, and lets the Pod and the next request go, whatever happens on the way.
func TestRequestsKeepTheirPromises(t *testing.T) {
	property.Many(t, 500, func(t *rapid.T) {
		l := &life{world: newWorld(), t: t, stops: map[string]map[string][]string{}, ends: map[string]time.Time{}, drained: map[string]time.Time{}}
		defer func() { l.end(); l.agent.queue.ShutDown() }()
		if rapid.Bool().Draw(t, "lossy") {
			// Drawn here and not call by call: the agent's calls are made by other goroutines.
			l.luck = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "luck"), 0))
		}
		l.fail = l.chance
		l.check = l.mayStop
		l.server.onRequest = l.seen
		l.addPod()
		for range rapid.IntRange(5, 120).Draw(t, "steps") {
			l.step()
			l.holds()
		}
		if !l.quiet(time.Hour) {
			l.breaks("it never comes to rest")
		}
		l.atRest()
		l.holds()
	})
}

// breaks notes a promise that is broken. It may be called on any goroutine.
func (l *life) breaks(format string, args ...any) {
	if l.broken == "" {
		l.broken = fmt.Sprintf(format, args...)
		l.note("BROKEN: %s", l.broken)
	}
}

// holds ends the test if a promise is broken.
func (l *life) holds() {
	if l.broken != "" {
		l.t.Log("\n" + strings.Join(l.log, "\n"))
		l.t.Fatal(l.broken)
	}
}

// chance makes one in eight calls fail, half of them after they had an effect.
func (l *life) chance() (before, after bool) {
	if l.luck == nil {
		return false, false
	}
	n := l.luck.IntN(16)
	return n == 1, n == 2
}

func (l *life) step() {
	kinds := []func(){
		l.passTime, l.passTime, l.deliverToManager, l.deliverToManager, l.deliverToAgent, l.deliverToAgent,
		l.runManager, l.runManager, l.runManager, l.runAgent, l.runAgent, l.runAgent, l.endStop, l.endStop,
		l.kubelet, l.kubelet, l.kubelet, l.kubelet, l.create, l.create, l.remove, l.crash, l.otherwise,
	}
	kinds[rapid.IntRange(0, len(kinds)-1).Draw(l.t, "step")]()
}

func (l *life) passTime() {
	l.tick(time.Duration(rapid.IntRange(1, 40).Draw(l.t, "ds")) * 100 * time.Millisecond)
}

// somewhere is a place in the server's history between what is known and the present.
func (l *life) somewhere(at int) int {
	return at + rapid.IntRange(0, len(l.server.history)-1-at).Draw(l.t, "to")
}

func (l *life) deliverToManager() {
	if rapid.Bool().Draw(l.t, "pods") {
		l.managerLearnsPods(l.somewhere(l.podsAt))
	} else {
		l.managerLearns(l.somewhere(l.managerAt))
	}
}
func (l *life) deliverToAgent() { l.agentLearns(l.somewhere(l.agentAt)) }

func pick[T any](t *rapid.T, from []T) (T, bool) {
	if len(from) == 0 {
		var none T
		return none, false
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(t, "which")], true
}

func (l *life) runManager() {
	var due []string
	for _, name := range slices.Sorted(maps.Keys(l.managerDue)) {
		if !l.managerDue[name].After(l.clock.Now()) {
			due = append(due, name)
		}
	}
	if name, ok := pick(l.t, due); ok {
		l.manage(name)
	}
}

func (l *life) runAgent() {
	var due []Key
	for _, key := range slices.SortedFunc(maps.Keys(l.agentDue), compareKeys) {
		if l.flights[key] == nil && !l.agentDue[key].After(l.clock.Now()) {
			due = append(due, key)
		}
	}
	if key, ok := pick(l.t, due); ok {
		l.serve(key)
	}
}

func (l *life) endStop() {
	key, ok := pick(l.t, slices.SortedFunc(maps.Keys(l.flights), compareKeys))
	if !ok {
		return
	}
	f := l.flights[key]
	if rapid.IntRange(0, 9).Draw(l.t, "stop") == 0 {
		l.note("runtime: cannot stop %s", f.target)
		l.notStopped(f) // should the agent restart before it could tell, it has to try again
		l.resume(f, errors.New("cannot be stopped"))
		return
	}
	l.exit(l.box(f.target), int32(rapid.SampledFrom([]int{0, 137}).Draw(l.t, "code")))
	l.resume(f, nil)
}

// kubelet does one thing of its work.
func (l *life) kubelet() {
	name, ok := pick(l.t, slices.Sorted(maps.Keys(l.server.pods)))
	if !ok {
		return
	}
	pod := l.server.pods[name]
	c := pod.Spec.Containers[rapid.IntRange(0, len(pod.Spec.Containers)-1).Draw(l.t, "container")].Name
	switch rapid.IntRange(0, 2).Draw(l.t, "does") {
	case 0:
		l.start(pod, c)
	case 1:
		if b := l.newest(pod.UID, c); b != nil && b.State == cri.StateRunning {
			b.ready = true
		}
		l.mirror(name)
	case 2:
		l.mirror(name)
	}
}

func (l *life) crash() {
	if b, ok := pick(l.t, l.boxes); ok {
		l.exit(b, int32(rapid.IntRange(0, 1).Draw(l.t, "code")))
	}
}

func (l *life) addPod() {
	l.pods++
	containers := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(l.t, "containers")]
	policy := rapid.SampledFrom([]corev1.RestartPolicy{"Always", "Always", "Always", "OnFailure", "Never"}).Draw(l.t, "policy")
	l.newPod("web", policy, rapid.Bool().Draw(l.t, "gate"), containers...)
}

// create admits a request by what a cache knows, which may be behind.
func (l *life) create() {
	if len(l.requests) >= 6 {
		return
	}
	pod, ok := l.managerSees.pods["web"]
	if !ok || l.server.pods["web"] == nil {
		return
	}
	t := l.t
	spec := v1beta1.ContainerRecreateRequestSpec{Strategy: &v1beta1.RecreateStrategy{
		FailurePolicy:   rapid.SampledFrom([]v1beta1.RecreateFailurePolicy{"Fail", "Ignore"}).Draw(t, "failurePolicy"),
		OrderedRecreate: rapid.Bool().Draw(t, "ordered"), ForceRecreate: rapid.Bool().Draw(t, "force"),
		MinStartedSeconds: int32(rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "minStarted")),
	}}
	if rapid.Bool().Draw(t, "drain") {
		spec.Strategy.UnreadyGracePeriodSeconds = new(int64(rapid.IntRange(0, 3).Draw(t, "grace")))
	}
	if rapid.IntRange(0, 2).Draw(t, "limited") == 0 {
		spec.ActiveDeadlineSeconds = new(int64(rapid.IntRange(3, 20).Draw(t, "deadline")))
	}
	if rapid.Bool().Draw(t, "expires") {
		spec.TTLSecondsAfterFinished = new(int32(rapid.IntRange(0, 5).Draw(t, "ttl")))
	}
	var names []string
	for _, s := range pod.Status.ContainerStatuses {
		if rapid.IntRange(0, 3).Draw(t, "in") > 0 {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	if rapid.Bool().Draw(t, "reverse") {
		slices.Reverse(names)
	}
	r := l.admit(pod, spec, names...)
	l.requests = append(l.requests, r)
	l.stops[r.Name] = map[string][]string{}
}

func (l *life) remove() {
	name, ok := pick(l.t, slices.Sorted(maps.Keys(l.server.requests)))
	if ok && rapid.Bool().Draw(l.t, "really") {
		l.note("user: deletes %s", name)
		l.server.deleteRequest(name)
	}
}

// otherwise is what happens rarely.
func (l *life) otherwise() {
	switch rapid.IntRange(0, 4).Draw(l.t, "rare") {
	case 0:
		l.note("manager: restarts")
		l.startManager()
	case 1:
		l.restartAgent()
	case 2:
		if pod, ok := l.server.pods["web"]; ok && l.pods < 3 {
			l.note("user: replaces the Pod")
			for _, b := range l.boxes {
				if b.podUID == pod.UID {
					l.exit(b, 143)
				}
			}
			if rapid.Bool().Draw(l.t, "collected") {
				l.boxes = slices.DeleteFunc(l.boxes, func(b *box) bool { return b.podUID == pod.UID })
			}
			l.server.deletePod("web")
			l.addPod()
		}
	case 3:
		if pod, ok := l.server.pods["web"]; ok && rapid.Bool().Draw(l.t, "evict") {
			l.note("node: evicts the Pod")
			pod = pod.DeepCopy()
			pod.Status.Phase = corev1.PodFailed
			l.server.storePod(pod)
			for _, b := range l.boxes {
				l.exit(b, 137)
			}
		}
	case 4: // containers that have exited are collected
		l.boxes = slices.DeleteFunc(l.boxes, func(b *box) bool { return b.State == cri.StateExited && l.newest(b.podUID, b.Name) != b })
	}
}

func (l *life) restartAgent() {
	l.note("agent: restarts")
	// What was being stopped goes on stopping in the runtime, or the call never arrived.
	for _, key := range slices.SortedFunc(maps.Keys(l.flights), compareKeys) {
		f := l.flights[key]
		if rapid.Bool().Draw(l.t, "arrived") {
			l.exit(l.box(f.target), 137)
			if pod := l.server.pods[f.key.Pod]; pod != nil && pod.UID == f.key.UID && rapid.Bool().Draw(l.t, "quick") {
				l.start(pod, l.box(f.target).Name)
			}
		} else {
			l.notStopped(f)
		}
	}
	l.killAgent()
	l.startAgent()
}

// notStopped takes back that the container was stopped.
func (l *life) notStopped(f *flight) {
	for name, ids := range l.stops[f.request] {
		l.stops[f.request][name] = slices.DeleteFunc(ids, func(id string) bool { return id == f.target })
	}
}

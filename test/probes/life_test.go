// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/controllers/nodepodprobe"
	"github.com/kruisectl/kruisectl/controllers/podprobemarker"
	"github.com/kruisectl/kruisectl/daemon/probe"
	"github.com/kruisectl/kruisectl/internal/freshness"
	"github.com/kruisectl/kruisectl/internal/property"
)

const namespace = "shop"

var (
	markerNames = []string{"way", "gateway", "w"}
	probeNames  = []string{"a", "b"}
	podNames    = []string{"web-0", "web-1", "web-2"}
	nodeNames   = []string{"n0", "n1", "virtual"}
	kinds       = []string{"Pod", "Node", "PodProbeMarker", "NodePodProbe"}
)

// world is a cluster: an API server, a manager with a cache, and agents.
type world struct {
	*rapid.T
	server  *server
	cache   map[id]client.Object
	markers *podprobemarker.Reconciler
	probes  *nodepodprobe.Reconciler
	queues  [2]queue // of markers and of probes
	truth   map[probe.Key]probe.Result
	count   int
	// forgiven are the markers whose marks may stay: somebody broke the rules, or the manager
	// forgot an earlier version.
	forgiven map[string]bool
	// tampered is true from when somebody spoils a NodePodProbe until it is as it should be. The
	// lists of Pods that leave a selection meanwhile are lost, so their marks may stay.
	tampered bool
	moved    map[types.UID]bool // since the last rest
	strays   map[types.UID]bool
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, server: newServer(), truth: map[probe.Key]probe.Result{}, forgiven: map[string]bool{}, moved: map[types.UID]bool{}, strays: map[types.UID]bool{}}
	for _, name := range nodeNames {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "virtual" {
			n.Labels = map[string]string{"type": "virtual-kubelet"}
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.server.put(n)
	}
	w.restart()
	return w
}

func (w *world) live() view {
	return view{server: w.server, objects: func() map[id]client.Object { return w.server.objects }}
}

// restart starts a new manager: its cache is filled, and everything is new to it.
func (w *world) restart() {
	for _, m := range of[*v1alpha1.PodProbeMarker](w.server.objects) {
		if m.Status.ObservedGeneration != m.Generation {
			w.forgiven[m.Name] = true
		}
	}
	cached := func() map[id]client.Object { return w.cache }
	clock, marked := clocktesting.NewFakePassiveClock(t0), &freshness.Writes{}
	w.markers = podprobemarker.New(view{server: w.server, objects: cached, fragile: []string{"NodePodProbe", "PodProbeMarker"}}, w.live(),
		podprobemarker.Options{Writers: 1, Clock: clock, Marked: marked, Serverless: true})
	w.probes = nodepodprobe.New(view{server: w.server, objects: cached, fragile: []string{"NodePodProbe", "Pod"}}, w.live(),
		nodepodprobe.Options{Writers: 1, Clock: clock, Marked: marked})
	w.queues = [2]queue{{items: map[reconcile.Request]bool{}}, {items: map[reconcile.Request]bool{}}}
	w.cache = map[id]client.Object{}
	w.server.pending = map[string][]change{}
	for i, obj := range w.server.objects {
		w.cache[i] = clone(obj)
	}
	for _, i := range sortedIDs(w.cache) {
		w.tell(nil, w.cache[i])
	}
}

// nodeProbeEvents are those of the NodePodProbes' own controller.
func nodeProbeEvents() handler.EventHandler {
	add := func(q queue, obj client.Object) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q.(queue), e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if nodepodprobe.Changed(e) {
				add(q.(queue), e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q.(queue), e.Object)
		},
	}
}

// tell runs the handlers of a change; nil before is a creation, nil after a deletion.
func (w *world) tell(before, after client.Object) {
	of := after
	if of == nil {
		of = before
	}
	handlers := [2]handler.EventHandler{}
	switch of.(type) {
	case *corev1.Pod:
		handlers = [2]handler.EventHandler{w.markers.PodEvents(), w.probes.PodEvents()}
	case *corev1.Node:
		handlers = [2]handler.EventHandler{w.markers.NodeEvents(), w.probes.NodeEvents()}
	case *v1alpha1.PodProbeMarker:
		handlers = [2]handler.EventHandler{w.markers.MarkerEvents(), w.probes.MarkerEvents()}
	case *v1alpha1.NodePodProbe:
		handlers = [2]handler.EventHandler{w.markers.NodeProbeEvents(), nodeProbeEvents()}
	}
	ctx := context.Background()
	for i, h := range handlers {
		switch {
		case before == nil:
			h.Create(ctx, event.CreateEvent{Object: after}, w.queues[i])
		case after == nil:
			h.Delete(ctx, event.DeleteEvent{Object: before}, w.queues[i])
		default:
			h.Update(ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, w.queues[i])
		}
	}
}

// see brings one change to the cache.
func (w *world) see(c change) {
	before := w.cache[c.id]
	if c.obj == nil {
		delete(w.cache, c.id)
	} else {
		w.cache[c.id] = c.obj
	}
	if before != nil || c.obj != nil {
		w.tell(before, c.obj)
	}
}

func (w *world) deliver(kind string) {
	if pending := w.server.pending[kind]; len(pending) > 0 {
		w.server.pending[kind] = pending[1:]
		w.see(pending[0])
	}
}

// relist loses the events of a kind: the watch starts anew with what there is.
func (w *world) relist(kind string) {
	w.server.pending[kind] = nil
	for _, i := range slices.Concat(sortedIDs(w.cache), sortedIDs(w.server.objects)) {
		if i.kind != kind {
			continue
		}
		is, was := w.server.objects[i], w.cache[i]
		switch {
		case is == nil && was != nil:
			w.see(change{i, nil})
		case is != nil && (was == nil || was.GetResourceVersion() != is.GetResourceVersion()):
			w.see(change{i, clone(is)})
		}
	}
}

// work runs one controller on one request.
func (w *world) work(controller int, r reconcile.Request) {
	delete(w.queues[controller].items, r)
	reconciler := []reconcile.Reconciler{w.markers, w.probes}[controller]
	if _, err := reconciler.Reconcile(context.Background(), r); err != nil {
		w.queues[controller].Add(r)
	}
}

// agent writes the results of a node: what is true of each probe, success by default.
func (w *world) agent(node string) {
	npp, ok := w.server.objects[id{"NodePodProbe", "", node}].(*v1alpha1.NodePodProbe)
	if !ok {
		return
	}
	stored := map[probe.Key]probe.Stored{}
	for key := range probe.Tasks(npp.Spec) {
		stored[key] = probe.Stored{Result: w.of(key), At: t0}
	}
	status, _ := probe.Merge(npp, stored, t0)
	if cmp.Equal(status, npp.Status, cmpopts.EquateEmpty()) {
		return
	}
	next := clone(npp)
	next.Status = status
	if err := w.live().Status().Update(context.Background(), next); err != nil {
		w.Fatalf("agent: %v", err)
	}
}

func (w *world) of(key probe.Key) probe.Result {
	if r, ok := w.truth[key]; ok {
		return r
	}
	return probe.Result{State: v1alpha1.ProbeSucceeded, Message: "fine"}
}

// rest lets everybody work until nothing is left to do.
func (w *world) rest() {
	w.server.failing = 0
	for _, n := range of[*corev1.Node](w.server.objects) {
		next := clone(n)
		next.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.server.put(next)
	}
	if !w.settle(100) {
		w.Fatal("the controllers do not come to rest")
	}
}

// settle lets everybody work for some rounds, and returns true as soon as nothing is left.
func (w *world) settle(rounds int) bool {
	for range rounds {
		before := w.server.version
		idle := true
		for _, kind := range kinds {
			for len(w.server.pending[kind]) > 0 {
				idle = false
				w.deliver(kind)
			}
		}
		for i := range w.queues {
			for _, r := range w.queues[i].sorted() {
				idle = false
				w.work(i, r)
			}
		}
		for _, n := range nodeNames {
			w.agent(n)
		}
		if idle && before == w.server.version {
			w.tampered, w.moved = false, map[types.UID]bool{}
			return true
		}
	}
	return false
}

// probed reports whether a marker is for a Pod, by the words of the specification.
func probed(m *v1alpha1.PodProbeMarker, p *corev1.Pod) bool {
	initialized := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == "Initialized" && c.Status == "True" })
	for k, v := range m.Spec.Selector.MatchLabels {
		if p.Labels[k] != v {
			return false
		}
	}
	return initialized && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
}

// check compares the cluster at rest with what the markers and the truth ask for.
func (w *world) check() {
	nodes := map[string]bool{}
	wantList, gotList := map[string]bool{}, map[string]bool{}
	for _, n := range of[*corev1.Node](w.server.objects) {
		nodes[n.Name] = true
		if n.Name != "virtual" && w.server.objects[id{"NodePodProbe", "", n.Name}] == nil {
			w.Fatalf("node %s has no NodePodProbe", n.Name)
		}
	}
	markers := of[*v1alpha1.PodProbeMarker](w.server.objects)
	for _, m := range markers {
		if m.DeletionTimestamp != nil {
			w.Fatalf("marker %s is still being deleted", m.Name)
		}
		matched := int64(0)
		for _, p := range of[*corev1.Pod](w.server.objects) {
			if !probed(m, p) || !nodes[p.Spec.NodeName] {
				continue
			}
			matched++
			for _, pr := range m.Spec.Probes {
				if p.Spec.NodeName != "virtual" {
					wantList[fmt.Sprintf("%s %s/%s %s#%s %v", p.Spec.NodeName, p.Name, p.UID, m.Name, pr.Name, pr.Probe.Exec.Command)] = true
				}
			}
		}
		if m.Status.ObservedGeneration != m.Generation || m.Status.MatchedPods != matched || len(m.Finalizers) != 1 {
			w.Fatalf("marker %s: generation %d, %d Pods, but %+v and finalizers %v", m.Name, m.Generation, matched, m.Status, m.Finalizers)
		}
	}
	for _, npp := range of[*v1alpha1.NodePodProbe](w.server.objects) {
		if !nodes[npp.Name] {
			w.Fatalf("NodePodProbe %s has no node", npp.Name)
		}
		for _, e := range npp.Spec.PodProbes {
			if p, ok := w.server.objects[id{"Pod", e.Namespace, e.Name}].(*corev1.Pod); ok && p.Status.PodIP != "" && p.Status.PodIP != e.IP {
				w.Fatalf("Pod %s has IP %s, but %s is listed", e.Name, p.Status.PodIP, e.IP)
			}
			for _, pr := range e.Probes {
				line := fmt.Sprintf("%s %s/%s %s", npp.Name, e.Name, e.UID, pr.Name)
				if pr.Probe.Exec != nil {
					line += fmt.Sprintf(" %v", pr.Probe.Exec.Command)
				}
				gotList[line] = true
			}
		}
	}
	if diff := cmp.Diff(wantList, gotList); diff != "" {
		w.Fatalf("the NodePodProbes differ (-want +got):\n%s", diff)
	}
	for _, p := range of[*corev1.Pod](w.server.objects) {
		if nodes[p.Spec.NodeName] && p.DeletionTimestamp == nil && p.Status.Phase == "" {
			w.checkMarks(p, markers)
		}
	}
}

// checkMarks compares the marks of a Pod with the results of its probes.
func (w *world) checkMarks(p *corev1.Pod, markers []*v1alpha1.PodProbeMarker) {
	want, got := map[string]string{}, map[string]string{}
	for _, m := range markers {
		if !probed(m, p) {
			continue
		}
		for _, pr := range m.Spec.Probes {
			result := w.of(probe.Key{UID: p.UID, Name: m.Name + "#" + pr.Name})
			if p.Spec.NodeName == "virtual" {
				i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return string(c.Type) == pr.PodConditionType })
				if i < 0 {
					continue
				}
				result.State = map[corev1.ConditionStatus]v1alpha1.ProbeState{"True": "Succeeded", "False": "Failed"}[p.Status.Conditions[i].Status]
			} else if pr.PodConditionType != "" {
				status := map[bool]string{true: "True", false: "False"}[result.State == "Succeeded"]
				want["condition "+pr.PodConditionType] = status + " " + result.Message
			}
			for _, policy := range pr.MarkerPolicy {
				if policy.State != result.State {
					continue
				}
				for k, v := range policy.Labels {
					want["label "+k] = v
				}
				for k, v := range policy.Annotations {
					want["annotation "+k] = v
				}
			}
		}
	}
	for k, v := range p.Labels {
		got["label "+k] = v
	}
	for k, v := range p.Annotations {
		got["annotation "+k] = v
	}
	for _, c := range p.Status.Conditions {
		if p.Spec.NodeName != "virtual" {
			got["condition "+string(c.Type)] = string(c.Status) + " " + c.Message
		}
	}
	maps.DeleteFunc(got, func(k, v string) bool {
		_, wanted := want[k]
		forgiven := slices.ContainsFunc(slices.Collect(maps.Keys(w.forgiven)), func(m string) bool {
			return strings.Contains(k, "mark-"+m+"-") || strings.Contains(k, "mark.io/"+m+"-")
		})
		return !strings.Contains(k, " mark") || !wanted && (forgiven || w.strays[p.UID])
	})
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("the marks of Pod %s (%s on %s) differ (-want +got):\n%s", p.Name, p.UID, p.Spec.NodeName, diff)
	}
}

// Whatever users, nodes and the network do, in the end each NodePodProbe lists exactly what
// is to be probed, each Pod is marked as its results say, and nothing is left of what went.
func TestProbesComeToTheRightEnd(t *testing.T) {
	property.Many(t, 300, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			w.step()
		}
		w.rest()
		w.check()
		w.restart()
		before := w.server.version
		w.rest()
		w.check()
		if nodes := len(of[*corev1.Node](w.server.objects)); w.server.version != before+nodes { // rest touches nodes
			t.Fatalf("a manager that starts at rest writes %d times", w.server.version-before-nodes)
		}
	})
}

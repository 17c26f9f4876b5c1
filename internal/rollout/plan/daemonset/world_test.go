// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// world is an API server, nodes with kubelets, and a controller with a cache that lags, in
// memory. What the controller does is checked against the promises of the spec at every
// write; fail is called on a broken one.
type world struct {
	fail func(format string, args ...any)

	now       time.Time
	set       *v1beta1.DaemonSet
	revisions []*appsv1.ControllerRevision
	nodes     map[string]*corev1.Node // as the API server has them
	seenNodes map[string]*corev1.Node // as the controller sees them
	pods      map[string]*corev1.Pod
	cache     map[string]*corev1.Pod
	written   map[string]int  // resourceVersion the cache must show
	expected  map[string]bool // created Pods that the cache must show
	backoffs  map[string]Backoff
	version   int
	ids       int
	passes    int
	story     []string
	gates     Gates
	// down are nodes that the rolling update took an available Pod from and that have none
	// since, surging are those it gave a second one. Both forget when the user changes the
	// template: Pods of an update that was broken off are replaced whatever the limits say.
	down, surging map[string]bool
	// deleted are the Pods that the controller deleted, with the reason.
	deleted map[string]Reason
}

func newWorld(b fixture.DaemonSetBuilder, names string, fail func(string, ...any)) *world {
	w := &world{
		fail: fail, now: fixture.Created, set: b.Obj(),
		nodes: map[string]*corev1.Node{}, seenNodes: map[string]*corev1.Node{},
		pods: map[string]*corev1.Pod{}, cache: map[string]*corev1.Pod{},
		written: map[string]int{}, expected: map[string]bool{}, backoffs: map[string]Backoff{},
		down: map[string]bool{}, surging: map[string]bool{}, deleted: map[string]Reason{},
	}
	for _, n := range strings.Split(names, "") {
		w.nodes[n] = fixture.Node(n).Obj()
	}
	return w
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%4ds  ", int(w.now.Sub(fixture.Created).Seconds()))+fmt.Sprintf(format, args...))
}

func (w *world) broken(format string, args ...any) {
	w.fail("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.story, "\n"))
}

// store is a write by anybody.
func (w *world) store(p *corev1.Pod) {
	w.version++
	p.ResourceVersion = strconv.Itoa(w.version)
	w.pods[p.Name] = p
}

// write is a write by the controller; its cache must show it before the next decision.
func (w *world) write(p *corev1.Pod) {
	w.store(p)
	w.written[p.Name] = w.version
}

// on are the Pods of a node, all or only those that do not terminate.
func (w *world) on(node string, all bool) (out []*corev1.Pod) {
	for _, name := range w.names() {
		if p := w.pods[name]; TargetNode(p) == node && (all || p.DeletionTimestamp == nil) {
			out = append(out, p)
		}
	}
	return out
}

// serves tells whether a node has an available Pod that stays.
func (w *world) serves(node string) bool {
	return slices.ContainsFunc(w.on(node, false), func(p *corev1.Pod) bool {
		ok, _ := Available(p, w.set.Spec.MinReadySeconds, w.now)
		return ok && p.Labels[v1beta1.LifecycleStateLabel] == ""
	})
}

// notice forgets nodes that are well again, or that nobody waits for.
func (w *world) notice() {
	for n := range w.down {
		if node := w.nodes[n]; node == nil || w.serves(n) || !w.eligible(node) {
			delete(w.down, n)
		}
	}
	for n := range w.surging {
		if len(w.on(n, false)) < 2 || w.nodes[n] == nil || !w.eligible(w.nodes[n]) {
			delete(w.surging, n)
		}
	}
}

func (w *world) eligible(n *corev1.Node) bool {
	run, _ := EligibilityOf(&w.set.Spec.Template).On(n)
	return run
}

// change is a change of the spec by the user.
func (w *world) change(what string, edit func(*v1beta1.DaemonSet)) {
	before := w.set.Spec.Template.DeepCopy()
	edit(w.set)
	w.set.Generation++
	w.backoffs = map[string]Backoff{}
	if !revision.Equal(w.revision(before), w.revision(&w.set.Spec.Template)) {
		w.down, w.surging = map[string]bool{}, map[string]bool{}
	}
	w.tell("user: %s", what)
}

func (w *world) revision(template *corev1.PodTemplateSpec) *appsv1.ControllerRevision {
	r := &appsv1.ControllerRevision{}
	r.Data.Raw, _ = revision.Data(template)
	return r
}

func image(name string) func(*v1beta1.DaemonSet) {
	return func(d *v1beta1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = name }
}

func env(value string) func(*v1beta1.DaemonSet) {
	return func(d *v1beta1.DaemonSet) {
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: value}}
	}
}

// behind tells whether the cache does not show the controller's own writes yet.
func (w *world) behind() bool {
	for name := range w.expected {
		if w.cache[name] == nil && w.pods[name] != nil {
			return true
		}
		delete(w.expected, name)
	}
	for name, version := range w.written {
		if p := w.cache[name]; p != nil {
			if v, _ := strconv.Atoi(p.ResourceVersion); v < version {
				return true
			}
		}
		delete(w.written, name)
	}
	return false
}

// sync brings the cache up to date with one Pod or node.
func (w *world) sync(name string) {
	if p, ok := w.pods[name]; ok {
		w.cache[name] = p
	} else {
		delete(w.cache, name)
	}
	if n, ok := w.nodes[name]; ok {
		w.seenNodes[name] = n
	} else {
		delete(w.seenNodes, name)
	}
}

func (w *world) syncAll() {
	w.cache, w.seenNodes = maps.Clone(w.pods), maps.Clone(w.nodes)
}

// restart makes the controller another process: it lists everything and remembers nothing.
func (w *world) restart() {
	w.syncAll()
	w.written, w.expected, w.backoffs = map[string]int{}, map[string]bool{}, map[string]Backoff{}
	w.tell("the controller restarts")
}

func (w *world) names() []string { return slices.Sorted(maps.Keys(w.pods)) }

func (w *world) snapshot() Snapshot {
	found, err := revision.FindDaemonSet(w.set, w.revisions)
	if err != nil {
		w.broken("finding revisions: %v", err)
	}
	switch found.Action {
	case revision.ActionCreate:
		w.revisions = append(w.revisions, found.Update)
	case revision.ActionRenumber:
		for i, r := range w.revisions {
			if r.Name == found.Update.Name {
				w.revisions[i] = found.Update
			}
		}
	}
	return Snapshot{
		Set: w.set.DeepCopy(), Revisions: w.revisions, Update: found.Update, Gates: w.gates,
		Nodes: slices.Collect(maps.Values(w.seenNodes)), Pods: slices.Collect(maps.Values(w.cache)),
		Backoffs: w.backoffs, InPlace: inplace.Options{EnvFromMetadata: true},
	}
}

// reconcile is one pass of the controller; fails decides for each write whether the API
// server refuses it. It reports whether anything was to be done.
func (w *world) reconcile(fails func() bool) bool {
	if w.behind() {
		return true
	}
	w.passes++
	s := w.snapshot()
	plan := Decide(s, w.now)
	checkPlan(w.broken, s, plan, w.now)
	for _, step := range plan.Create {
		if !fails() {
			w.create(s, step)
		}
	}
	for _, step := range slices.Concat(plan.Delete, plan.Update, plan.Refresh) {
		if !fails() {
			w.execute(s, step)
		}
	}
	status := Status(s, w.now)
	if plan.Manages {
		status.ObservedGeneration = w.set.Status.ObservedGeneration
	}
	changed := StatusDiffers(&w.set.Status, &status)
	w.set.Status = status
	return changed || !plan.Idle()
}

func (w *world) create(s Snapshot, step Step) {
	places := s.places(w.now)
	limits := LimitsOf(w.set, desired(places))
	before := w.on(step.Node, limits.MaxSurge == 0)
	served := slices.ContainsFunc(places, func(p *place) bool { // as far as the cache shows
		_, old, _ := p.pair()
		return p.name == step.Node && old != nil && old.available
	})
	w.ids++
	p := fixture.PodOfDaemonSet(fixture.DaemonSet(w.set.Name).With(func(d *v1beta1.DaemonSet) { *d = *w.set }), step.Node).
		Node("").Created(w.now).With(func(p *corev1.Pod) {
		p.Name = fmt.Sprintf("%s-%s-%03d", w.set.Name, step.Node, w.ids)
		p.UID = types.UID(p.Name)
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
		SetHash(p, s.Hash())
	}).Obj()
	w.tell("create %s at %s: %s", p.Name, w.revisionOf(p), step.Why)
	allowed := 1
	if limits.MaxSurge > 0 {
		allowed = 2
	}
	if len(before) >= allowed {
		w.broken("node %s gets Pod %s beside %d others", step.Node, p.Name, len(before))
	}
	w.store(p)
	w.expected[p.Name] = true
	if step.Why == ReasonSurge && served {
		w.notice()
		w.surging[step.Node] = true
		if n := w.set.Spec.UpdateStrategy.RollingUpdate.MaxSurge; len(w.surging) > int(n.IntVal) {
			w.broken("nodes %v have a second Pod by our doing, and maxSurge is %s", slices.Sorted(maps.Keys(w.surging)), n)
		}
	}
}

// takes notes that the controller takes a Pod that serves from its node for an update.
func (w *world) takes(node string) {
	w.notice()
	w.down[node] = true
	if m := max(1, int(w.set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal)); len(w.down) > m {
		w.broken("nodes %v are without a Pod by our doing, and maxUnavailable is %d", slices.Sorted(maps.Keys(w.down)), m)
	}
}

// revisionOf is the image and environment of the revision a Pod is labelled with.
func (w *world) revisionOf(p *corev1.Pod) string {
	for _, r := range w.revisions {
		if revision.SameRevision(p.Labels["controller-revision-hash"], revision.DaemonSetHashOf(r)) {
			t, _ := revision.Template(r)
			text := t.Spec.Containers[0].Image
			for _, e := range t.Spec.Containers[0].Env {
				text += " " + e.Name + "=" + e.Value
			}
			return text
		}
	}
	return "unknown"
}

func (w *world) execute(s Snapshot, step Step) {
	live := w.pods[step.Pod]
	if live == nil || live.DeletionTimestamp != nil {
		return
	}
	served := w.serves(step.Node)
	p := live.DeepCopy()
	switch step.Do {
	case Delete:
		w.tell("delete %s (%s): %s", p.Name, w.revisionOf(p), step.Why)
		p.DeletionTimestamp = new(metav1.NewTime(w.now))
		w.deleted[p.Name] = step.Why
		if step.Why == ReasonFailed || step.Why == ReasonSucceeded {
			w.backoffs[step.Node] = w.backoffs[step.Node].Next(w.now)
		}
	case Move:
		step.Transition.Apply(p, w.now)
		w.tell("move %s: %s", p.Name, step.Transition)
	case Refresh:
		if live.ResourceVersion != w.cache[step.Pod].ResourceVersion {
			return // a conflict
		}
		next := inplace.Next(live, s.EngineOptions(), w.now)
		switch next.Action {
		case inplace.Ready, inplace.SendBatch, inplace.DropGrace:
			p = next.Write.Pod.DeepCopy()
		case inplace.Invalid:
			w.broken("refreshing: %v", next.Err)
		}
		w.tell("refresh %s: %s", p.Name, next.Action)
	case UpdateInPlace:
		begun, err := inplace.Begin(inplace.NotReady(live, w.now), step.Spec, s.EngineOptions(), w.now)
		if err != nil {
			w.broken("beginning: %v", err)
		}
		p = begun.Pod.DeepCopy()
		from := w.revisionOf(p)
		SetHash(p, s.Hash())
		w.tell("update %s in place from %s to %s", p.Name, from, w.revisionOf(p))
	}
	w.write(p)
	if served && step.Why == ReasonOldRevision && !w.serves(step.Node) {
		w.takes(step.Node)
	}
}

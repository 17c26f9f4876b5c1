// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
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
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// world is an API server, kubelets and a controller with a cache that lags, in memory.
// What the controller does is checked against the promises of the spec at every write;
// fail is called on a broken one.
type world struct {
	fail func(format string, args ...any)

	now       time.Time
	set       *v1beta1.CloneSet
	revisions []*appsv1.ControllerRevision
	pods      map[string]*corev1.Pod // as the API server has them
	cache     map[string]*corev1.Pod // as the controller sees them
	written   map[string]int         // resourceVersion the cache must show
	expected  map[string]bool        // created Pods that the cache must show
	version   int
	ids       int
	passes    int
	story     []string
	deleted   []string // names of Pods that the controller deleted
	marked    []string
	gates     Gates
	cut       func() bool // whether an update ends after its first write; see execute
	operated  bool        // somebody owns the hooks and lets go; see operator
}

func newWorld(b fixture.CloneSetBuilder, fail func(string, ...any)) *world {
	w := &world{
		fail: fail, now: fixture.Created,
		set:  b.Obj(),
		pods: map[string]*corev1.Pod{}, cache: map[string]*corev1.Pod{},
		written: map[string]int{}, expected: map[string]bool{},
	}
	return w
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%4ds  ", int(w.now.Sub(fixture.Created).Seconds()))+fmt.Sprintf(format, args...))
}

// store is a write by anybody.
func (w *world) store(p *corev1.Pod) {
	w.version++
	p.ResourceVersion = strconv.Itoa(w.version)
	w.pods[p.Name] = p
}

// write is a write by the controller; its cache must show it before the next decision.
func (w *world) write(p *corev1.Pod) {
	before := w.available()
	w.store(p)
	w.written[p.Name] = w.version
	w.checkAvailability(before, p.Name)
}

// available counts Pods that serve: available and not terminating.
func (w *world) available() (n int) {
	for _, p := range w.pods {
		if ok, _ := Available(p, w.set.Spec.MinReadySeconds, w.now); ok && IsActive(p) {
			n++
		}
	}
	return n
}

// checkAvailability: a write may take a Pod out of service only while enough are left.
// The limit is the number in the spec, which tests draw, not one computed by Decide.
func (w *world) checkAvailability(before int, pod string) {
	after := w.available()
	if after >= before {
		return
	}
	rolling := w.set.Spec.UpdateStrategy.RollingUpdate
	if need := Replicas(w.set) - int(rolling.MaxUnavailable.IntVal); after < need {
		w.fail("writing Pod %s left %d available Pods of %d with maxUnavailable %s\n%s",
			pod, after, Replicas(w.set), rolling.MaxUnavailable, strings.Join(w.story, "\n"))
	}
}

func (w *world) active() (n int) {
	for _, p := range w.pods {
		if IsActive(p) {
			n++
		}
	}
	return n
}

// change is a change of the spec by the user.
func (w *world) change(what string, edit func(*v1beta1.CloneSet)) {
	edit(w.set)
	w.set.Generation++
	w.tell("user: %s", what)
}

func image(name string) func(*v1beta1.CloneSet) {
	return func(c *v1beta1.CloneSet) { c.Spec.Template.Spec.Containers[0].Image = name }
}

func env(value string) func(*v1beta1.CloneSet) {
	return func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: value}}
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

// sync brings the cache up to date with one Pod.
func (w *world) sync(name string) {
	if p, ok := w.pods[name]; ok {
		w.cache[name] = p
	} else {
		delete(w.cache, name)
	}
}

func (w *world) syncAll() {
	for name := range w.cache {
		w.sync(name)
	}
	for name := range w.pods {
		w.sync(name)
	}
}

func (w *world) names() (names []string) {
	for name := range w.pods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (w *world) snapshot() Snapshot {
	found, err := revision.Find(revision.OfCloneSet(w.set), w.revisions)
	if err != nil {
		w.fail("finding revisions: %v", err)
	}
	if found.Action == revision.ActionCreate {
		w.revisions = append(w.revisions, found.Update)
	} else if found.Action == revision.ActionRenumber {
		for i, r := range w.revisions {
			if r.Name == found.Update.Name {
				w.revisions[i] = found.Update
			}
		}
	}
	s := Snapshot{
		Set: w.set.DeepCopy(), Revisions: w.revisions, Update: found.Update, Current: found.Current,
		Gates: w.gates, InPlace: inplace.Options{EnvFromMetadata: true},
	}
	for _, p := range w.cache {
		if IsActive(p) {
			s.Pods = append(s.Pods, p)
		} else {
			s.Inactive = append(s.Inactive, p)
		}
	}
	s.Pods = Sorted(s.Pods)
	return s
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
	checkDisjoint(w.fail, plan)
	for _, step := range plan.Refresh {
		if !fails() {
			w.refresh(s, step)
		}
	}
	for i := range plan.Create.Total() {
		if !fails() {
			w.create(s, i < plan.Create.Current)
		}
	}
	for _, step := range plan.Scale {
		if !fails() {
			w.execute(s, step)
		}
	}
	for _, step := range plan.Update {
		if !fails() {
			w.execute(s, step)
		}
	}
	status := Status(s, w.now)
	changed := StatusDiffers(&w.set.Status, &status)
	w.set.Status = status
	return changed || !plan.Idle()
}

// checkDisjoint: a plan writes no Pod twice, and no plan both scales and updates.
func checkDisjoint(fail func(string, ...any), p Plan) {
	seen := map[string]bool{}
	for _, s := range slices.Concat(p.Refresh, p.Scale, p.Update) {
		if seen[s.Pod] {
			fail("Pod %s has two steps in %v", s.Pod, p)
		}
		seen[s.Pod] = true
	}
	if p.scales() && len(p.Update) > 0 {
		fail("one plan scales and updates: %v", p)
	}
}

func (w *world) create(s Snapshot, atCurrent bool) {
	rev := s.Update
	if atCurrent {
		rev = s.Current
	}
	template, err := revision.Template(rev)
	if err != nil {
		w.fail("reading a revision: %v", err)
	}
	w.ids++
	p := fixture.Pod(fmt.Sprintf("%s-%03d", w.set.Name, w.ids)).Created(w.now).With(func(p *corev1.Pod) {
		p.UID = types.UID(p.Name)
		p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: v1beta1.KruisePodReady})
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: v1beta1.KruisePodReady, Status: corev1.ConditionTrue})
		p.Spec.Containers = template.Spec.Containers
		for k, v := range template.Labels {
			p.Labels[k] = v
		}
		SetRevision(p, rev.Name, false)
		lifecycle.SetState(p, v1beta1.LifecyclePreparingNormal, w.now)
	}).Obj()
	w.tell("create %s at %s", p.Name, w.revisionOf(p))
	w.store(p)
	w.expected[p.Name] = true
	w.checkScaleLimit(p.Name)
	limit := Replicas(w.set) + int(w.set.Spec.UpdateStrategy.RollingUpdate.MaxSurge.IntVal)
	n := w.active()
	if w.set.Spec.ScaleStrategy.ExcludePreparingDelete {
		for _, p := range w.pods {
			if IsActive(p) && lifecycle.State(p) == v1beta1.LifecyclePreparingDelete {
				n--
			}
		}
	}
	if n > limit {
		w.fail("creating Pod %s made %d Pods, and %d are allowed\n%s", p.Name, n, limit, strings.Join(w.story, "\n"))
	}
}

// checkScaleLimit: creation stops while too many Pods are unavailable. Those that are to be
// deleted do not count.
func (w *world) checkScaleLimit(created string) {
	limit := w.set.Spec.ScaleStrategy.MaxUnavailable
	if limit == nil {
		return
	}
	unavailable := 0
	for _, p := range w.pods {
		_, marked := p.Labels[v1beta1.SpecifiedDeleteLabel]
		if ok, _ := Available(p, w.set.Spec.MinReadySeconds, w.now); !ok && IsActive(p) && !marked {
			unavailable++
		}
	}
	if unavailable > int(limit.IntVal) {
		w.fail("creating Pod %s made %d unavailable Pods, and scaleStrategy allows %d\n%s", created, unavailable, limit.IntVal, strings.Join(w.story, "\n"))
	}
}

// revisionOf is the image and environment of the revision a Pod is labelled with.
func (w *world) revisionOf(p *corev1.Pod) string {
	for _, r := range w.revisions {
		if revision.SameRevision(p.Labels["controller-revision-hash"], r.Name) {
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

// refresh is podupdate.Refresh: the write that makes a Pod ready is only made on the
// version that was decided on.
func (w *world) refresh(s Snapshot, step Step) {
	live := w.pods[step.Pod]
	if live == nil || live.DeletionTimestamp != nil || live.ResourceVersion != w.cache[step.Pod].ResourceVersion {
		return
	}
	next := inplace.Next(live, s.EngineOptions(), w.now)
	p := live.DeepCopy()
	switch next.Action {
	case inplace.Ready, inplace.SendBatch, inplace.DropGrace:
		p = next.Write.Pod.DeepCopy()
	case inplace.Invalid:
		w.fail("refreshing: %v", next.Err)
	}
	if step.Transition.Rule != "" && (step.Do == Move || next.Action == inplace.Ready || next.Action == inplace.Done) {
		step.Transition.Apply(p, w.now)
		w.tell("refresh %s: %s", p.Name, step.Transition)
	} else {
		w.tell("refresh %s: %s", p.Name, next.Action)
	}
	w.write(p)
}

func (w *world) execute(s Snapshot, step Step) {
	live := w.pods[step.Pod]
	if live == nil || live.DeletionTimestamp != nil {
		return
	}
	if step.Free && live.ResourceVersion != w.cache[step.Pod].ResourceVersion {
		return // a conflict
	}
	p := live.DeepCopy()
	switch step.Do {
	case Delete:
		w.tell("delete %s (%s): %s", p.Name, w.revisionOf(p), step.Why)
		p.DeletionTimestamp = new(metav1.NewTime(w.now))
		w.deleted = append(w.deleted, p.Name)
	case Move:
		step.Transition.Apply(p, w.now)
		w.tell("move %s: %s", p.Name, step.Transition)
	case Mark:
		setLabel(p, v1beta1.SpecifiedDeleteLabel, "true")
		w.tell("mark %s (%s) for deletion: %s", p.Name, w.revisionOf(p), step.Detail)
		w.marked = append(w.marked, p.Name)
	case UpdateInPlace:
		w.write(inplace.NotReady(live, w.now))
		if w.cut != nil && w.cut() {
			w.tell("the update of %s ends after its first write", p.Name)
			return
		}
		begun, err := inplace.Begin(w.pods[step.Pod], step.Spec, s.EngineOptions(), w.now)
		if err != nil {
			w.fail("beginning: %v", err)
		}
		p = begun.Pod.DeepCopy()
		from := w.revisionOf(p)
		SetRevision(p, step.Target, false)
		step.Transition.Apply(p, w.now)
		w.tell("update %s in place from %s to %s", p.Name, from, w.revisionOf(p))
	}
	w.write(p)
}

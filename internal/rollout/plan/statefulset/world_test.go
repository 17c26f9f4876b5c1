// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// object is what the API server stores of Pods and claims.
type object interface {
	metav1.Object
	comparable
}

// shelf holds the objects of one kind: as the API server has them and as the controller
// sees them, and the versions that the controller wrote and must see before it goes on.
type shelf[T object] struct {
	live, cache map[string]T
	written     map[string]int
}

func newShelf[T object]() shelf[T] {
	return shelf[T]{live: map[string]T{}, cache: map[string]T{}, written: map[string]int{}}
}

func (s *shelf[T]) names() (names []string) {
	for name := range s.live {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// sync brings the cache up to date with one object.
func (s *shelf[T]) sync(name string) {
	if o, ok := s.live[name]; ok {
		s.cache[name] = o
	} else {
		delete(s.cache, name)
	}
}

func (s *shelf[T]) syncAll() {
	for name := range s.cache {
		s.sync(name)
	}
	for name := range s.live {
		s.sync(name)
	}
}

// behind tells whether the cache does not show the controller's own writes yet. An object
// that is gone from both shows them.
func (s *shelf[T]) behind() bool {
	for name, version := range s.written {
		var none T
		live, seen := s.live[name], s.cache[name]
		if seen == none && live != none || seen != none && versionOf(seen) < version {
			return true
		}
		delete(s.written, name)
	}
	return false
}

func versionOf(o metav1.Object) int {
	v, _ := strconv.Atoi(o.GetResourceVersion())
	return v
}

// world is an API server, kubelets, a garbage collector, a volume driver, the owner of the
// hooks and a controller with a cache that lags, in memory. What the controller does is
// checked against the promises of the spec at every write; fail is called on a broken one.
type world struct {
	fail func(format string, args ...any)

	now       time.Time
	set       *v1beta1.StatefulSet // as the API server has it
	seen      *v1beta1.StatefulSet // as the controller sees it
	revisions []*appsv1.ControllerRevision
	pods      shelf[*corev1.Pod]
	claims    shelf[*corev1.PersistentVolumeClaim]
	gates     Gates
	// offline: file systems grow only when a Pod starts.
	offline bool
	// broken are Pods that never become ready; with cordon no Pod gets a node.
	broken map[string]bool
	cordon bool
	// outside are Pods that somebody else took out of service, until they serve again.
	outside map[string]bool

	version, uids, passes int
	requeue               time.Duration // when the last pass wants to look again
	story                 []string
	deleted               []Step // deletions by the controller
	lost                  []string
}

func newWorld(b fixture.StatefulSetBuilder, fail func(string, ...any)) *world {
	w := &world{
		fail: fail, now: fixture.Created, set: b.Obj(),
		pods: newShelf[*corev1.Pod](), claims: newShelf[*corev1.PersistentVolumeClaim](),
		gates:   Gates{AutoDeletePVC: true, AutoResizePVC: true, StartOrdinal: true, PodIndexLabel: true},
		outside: map[string]bool{}, broken: map[string]bool{},
	}
	w.seen = w.set
	return w
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%4ds  ", int(w.now.Sub(fixture.Created).Seconds()))+fmt.Sprintf(format, args...))
}

func (w *world) tale() string { return strings.Join(w.story[max(0, len(w.story)-150):], "\n") }

func (w *world) nextVersion() string {
	w.version++
	return strconv.Itoa(w.version)
}

func (w *world) storePod(p *corev1.Pod) {
	p.ResourceVersion = w.nextVersion()
	w.pods.live[p.Name] = p
	if w.serves(p, w.set) {
		delete(w.outside, p.Name)
	}
}

func (w *world) storeClaim(c *corev1.PersistentVolumeClaim) {
	c.ResourceVersion = w.nextVersion()
	w.claims.live[c.Name] = c
}

// change is a change of the spec by the user.
func (w *world) change(what string, edit func(*v1beta1.StatefulSet)) {
	next := w.set.DeepCopy()
	edit(next)
	next.Generation++
	w.set = next
	w.tell("user: %s", what)
}

func (w *world) syncAll() {
	w.seen = w.set
	w.pods.syncAll()
	w.claims.syncAll()
}

// serves: available and not going.
func (w *world) serves(p *corev1.Pod, set *v1beta1.StatefulSet) bool {
	ok, _ := Available(p, MinReadySeconds(set), w.now)
	return ok && p.DeletionTimestamp == nil
}

// downByUs counts ordinals in range that do not serve, those aside that somebody else took
// out of service.
func (w *world) downByUs(set *v1beta1.StatefulSet) (n int) {
	for i := range Ordinals(set, w.gates).Walk() {
		name := PodName(set.Name, i)
		if p := w.pods.live[name]; !w.outside[name] && (p == nil || !w.serves(p, set)) {
			n++
		}
	}
	return n
}

// snapshot is what the controller observes, after it has stored new revisions.
func (w *world) snapshot() Snapshot {
	found, err := revision.Find(revision.OfStatefulSet(w.seen), w.revisions)
	if err != nil {
		w.fail("finding revisions: %v", err)
	}
	switch found.Action {
	case revision.ActionCreate:
		w.revisions = append(w.revisions, found.Update)
	case revision.ActionRenumber:
		i := slices.IndexFunc(w.revisions, func(r *appsv1.ControllerRevision) bool { return r.Name == found.Update.Name })
		w.revisions[i] = found.Update
	}
	s := Snapshot{
		Set: w.seen, Revisions: w.revisions, Update: found.Update, Current: found.Current,
		Gates: w.gates, InPlace: inplace.Options{EnvFromMetadata: true},
		StorageClasses: map[string]*storagev1.StorageClass{"grows": {AllowVolumeExpansion: new(true)}},
	}
	for _, name := range sortedKeys(w.pods.cache) {
		s.Pods = append(s.Pods, w.pods.cache[name])
	}
	for _, name := range sortedKeys(w.claims.cache) {
		s.Claims = append(s.Claims, w.claims.cache[name])
	}
	return s
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// reconcile is one pass of the controller; fails decides for each write whether the API
// server refuses it. It reports whether anything was to be done.
func (w *world) reconcile(fails func() bool) bool {
	if w.pods.behind() || w.claims.behind() {
		return true
	}
	w.passes++
	s := w.snapshot()
	plan := Decide(s, w.now)
	w.requeue = plan.Requeue
	checkPlan(w.fail, s, w.now, plan)
	for _, step := range plan.Refresh {
		if !fails() {
			w.execute(s, step)
		}
	}
	for _, step := range plan.Claims {
		if !fails() {
			w.claim(s, step)
		}
	}
	for _, c := range plan.Create {
		if !fails() {
			w.create(s, c)
		}
	}
	for _, step := range slices.Concat(plan.Scale, plan.Update) {
		if !fails() {
			w.execute(s, step)
		}
	}
	status := Status(s, w.now)
	changed := StatusDiffers(&s.Set.Status, &status)
	if changed {
		next := w.set.DeepCopy()
		next.Status = status
		w.set = next
		if w.seen.Generation == w.set.Generation {
			w.seen = w.set
		}
	}
	return changed || !plan.Idle()
}

// write is a write of a Pod by the controller. One that takes it out of service is checked
// against the limit of the spec that the controller saw.
func (w *world) write(s Snapshot, p *corev1.Pod) {
	for name, pod := range w.pods.live {
		if w.outside[name] && w.serves(pod, s.Set) {
			delete(w.outside, name)
		}
	}
	was, seen := w.pods.live[p.Name], w.pods.cache[p.Name]
	// A Pod that has become well unseen may go: its restart was not the controller's doing.
	serving := was != nil && w.serves(was, s.Set) && w.serves(seen, s.Set)
	outside := w.outside[p.Name]
	w.storePod(p)
	w.pods.written[p.Name] = w.version
	n, _ := OrdinalOf(s.Set.Name, p.Name)
	if !serving || outside || w.serves(p, s.Set) || !Ordinals(s.Set, w.gates).Contains(n) || IsTerminal(p) {
		return
	}
	if down, limit := w.downByUs(s.Set), MaxUnavailable(s.Set); down > limit {
		w.fail("writing Pod %s makes %d Pods unavailable, and maxUnavailable is %d\n%s", p.Name, down, limit, w.tale())
	}
}

func (w *world) create(s Snapshot, c Creation) {
	if w.pods.live[c.Pod] != nil {
		return // AlreadyExists
	}
	for _, name := range c.Claims {
		if w.claims.live[ClaimName(name, s.Set.Name, c.Ordinal)] == nil {
			w.makeClaim(s, name, c.Ordinal)
		}
	}
	for _, t := range s.Set.Spec.VolumeClaimTemplates {
		claim := w.claims.live[ClaimName(t.Name, s.Set.Name, c.Ordinal)]
		if claim == nil || claim.DeletionTimestamp != nil {
			return // the executor looks again, and fails
		}
	}
	rev := s.find(c.Revision)
	template, err := revision.Template(rev)
	if err != nil {
		w.fail("reading a revision: %v", err)
	}
	w.uids++
	p := fixture.Pod(c.Pod).Created(w.now).With(func(p *corev1.Pod) {
		p.UID = types.UID(fmt.Sprintf("pod-%d", w.uids))
		p.Spec.Containers = template.Spec.Containers
		for k, v := range template.Labels {
			p.Labels[k] = v
		}
		p.Labels[appsv1.ControllerRevisionHashLabelKey] = rev.Name
		Identity(p, c.Ordinal, w.gates)
		lifecycle.SetState(p, c.State, w.now)
		if s.Set.Spec.Lifecycle != nil {
			p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: v1beta1.KruisePodReady})
			podready.Initialize(p, w.now)
		}
		for _, t := range s.Set.Spec.VolumeClaimTemplates {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(t.Name, s.Set.Name, c.Ordinal)},
			}})
		}
	}).Obj()
	w.tell("create %s at %s", p.Name, w.revisionOf(p))
	w.storePod(p)
	w.pods.written[p.Name] = w.version
}

func (w *world) makeClaim(s Snapshot, template string, n int) {
	claim := NewClaim(s.Set, ClaimTemplate(s.Set, template), n)
	w.uids++
	claim.UID = types.UID(fmt.Sprintf("claim-%d", w.uids))
	w.tell("create claim %s", claim.Name)
	w.storeClaim(claim)
	w.claims.written[claim.Name] = w.version
}

func (w *world) claim(s Snapshot, step ClaimStep) {
	live, pod := w.claims.live[step.Claim], w.pods.cache[step.Pod]
	switch {
	case step.Do == CreateClaim && live == nil:
		w.makeClaim(s, step.Template, step.Ordinal)
		return
	case step.Do == CreateClaim, live == nil, live.ResourceVersion != w.claims.cache[step.Claim].ResourceVersion:
		return
	}
	claim := live.DeepCopy()
	step.Apply(claim, s.Set, pod)
	w.tell("%s (set %t, Pod %t)", step, step.SetOwns, step.PodOwns)
	w.storeClaim(claim)
	w.claims.written[claim.Name] = w.version
}

// revisionOf is the image and environment of the revision a Pod is labelled with.
func (w *world) revisionOf(p *corev1.Pod) string {
	for _, r := range w.revisions {
		if revision.SameRevision(RevisionOf(p), r.Name) {
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

// execute is podupdate: Pods are written only in the version that was decided on, and
// deleted only when they have the UID.
func (w *world) execute(s Snapshot, step Step) {
	live, seen := w.pods.live[step.Pod], w.pods.cache[step.Pod]
	if live == nil || live.DeletionTimestamp != nil || live.UID != seen.UID {
		return
	}
	if step.Do != Delete && live.ResourceVersion != seen.ResourceVersion {
		w.tell("conflict: %s", step)
		return
	}
	p := live.DeepCopy()
	w.tell("%s", step)
	switch step.Do {
	case Delete:
		p.DeletionTimestamp = new(metav1.NewTime(w.now))
		w.deleted = append(w.deleted, step)
	case Move:
		step.Transition.Apply(p, w.now)
	case Repair:
		Identity(p, step.Ordinal, w.gates)
	case Refresh:
		switch next := inplace.Next(live, s.EngineOptions(), w.now); next.Action {
		case inplace.Ready, inplace.SendBatch, inplace.DropGrace:
			p = next.Write.Pod.DeepCopy()
			if next.Action == inplace.Ready {
				step.Transition.Apply(p, w.now)
			}
		case inplace.Invalid:
			w.fail("refreshing: %v", next.Err)
		case inplace.Done:
			step.Transition.Apply(p, w.now)
		}
	case UpdateInPlace:
		w.write(s, inplace.NotReady(live, w.now))
		begun, err := inplace.Begin(w.pods.live[step.Pod], step.Spec, s.EngineOptions(), w.now)
		if err != nil {
			w.fail("beginning: %v", err)
		}
		p = begun.Pod.DeepCopy()
		p.Labels[appsv1.ControllerRevisionHashLabelKey] = step.Target
		step.Transition.Apply(p, w.now)
	}
	w.write(s, p)
}

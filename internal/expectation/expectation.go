// SPDX-License-Identifier: Apache-2.0

// Package expectation tells whether the cache has caught up with our own writes.
//
// A controller that decides on a stale cache creates, deletes or updates too many Pods.
// So each write leaves an expectation: an object that must appear, vanish, or reach a
// resourceVersion. Expectations are checked against the cached objects themselves, not
// counted by events, so that a lost or merged event cannot block a workload; one that
// stays open is settled by reading the object from the API server (cloneset.md 9.3).
package expectation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// ProbeAfter is how long an expectation may stay open before the API server is asked.
const ProbeAfter = 5 * time.Second

// Object is the identity of something written: its kind and name in the namespace of the
// workload.
type Object struct {
	Kind string // "Pod", "PersistentVolumeClaim", "ControllerRevision"
	Name string
}

func (o Object) String() string { return o.Kind + " " + o.Name }

// Seen is what one place, the cache or the API server, knows of an Object.
type Seen struct {
	UID             types.UID
	ResourceVersion string
	// Terminating means the deletionTimestamp is set.
	Terminating bool
}

// Lookup returns what a place knows of an object; false when it is not there.
type Lookup func(Object) (Seen, bool)

// Read asks the API server for an object; false when it does not exist.
type Read func(context.Context, Object) (Seen, bool, error)

// kind is what is expected of the cache.
type kind int

const (
	create  kind = iota // the object appears
	remove              // the object with this UID is gone or terminating
	version             // the object with this UID has at least this resourceVersion
)

type expected struct {
	kind    kind
	uid     types.UID // of create: empty until the call has succeeded
	version string
	since   time.Time
	probed  time.Time
	counted bool // the timeout was reported
}

type key struct {
	object Object
	kind   kind
}

// Tracker holds the expectations of all workloads of one controller. It is safe for
// concurrent use. The zero value is not usable; see NewTracker.
type Tracker struct {
	clock   clock.PassiveClock
	timeout time.Duration
	// onTimeout is told once per expectation that outlived the timeout.
	onTimeout func(owner types.NamespacedName)

	mu     sync.Mutex
	owners map[types.NamespacedName]map[key]*expected
}

// NewTracker makes an empty Tracker. onTimeout, which may be nil, is called once for each
// expectation that is still open after timeout.
func NewTracker(c clock.PassiveClock, timeout time.Duration, onTimeout func(owner types.NamespacedName)) *Tracker {
	return &Tracker{clock: c, timeout: timeout, onTimeout: onTimeout, owners: map[types.NamespacedName]map[key]*expected{}}
}

func (t *Tracker) put(owner types.NamespacedName, k key, e *expected) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owners[owner] == nil {
		t.owners[owner] = map[key]*expected{}
	}
	e.since = t.clock.Now()
	t.owners[owner][k] = e
}

// ExpectCreate is called before the API call that creates object.
func (t *Tracker) ExpectCreate(owner types.NamespacedName, object Object) {
	t.put(owner, key{object, create}, &expected{kind: create})
}

// ExpectDelete is called before the API call that deletes the object with uid.
func (t *Tracker) ExpectDelete(owner types.NamespacedName, object Object, uid types.UID) {
	t.put(owner, key{object, remove}, &expected{kind: remove, uid: uid})
}

// ExpectVersion is called after a write that returned the object with uid at
// resourceVersion. A newer expectation of the same object replaces an older one.
func (t *Tracker) ExpectVersion(owner types.NamespacedName, object Object, uid types.UID, resourceVersion string) {
	t.put(owner, key{object, version}, &expected{kind: version, uid: uid, version: resourceVersion})
}

// CancelCreate drops the expectation of a creation that certainly failed.
func (t *Tracker) CancelCreate(owner types.NamespacedName, object Object) {
	t.drop(owner, key{object, create})
}

// CancelDelete drops the expectation of a deletion that certainly failed.
func (t *Tracker) CancelDelete(owner types.NamespacedName, object Object) {
	t.drop(owner, key{object, remove})
}

func (t *Tracker) drop(owner types.NamespacedName, k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owners[owner], k)
	if len(t.owners[owner]) == 0 {
		delete(t.owners, owner)
	}
}

// Forget drops everything about a workload that is gone.
func (t *Tracker) Forget(owner types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owners, owner)
}

// Pending is what the cache does not show yet.
type Pending struct {
	// Objects are the missing ones, sorted; empty when the cache may be trusted.
	Objects []Object
	// Wait is how long to wait for an event before looking again.
	Wait time.Duration
}

// Satisfied drops every expectation that cached fulfils and returns the rest. Those open
// for longer than ProbeAfter are settled by read, at most once per ProbeAfter: an
// expectation that the API server contradicts is dropped, one that it confirms stays,
// because then the cache is on its way. A read error only means to ask again later.
func (t *Tracker) Satisfied(ctx context.Context, owner types.NamespacedName, cached Lookup, read Read) Pending {
	var pending Pending
	for _, k := range t.unmet(owner, cached) {
		if t.probeDue(owner, k) && t.settle(ctx, owner, k, read) {
			continue
		}
		pending.Objects = append(pending.Objects, k.object)
	}
	if len(pending.Objects) > 0 {
		slices.SortFunc(pending.Objects, func(a, b Object) int { return strings.Compare(a.String(), b.String()) })
		pending.Objects = slices.Compact(pending.Objects)
		pending.Wait = ProbeAfter
	}
	return pending
}

// unmet drops what cached fulfils and lists what it does not.
func (t *Tracker) unmet(owner types.NamespacedName, cached Lookup) (open []key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, e := range t.owners[owner] {
		if e.met(cached(k.object)) {
			delete(t.owners[owner], k)
		} else {
			open = append(open, k)
		}
	}
	if len(t.owners[owner]) == 0 {
		delete(t.owners, owner)
	}
	return open
}

// met reports whether the cache shows the write that e stands for.
func (e *expected) met(seen Seen, found bool) bool {
	switch e.kind {
	case create:
		return found
	case remove:
		return !found || seen.Terminating || seen.UID != e.uid
	}
	// What was written was in the cache before: when it is not there, or another has its
	// name, the cache is past the write.
	return !found || seen.UID != e.uid || atLeast(seen.ResourceVersion, e.version)
}

// atLeast compares resourceVersions; ones that cannot be compared count as reached,
// because waiting for them would never end.
func atLeast(have, want string) bool {
	c, err := resourceversion.CompareResourceVersion(have, want)
	return err != nil || c >= 0
}

// probeDue reports whether it is time to ask the API server, and counts timeouts.
func (t *Tracker) probeDue(owner types.NamespacedName, k key) bool {
	t.mu.Lock()
	e := t.owners[owner][k]
	if e == nil {
		t.mu.Unlock()
		return false
	}
	now := t.clock.Now()
	timedOut := !e.counted && now.Sub(e.since) >= t.timeout
	e.counted = e.counted || timedOut
	due := now.Sub(e.since) >= ProbeAfter && now.Sub(e.probed) >= ProbeAfter
	if due {
		e.probed = now
	}
	t.mu.Unlock()
	if timedOut && t.onTimeout != nil {
		t.onTimeout(owner)
	}
	return due
}

// settle asks the API server and drops the expectation when nothing will come of it.
func (t *Tracker) settle(ctx context.Context, owner types.NamespacedName, k key, read Read) bool {
	seen, found, err := read(ctx, k.object)
	if err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.owners[owner][k]
	if e == nil {
		return true
	}
	var hopeless bool
	switch e.kind {
	case create: // never arrived, or is gone again
		hopeless = !found
	case remove: // the deletion did not happen
		hopeless = found && !seen.Terminating && seen.UID == e.uid
	case version: // the version that was written is not there any more
		hopeless = found && seen.UID == e.uid && !atLeast(seen.ResourceVersion, e.version)
	}
	if hopeless {
		delete(t.owners[owner], k)
		if len(t.owners[owner]) == 0 {
			delete(t.owners, owner)
		}
	}
	return hopeless
}

// String lists what is pending, for logs.
func (p Pending) String() string { return fmt.Sprintf("%v for another %s", p.Objects, p.Wait) }

// SPDX-License-Identifier: Apache-2.0

// Package newest lets a program act on what it has itself written before its watch shows it:
// the answer to a write is the whole object, and newer than the cache. Without it the program
// would have to wait for its own write, or do the same thing twice (container-recreate.md 7).
package newest

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// keep is for how many limits an object is remembered that nothing is noted of.
const keep = 10

// Memory remembers the newest known version of objects. It is safe for concurrent use; the
// zero value is not: see New. Objects that go in or come out are read-only.
type Memory[T metav1.Object] struct {
	limit time.Duration

	mu      sync.Mutex
	entries map[types.UID]entry[T]
}

type entry[T metav1.Object] struct {
	obj  T
	gone bool
	at   time.Time
}

// New returns an empty Memory. What a cache does not show within the limit is in doubt.
func New[T metav1.Object](limit time.Duration) *Memory[T] {
	return &Memory[T]{limit: limit, entries: map[types.UID]entry[T]{}}
}

// Saw notes a version that the API server has answered with.
func (m *Memory[T]) Saw(obj T, now time.Time) { m.put(obj, entry[T]{obj: obj, at: now}) }

// Gone notes that the API server does not have the object any more.
func (m *Memory[T]) Gone(obj T, now time.Time) { m.put(obj, entry[T]{obj: obj, gone: true, at: now}) }

func (m *Memory[T]) put(obj T, e entry[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, old := range m.entries {
		// Nobody has asked for it in all that time.
		if e.at.Sub(old.at) > keep*m.limit {
			delete(m.entries, uid)
		}
	}
	m.entries[obj.GetUID()] = e
}

// Knowledge is how much an answer of Of is worth.
type Knowledge int

const (
	// Current is the newest known version.
	Current Knowledge = iota
	// Gone is an object that does not exist any more.
	Gone
	// Doubtful is a version that the cache has not shown for so long that the API server has to
	// be asked, and the answer noted: the cache may be cut off, and an API server that was
	// restored from a backup has older versions for good.
	Doubtful
)

// Of returns the newer of an object from the cache and what is known of it.
func (m *Memory[T]) Of(cached T, now time.Time) (T, Knowledge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[cached.GetUID()]
	if !ok {
		return cached, Current
	}
	if !e.gone {
		// Versions that cannot be compared say nothing: then the cache is believed.
		if order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), e.obj.GetResourceVersion()); err != nil || order >= 0 {
			delete(m.entries, cached.GetUID())
			return cached, Current
		}
	}
	switch {
	case now.Sub(e.at) > m.limit:
		return e.obj, Doubtful
	case e.gone:
		return e.obj, Gone
	}
	return e.obj, Current
}

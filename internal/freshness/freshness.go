// SPDX-License-Identifier: Apache-2.0

// Package freshness tells whether a cache shows our own last write of an object yet. It is
// for controllers that write objects which several parties share; for what a workload owns
// there is internal/expectation.
package freshness

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lag is how long a cache may be behind before it is believed again.
const lag = 30 * time.Second

// Writes remembers the last version that this process wrote of each object of one kind. The
// zero value is ready for concurrent use.
type Writes struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]entry
}

type entry struct {
	uid     types.UID
	version string
	at      time.Time
}

// Wrote notes that obj is what the API server answered to a write.
func (w *Writes) Wrote(obj client.Object, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries == nil {
		w.entries = map[types.NamespacedName]entry{}
	}
	w.entries[client.ObjectKeyFromObject(obj)] = entry{uid: obj.GetUID(), version: obj.GetResourceVersion(), at: now}
}

// Behind reports whether obj, from a cache, is older than what was written. Another object
// of the same name, a version that cannot be compared, and 30 s without news end the doubt.
func (w *Writes) Behind(obj client.Object, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(obj)
	e, ok := w.entries[key]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), e.version)
	if err != nil || order >= 0 || e.uid != obj.GetUID() || now.Sub(e.at) > lag {
		delete(w.entries, key)
		return false
	}
	return true
}

// Forget drops an object that is gone.
func (w *Writes) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.entries, key)
}

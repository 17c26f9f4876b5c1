// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cacheLag is how long a cache may be behind before it is believed again. Every write
// carries the resourceVersion that was seen, so that a wrong belief costs a conflict and
// not a wrong object.
const cacheLag = 30 * time.Second

// freshness remembers the last version that this process wrote of each object, to notice
// that a cache does not show it yet. The zero value is ready for concurrent use.
type freshness struct {
	mu      sync.Mutex
	entries map[string]entry
}

type entry struct {
	uid     types.UID
	version string
	at      time.Time
}

func jobKey(key types.NamespacedName) string { return "job " + key.String() }
func nodeKey(name string) string             { return "node " + name }

// wrote notes that obj is what the API server answered to a write.
func (f *freshness) wrote(key string, obj client.Object, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries == nil {
		f.entries = map[string]entry{}
	}
	f.entries[key] = entry{uid: obj.GetUID(), version: obj.GetResourceVersion(), at: now}
}

// behind reports whether obj, from a cache, is older than what was written. Another object
// of the same name, a version that cannot be compared, and a lag longer than cacheLag end
// the wait.
func (f *freshness) behind(key string, obj client.Object, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.entries[key]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), e.version)
	if err != nil || order >= 0 || e.uid != obj.GetUID() || now.Sub(e.at) > cacheLag {
		delete(f.entries, key)
		return false
	}
	return true
}

func (f *freshness) forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.entries, key)
}

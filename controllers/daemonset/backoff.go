// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// backoffs remembers how often failed Pods were deleted, by set and node. A new generation
// of a set, or another set of the same name, starts anew: it may be what mends the failure.
type backoffs struct {
	mu   sync.Mutex
	sets map[types.NamespacedName]*history
}

type history struct {
	uid        types.UID
	generation int64
	nodes      map[string]plan.Backoff
}

// of returns a copy of what is known about set.
func (b *backoffs) of(key types.NamespacedName, set *v1beta1.DaemonSet) map[string]plan.Backoff {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.sets[key]
	if h == nil || h.uid != set.UID || h.generation != set.Generation {
		return nil
	}
	return maps.Clone(h.nodes)
}

// deleted notes that a failed Pod of node was deleted.
func (b *backoffs) deleted(key types.NamespacedName, set *v1beta1.DaemonSet, node string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.sets[key]
	if h == nil || h.uid != set.UID || h.generation != set.Generation {
		h = &history{uid: set.UID, generation: set.Generation, nodes: map[string]plan.Backoff{}}
		if b.sets == nil {
			b.sets = map[types.NamespacedName]*history{}
		}
		b.sets[key] = h
	}
	h.nodes[node] = h.nodes[node].Next(now)
}

// forget drops what is known about a set that is gone.
func (b *backoffs) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sets, key)
}

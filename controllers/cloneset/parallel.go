// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// patience says when slowStart gives up.
type patience int

const (
	stopAtFirst patience = iota // after a batch with a failure
	stopAtAll                   // after a batch in which every call failed: the cause is likely one
	neverStop
)

// slowStart calls do for 0 … n-1 in batches of 1, 2, 4 … limit calls, the calls of a batch
// at once, and returns all errors. It returns when all calls have.
func slowStart(n, limit int, p patience, do func(i int) error) (errs []error) {
	size := 1
	for from := 0; from < n; from, size = from+size, min(2*size, limit) {
		size = min(size, n-from)
		results := make([]error, size)
		var wg sync.WaitGroup
		for i := range size {
			wg.Go(func() { results[i] = do(from + i) })
		}
		wg.Wait()
		failed := 0
		for _, err := range results {
			if err != nil {
				errs = append(errs, err)
				failed++
			}
		}
		if p == stopAtFirst && failed > 0 || p == stopAtAll && failed == size {
			return errs
		}
	}
	return errs
}

// wishList collects times to look again, concurrently.
type wishList struct {
	mu    sync.Mutex
	first time.Duration
}

func (w *wishList) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = soonest(w.first, d)
}

// overlay collects what became of Pods, concurrently; close puts it into the snapshot.
type overlay struct {
	snap *snapshot

	mu       sync.Mutex
	replaced map[string]*corev1.Pod // nil: deleted
	created  []*corev1.Pod
}

func (o *overlay) replace(pod *corev1.Pod) { o.put(pod.Name, pod) }
func (o *overlay) remove(pod *corev1.Pod)  { o.put(pod.Name, nil) }

func (o *overlay) put(name string, pod *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.replaced == nil {
		o.replaced = map[string]*corev1.Pod{}
	}
	o.replaced[name] = pod
}

func (o *overlay) add(pod *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.created = append(o.created, pod)
}

// close makes the snapshot's active Pods those that are so now.
func (o *overlay) close() {
	pods := slices.Clone(o.created)
	for _, p := range o.snap.Pods {
		if now, written := o.replaced[p.Name]; written {
			p = now
		}
		if p != nil && plan.IsActive(p) {
			pods = append(pods, p)
		}
	}
	o.snap.Pods = plan.Sorted(pods)
}

// revision is the stored revision called name.
func (s *snapshot) revision(name string) *appsv1.ControllerRevision {
	for _, r := range s.Revisions {
		if r.Name == name {
			return r
		}
	}
	return s.Update
}

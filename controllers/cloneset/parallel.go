// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

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
	if len(o.replaced)+len(o.created) == 0 {
		return
	}
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

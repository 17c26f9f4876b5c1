// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// Gates are the feature gates that change what is decided.
type Gates struct {
	// PruneIneligibleNodes: Pods on nodes that should not run one take no part in a
	// rolling update, so that they do not use up maxUnavailable.
	PruneIneligibleNodes bool
}

// Snapshot is all that a decision may look at. Nobody writes to it; the objects may be
// shared with a cache.
type Snapshot struct {
	// Set is the DaemonSet, defaulted.
	Set *v1beta1.DaemonSet
	// Nodes are all nodes of the cluster, in any order.
	Nodes []*corev1.Node
	// Pods are owned and match the selector, in any order; terminating ones are included.
	Pods []*corev1.Pod
	// Revisions are all stored revisions of the set, Update among them.
	Revisions []*appsv1.ControllerRevision
	// Update is the revision of the present template; never nil.
	Update *appsv1.ControllerRevision
	// Backoffs tell by node how often the failed Pods of this generation were deleted.
	Backoffs map[string]Backoff
	// Gates and InPlace carry the feature gates and facts about the server.
	Gates   Gates
	InPlace inplace.Options
}

// Hash is the value of the label controller-revision-hash that updated Pods carry.
func (s *Snapshot) Hash() string { return revision.DaemonSetHashOf(s.Update) }

// EngineOptions are the options of the in-place engine for this set: no grace period, and
// revisions are known by their hash (daemonset.md 7.6).
func (s *Snapshot) EngineOptions() inplace.Options {
	o := s.InPlace
	o.GracePeriodSeconds = 0
	o.RevisionKey = revision.DaemonSetHashOf
	o.SetRevision = func(pod *corev1.Pod, target *appsv1.ControllerRevision) {
		SetHash(pod, revision.DaemonSetHashOf(target))
	}
	return o
}

// SetHash labels pod, which must be the caller's copy, as one of the revision with hash.
func SetHash(pod *corev1.Pod, hash string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
}

// TargetNode is the node that pod runs on or is bound for: spec.nodeName, else the single
// value of a required affinity to metadata.name. It is empty for a Pod bound for none.
func TargetNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == nodeNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// nodeNameField is the field of nodes that the affinity of a Pod names (metav1.ObjectNameField).
const nodeNameField = "metadata.name"

// IsReady tells whether a Pod is ready, by its condition alone.
func IsReady(pod *corev1.Pod) bool {
	c := podready.Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Available tells whether a Pod has been ready for minReadySeconds, which is all that a
// rolling update asks. When only time is missing, wait is how long; otherwise it is zero.
func Available(pod *corev1.Pod, minReadySeconds int32, now time.Time) (available bool, wait time.Duration) {
	if !IsReady(pod) {
		return false, 0
	}
	if minReadySeconds <= 0 {
		return true, 0
	}
	since := podready.Condition(pod, corev1.PodReady).LastTransitionTime.Time
	wait = time.Duration(minReadySeconds)*time.Second - now.Sub(since)
	if wait <= 0 {
		return true, 0
	}
	return false, wait
}

// isOver tells whether the Pod ended by itself: an eviction, or the node was shut down.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// view is what is read from one Pod, once per decision.
type view struct {
	pod         *corev1.Pod
	isNew       bool // at the update revision, by label
	terminating bool
	preparing   bool // in PreparingDelete
	over        bool
	ready       bool
	available   bool
	// availableIn is positive when only time separates the Pod from being available.
	availableIn time.Duration
}

func (v *view) usable() bool { return v != nil && !v.preparing }

// place is one node and its Pods. Places of nodes that do not exist have Pods only.
type place struct {
	name string
	node *corev1.Node
	// run: the node should have a Pod. stay: a Pod that is there may stay.
	run, stay bool
	pods      []*view // in the order of daemonset.md 3
}

// places sorts nodes and Pods by node name.
func (s *Snapshot) places(now time.Time) []*place {
	eligible := EligibilityOf(&s.Set.Spec.Template)
	list := make([]*place, 0, len(s.Nodes))
	byName := make(map[string]*place, len(s.Nodes))
	for _, n := range s.Nodes {
		p := &place{name: n.Name, node: n}
		p.run, p.stay = eligible.On(n)
		byName[n.Name] = p
		list = append(list, p)
	}
	hash := s.Hash()
	views := make([]view, len(s.Pods))
	for i, pod := range s.Pods {
		v := &views[i]
		*v = view{pod: pod, terminating: pod.DeletionTimestamp != nil, over: isOver(pod), ready: IsReady(pod)}
		v.preparing = lifecycle.State(pod) == v1beta1.LifecyclePreparingDelete
		v.available, v.availableIn = Available(pod, s.Set.Spec.MinReadySeconds, now)
		v.isNew = revision.SameRevision(pod.Labels[appsv1.ControllerRevisionHashLabelKey], hash)
		name := TargetNode(pod)
		if name == "" {
			continue // no Pod of this controller; it counts nowhere
		}
		p := byName[name]
		if p == nil {
			p = &place{name: name}
			byName[name] = p
			list = append(list, p)
		}
		p.pods = append(p.pods, v)
	}
	slices.SortFunc(list, func(a, b *place) int { return strings.Compare(a.name, b.name) })
	for _, p := range list {
		if len(p.pods) > 1 {
			slices.SortFunc(p.pods, byAge)
		}
	}
	return list
}

// byAge is the order of Pods of one node: scheduled before unscheduled, older before
// younger, then by name.
func byAge(a, b *view) int {
	unscheduled := func(v *view) int {
		if v.pod.Spec.NodeName == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(unscheduled(a), unscheduled(b)),
		a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time),
		strings.Compare(a.pod.Name, b.pod.Name),
	)
}

// active are the Pods of the place that do not terminate.
func (p *place) active() (out []*view) {
	for _, v := range p.pods {
		if !v.terminating {
			out = append(out, v)
		}
	}
	return out
}

// pair returns the new and the old Pod of the place, nil for none; excess when there is
// more than one of a kind. Terminating Pods do not count.
func (p *place) pair() (newPod, oldPod *view, excess bool) {
	for _, v := range p.pods {
		slot := &oldPod
		if v.isNew {
			slot = &newPod
		}
		switch {
		case v.terminating:
		case *slot != nil:
			excess = true
		default:
			*slot = v
		}
	}
	return newPod, oldPod, excess
}

// find returns the stored revision with this hash; nil when it is gone.
func (s *Snapshot) find(hash string) *appsv1.ControllerRevision {
	for _, r := range s.Revisions {
		if revision.SameRevision(hash, revision.DaemonSetHashOf(r)) {
			return r
		}
	}
	return nil
}

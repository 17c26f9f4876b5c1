// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// Gates are the feature gates that change what is decided.
type Gates struct {
	// PartitionRollback: raising the partition takes updated Pods back.
	PartitionRollback bool
	// PreparingUpdateAsUpdate: Pods in PreparingUpdate count as updated when scaling.
	PreparingUpdateAsUpdate bool
	// ShortHash: the label controller-revision-hash of Pods holds only the hash.
	ShortHash bool
}

// Snapshot is all that a decision may look at. Nobody writes to it; the objects may be
// shared with a cache.
type Snapshot struct {
	// Set is the CloneSet, defaulted.
	Set *v1beta1.CloneSet
	// Pods are owned, match the selector, are neither terminating nor in a terminal phase,
	// and are sorted by name (Sorted).
	Pods []*corev1.Pod
	// Inactive are owned Pods that are terminating, Failed or Succeeded.
	Inactive []*corev1.Pod
	// Claims are owned PersistentVolumeClaims that are not terminating.
	Claims []*corev1.PersistentVolumeClaim
	// Revisions are all stored revisions of the set, Update and Current among them.
	Revisions []*appsv1.ControllerRevision
	// Update is the revision of the present template, Current the one that Pods kept back
	// by partition stay at. Neither is nil.
	Update, Current *appsv1.ControllerRevision
	// NodeLabels are node labels by node name; see updatesort.Deletion.
	NodeLabels map[string]map[string]string
	// Gates and InPlace carry the feature gates and facts about the server. The strategy's
	// own in-place settings are filled in by Decide.
	Gates   Gates
	InPlace inplace.Options
}

// Sorted returns the Pods by name: the order in which ties are broken.
func Sorted(pods []*corev1.Pod) []*corev1.Pod {
	out := slices.Clone(pods)
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// IsActive tells whether a Pod counts: not terminating, not in a terminal phase.
func IsActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// readySince returns when a ready Pod became ready (cloneset.md 3: Running, Ready, and not
// held by InPlaceUpdateReady).
func readySince(pod *corev1.Pod) (since time.Time, ready bool) {
	if pod.Status.Phase != corev1.PodRunning {
		return time.Time{}, false
	}
	for i := range pod.Status.Conditions {
		switch c := &pod.Status.Conditions[i]; {
		case c.Type == v1beta1.InPlaceUpdateReady && c.Status != corev1.ConditionTrue:
			return time.Time{}, false
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			since, ready = c.LastTransitionTime.Time, true
		}
	}
	return since, ready
}

// IsReady tells whether a Pod counts as ready; its lifecycle state does not matter.
func IsReady(pod *corev1.Pod) bool {
	_, ready := readySince(pod)
	return ready
}

// Available tells whether a Pod counts as available. When only time is missing, wait is
// how long; otherwise it is zero.
func Available(pod *corev1.Pod, minReadySeconds int32, now time.Time) (available bool, wait time.Duration) {
	since, ready := readySince(pod)
	if !ready || lifecycle.State(pod) != v1beta1.LifecycleNormal {
		return false, 0
	}
	return availableSince(since, minReadySeconds, now)
}

func availableSince(since time.Time, minReadySeconds int32, now time.Time) (available bool, wait time.Duration) {
	wait = time.Duration(minReadySeconds)*time.Second - now.Sub(since)
	if minReadySeconds <= 0 || wait <= 0 {
		return true, 0
	}
	return false, wait
}

// view is what is read from one Pod, once per decision.
type view struct {
	pod       *corev1.Pod
	state     v1beta1.LifecycleState
	updated   bool // at the update revision, by label
	isNew     bool // updated, in the flavour of the scale pass
	ready     bool
	available bool
	specified bool
	// availableIn is positive when only time separates the Pod from being available.
	availableIn time.Duration
	// touched: a step of this plan writes the Pod already. held: the Pod is in Held.
	touched, held bool
}

func (v *view) preparingDelete() bool { return v.state == v1beta1.LifecyclePreparingDelete }

func (v *view) at(r *appsv1.ControllerRevision) bool {
	return revision.SameRevision(v.pod.Labels[appsv1.ControllerRevisionHashLabelKey], r.Name)
}

func (s *Snapshot) views(now time.Time) []*view {
	named := map[string]bool{}
	for _, n := range s.Set.Spec.ScaleStrategy.PodsToDelete {
		named[n] = true
	}
	list, store := make([]*view, len(s.Pods)), make([]view, len(s.Pods))
	for i, p := range s.Pods {
		v := &store[i]
		v.pod, v.state = p, lifecycle.State(p)
		_, v.specified = p.Labels[v1beta1.SpecifiedDeleteLabel]
		v.specified = v.specified || named[p.Name]
		var since time.Time
		if since, v.ready = readySince(p); v.ready && v.state == v1beta1.LifecycleNormal {
			v.available, v.availableIn = availableSince(since, s.Set.Spec.MinReadySeconds, now)
		}
		v.updated = v.at(s.Update)
		v.isNew = v.updated || s.Gates.PreparingUpdateAsUpdate && v.state == v1beta1.LifecyclePreparingUpdate
		list[i] = v
	}
	return list
}

func (s *Snapshot) situation() Situation {
	return Situation{
		Limits:                 LimitsOf(s.Set),
		SameRevision:           s.Current.Name == s.Update.Name,
		PartitionRollback:      s.Gates.PartitionRollback,
		ExcludePreparingDelete: s.Set.Spec.ScaleStrategy.ExcludePreparingDelete,
	}
}

// SetRevision writes the two labels that say a Pod is at the revision with this name.
func SetRevision(pod *corev1.Pod, name string, shortHash bool) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	hash := revision.ShortHash(name)
	pod.Labels[v1beta1.PodTemplateHashLabel] = hash
	if shortHash {
		name = hash
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = name
}

// EngineOptions are the options of the in-place engine for this set.
func (s *Snapshot) EngineOptions() inplace.Options {
	o := s.InPlace
	o.SetRevision = func(pod *corev1.Pod, target *appsv1.ControllerRevision) {
		SetRevision(pod, target.Name, s.Gates.ShortHash)
	}
	o.IgnoreVolumeClaimTemplates = Policy(s.Set) == v1beta1.InPlaceOnlyPodUpdatePolicyType
	if r := rolling(s.Set); r != nil && r.InPlaceUpdateStrategy != nil {
		o.GracePeriodSeconds = r.InPlaceUpdateStrategy.GracePeriodSeconds
	}
	return o
}

// find returns the stored revision with this short hash; nil when it is gone.
func (s *Snapshot) find(hash string) *appsv1.ControllerRevision {
	if hash == "" {
		return nil
	}
	for _, r := range []*appsv1.ControllerRevision{s.Update, s.Current} {
		if revision.ShortHash(r.Name) == hash {
			return r
		}
	}
	for _, r := range s.Revisions {
		if revision.ShortHash(r.Name) == hash {
			return r
		}
	}
	return nil
}

func shortHash(name string) string { return revision.ShortHash(name) }

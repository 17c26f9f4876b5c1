// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/ordinal"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// Gates are the feature gates that change what is decided.
type Gates struct {
	// AutoDeletePVC is StatefulSetAutoDeletePVC: the retention policy of claims is in effect.
	AutoDeletePVC bool
	// AutoResizePVC is StatefulSetAutoResizePVCGate: claims may be expanded.
	AutoResizePVC bool
	// StartOrdinal is StatefulSetStartOrdinal: spec.ordinals.start is in effect.
	StartOrdinal bool
	// PodIndexLabel: Pods get label apps.kubernetes.io/pod-index.
	PodIndexLabel bool
	// PreparingUpdateAsUpdate: Pods in PreparingUpdate count as updated in an unordered update.
	PreparingUpdateAsUpdate bool
}

// Snapshot is all that a decision may look at. Nobody writes to it; the objects may be
// shared with a cache.
type Snapshot struct {
	// Set is the StatefulSet, defaulted.
	Set *v1beta1.StatefulSet
	// Pods are all Pods that the set owns and whose labels its selector matches, in any
	// order, terminating ones and those in a terminal phase included. Pods whose name is
	// not that of an ordinal of the set are ignored.
	Pods []*corev1.Pod
	// Claims are the PersistentVolumeClaims of the namespace, terminating ones included, of
	// which those are looked at whose name is that of a claim of the set (ClaimName),
	// whoever made them. Others may be left out.
	Claims []*corev1.PersistentVolumeClaim
	// Revisions are all stored revisions of the set, Update and Current among them.
	Revisions []*appsv1.ControllerRevision
	// Update is the revision of the present template, Current the one that Pods kept back
	// by partition stay at. Neither is nil.
	Update, Current *appsv1.ControllerRevision
	// StorageClasses are by name; they are looked at only with gate AutoResizePVC and
	// strategy OnPodRollingUpdate (ExpandsClaims).
	StorageClasses map[string]*storagev1.StorageClass
	// Gates and InPlace carry the feature gates and facts about the server. The strategy's
	// own in-place settings are filled in by Decide.
	Gates   Gates
	InPlace inplace.Options
}

// PodName is the name of the Pod of an ordinal.
func PodName(set string, n int) string { return set + "-" + strconv.Itoa(n) }

// OrdinalOf reads the ordinal out of a Pod's name. It is false for names that PodName does
// not make of set: other sets' Pods, and spellings such as "db-007".
func OrdinalOf(set, pod string) (n int, ok bool) {
	digits, found := strings.CutPrefix(pod, set+"-")
	if !found || digits == "" || len(digits) > 15 || digits[0] == '0' && digits != "0" {
		return 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		n = n*10 + int(digits[i]-'0')
	}
	return n, true
}

// ClaimName is the name of the claim that an ordinal has of a claim template.
func ClaimName(template, set string, n int) string {
	return template + "-" + set + "-" + strconv.Itoa(n)
}

// Ordinals are the ordinals that have a Pod (statefulset.md 7.4). Entries of
// reserveOrdinals that cannot be read, which admission refuses, reserve nothing.
func Ordinals(set *v1beta1.StatefulSet, g Gates) ordinal.Range {
	start := 0
	if g.StartOrdinal && set.Spec.Ordinals != nil {
		start = max(0, int(set.Spec.Ordinals.Start))
	}
	reserved, _ := ordinal.Parse(set.Spec.ReserveOrdinals)
	return ordinal.NewRange(start, Replicas(set), reserved)
}

// EngineOptions are the options of the in-place engine for this set.
func (s *Snapshot) EngineOptions() inplace.Options {
	o := s.InPlace
	// Claim templates are not part of a revision: a Pod without a volume is told by its spec.
	o.IgnoreVolumeClaimTemplates = true
	if r := Rolling(s.Set); r != nil && r.InPlaceUpdateStrategy != nil {
		o.GracePeriodSeconds = r.InPlaceUpdateStrategy.GracePeriodSeconds
	}
	return o
}

// find returns the stored revision that a Pod's label names; nil when it is gone.
func (s *Snapshot) find(label string) *appsv1.ControllerRevision {
	if label == "" {
		return nil
	}
	for _, r := range []*appsv1.ControllerRevision{s.Update, s.Current} {
		if revision.SameRevision(label, r.Name) {
			return r
		}
	}
	for _, r := range s.Revisions {
		if revision.SameRevision(label, r.Name) {
			return r
		}
	}
	return nil
}

// RevisionOf is the label that says which revision a Pod is at.
func RevisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

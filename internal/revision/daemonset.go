// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// DaemonSetFound is the outcome of FindDaemonSet.
type DaemonSetFound struct {
	// Update is the revision of the present template, in the form to store; never nil.
	// For ActionRenumber it is a changed copy of the stored object.
	Update *appsv1.ControllerRevision
	// Action tells what to write.
	Action Action
	// Duplicates are other stored revisions with the same template. Pods at them are to be
	// relabelled to Update, then they can be deleted.
	Duplicates []*appsv1.ControllerRevision
}

// FindDaemonSet chooses the revision of set's present template among the stored ones, in
// any order (daemonset.md 7.7). Nothing passed in is changed.
//
// A stored revision is that of the template when both mean the same, whatever bytes and
// hash were written at the time: the hash covers every field of the Go types it was made
// with, and a new one for an unchanged template would restart every Pod.
func FindDaemonSet(set *v1beta1.DaemonSet, stored []*appsv1.ControllerRevision) (DaemonSetFound, error) {
	data, err := Data(&set.Spec.Template)
	if err != nil {
		return DaemonSetFound{}, err
	}
	sorted := slices.Clone(stored)
	Sort(sorted)
	var equal []*appsv1.ControllerRevision
	number := int64(1)
	for _, r := range sorted {
		if sameTemplate(r, data) {
			equal = append(equal, r)
		} else {
			number = r.Revision + 1
		}
	}
	if len(equal) == 0 {
		return DaemonSetFound{Update: newDaemonSet(set, data, number), Action: ActionCreate}, nil
	}
	last := len(equal) - 1
	found := DaemonSetFound{Update: equal[last], Action: ActionNone, Duplicates: equal[:last:last]}
	number = max(number, found.Update.Revision)
	if number != found.Update.Revision || found.Update.Labels[appsv1.ControllerRevisionHashLabelKey] == "" {
		r := found.Update.DeepCopy()
		metav1.SetMetaDataLabel(&r.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, DaemonSetHashOf(r))
		if number != r.Revision { // a rollback: images are pulled beforehand for it, too
			delete(r.Labels, v1beta1.ImagePreDownloadCreatedLabel)
			delete(r.Labels, v1beta1.ImagePreDownloadIgnoredLabel)
		}
		r.Revision = number
		found.Update, found.Action = r, ActionRenumber
	}
	return found, nil
}

func newDaemonSet(set *v1beta1.DaemonSet, data []byte, number int64) *appsv1.ControllerRevision {
	hash := DaemonSetHash(&set.Spec.Template, set.Status.CollisionCount)
	labels := maps.Clone(set.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[appsv1.ControllerRevisionHashLabelKey] = hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:            Name(set.Name, hash),
			Namespace:       set.Namespace,
			Labels:          labels,
			Annotations:     maps.Clone(set.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("DaemonSet"))},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}
}

// RenameDaemonSet gives r, which is not stored yet, the hash that belongs to another
// collision count, in name and label.
func RenameDaemonSet(r *appsv1.ControllerRevision, owner string, template *corev1.PodTemplateSpec, collisionCount int32) {
	hash := DaemonSetHash(template, &collisionCount)
	r.Name = Name(owner, hash)
	r.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
}

// DaemonSetHashOf is the value of the label controller-revision-hash that Pods at r carry:
// that of r's own label, or its name when r has none.
func DaemonSetHashOf(r *appsv1.ControllerRevision) string {
	if hash := r.Labels[appsv1.ControllerRevisionHashLabelKey]; hash != "" {
		return hash
	}
	return r.Name
}

// DaemonSetSurplus returns the stored revisions to delete, oldest first, so that at most
// limit remain besides update. Those whose hash is in live are passed over, so that more
// may remain (daemonset.md 7.7).
func DaemonSetSurplus(stored []*appsv1.ControllerRevision, update *appsv1.ControllerRevision, live map[string]bool, limit int) (surplus []*appsv1.ControllerRevision) {
	old := slices.DeleteFunc(slices.Clone(stored), func(r *appsv1.ControllerRevision) bool { return r.Name == update.Name })
	Sort(old)
	left := len(old) - max(0, limit)
	for _, r := range old {
		if left <= 0 {
			break
		}
		if !live[ShortHash(DaemonSetHashOf(r))] {
			surplus, left = append(surplus, r), left-1
		}
	}
	return surplus
}

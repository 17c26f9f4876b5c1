// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Owner is what a revision needs of its workload. Nothing in it is changed.
type Owner struct {
	// Kind is the kind of the workload, for the owner reference.
	Kind schema.GroupVersionKind
	// Object is the workload: name, namespace, UID and annotations count.
	Object metav1.Object
	// Template is the Pod template; required.
	Template *corev1.PodTemplateSpec
	// Current is status.currentRevision.
	Current string
	// CollisionCount is status.collisionCount; nil is 0.
	CollisionCount *int32
	// Annotations are added to the copies of the workload's own ones.
	Annotations map[string]string
}

// ClaimTemplatesAnnotation on a revision of a CloneSet holds the claim templates that were
// there when it was made, as JSON. OpenKruise keeps only their hash.
const ClaimTemplatesAnnotation = "apps.kruise.io/cloneset-volumeclaimtemplates"

// OfCloneSet makes the owner of the revisions of set. They carry its claim templates and
// the hash of them.
func OfCloneSet(set *v1beta1.CloneSet) Owner {
	o := Owner{
		Kind:           v1beta1.GroupVersion.WithKind("CloneSet"),
		Object:         set,
		Template:       &set.Spec.Template,
		Current:        set.Status.CurrentRevision,
		CollisionCount: set.Status.CollisionCount,
		Annotations: map[string]string{
			v1beta1.VolumeClaimTemplateHashAnnotation: VolumeClaimTemplateHash(set.Spec.VolumeClaimTemplates),
		},
	}
	if len(set.Spec.VolumeClaimTemplates) > 0 {
		if raw, err := json.Marshal(set.Spec.VolumeClaimTemplates); err == nil {
			o.Annotations[ClaimTemplatesAnnotation] = string(raw)
		}
	}
	return o
}

// ClaimTemplates are the claim templates that r carries; none when it was made without.
func ClaimTemplates(r *appsv1.ControllerRevision) ([]corev1.PersistentVolumeClaim, error) {
	text := r.Annotations[ClaimTemplatesAnnotation]
	if text == "" {
		return nil, nil
	}
	var templates []corev1.PersistentVolumeClaim
	if err := json.Unmarshal([]byte(text), &templates); err != nil {
		return nil, fmt.Errorf("decoding the claim templates of ControllerRevision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return templates, nil
}

// OfStatefulSet makes the owner of the revisions of set. Claim templates are no part of
// them (statefulset.md 7.3).
func OfStatefulSet(set *v1beta1.StatefulSet) Owner {
	return Owner{
		Kind:           v1beta1.GroupVersion.WithKind("StatefulSet"),
		Object:         set,
		Template:       &set.Spec.Template,
		Current:        set.Status.CurrentRevision,
		CollisionCount: set.Status.CollisionCount,
	}
}

// New makes the revision of o's present template, with the given number. It is not
// stored yet: it has no resourceVersion. The hash label keeps the hash of the first try
// (collision count of the status); after a collision only the name carries the new one.
func New(o Owner, number int64) (*appsv1.ControllerRevision, error) {
	data, err := Data(o.Template)
	if err != nil {
		return nil, err
	}
	count := int32(0)
	if o.CollisionCount != nil {
		count = *o.CollisionCount
	}
	hash := Hash(data, count)
	annotations := map[string]string{}
	maps.Copy(annotations, o.Object.GetAnnotations())
	maps.Copy(annotations, o.Annotations)
	labels := map[string]string{}
	maps.Copy(labels, o.Template.Labels)
	labels[v1beta1.RevisionHashLabel] = hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:            Name(o.Object.GetName(), hash),
			Namespace:       o.Object.GetNamespace(),
			Labels:          labels,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.Object, o.Kind)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}, nil
}

// Rename gives r the name that belongs to another collision count; see New.
func Rename(r *appsv1.ControllerRevision, owner string, collisionCount int32) {
	r.Name = Name(owner, Hash(r.Data.Raw, collisionCount))
}

// Equal reports whether two revisions hold the same template: their bytes are equal, or
// would be if this library had encoded both. Another release or another API library writes
// other bytes for the same template, and no Pod must restart for that (statefulset.md 6).
func Equal(a, b *appsv1.ControllerRevision) bool {
	return sameTemplate(a, b.Data.Raw) || sameTemplate(b, a.Data.Raw)
}

// sameTemplate tells whether r stores what data says, also if the bytes differ.
func sameTemplate(r *appsv1.ControllerRevision, data []byte) bool {
	if bytes.Equal(r.Data.Raw, data) {
		return true
	}
	template, err := Template(r)
	if err != nil {
		return false // nothing that this product could have written
	}
	again, err := Data(template)
	return err == nil && bytes.Equal(again, data)
}

// Template decodes the Pod template that r stores.
func Template(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var stored struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &stored); err != nil {
		return nil, fmt.Errorf("decoding ControllerRevision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return &stored.Spec.Template, nil
}

// Action is what Find wants written before its update revision is as it should be.
type Action int

const (
	// ActionNone means the update revision is stored as it should be.
	ActionNone Action = iota
	// ActionCreate means the update revision is new and must be created.
	ActionCreate
	// ActionRenumber means the template went back to an earlier revision, whose number
	// and claim hash must be updated.
	ActionRenumber
)

// Found is the outcome of Find.
type Found struct {
	// Update is the revision of the present template, in the form to store; never nil.
	// For ActionRenumber it is a changed copy of the stored object.
	Update *appsv1.ControllerRevision
	// Current is the revision that Pods kept back by partition stay at; never nil.
	Current *appsv1.ControllerRevision
	// Action tells what to write. Current may be Update, also when it is still to be created.
	Action Action
}

// Find chooses update and current revision of o among the stored ones, in any order
// (cloneset.md 8.2, statefulset.md 7.3). Nothing passed in is changed.
func Find(o Owner, stored []*appsv1.ControllerRevision) (Found, error) {
	sorted := slices.Clone(stored)
	Sort(sorted)
	number := int64(1)
	if n := len(sorted); n > 0 {
		number = sorted[n-1].Revision + 1
	}
	candidate, err := New(o, number)
	if err != nil {
		return Found{}, err
	}

	found := Found{Update: candidate, Action: ActionCreate}
	for i := len(sorted) - 1; i >= 0; i-- {
		if !Equal(sorted[i], candidate) {
			continue
		}
		found.Update, found.Action = sorted[i], ActionNone
		if i < len(sorted)-1 {
			found.Update, found.Action = renumbered(sorted[i], candidate, o.Annotations), ActionRenumber
		}
		break
	}

	found.Current = found.Update
	for _, r := range sorted {
		if r.Name == o.Current && r.Name != found.Update.Name {
			found.Current = r
		}
	}
	return found, nil
}

func renumbered(stored, candidate *appsv1.ControllerRevision, annotations map[string]string) *appsv1.ControllerRevision {
	r := stored.DeepCopy()
	r.Revision = candidate.Revision
	// Images are pulled beforehand for a rollback, too.
	delete(r.Labels, v1beta1.ImagePreDownloadCreatedLabel)
	delete(r.Labels, v1beta1.ImagePreDownloadIgnoredLabel)
	if r.Annotations == nil && len(annotations) > 0 {
		r.Annotations = map[string]string{}
	}
	maps.Copy(r.Annotations, annotations)
	return r
}

// Sort orders revisions by number, then creation time, then name.
func Sort(revisions []*appsv1.ControllerRevision) {
	slices.SortStableFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(
			cmp.Compare(a.Revision, b.Revision),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// Surplus returns the stored revisions to delete, oldest first, so that at most limit
// remain that are not live. Live are those whose short hash is in live.
func Surplus(stored []*appsv1.ControllerRevision, live map[string]bool, limit int) []*appsv1.ControllerRevision {
	var idle []*appsv1.ControllerRevision
	for _, r := range stored {
		if !live[ShortHash(r.Name)] {
			idle = append(idle, r)
		}
	}
	Sort(idle)
	return idle[:max(0, len(idle)-max(0, limit))]
}

// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/expectation"
)

// Writer writes objects of workloads and leaves an expectation for each write. It is safe
// for concurrent use.
type Writer struct {
	Client  client.Client
	Tracker *expectation.Tracker
}

// Create creates obj for the workload called key. The expectation is dropped when the
// creation certainly failed. The error is that of the API server.
func (w Writer) Create(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	w.Tracker.ExpectCreate(key, object(obj))
	err := w.Client.Create(ctx, obj)
	if err != nil && Certainly(err) {
		w.Tracker.CancelCreate(key, object(obj))
	}
	return err
}

// Delete deletes obj if it still has the UID that it has here; obj is only read. That it
// is gone already is no error.
func (w Writer) Delete(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	uid := obj.GetUID()
	return w.remove(ctx, key, obj, client.Preconditions{UID: &uid})
}

// DeleteVersion is Delete, but of exactly the version that obj has here; another one is a
// conflict.
func (w Writer) DeleteVersion(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return w.remove(ctx, key, obj, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

func (w Writer) remove(ctx context.Context, key types.NamespacedName, obj client.Object, only client.Preconditions) error {
	w.Tracker.ExpectDelete(key, object(obj), obj.GetUID())
	err := w.Client.Delete(ctx, obj, only)
	if err != nil && !apierrors.IsNotFound(err) {
		w.Tracker.CancelDelete(key, object(obj))
		return err
	}
	return nil
}

// Wrote notes that a write of obj returned it as it is here.
func (w Writer) Wrote(key types.NamespacedName, obj client.Object) {
	w.Tracker.ExpectVersion(key, object(obj), obj.GetUID(), obj.GetResourceVersion())
}

// Release takes the owner references of the workload with uid off obj and returns obj as it
// is then, or nil when it is gone. obj itself is only read.
func (w Writer) Release(ctx context.Context, key types.NamespacedName, obj client.Object, uid types.UID) (client.Object, error) {
	var refs []metav1.OwnerReference
	for _, ref := range obj.GetOwnerReferences() {
		if ref.UID != uid {
			refs = append(refs, ref)
		}
	}
	got, err := w.setOwners(ctx, key, obj, refs)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("releasing %s: %w", object(obj), err)
	}
	return got, nil
}

// Adopt adds ref to the owners of obj and returns obj as it is then. obj itself is only read.
func (w Writer) Adopt(ctx context.Context, key types.NamespacedName, obj client.Object, ref metav1.OwnerReference) (client.Object, error) {
	refs := append(obj.GetOwnerReferences()[:len(obj.GetOwnerReferences()):len(obj.GetOwnerReferences())], ref)
	got, err := w.setOwners(ctx, key, obj, refs)
	if err != nil {
		return nil, fmt.Errorf("adopting %s: %w", object(obj), err)
	}
	return got, nil
}

// setOwners patches the list. A merge patch replaces it, so the lock keeps what others
// wrote meanwhile.
func (w Writer) setOwners(ctx context.Context, key types.NamespacedName, obj client.Object, refs []metav1.OwnerReference) (client.Object, error) {
	next, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T copies to another type", obj)
	}
	next.SetOwnerReferences(refs)
	if err := w.Client.Patch(ctx, next, client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, err
	}
	w.Wrote(key, next)
	return next, nil
}

// Certainly tells whether a failed creation did not happen: otherwise, after a lost
// answer, the expectation stays until the cache or the API server settles it.
func Certainly(err error) bool {
	answered := apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	return answered && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err)
}

// NamespaceEnds says that nothing can be created any more, which no retry changes. Of
// joined errors only the first is looked at: it ended the loop, and the others say the same.
func NamespaceEnds(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// SPDX-License-Identifier: Apache-2.0

// Package history keeps the ControllerRevisions of a workload on the API server: it stores
// what internal/revision computes, under a name of its own, and deletes what is too old.
package history

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// maxCollisions bounds the search for a free name; two are already beyond all odds.
const maxCollisions = 20

// Store writes revisions. It is safe for concurrent use.
type Store struct {
	owned.Writer
	// Live is the API server.
	Live client.Reader
}

// Synced is the history after Sync.
type Synced struct {
	Update, Current *appsv1.ControllerRevision
	// Revisions are all of the workload, Update among them, in no order.
	Revisions []*appsv1.ControllerRevision
	// CollisionCount is that of the owner, or a higher one, to be written to the status.
	CollisionCount *int32
}

// Sync finds update and current revision of o among the stored ones and writes what is
// missing (cloneset.md 8.2, statefulset.md 7.3). Nothing passed in is changed.
func (s Store) Sync(ctx context.Context, o revision.Owner, stored []*appsv1.ControllerRevision) (Synced, error) {
	key := types.NamespacedName{Namespace: o.Object.GetNamespace(), Name: o.Object.GetName()}
	found, err := revision.Find(o, stored)
	if err != nil {
		return Synced{}, err
	}
	out := Synced{Update: found.Update, Current: found.Current, CollisionCount: o.CollisionCount}
	switch found.Action {
	case revision.ActionCreate:
		out.Update, err = s.create(ctx, key, o, &out)
	case revision.ActionRenumber:
		if err = s.Client.Update(ctx, out.Update); err == nil {
			s.Wrote(key, out.Update)
		}
	}
	if err != nil {
		return Synced{}, fmt.Errorf("storing ControllerRevision %s: %w", found.Update.Name, err)
	}
	if found.Current == found.Update || found.Current.Name == out.Update.Name {
		out.Current = out.Update
	}
	for _, r := range stored {
		if r.Name != out.Update.Name {
			out.Revisions = append(out.Revisions, r)
		}
	}
	out.Revisions = append(out.Revisions, out.Update)
	return out, nil
}

// create stores the candidate out.Update, under another name while its own belongs to
// another template.
func (s Store) create(ctx context.Context, key types.NamespacedName, o revision.Owner, out *Synced) (*appsv1.ControllerRevision, error) {
	candidate := out.Update
	for range maxCollisions {
		created := candidate.DeepCopy()
		err := s.Create(ctx, key, created)
		if err == nil {
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		existing := &appsv1.ControllerRevision{}
		if err := s.Live.Get(ctx, client.ObjectKeyFromObject(candidate), existing); err != nil {
			return nil, err
		}
		// Also one whose owner is gone: when it is collected, the next pass makes it anew.
		if revision.Equal(existing, candidate) {
			return existing, nil
		}
		count := int32(1)
		if c := out.CollisionCount; c != nil {
			count = *c + 1
		}
		out.CollisionCount = &count
		revision.Rename(candidate, o.Object.GetName(), count)
	}
	return nil, errors.New("no free name was found")
}

// Truncate deletes the oldest stored revisions, so that at most limit remain that are not
// live. Live are those whose short hash is in live. An orphan is nobody's to delete.
func (s Store) Truncate(ctx context.Context, stored []*appsv1.ControllerRevision, live map[string]bool, limit int) error {
	var errs []error
	for _, old := range revision.Surplus(stored, live, limit) {
		if metav1.GetControllerOfNoCopy(old) == nil {
			continue
		}
		err := s.Client.Delete(ctx, old, client.Preconditions{UID: &old.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting ControllerRevision %s: %w", old.Name, err))
		}
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/revision"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// syncHistory finds the revision of the present template and stores it if it is new
// (daemonset.md 7.7).
func (r *Reconciler) syncHistory(ctx context.Context, snap *snapshot, stored []*appsv1.ControllerRevision) error {
	found, err := revision.FindDaemonSet(snap.Set, stored)
	if err != nil {
		return err
	}
	update := found.Update
	switch found.Action {
	case revision.ActionCreate:
		update, err = r.createRevision(ctx, snap, found.Update)
	case revision.ActionRenumber:
		if err = r.client.Update(ctx, update); err == nil {
			r.writer.Wrote(snap.key, update)
		}
	}
	if err != nil {
		return fmt.Errorf("storing ControllerRevision %s: %w", found.Update.Name, err)
	}
	snap.Update, snap.duplicates = update, found.Duplicates
	snap.Revisions = []*appsv1.ControllerRevision{update}
	for _, s := range stored {
		if s.Name != update.Name {
			snap.Revisions = append(snap.Revisions, s)
		}
	}
	return nil
}

// maxCollisions bounds the search for a free name; two are already beyond all odds.
const maxCollisions = 20

// createRevision stores candidate, under another hash while its own belongs to another
// template. The count is kept in the status of the set itself: OpenKruise 1.9 counts in a
// built-in DaemonSet of the same name, and never gets out.
func (r *Reconciler) createRevision(ctx context.Context, snap *snapshot, candidate *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	for range maxCollisions {
		created := candidate.DeepCopy()
		err := r.writer.Create(ctx, snap.key, created)
		if err == nil {
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		existing := &appsv1.ControllerRevision{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(candidate), existing); err != nil {
			return nil, err
		}
		if owner := metav1.GetControllerOfNoCopy(existing); revision.Equal(existing, candidate) && (owner == nil || owner.UID == snap.Set.UID) {
			return existing, nil
		}
		count := int32(1)
		if c := snap.Set.Status.CollisionCount; c != nil {
			count = *c + 1
		}
		snap.Set.Status.CollisionCount = &count // written with the status of this pass
		revision.RenameDaemonSet(candidate, snap.Set.Name, &snap.Set.Spec.Template, count)
	}
	return nil, errors.New("no free name was found")
}

// relabel moves Pods at a revision with the same template to the update revision, and then
// deletes that revision: an earlier release may have stored a template twice. It returns
// how long to wait when something was written.
func (r *Reconciler) relabel(ctx context.Context, snap *snapshot) (time.Duration, error) {
	if len(snap.duplicates) == 0 {
		return 0, nil
	}
	hash := snap.Hash()
	var errs []error
	for _, dup := range snap.duplicates {
		moved := true
		for _, p := range snap.Pods {
			if p.DeletionTimestamp != nil || !revision.SameRevision(p.Labels[appsv1.ControllerRevisionHashLabelKey], revision.DaemonSetHashOf(dup)) {
				continue
			}
			got, err := r.pods.Patch(ctx, p, func(p *corev1.Pod) { plan.SetHash(p, hash) })
			if client.IgnoreNotFound(err) != nil {
				errs, moved = append(errs, fmt.Errorf("labelling Pod %s: %w", p.Name, err)), false
			} else if err == nil {
				r.writer.Wrote(snap.key, got)
			}
		}
		if moved {
			errs = append(errs, r.deleteRevision(ctx, snap, dup))
		}
	}
	return expectation.ProbeAfter, errors.Join(errs...) // the events of these writes come first
}

// defaultHistory is how many revisions are kept when the spec does not say.
const defaultHistory = 10

func (r *Reconciler) truncateHistory(ctx context.Context, snap *snapshot) error {
	limit := defaultHistory
	if l := snap.Set.Spec.RevisionHistoryLimit; l != nil {
		limit = int(*l)
	}
	var errs []error
	for _, old := range revision.DaemonSetSurplus(snap.Revisions, snap.Update, plan.LiveHashes(snap.Snapshot), limit) {
		errs = append(errs, r.deleteRevision(ctx, snap, old))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) deleteRevision(ctx context.Context, snap *snapshot, rev *appsv1.ControllerRevision) error {
	if err := r.writer.Delete(ctx, snap.key, rev); err != nil {
		return fmt.Errorf("deleting ControllerRevision %s: %w", rev.Name, err)
	}
	return nil
}

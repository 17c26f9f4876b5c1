// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// statusTries bounds the conflicts on one status.
const statusTries = 5

// writeStatus writes the status that follows from the snapshot and what act did to it, if
// it differs. It returns when the progress deadline has to be looked at.
func (r *Reconciler) writeStatus(ctx context.Context, snap *snapshot, p *plan.Plan, done outcome) (time.Duration, error) {
	base := snap.before
	for range statusTries {
		now := r.clock.Now()
		next := r.status(snap, p, done, now)
		snap.status = next
		if !plan.StatusDiffers(&base.Status, &next) {
			return plan.Deadline(snap.Set, &next, now), nil
		}
		r.blockedEvent(snap, &base.Status, &next)
		base = base.DeepCopy()
		base.Status = next
		err := r.client.Status().Update(ctx, base)
		switch {
		case err == nil:
			return plan.Deadline(snap.Set, &next, now), nil
		case apierrors.IsNotFound(err):
			return 0, nil
		case !apierrors.IsConflict(err):
			return 0, fmt.Errorf("writing the status of CloneSet %s: %w", snap.key, err)
		}
		// Decide on the status that the server has: conditions carry over from it.
		base = &v1beta1.CloneSet{}
		if err := r.live.Get(ctx, snap.key, base); err != nil {
			return 0, client.IgnoreNotFound(err)
		}
		if base.UID != snap.Set.UID {
			return 0, nil
		}
		collisions := snap.Set.Status.CollisionCount
		snap.Set.Status = *base.Status.DeepCopy()
		snap.Set.Status.CollisionCount = collisions
	}
	return 0, fmt.Errorf("writing the status of CloneSet %s: it changed %d times meanwhile", snap.key, statusTries)
}

// status is the status of this pass, with what failed in it.
func (r *Reconciler) status(snap *snapshot, p *plan.Plan, done outcome, now time.Time) v1beta1.CloneSetStatus {
	next := plan.Status(snap.Snapshot, now)
	if done.scaled {
		plan.SetFailure(&next, v1beta1.CloneSetConditionFailedScale, message(done.scaleErr), now)
	}
	if done.updated || done.updateErr != nil {
		failure := message(done.updateErr)
		if blocked := p.Blocked(); failure == "" && len(blocked) > 0 {
			failure = blocked[0].Detail
		}
		plan.SetFailure(&next, v1beta1.CloneSetConditionFailedUpdate, failure, now)
	}
	return next
}

// maxConditionMessage keeps a condition readable when hundreds of Pods fail alike.
const maxConditionMessage = 1024

func message(err error) string {
	if err == nil {
		return ""
	}
	m := err.Error()
	if len(m) > maxConditionMessage {
		m = m[:maxConditionMessage] + "…"
	}
	return m
}

// blockedEvent tells once, when the condition changes, of Pods that the policy
// InPlaceOnly keeps where they are: nothing is retried, so nothing else would.
func (r *Reconciler) blockedEvent(snap *snapshot, old, next *v1beta1.CloneSetStatus) {
	find := func(s *v1beta1.CloneSetStatus) string {
		for _, c := range s.Conditions {
			if c.Type == v1beta1.CloneSetConditionFailedUpdate {
				return c.Message
			}
		}
		return ""
	}
	if m := find(next); m != "" && m != find(old) {
		r.event(snap, events.Warning, events.InPlaceFailed, "%s", m)
	}
}

// tidy removes names of Pods that are gone from podsToDelete, and revisions that are too
// many (cloneset.md 9.4, steps 11 and 12).
func (r *Reconciler) tidy(ctx context.Context, snap *snapshot, p *plan.Plan) error {
	return errors.Join(r.dropNames(ctx, snap, p.StaleNames), r.truncateHistory(ctx, snap))
}

func (r *Reconciler) dropNames(ctx context.Context, snap *snapshot, stale []string) error {
	if len(stale) == 0 {
		return nil
	}
	fresh := &v1beta1.CloneSet{}
	if err := r.live.Get(ctx, snap.key, fresh); err != nil {
		return client.IgnoreNotFound(err)
	}
	base := fresh.DeepCopy()
	fresh.Spec.ScaleStrategy.PodsToDelete = slices.DeleteFunc(fresh.Spec.ScaleStrategy.PodsToDelete, func(n string) bool {
		return slices.Contains(stale, n)
	})
	if len(fresh.Spec.ScaleStrategy.PodsToDelete) == len(base.Spec.ScaleStrategy.PodsToDelete) {
		return nil // the cache is behind
	}
	// A patch of this one list: an update would drop what these types do not know.
	err := r.client.Patch(ctx, fresh, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsConflict(err) {
		return client.IgnoreNotFound(fmt.Errorf("removing names from podsToDelete of CloneSet %s: %w", snap.key, err))
	}
	return nil
}

// defaultHistory is how many revisions are kept when the spec does not say.
const defaultHistory = 10

func (r *Reconciler) truncateHistory(ctx context.Context, snap *snapshot) error {
	limit := defaultHistory
	if l := snap.Set.Spec.RevisionHistoryLimit; l != nil {
		limit = int(*l)
	}
	return r.history.Truncate(ctx, snap.Revisions, plan.LiveHashes(snap.Snapshot, &snap.status), limit)
}

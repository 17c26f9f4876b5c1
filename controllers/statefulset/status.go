// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

// statusTries bounds the conflicts on one status.
const statusTries = 5

// writeStatus writes the status that follows from the snapshot and what act did to it, if
// it differs from the one that is stored.
func (r *Reconciler) writeStatus(ctx context.Context, snap *snapshot, p *plan.Plan, done outcome) error {
	base := snap.before
	for range statusTries {
		next := r.status(snap, p, done, r.clock.Now())
		snap.status = next
		if !plan.StatusDiffers(&base.Status, &next) {
			return nil
		}
		r.blockedEvents(snap, p, &base.Status, &next)
		base = base.DeepCopy()
		base.Status = next
		err := r.client.Status().Update(ctx, base)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("writing the status of StatefulSet %s: %w", snap.key, err)
		}
		// Decide on the status that the server has: conditions carry over from it.
		base = &v1beta1.StatefulSet{}
		if err := r.live.Get(ctx, snap.key, base); err != nil {
			return client.IgnoreNotFound(err)
		}
		if base.UID != snap.Set.UID {
			return nil
		}
		collisions := snap.Set.Status.CollisionCount
		snap.Set.Status = *base.Status.DeepCopy()
		snap.Set.Status.CollisionCount = collisions
	}
	return fmt.Errorf("writing the status of StatefulSet %s: it changed %d times meanwhile", snap.key, statusTries)
}

// status is the status of this pass, with what failed in it.
func (r *Reconciler) status(snap *snapshot, p *plan.Plan, done outcome, now time.Time) v1beta1.StatefulSetStatus {
	next := plan.Status(snap.Snapshot, now)
	if snap.Set.DeletionTimestamp != nil {
		return next
	}
	plan.SetFailure(&next, v1beta1.StatefulSetConditionFailedCreatePod, message("create", done.createErr), now)
	failure := message("update", done.updateErr)
	if blocked := p.Blocked(); failure == "" && len(blocked) > 0 {
		failure = failurePrefix("update") + blocked[0].Detail
	}
	plan.SetFailure(&next, v1beta1.StatefulSetConditionFailedUpdatePod, failure, now)
	return next
}

// maxConditionMessage keeps a condition readable when hundreds of Pods fail alike.
const maxConditionMessage = 1024

func failurePrefix(verb string) string {
	return "StatefulPodControl failed to " + verb + " Pod error: " // tools match it (statefulset.md 7.12)
}

func message(verb string, err error) string {
	if err == nil {
		return ""
	}
	m := failurePrefix(verb) + err.Error()
	if len(m) > maxConditionMessage {
		m = m[:maxConditionMessage] + "…"
	}
	return m
}

// blockedEvents tells once, when the condition changes, of Pods that a policy, a claim or
// a storage class keeps where they are: nothing is retried, so nothing else would.
func (r *Reconciler) blockedEvents(snap *snapshot, p *plan.Plan, old, next *v1beta1.StatefulSetStatus) {
	find := func(s *v1beta1.StatefulSetStatus) string {
		for _, c := range s.Conditions {
			if c.Type == v1beta1.StatefulSetConditionFailedUpdatePod {
				return c.Message
			}
		}
		return ""
	}
	blocked := p.Blocked()
	if m := find(next); m == "" || m == find(old) || len(blocked) == 0 {
		return
	}
	reason := eventClaimBlocked
	if blocked[0].Why == plan.HeldInPlaceOnly {
		reason = events.InPlaceFailed
	}
	r.event(snap, events.Warning, reason, "%s", blocked[0].Detail)
}

// truncateHistory deletes the oldest revisions that nothing refers to, beyond the limit.
func (r *Reconciler) truncateHistory(ctx context.Context, snap *snapshot) error {
	if snap.Set.DeletionTimestamp != nil {
		return nil
	}
	live := plan.LiveHashes(snap.Snapshot, &snap.status)
	return r.history().Truncate(ctx, snap.Revisions, live, int(*snap.Set.Spec.RevisionHistoryLimit))
}

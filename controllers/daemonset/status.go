// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// statusTries bounds the conflicts on one status.
const statusTries = 5

// writeStatus writes the status that follows from the snapshot and what act did to it, if
// it differs. A pass that had to give nodes their Pods first did not get to the update, so
// it leaves observedGeneration as it was (daemonset.md 7.2).
func (r *Reconciler) writeStatus(ctx context.Context, snap *snapshot, managed bool) error {
	base := snap.before
	for range statusTries {
		next := plan.Status(snap.Snapshot, r.clock.Now())
		if managed {
			next.ObservedGeneration = base.Status.ObservedGeneration
		}
		if !plan.StatusDiffers(&base.Status, &next) {
			return nil
		}
		base = base.DeepCopy()
		base.Status = next
		err := r.client.Status().Update(ctx, base)
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("writing the status of DaemonSet %s: %w", snap.key, err)
		}
		base = &v1beta1.DaemonSet{}
		if err := r.live.Get(ctx, snap.key, base); err != nil {
			return client.IgnoreNotFound(err)
		}
		if base.UID != snap.Set.UID {
			return nil
		}
		snap.Set.Status.Conditions = base.Status.Conditions
		if live, known := base.Status.CollisionCount, snap.Set.Status.CollisionCount; live != nil && (known == nil || *known < *live) {
			snap.Set.Status.CollisionCount = live // it never goes back: the cache was behind
		}
	}
	return fmt.Errorf("writing the status of DaemonSet %s: it changed %d times meanwhile", snap.key, statusTries)
}

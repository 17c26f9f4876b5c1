// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/predownload"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// preDownloadImages keeps the ImagePullJobs of the update revision (daemonset.md 9).
func (r *Reconciler) preDownloadImages(ctx context.Context, snap *snapshot) error {
	var old []*appsv1.ControllerRevision
	for _, rev := range snap.Revisions {
		if rev.Name != snap.Update.Name {
			old = append(old, rev)
		}
	}
	now := plan.Status(snap.Snapshot, r.clock.Now())
	applier := predownload.Applier{Writer: r.writer, Event: func(kind, reason, format string, args ...any) {
		r.event(snap, kind, reason, format, args...)
	}}
	return applier.Keep(ctx, describe(snap, &now), old, snap.EngineOptions(), &snap.Update, snap.Revisions)
}

// describe says of the set, by its nodes, what pulling images beforehand needs.
func describe(snap *snapshot, now *v1beta1.DaemonSetStatus) predownload.Workload {
	nodes := predownload.Nodes{Desired: now.DesiredNumberScheduled, Updated: now.UpdatedNumberScheduled, Hash: snap.Hash()}
	if snap.Set.Status.UpdateRevision == now.UpdateRevision {
		// A node whose Pod is updated and not ready is as good as one that is not updated.
		nodes.UpdatedReady = max(0, now.UpdatedNumberScheduled-(now.DesiredNumberScheduled-now.NumberReady))
	}
	return predownload.OfDaemonSet(snap.Set, nodes)
}

// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kruisectl/kruisectl/internal/predownload"
)

// preDownloadImages keeps the ImagePullJobs of the update revision.
func (r *Reconciler) preDownloadImages(ctx context.Context, snap *snapshot) error {
	w := predownload.OfCloneSet(snap.Set, snap.Current, snap.Update)
	d := predownload.Decide(w, []*appsv1.ControllerRevision{snap.Current}, snap.Update, snap.EngineOptions())
	applier := predownload.Applier{Writer: r.writer, Event: func(kind, reason, format string, args ...any) {
		r.event(snap, kind, reason, format, args...)
	}}
	labelled, err := applier.Apply(ctx, w, d, snap.Update)
	base := snap.Update
	for i := range snap.Revisions {
		if snap.Revisions[i] == base {
			snap.Revisions[i] = labelled
		}
	}
	if snap.Current == base {
		snap.Current = labelled
	}
	snap.Update = labelled
	return err
}

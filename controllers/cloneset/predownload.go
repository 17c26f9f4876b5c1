// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kruisectl/kruisectl/internal/predownload"
)

// preDownloadImages keeps the ImagePullJobs of the update revision.
func (r *Reconciler) preDownloadImages(ctx context.Context, snap *snapshot) error {
	applier := predownload.Applier{Writer: r.writer, Event: func(kind, reason, format string, args ...any) {
		r.event(snap, kind, reason, format, args...)
	}}
	w := predownload.OfCloneSet(snap.Set, snap.Current, snap.Update)
	return applier.Keep(ctx, w, []*appsv1.ControllerRevision{snap.Current}, snap.EngineOptions(), &snap.Update, snap.Revisions, &snap.Current)
}

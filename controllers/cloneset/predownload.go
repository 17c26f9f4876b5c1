// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/predownload"
)

// preDownloadImages keeps the ImagePullJobs of the update revision (inplace-update.md
// 13.1). It runs before the status of a new template is written, so that whoever sees the
// status sees the jobs.
func (r *Reconciler) preDownloadImages(ctx context.Context, snap *snapshot) error {
	switch d := predownload.Decide(snap.Set, snap.Current, snap.Update, snap.EngineOptions()); d.Verdict {
	case predownload.CleanUp:
		return r.deleteJobs(ctx, snap)
	case predownload.Ignore:
		return r.labelUpdate(ctx, snap, v1beta1.ImagePreDownloadIgnoredLabel)
	case predownload.Create:
		for _, job := range d.Jobs {
			err := r.client.Create(ctx, job)
			switch {
			case apierrors.IsAlreadyExists(err):
			case err != nil: // without the label the next pass tries again
				r.event(snap, eventWarns, eventJobCreationFailed, "failed to create ImagePullJob %s: %v", job.Name, err)
				return fmt.Errorf("creating ImagePullJob %s: %w", job.Name, err)
			default:
				r.event(snap, eventNormal, eventJobCreated, "created ImagePullJob %s for image: %s", job.Name, job.Spec.Image)
			}
		}
		return r.labelUpdate(ctx, snap, v1beta1.ImagePreDownloadCreatedLabel)
	}
	return nil
}

// labelUpdate notes on the update revision that the decision was made.
func (r *Reconciler) labelUpdate(ctx context.Context, snap *snapshot, label string) error {
	base := snap.Update
	next := base.DeepCopy()
	metav1.SetMetaDataLabel(&next.ObjectMeta, label, "true")
	if err := r.client.Patch(ctx, next, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("labelling ControllerRevision %s: %w", base.Name, err)
	}
	r.tracker.ExpectVersion(snap.key, expectation.Object{Kind: kindRevision, Name: next.Name}, next.UID, next.ResourceVersion)
	for i := range snap.Revisions {
		if snap.Revisions[i] == base {
			snap.Revisions[i] = next
		}
	}
	if snap.Current == base {
		snap.Current = next
	}
	snap.Update = next
	return nil
}

// deleteJobs removes the jobs of rollouts that are over.
func (r *Reconciler) deleteJobs(ctx context.Context, snap *snapshot) error {
	var jobs v1beta1.ImagePullJobList
	if err := r.client.List(ctx, &jobs, client.InNamespace(snap.Set.Namespace), client.MatchingFields{ownerIndex: string(snap.Set.UID)}); err != nil {
		return fmt.Errorf("listing ImagePullJobs: %w", err)
	}
	var errs []error
	for _, job := range predownload.Owned(jobs.Items, snap.Set) {
		if job.DeletionTimestamp != nil {
			continue
		}
		if err := r.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting ImagePullJob %s: %w", job.Name, err))
		}
	}
	return errors.Join(errs...)
}

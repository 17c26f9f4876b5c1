// SPDX-License-Identifier: Apache-2.0

package predownload

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
)

// Applier carries out decisions. The cache of its client must have owned.Index for
// ImagePullJobs.
type Applier struct {
	owned.Writer
	// Event sends an event about the workload.
	Event func(kind, reason, format string, args ...any)
}

// Apply carries out d for w and returns the update revision as it is then; update itself
// is only read. It is called before the status of a new template is written, so that whoever
// sees the status sees the jobs. Callers log its error: it must not fail a rollout.
func (a Applier) Apply(ctx context.Context, w Workload, d Decision, update *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	switch d.Verdict {
	case CleanUp:
		return update, a.deleteJobs(ctx, w)
	case Ignore:
		return a.label(ctx, w, update, v1beta1.ImagePreDownloadIgnoredLabel)
	case Create:
		for _, job := range d.Jobs {
			err := a.Client.Create(ctx, job)
			switch {
			case apierrors.IsAlreadyExists(err):
			case err != nil: // without the label the next pass tries again
				a.Event(events.Warning, events.JobCreationFailed, "failed to create ImagePullJob %s: %v", job.Name, err)
				return update, fmt.Errorf("creating ImagePullJob %s: %w", job.Name, err)
			default:
				a.Event(events.Normal, events.JobCreated, "created ImagePullJob %s for image: %s", job.Name, job.Spec.Image)
			}
		}
		return a.label(ctx, w, update, v1beta1.ImagePreDownloadCreatedLabel)
	}
	return update, nil
}

// Keep decides about w and applies it. In every one of places and in all, the labelled
// update revision takes the place of the present one, which is *update.
func (a Applier) Keep(ctx context.Context, w Workload, old []*appsv1.ControllerRevision, o inplace.Options, update **appsv1.ControllerRevision, all []*appsv1.ControllerRevision, places ...**appsv1.ControllerRevision) error {
	present := *update
	labelled, err := a.Apply(ctx, w, Decide(w, old, present, o), present)
	for i := range all {
		if all[i] == present {
			all[i] = labelled
		}
	}
	for _, place := range append(places, update) {
		if *place == present {
			*place = labelled
		}
	}
	return err
}

// label notes on the update revision that the decision was made.
func (a Applier) label(ctx context.Context, w Workload, update *appsv1.ControllerRevision, label string) (*appsv1.ControllerRevision, error) {
	next := update.DeepCopy()
	metav1.SetMetaDataLabel(&next.ObjectMeta, label, "true")
	if err := a.Client.Patch(ctx, next, client.MergeFrom(update)); err != nil {
		return update, fmt.Errorf("labelling ControllerRevision %s: %w", update.Name, err)
	}
	a.Wrote(types.NamespacedName{Namespace: w.Object.GetNamespace(), Name: w.Object.GetName()}, next)
	return next, nil
}

// deleteJobs removes the jobs of rollouts that are over.
func (a Applier) deleteJobs(ctx context.Context, w Workload) error {
	var jobs v1beta1.ImagePullJobList
	uid := w.Object.GetUID()
	if err := a.Client.List(ctx, &jobs, client.InNamespace(w.Object.GetNamespace()), owned.By(uid)); err != nil {
		return fmt.Errorf("listing ImagePullJobs: %w", err)
	}
	var errs []error
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if ref := metav1.GetControllerOfNoCopy(job); ref == nil || ref.UID != uid || job.DeletionTimestamp != nil {
			continue
		}
		if err := a.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting ImagePullJob %s: %w", job.Name, err))
		}
	}
	return errors.Join(errs...)
}

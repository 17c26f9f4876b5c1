// SPDX-License-Identifier: Apache-2.0

package imagelistpulljob

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/owned"
)

// name is that of the controller, in logs, metrics and events.
const name = "imagelistpulljob-controller"

// Add runs the controller in mgr. It adds owned.Index on ImagePullJobs.
func Add(mgr ctrl.Manager, o Options) error {
	if err := owned.AddIndexes(context.Background(), mgr.GetFieldIndexer(), &v1beta1.ImagePullJob{}); err != nil {
		return err
	}
	recorder, err := events.NewRecorder(mgr, name)
	if err != nil {
		return err
	}
	c, err := controller.New(name, mgr, controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             o.RateLimiter,
		Reconciler:              New(mgr.GetClient(), mgr.GetAPIReader(), recorder, o),
	})
	if err != nil {
		return fmt.Errorf("making %s: %w", name, err)
	}
	err = c.Watch(source.Kind(mgr.GetCache(), &v1beta1.ImageListPullJob{}, &handler.TypedEnqueueRequestForObject[*v1beta1.ImageListPullJob]{}))
	if err != nil {
		return fmt.Errorf("watching ImageListPullJobs: %w", err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), &v1beta1.ImagePullJob{}, owned.Handler(kind.GroupKind(), matters))); err != nil {
		return fmt.Errorf("watching ImagePullJobs: %w", err)
	}
	return nil
}

// matters reports whether a change of a child changes what the list job does or says. The
// progress of a child on many nodes mostly does not.
func matters(old, child *v1beta1.ImagePullJob) bool {
	return old.Generation != child.Generation || old.DeletionTimestamp == nil && child.DeletionTimestamp != nil ||
		old.Labels[hashLabel] != child.Labels[hashLabel] || !apiequality.Semantic.DeepEqual(summary(old), summary(child))
}

// summary is what a list job says of one child.
func summary(child *v1beta1.ImagePullJob) v1beta1.ImageListPullJobStatus {
	var p Plan
	p.count(child)
	if failed, is := failure(child); is {
		p.Status.FailedImageStatuses = append(p.Status.FailedImageStatuses, failed)
	}
	return p.Status
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/internal/history"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	"github.com/kruisectl/kruisectl/internal/predownload"
	"github.com/kruisectl/kruisectl/internal/requeue"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

// Reconciler brings StatefulSets closer to their spec. Make it with Add.
type Reconciler struct {
	client  client.Client
	live    client.Reader
	events  record.EventRecorder
	clock   clock.PassiveClock
	objects owned.Writer
	updater *podupdate.Updater

	parallel    int
	preDownload bool
	gates       plan.Gates
	engine      inplace.Options
}

func (r *Reconciler) history() history.Store { return history.Store{Writer: r.objects, Live: r.live} }

// Reconcile takes one StatefulSet one step closer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	snap, wait, err := r.observe(ctx, req.NamespacedName)
	if owned.NamespaceEnds(err) {
		log.FromContext(ctx).V(1).Info("The namespace is being deleted, nothing is done", "statefulSet", klog.KRef(req.Namespace, req.Name))
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	if snap == nil { // gone, or the cache is behind our own writes: look again after wait
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if r.preDownload && snap.Set.DeletionTimestamp == nil {
		if err := r.preDownloadImages(ctx, snap); err != nil {
			log.FromContext(ctx).Error(err, "Image pre-download is not set up")
		}
	}
	decided := plan.Decide(snap.Snapshot, r.clock.Now())
	log.FromContext(ctx).V(1).Info("Decided", "statefulSet", klog.KObj(snap.Set),
		"refresh", len(decided.Refresh), "claims", len(decided.Claims), "create", len(decided.Create),
		"scale", len(decided.Scale), "update", len(decided.Update), "held", len(decided.Held), "requeueAfter", decided.Requeue)

	done := r.act(ctx, snap, &decided)
	// Status is written even when acting failed: that is when the user looks at it.
	statusErr := r.writeStatus(ctx, snap, &decided, done)
	historyErr := r.truncateHistory(ctx, snap)
	if err := errors.Join(done.createErr, done.updateErr, statusErr, historyErr); err != nil {
		return ctrl.Result{}, err // controller-runtime drops the wishes of a pass that failed
	}
	return ctrl.Result{RequeueAfter: requeue.Soonest(decided.Requeue, done.requeue)}, nil
}

// preDownloadImages keeps the ImagePullJobs of the update revision.
func (r *Reconciler) preDownloadImages(ctx context.Context, snap *snapshot) error {
	applier := predownload.Applier{Writer: r.objects, Event: func(kind, reason, format string, args ...any) {
		r.event(snap, kind, reason, format, args...)
	}}
	w := predownload.OfStatefulSet(snap.Set, snap.Current, snap.Update)
	return applier.Keep(ctx, w, []*appsv1.ControllerRevision{snap.Current}, snap.EngineOptions(), &snap.Update, snap.Revisions, &snap.Current)
}

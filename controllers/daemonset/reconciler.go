// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	"github.com/kruisectl/kruisectl/internal/requeue"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// Reconciler brings DaemonSets closer to their spec. Make it with Add.
type Reconciler struct {
	client client.Client
	live   client.Reader
	events record.EventRecorder
	clock  clock.PassiveClock
	writer owned.Writer
	pods   *podupdate.Updater

	parallel    int
	newID       func() string
	toNodes     bool
	preDownload bool
	gates       plan.Gates
	engine      inplace.Options
	backoffs    backoffs
}

// Reconcile takes one DaemonSet one step closer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	snap, wait, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	if snap == nil { // gone, or the cache is behind our own writes: look again after wait
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if r.preDownload {
		if err := r.preDownloadImages(ctx, snap); err != nil {
			log.FromContext(ctx).Error(err, "Image pre-download is not set up")
		}
	}
	decided := plan.Decide(snap.Snapshot, r.clock.Now())
	log.FromContext(ctx).V(1).Info("Decided", "daemonSet", klog.KObj(snap.Set),
		"create", len(decided.Create), "delete", len(decided.Delete), "refresh", len(decided.Refresh),
		"update", len(decided.Update), "held", len(decided.Held), "requeueAfter", decided.Requeue)

	again, actErr := r.act(ctx, snap, &decided)
	// Status is written even when acting failed: that is when the user looks at it.
	statusErr := r.writeStatus(ctx, snap, decided.Manages)
	historyErr := r.truncateHistory(ctx, snap)
	if err := errors.Join(actErr, statusErr, historyErr); err != nil {
		return ctrl.Result{}, err // controller-runtime drops the wishes of a pass that failed
	}
	return ctrl.Result{RequeueAfter: requeue.Soonest(decided.Requeue, again)}, nil
}

// event sends an event about the DaemonSet of snap (daemonset.md 10).
func (r *Reconciler) event(snap *snapshot, kind, reason, format string, args ...any) {
	events.Send(r.events, snap.Set, kind, reason, format, args...)
}

// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/kruisectl/kruisectl/internal/requeue"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// Reconciler brings CloneSets closer to their spec. Make it with Add.
type Reconciler struct {
	client  client.Client
	live    client.Reader
	scheme  *runtime.Scheme
	events  record.EventRecorder
	clock   clock.PassiveClock
	writer  owned.Writer
	history history.Store
	podsOf  owned.Pods
	pods    *podupdate.Updater

	parallel    int
	newID       func() string
	exclude     bool
	preDownload bool
	gates       plan.Gates
	limited     sync.Map // name → situation in which the event ScaleUpLimited was sent
	engine      inplace.Options
}

// Reconcile takes one CloneSet one step closer to its spec.
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
	log.FromContext(ctx).V(1).Info("Decided", "cloneSet", klog.KObj(snap.Set),
		"create", decided.Create.Total(), "scale", len(decided.Scale), "refresh", len(decided.Refresh),
		"update", len(decided.Update), "held", len(decided.Held), "requeueAfter", decided.Requeue)

	done := r.act(ctx, snap, &decided)
	// Status is written even when acting failed: that is when the user looks at it.
	deadline, statusErr := r.writeStatus(ctx, snap, &decided, done)
	housekeeping := r.tidy(ctx, snap, &decided)
	if err := errors.Join(done.scaleErr, done.updateErr, statusErr, housekeeping); err != nil {
		return ctrl.Result{}, err // controller-runtime drops the wishes of a pass that failed
	}
	return ctrl.Result{RequeueAfter: requeue.Soonest(decided.Requeue, deadline, done.requeue)}, nil
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/workload"
)

// name is the name of the controller and the component of its events.
const name = "statefulset-controller"

// Options are the settings of the StatefulSet controller.
type Options struct {
	workload.Settings
}

// Add adds the StatefulSet controller to mgr. Its field index by owner UID is shared with
// other controllers that add the same one.
func Add(mgr ctrl.Manager, o Options) error {
	if err := o.Complete(mgr, "StatefulSet"); err != nil {
		return err
	}
	leakage, err := workload.Leakage("statefulset_expectation_leakage", "StatefulSet")
	if err != nil {
		return err
	}
	gates := o.Features
	tracker := expectation.NewTracker(o.Clock, o.ExpectationTimeout, leakage)
	recorder, err := events.NewRecorder(mgr, name)
	if err != nil {
		return err
	}
	r := &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		events:   recorder,
		clock:    o.Clock,
		objects:  owned.Writer{Client: mgr.GetClient(), Tracker: tracker},
		updater:  &podupdate.Updater{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: o.Clock},
		parallel: o.Parallel,
		gates: plan.Gates{
			AutoDeletePVC:           gates.Enabled(features.StatefulSetAutoDeletePVC),
			AutoResizePVC:           gates.Enabled(features.StatefulSetAutoResizePVCGate),
			StartOrdinal:            gates.Enabled(features.StatefulSetStartOrdinal),
			PodIndexLabel:           gates.Enabled(features.PodIndexLabel),
			PreparingUpdateAsUpdate: gates.Enabled(features.PreparingUpdateAsUpdate),
		},
		engine: inplace.Options{
			VerticalScaling:   gates.Enabled(features.InPlaceWorkloadVerticalScaling),
			EnvFromMetadata:   gates.Enabled(features.InPlaceUpdateEnvFromMetadata),
			ResizeSubresource: inplace.SupportsResize(o.ServerVersion),
		},
		preDownload: gates.Enabled(features.PreDownloadImageForInPlaceUpdate),
	}
	if r.preDownload {
		if r.preDownload, err = workload.ServesPullJobs(mgr); err != nil {
			return err
		}
	}
	if err := addIndexes(mgr, r.preDownload); err != nil {
		return err
	}
	c, err := controller.New(name, mgr, controller.Options{
		MaxConcurrentReconciles: o.Workers,
		RateLimiter:             o.RateLimiter,
		Reconciler:              r,
	})
	if err != nil {
		return fmt.Errorf("making the StatefulSet controller: %w", err)
	}
	return watch(mgr, c, r.gates)
}

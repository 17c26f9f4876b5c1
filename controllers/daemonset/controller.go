// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/workload"
)

// name is the name of the controller and the component of its events.
const name = "daemonset-controller"

// Options are the settings of the DaemonSet controller.
type Options struct {
	workload.Settings
	// AssignToNodes puts Pods on their nodes without the scheduler: the opposite of
	// --assign-pods-by-scheduler.
	AssignToNodes bool
}

// Add adds the DaemonSet controller to mgr. Its field indexes by owner UID are shared with
// other controllers that add the same ones.
func Add(mgr ctrl.Manager, o Options) error {
	if err := o.Complete(mgr, "DaemonSet"); err != nil {
		return err
	}
	gates := o.Features
	leakage, err := workload.Leakage("daemonset_expectation_leakage", "DaemonSet")
	if err != nil {
		return err
	}
	recorder, err := events.NewRecorder(mgr, name)
	if err != nil {
		return err
	}
	r := &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		events:   recorder,
		clock:    o.Clock,
		writer:   owned.Writer{Client: mgr.GetClient(), Tracker: expectation.NewTracker(o.Clock, o.ExpectationTimeout, leakage)},
		pods:     &podupdate.Updater{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: o.Clock},
		parallel: o.Parallel,
		newID:    o.NewID,
		toNodes:  o.AssignToNodes,
		gates:    plan.Gates{PruneIneligibleNodes: gates.Enabled(features.DaemonSetPruneIneligibleNodes)},
		engine: inplace.Options{
			VerticalScaling:   gates.Enabled(features.InPlaceWorkloadVerticalScaling),
			EnvFromMetadata:   gates.Enabled(features.InPlaceUpdateEnvFromMetadata),
			ResizeSubresource: inplace.SupportsResize(o.ServerVersion),
		},
		preDownload: gates.Enabled(features.PreDownloadImageForDaemonSetUpdate) && gates.Enabled(features.KruiseDaemon),
	}
	if r.preDownload {
		if r.preDownload, err = workload.ServesPullJobs(mgr); err != nil {
			return err
		}
	}
	if err := addIndexes(mgr.GetFieldIndexer(), r.preDownload); err != nil {
		return err
	}
	c, err := controller.New(name, mgr, controller.Options{
		MaxConcurrentReconciles: o.Workers,
		RateLimiter:             o.RateLimiter,
		Reconciler:              r,
	})
	if err != nil {
		return fmt.Errorf("making the DaemonSet controller: %w", err)
	}
	return watch(mgr, c)
}

// orphans is the field index of Pods that no controller owns: those to adopt.
const orphans = "daemonset.orphans"

func addIndexes(indexer client.FieldIndexer, preDownload bool) error {
	indexed := []client.Object{&corev1.Pod{}}
	if preDownload {
		indexed = append(indexed, &v1beta1.ImagePullJob{})
	}
	if err := owned.AddIndexes(context.Background(), indexer, indexed...); err != nil {
		return err
	}
	err := indexer.IndexField(context.Background(), &corev1.Pod{}, orphans, func(o client.Object) []string {
		if metav1.GetControllerOfNoCopy(o) == nil {
			return []string{"true"}
		}
		return nil
	})
	if err != nil && !strings.Contains(err.Error(), "indexer conflict") {
		return fmt.Errorf("indexing Pods without owner: %w", err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/history"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/workload"
)

// name is the name of the controller and the component of its events.
const name = "cloneset-controller"

// Options are the settings of the CloneSet controller.
type Options struct {
	workload.Settings
	// ExcludePreparingDelete keeps Pods in PreparingDelete out of the replica count of
	// every CloneSet (--cloneset-scaling-exclude-preparing-delete).
	ExcludePreparingDelete bool
	// CopyLists lists Pods by way of the manager's client, which then copies them
	// (--disable-no-deepcopy).
	CopyLists bool
}

// Add adds the CloneSet controller to mgr. Its field indexes by owner UID are shared with
// other controllers that add the same ones.
func Add(mgr ctrl.Manager, o Options) error {
	if err := o.Complete(mgr, "CloneSet"); err != nil {
		return err
	}
	leakage, err := workload.Leakage("cloneset_scale_expectation_leakage", "CloneSet")
	if err != nil {
		return err
	}
	writer := owned.Writer{
		Client:  mgr.GetClient(),
		Tracker: expectation.NewTracker(o.Clock, o.ExpectationTimeout, leakage),
	}
	recorder, err := events.NewRecorder(mgr, name)
	if err != nil {
		return err
	}
	podsOf := owned.ListPods(mgr.GetClient())
	if !o.CopyLists {
		if podsOf, err = owned.CachedPods(context.Background(), mgr.GetCache(), mgr.GetClient()); err != nil {
			return err
		}
	}
	gates := o.Features
	r := &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		scheme:   mgr.GetScheme(),
		events:   recorder,
		clock:    o.Clock,
		writer:   writer,
		podsOf:   podsOf,
		history:  history.Store{Writer: writer, Live: mgr.GetAPIReader()},
		pods:     &podupdate.Updater{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: o.Clock},
		parallel: o.Parallel,
		newID:    o.NewID,
		exclude:  o.ExcludePreparingDelete,
		gates: plan.Gates{
			PartitionRollback:       gates.Enabled(features.CloneSetPartitionRollback),
			PreparingUpdateAsUpdate: gates.Enabled(features.PreparingUpdateAsUpdate),
			ShortHash:               gates.Enabled(features.CloneSetShortHash),
		},
		engine: inplace.Options{
			RecreateOnVolumeClaimTemplateChange: gates.Enabled(features.RecreatePodWhenChangeVCTInCloneSetGate),
			VerticalScaling:                     gates.Enabled(features.InPlaceWorkloadVerticalScaling),
			EnvFromMetadata:                     gates.Enabled(features.InPlaceUpdateEnvFromMetadata),
			ResizeSubresource:                   inplace.SupportsResize(o.ServerVersion),
		},
		preDownload: gates.Enabled(features.PreDownloadImageForInPlaceUpdate),
	}
	if r.preDownload {
		if r.preDownload, err = workload.ServesPullJobs(mgr); err != nil {
			return err
		}
	}
	indexed := []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}}
	if r.preDownload {
		indexed = append(indexed, &v1beta1.ImagePullJob{})
	}
	if err := owned.AddIndexes(context.Background(), mgr.GetFieldIndexer(), indexed...); err != nil {
		return err
	}
	c, err := controller.New(name, mgr, controller.Options{
		MaxConcurrentReconciles: o.Workers,
		RateLimiter:             o.RateLimiter,
		Reconciler:              r,
	})
	if err != nil {
		return fmt.Errorf("making the CloneSet controller: %w", err)
	}
	return watch(mgr, c, gates.Enabled(features.CloneSetEventHandlerOptimization))
}

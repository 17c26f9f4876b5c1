// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// name is the name of the controller and the component of its events.
const name = "daemonset-controller"

// Options are what only the program can know. The zero value of each field but Features
// and AssignToNodes is replaced by its default.
type Options struct {
	// Workers is how many DaemonSets are reconciled at once (--daemonset-workers, 3).
	Workers int
	// Parallel is how many Pods of one DaemonSet are written at once (32).
	Parallel int
	// RateLimiter spaces retries: 5 ms to 1000 s each, 10 per second altogether.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Features are the feature gates; required.
	Features *features.Set
	// Clock is the source of all times.
	Clock clock.PassiveClock
	// ExpectationTimeout is after how long an unseen write of our own is given up on
	// (--expectation-timeout, 5 min). The API server is asked long before.
	ExpectationTimeout time.Duration
	// AssignToNodes puts Pods on their nodes without the scheduler: the opposite of
	// --assign-pods-by-scheduler.
	AssignToNodes bool
	// ServerVersion is the gitVersion of the API server; asked for when empty.
	ServerVersion string
	// NewID makes the random part of Pod names: 5 characters.
	NewID func() string
}

func (o *Options) complete(mgr ctrl.Manager) error {
	if o.Features == nil {
		return errors.New("setting up the DaemonSet controller: no feature gates given")
	}
	if o.Workers <= 0 {
		o.Workers = 3
	}
	if o.Parallel <= 0 {
		o.Parallel = 32
	}
	if o.RateLimiter == nil {
		o.RateLimiter = workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 1000*time.Second),
			&workqueue.TypedBucketRateLimiter[reconcile.Request]{Limiter: rate.NewLimiter(10, 100)},
		)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.ExpectationTimeout <= 0 {
		o.ExpectationTimeout = 5 * time.Minute
	}
	if o.NewID == nil {
		o.NewID = func() string { return rand.String(5) }
	}
	if o.ServerVersion == "" {
		d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return fmt.Errorf("making a discovery client: %w", err)
		}
		v, err := d.ServerVersion()
		if err != nil {
			return fmt.Errorf("asking the API server for its version: %w", err)
		}
		o.ServerVersion = v.GitVersion
	}
	return nil
}

// Add adds the DaemonSet controller to mgr. Its field indexes by owner UID are shared with
// other controllers that add the same ones.
func Add(mgr ctrl.Manager, o Options) error {
	if err := o.complete(mgr); err != nil {
		return err
	}
	gates := o.Features
	recorder, err := events.NewRecorder(mgr, name)
	if err != nil {
		return err
	}
	r := &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		events:   recorder,
		clock:    o.Clock,
		writer:   owned.Writer{Client: mgr.GetClient(), Tracker: expectation.NewTracker(o.Clock, o.ExpectationTimeout, nil)},
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
		// Without the CRD there is nothing to pull images with.
		_, err := mgr.GetRESTMapper().RESTMapping(v1beta1.GroupVersion.WithKind("ImagePullJob").GroupKind(), v1beta1.GroupVersion.Version)
		if err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("looking for ImagePullJob: %w", err)
		}
		r.preDownload = err == nil
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

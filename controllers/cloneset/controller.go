// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/history"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// name is the name of the controller and the component of its events.
const name = "cloneset-controller"

// Options are what only the program can know. The zero value of each field but Features
// is replaced by its default.
type Options struct {
	// Workers is how many CloneSets are reconciled at once (--cloneset-workers, 3).
	Workers int
	// Parallel is how many Pods of one CloneSet are written at once (32).
	Parallel int
	// RateLimiter spaces retries: 5 ms to 1000 s each, 10 per second altogether.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Features are the feature gates; required.
	Features *features.Set
	// Clock is the source of all times.
	Clock clock.PassiveClock
	// ExpectationTimeout is after how long an unseen write of our own is reported by the
	// metric cloneset_scale_expectation_leakage (--expectation-timeout, 5 min). It blocks
	// nothing: the API server is asked long before.
	ExpectationTimeout time.Duration
	// ExcludePreparingDelete keeps Pods in PreparingDelete out of the replica count of
	// every CloneSet (--cloneset-scaling-exclude-preparing-delete).
	ExcludePreparingDelete bool
	// CopyLists lists Pods by way of the manager's client, which then copies them
	// (--disable-no-deepcopy).
	CopyLists bool
	// ServerVersion is the gitVersion of the API server; asked for when empty.
	ServerVersion string
	// NewID makes the random part of Pod names: 5 characters.
	NewID func() string
}

func (o *Options) complete(mgr ctrl.Manager) error {
	if o.Features == nil {
		return errors.New("setting up the CloneSet controller: no feature gates given")
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

// Add adds the CloneSet controller to mgr. Its field indexes by owner UID are shared with
// other controllers that add the same ones.
func Add(mgr ctrl.Manager, o Options) error {
	if err := o.complete(mgr); err != nil {
		return err
	}
	leakage, err := register(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cloneset_scale_expectation_leakage",
		Help: "Writes of the CloneSet controller that its cache had not shown after the expectation timeout.",
	}, []string{"namespace", "name"}))
	if err != nil {
		return err
	}
	writer := owned.Writer{
		Client: mgr.GetClient(),
		Tracker: expectation.NewTracker(o.Clock, o.ExpectationTimeout, func(owner types.NamespacedName) {
			leakage.WithLabelValues(owner.Namespace, owner.Name).Inc()
		}),
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
		// Without the CRD there is nothing to pull images with.
		_, err := mgr.GetRESTMapper().RESTMapping(v1beta1.GroupVersion.WithKind("ImagePullJob").GroupKind(), v1beta1.GroupVersion.Version)
		if err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("looking for ImagePullJob: %w", err)
		}
		r.preDownload = err == nil
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

// register adds c to the manager's metrics, or returns the one that is there already.
func register(c *prometheus.CounterVec) (*prometheus.CounterVec, error) {
	err := metrics.Registry.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("registering a metric: %w", err)
	}
	return c, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package workload is what the controllers of workloads are set up with alike: their
// settings and defaults, the metric of writes that never showed, and whether images can be
// pulled beforehand. It decides nothing about any workload.
package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
)

// Settings are what only the program can know. The zero value of each field but Features
// is replaced by its default.
type Settings struct {
	// Workers is how many objects are reconciled at once (--<kind>-workers, 3).
	Workers int
	// Parallel is how many Pods of one object are written at once (32).
	Parallel int
	// RateLimiter spaces retries: 5 ms to 1000 s each, 10 per second altogether.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Features are the feature gates; required.
	Features *features.Set
	// Clock is the source of all times.
	Clock clock.PassiveClock
	// ExpectationTimeout is after how long an unseen write of our own is reported
	// (--expectation-timeout, 5 min). It blocks nothing: the API server is asked long before.
	ExpectationTimeout time.Duration
	// ServerVersion is the gitVersion of the API server; asked for when empty.
	ServerVersion string
	// NewID makes the random part of Pod names: 5 characters.
	NewID func() string
}

// Complete fills in the defaults, for the controller of kind.
func (s *Settings) Complete(mgr ctrl.Manager, kind string) error {
	if s.Features == nil {
		return fmt.Errorf("setting up the %s controller: no feature gates given", kind)
	}
	if s.Workers <= 0 {
		s.Workers = 3
	}
	if s.Parallel <= 0 {
		s.Parallel = 32
	}
	if s.RateLimiter == nil {
		s.RateLimiter = workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 1000*time.Second),
			&workqueue.TypedBucketRateLimiter[reconcile.Request]{Limiter: rate.NewLimiter(10, 100)},
		)
	}
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	if s.ExpectationTimeout <= 0 {
		s.ExpectationTimeout = 5 * time.Minute
	}
	if s.NewID == nil {
		s.NewID = func() string { return rand.String(5) }
	}
	if s.ServerVersion == "" {
		d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return fmt.Errorf("making a discovery client: %w", err)
		}
		v, err := d.ServerVersion()
		if err != nil {
			return fmt.Errorf("asking the API server for its version: %w", err)
		}
		s.ServerVersion = v.GitVersion
	}
	return nil
}

// ServesPullJobs tells whether there is anything to pull images with: the CRD of ImagePullJob.
func ServesPullJobs(mgr ctrl.Manager) (bool, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(v1beta1.GroupVersion.WithKind("ImagePullJob").GroupKind(), v1beta1.GroupVersion.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("looking for ImagePullJob: %w", err)
	}
	return err == nil, nil
}

// Leakage makes a function that counts in the metric of this name, per object, the writes
// of the controller of kind that its cache never showed.
func Leakage(metric, kind string) (count func(types.NamespacedName), err error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: metric,
		Help: "Writes of the " + kind + " controller that its cache had not shown after the expectation timeout.",
	}, []string{"namespace", "name"})
	err = metrics.Registry.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			c, err = existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("registering metric %s: %w", metric, err)
	}
	return func(o types.NamespacedName) { c.WithLabelValues(o.Namespace, o.Name).Inc() }, nil
}

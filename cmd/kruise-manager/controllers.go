// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/controllers/cloneset"
	"github.com/kruisectl/kruisectl/controllers/containerrecreaterequest"
	"github.com/kruisectl/kruisectl/controllers/daemonset"
	"github.com/kruisectl/kruisectl/controllers/imagelistpulljob"
	"github.com/kruisectl/kruisectl/controllers/imagepulljob"
	"github.com/kruisectl/kruisectl/controllers/nodeimage"
	"github.com/kruisectl/kruisectl/controllers/nodepodprobe"
	"github.com/kruisectl/kruisectl/controllers/podprobemarker"
	"github.com/kruisectl/kruisectl/controllers/podreadiness"
	"github.com/kruisectl/kruisectl/controllers/statefulset"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/freshness"
	"github.com/kruisectl/kruisectl/internal/workload"
	"github.com/kruisectl/kruisectl/webhook/server"
)

// wiring is what every controller may need.
type wiring struct {
	options *options
	api     *api
}

// entry is one controller, and when it runs: all gates are on and the kind is served in the
// hub version. An empty kind is a built-in one.
type entry struct {
	name  string
	kind  string
	gates []features.Gate
	add   func(ctrl.Manager) error
}

// controllers lists the controllers in the order in which they are added.
func (w wiring) controllers() []entry {
	o := w.options
	marked := &freshness.Writes{}
	return []entry{
		{name: "cloneset", kind: "CloneSet", add: func(mgr ctrl.Manager) error {
			return cloneset.Add(mgr, cloneset.Options{
				Settings: w.settings("cloneset"), ExcludePreparingDelete: o.excludePreparing, CopyLists: o.deepCopyLists,
			})
		}},
		{name: "statefulset", kind: "StatefulSet", add: func(mgr ctrl.Manager) error {
			return statefulset.Add(mgr, statefulset.Options{Settings: w.settings("statefulset")})
		}},
		{name: "daemonset", kind: "DaemonSet", add: func(mgr ctrl.Manager) error {
			return daemonset.Add(mgr, daemonset.Options{Settings: w.settings("daemonset"), AssignToNodes: !o.daemonPodsByScheduler})
		}},
		{name: "nodeimage", kind: "NodeImage", gates: []features.Gate{features.KruiseDaemon}, add: func(mgr ctrl.Manager) error {
			return nodeimage.Add(mgr, nodeimage.Options{Workers: *o.workers["nodeimage"], RateLimiter: w.limiter(), CreationDelay: o.nodeImageDelay})
		}},
		{name: "imagepulljob", kind: "ImagePullJob", gates: []features.Gate{features.KruiseDaemon, features.ImagePullJobGate}, add: func(mgr ctrl.Manager) error {
			return imagepulljob.Add(mgr, imagepulljob.Options{
				Workers: *o.workers["imagepulljob"], RateLimiter: w.limiter(),
				ConfigNamespace: o.getenv("KRUISE_DAEMON_CONFIG_NS"), ExtraTTLSeconds: o.alwaysTTL, ExpectationTimeout: o.expectationTimeout,
			})
		}},
		{name: "imagelistpulljob", kind: "ImageListPullJob", gates: []features.Gate{features.KruiseDaemon, features.ImagePullJobGate}, add: func(mgr ctrl.Manager) error {
			return imagelistpulljob.Add(mgr, imagelistpulljob.Options{RateLimiter: w.limiter(), ExpectationTimeout: o.expectationTimeout})
		}},
		{name: "crr", kind: "ContainerRecreateRequest", gates: []features.Gate{features.KruiseDaemon}, add: func(mgr ctrl.Manager) error {
			return containerrecreaterequest.Add(mgr, containerrecreaterequest.Options{Workers: *o.workers["crr"], RateLimiter: w.limiter()})
		}},
		{name: "nodepodprobe", kind: "NodePodProbe", gates: []features.Gate{features.PodProbeMarkerGate}, add: func(mgr ctrl.Manager) error {
			return nodepodprobe.Add(mgr, nodepodprobe.Options{Workers: *o.workers["nodepodprobe"], RateLimiter: w.limiter(), Marked: marked})
		}},
		{name: "podprobemarker", kind: "PodProbeMarker", gates: []features.Gate{features.PodProbeMarkerGate}, add: func(mgr ctrl.Manager) error {
			return podprobemarker.Add(mgr, podprobemarker.Options{
				Workers: *o.workers["podprobemarker"], RateLimiter: w.limiter(),
				Serverless: o.features.Enabled(features.EnablePodProbeMarkerOnServerless), Marked: marked,
			})
		}},
		{name: "podreadiness", add: func(mgr ctrl.Manager) error {
			return podreadiness.Add(mgr, podreadiness.Options{RateLimiter: w.limiter()})
		}},
	}
}

// settings are those of the controller of one kind of workload.
func (w wiring) settings(kind string) workload.Settings {
	return workload.Settings{
		Workers: *w.options.workers[kind], RateLimiter: w.limiter(), Features: w.options.features,
		ServerVersion: w.api.version, ExpectationTimeout: w.options.expectationTimeout,
	}
}

// limiter is a new one for the queue of one controller: the longer of an exponential delay
// for each item and a token bucket for all.
func (w wiring) limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	o := w.options
	return workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](o.backoffBase, o.backoffMax),
		&workqueue.TypedBucketRateLimiter[reconcile.Request]{Limiter: rate.NewLimiter(rate.Limit(o.queueQPS), o.queueBurst)},
	)
}

// addControllers adds to mgr, which runs already.
func (w wiring) addControllers(ctx context.Context, mgr ctrl.Manager) error {
	logger := klog.FromContext(ctx)
next:
	for _, e := range w.controllers() { //nolint:contextcheck // indexes are registered with the cache, which outlives ctx
		for _, g := range e.gates {
			if !w.options.features.Enabled(g) {
				logger.V(1).Info("A controller does not run as its feature is off", "controller", e.name, "gate", g)
				continue next
			}
		}
		if e.kind != "" && !w.api.serves(ctx, e.kind) {
			logger.Info("A controller does not run as its kind is not served", "controller", e.name, "kind", e.kind)
			continue
		}
		err := e.add(mgr)
		if meta.IsNoMatchError(err) {
			logger.Error(err, "A controller does not run", "controller", e.name)
			continue
		}
		if err != nil {
			return fmt.Errorf("adding the %s controller: %w", e.name, err)
		}
	}
	return nil
}

// starter adds the controllers once this replica's own webhooks answer, so that no
// controller makes Pods whose admission nobody would answer.
type starter struct {
	mgr    ctrl.Manager
	hooks  *server.Controller
	wiring wiring
	// ending is closed when the process is to end.
	ending <-chan struct{}
	// adding is held while controllers are added. A manager that is stopped at that
	// moment locks up until its grace period is over.
	adding sync.Mutex
}

// pollWebhooks is how often the starter looks.
const pollWebhooks = 2 * time.Second

// NeedLeaderElection makes the starter run in every replica: controllers wait for the lease
// by themselves.
func (*starter) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *starter) Start(ctx context.Context) error {
	tick := time.NewTicker(pollWebhooks)
	defer tick.Stop()
	for {
		err := s.hooks.Reachable(ctx)
		if err == nil {
			break
		}
		klog.FromContext(ctx).V(1).Info("Controllers wait for the webhook server", "reason", err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-s.ending:
			return nil
		case <-tick.C:
		}
	}
	s.adding.Lock()
	defer s.adding.Unlock()
	select {
	case <-s.ending:
		return nil
	default:
	}
	err := s.wiring.addControllers(ctx, s.mgr)
	if ctx.Err() != nil { // the lease was lost meanwhile: that is the error to report
		return nil
	}
	return err
}

// run starts the manager and returns when it has ended. It stops it when ctx ends, but not
// while controllers are being added.
func (s *starter) run(ctx context.Context) error {
	s.ending = ctx.Done()
	if err := s.mgr.Add(s); err != nil {
		return fmt.Errorf("adding the starter of controllers: %w", err)
	}
	managed, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		s.adding.Lock()
		defer s.adding.Unlock()
		stop()
	})()
	if err := s.mgr.Start(managed); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// NewRecorder makes a recorder of events from component that ends with mgr.
//
// Recorders of a manager share a filter that lets an object have 25 events and then one
// each five minutes, whatever they tell: after a rollout of some dozen Pods nobody hears of
// a failure. Here each reason has that allowance.
func NewRecorder(mgr ctrl.Manager, component string) (record.EventRecorder, error) {
	client, err := typedcorev1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client for events: %w", err)
	}
	r := newRecorder(mgr.GetScheme(), component, &typedcorev1.EventSinkImpl{Interface: client.Events("")})
	if err := mgr.Add(r); err != nil {
		return nil, fmt.Errorf("adding a recorder of events: %w", err)
	}
	return r, nil
}

// recorder starts its broadcaster with the first event, so that a manager that never starts
// leaves no goroutine, and drops what comes after the end.
type recorder struct {
	scheme *runtime.Scheme
	source corev1.EventSource
	sink   record.EventSink

	mu          sync.RWMutex
	ended       bool
	broadcaster record.EventBroadcaster
	to          record.EventRecorder
}

var (
	_ record.EventRecorder           = &recorder{}
	_ manager.Runnable               = &recorder{}
	_ manager.LeaderElectionRunnable = &recorder{}
)

func newRecorder(scheme *runtime.Scheme, component string, sink record.EventSink) *recorder {
	return &recorder{scheme: scheme, source: corev1.EventSource{Component: component}, sink: sink}
}

// Start ends the recorder with ctx.
func (r *recorder) Start(ctx context.Context) error {
	<-ctx.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.broadcaster != nil {
		r.broadcaster.Shutdown()
	}
	return nil
}

// NeedLeaderElection tells that the recorder ends after the controllers, which do.
func (r *recorder) NeedLeaderElection() bool { return false }

func (r *recorder) Event(object runtime.Object, kind, reason, message string) {
	r.do(func(to record.EventRecorder) { to.Event(object, kind, reason, message) })
}

func (r *recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.do(func(to record.EventRecorder) { to.Eventf(object, kind, reason, format, args...) })
}

func (r *recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	r.do(func(to record.EventRecorder) { to.AnnotatedEventf(object, annotations, kind, reason, format, args...) })
}

func (r *recorder) do(send func(to record.EventRecorder)) {
	r.begin()
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.ended {
		send(r.to)
	}
}

func (r *recorder) begin() {
	r.mu.RLock()
	done := r.ended || r.broadcaster != nil
	r.mu.RUnlock()
	if done {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.broadcaster != nil {
		return
	}
	r.broadcaster = record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: spamKey})
	r.broadcaster.StartRecordingToSink(r.sink)
	r.to = r.broadcaster.NewRecorder(r.scheme, r.source)
}

// spamKey is what the filter counts by: one reason of one object.
func spamKey(e *corev1.Event) string {
	return strings.Join([]string{
		e.Source.Component, e.Source.Host, e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name,
		string(e.InvolvedObject.UID), e.InvolvedObject.APIVersion, e.Type, e.Reason,
	}, "\x00")
}

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Limits is what a rollout has promised. The numbers are the test's own, not computed by
// the code under test.
type Limits struct {
	// MinReady is how many Pods must be ready at every moment.
	MinReady int
	// MaxPods is how many Pods may exist at any moment, those being deleted included.
	MaxPods int
	// MaxActive is how many Pods may exist at any moment, those being deleted left out.
	MaxActive int
	// KeepPods forbids that any Pod is deleted or created.
	KeepPods bool
}

// Observer sees every Pod event of one workload and keeps the first broken promise.
type Observer struct {
	owner  string
	limits Limits
	stop   context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	pods     map[types.UID]*corev1.Pod
	events   int
	lowest   int
	violated []string
}

// Observe starts an observer on the Pods of owner. Stop it with Check. It starts from a
// list, so that the promises are checked from this moment on.
func (e *Env) Observe(owner string, limits Limits) *Observer {
	e.T.Helper()
	list := &corev1.PodList{}
	require.NoError(e.T, e.Client.List(e.Ctx(), list, client.InNamespace(e.Namespace)))
	o := &Observer{owner: owner, limits: limits, done: make(chan struct{}), pods: map[types.UID]*corev1.Pod{}}
	for i := range list.Items {
		if o.owns(&list.Items[i]) {
			o.pods[list.Items[i].UID] = &list.Items[i]
		}
	}
	o.lowest = o.ready()

	ctx, cancel := context.WithCancel(e.Ctx())
	o.stop = cancel
	go o.run(ctx, e, list.ResourceVersion)
	return o
}

func (o *Observer) owns(p *corev1.Pod) bool {
	ref := metav1.GetControllerOf(p)
	return ref != nil && ref.Name == o.owner
}

func (o *Observer) run(ctx context.Context, e *Env, version string) {
	defer close(o.done)
	for ctx.Err() == nil {
		w, err := e.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(e.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
		if err != nil { // the API server may be restarting: the next attempt resumes where this one ended
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				version = o.relist(ctx, e, version)
			}
			pause(ctx)
			continue
		}
		for ev := range w.ResultChan() {
			switch obj := ev.Object.(type) {
			case *corev1.Pod:
				version = obj.ResourceVersion
				o.see(ev.Type, obj)
			case *metav1.Status: // a server that was restarted has forgotten the version
				w.Stop()
				version = o.relist(ctx, e, version)
			}
		}
		pause(ctx)
	}
}

// relist makes up for events that can no longer be had: it takes over every Pod as it is
// now, at once, and checks the promises. It returns the version to watch from.
func (o *Observer) relist(ctx context.Context, e *Env, version string) string {
	list := &corev1.PodList{}
	if err := e.Client.List(ctx, list, client.InNamespace(e.Namespace)); err != nil {
		return version
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.pods
	o.pods = map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		pod := &list.Items[i]
		if !o.owns(pod) {
			continue
		}
		o.pods[pod.UID] = pod
		if _, known := before[pod.UID]; o.limits.KeepPods && (!known || pod.DeletionTimestamp != nil) {
			o.violate("Pod %s was created or deleted", pod.Name)
		}
	}
	for uid, pod := range before {
		if _, known := o.pods[uid]; o.limits.KeepPods && !known {
			o.violate("Pod %s is gone", pod.Name)
		}
	}
	o.check("a new list at " + list.ResourceVersion)
	return list.ResourceVersion
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(poll):
	}
}

func (o *Observer) see(kind watch.EventType, pod *corev1.Pod) {
	if !o.owns(pod) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events++
	_, known := o.pods[pod.UID]
	if o.limits.KeepPods && (!known || kind == watch.Deleted || pod.DeletionTimestamp != nil) {
		o.violate("Pod %s was %s", pod.Name, kind)
	}
	if kind == watch.Deleted {
		delete(o.pods, pod.UID)
	} else {
		o.pods[pod.UID] = pod
	}
	o.check(fmt.Sprintf("an event of %s (%s)", pod.Name, pod.ResourceVersion))
}

// check compares what exists with the promises. The mutex is held.
func (o *Observer) check(after string) {
	ready := o.ready()
	o.lowest = min(o.lowest, ready)
	if ready < o.limits.MinReady {
		o.violate("%d Pods ready after %s, at least %d promised", ready, after, o.limits.MinReady)
	}
	if n := o.active(); o.limits.MaxActive > 0 && n > o.limits.MaxActive {
		o.violate("%d Pods exist and are not being deleted after %s, at most %d promised", n, after, o.limits.MaxActive)
	}
	if n := len(o.pods); o.limits.MaxPods > 0 && n > o.limits.MaxPods {
		o.violate("%d Pods exist after %s, at most %d promised", n, after, o.limits.MaxPods)
	}
}

func (o *Observer) violate(format string, args ...any) {
	if len(o.violated) < 20 {
		o.violated = append(o.violated, fmt.Sprintf(format, args...))
	}
}

// ready counts Pods that are ready and not held by an in-place update.
func (o *Observer) ready() int {
	n := 0
	for _, p := range o.pods {
		if p.DeletionTimestamp == nil && Ready(p) {
			n++
		}
	}
	return n
}

func (o *Observer) active() int {
	n := 0
	for _, p := range o.pods {
		if p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// Ready says whether the Pod serves: condition Ready is True, and no in-place update has
// taken it out of service.
func Ready(p *corev1.Pod) bool {
	ready := false
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady:
			ready = c.Status == corev1.ConditionTrue
		case c.Type == v1beta1.InPlaceUpdateReady && c.Status != corev1.ConditionTrue:
			return false
		}
	}
	return ready
}

// Check stops the observer and fails the test for every broken promise. It also fails when
// nothing was seen, for then it proved nothing.
func (o *Observer) Check(e *Env) {
	e.T.Helper()
	o.stop()
	<-o.done
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Positive(e.T, o.events, "Pod events seen by the observer")
	require.Empty(e.T, o.violated, "broken promises")
	e.T.Logf("observer: %d Pod events, at least %d Pods ready throughout", o.events, o.lowest)
}

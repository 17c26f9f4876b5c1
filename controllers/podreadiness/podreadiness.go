// SPDX-License-Identifier: Apache-2.0

// Package podreadiness gives the condition KruisePodReady its first value, True, on Pods
// that carry it as a readiness gate (platform.md 4, rule 2). Who holds and releases the gate
// afterwards is not its business.
//
// It costs one write for each Pod, which cannot be saved: the API server resets the status
// of a Pod that is created, so neither admission nor the creator can set the condition
// beforehand. The write is a patch, because kubelet updates the same status at the same time.
package podreadiness

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// name of the controller in logs and metrics.
const name = "pod-readiness-controller"

// Options vary the controller.
type Options struct {
	Workers     int                                           // 3 when 0
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request] // nil: the library's
	Clock       clock.PassiveClock                            // nil: the real one
}

// Reconciler initialises one Pod.
type Reconciler struct {
	Client client.Client // reads from the cache
	Clock  clock.PassiveClock
}

// Reconcile sets the condition if the Pod still needs it. Objects from the cache are only
// read.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, req.NamespacedName, pod, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !wanting(pod) {
		return ctrl.Result{}, nil
	}
	patch, err := r.patch(pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	err = r.Client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another Pod of this name
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("patching status of Pod %s: %w", req, err)
	}
	return ctrl.Result{}, nil
}

// patch holds the condition and nothing else. The UID keeps it from a Pod that has taken
// the name since.
func (r *Reconciler) patch(pod *corev1.Pod) ([]byte, error) {
	fresh := pod.DeepCopy()
	podready.Initialize(fresh, r.Clock.Now())
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []*corev1.PodCondition{podready.Condition(fresh, v1beta1.KruisePodReady)}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return raw, nil
}

// wanting reports whether the Pod lacks the condition of its readiness gate.
func wanting(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && podready.HasGate(pod, v1beta1.KruisePodReady) && podready.Condition(pod, v1beta1.KruisePodReady) == nil
}

// Add runs the controller in mgr.
func Add(mgr ctrl.Manager, o Options) error {
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	want := func(obj client.Object) bool {
		pod, ok := obj.(*corev1.Pod)
		return ok && wanting(pod)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&corev1.Pod{}).
		WithEventFilter(predicate.Funcs{
			CreateFunc:  func(e event.CreateEvent) bool { return want(e.Object) },
			UpdateFunc:  func(e event.UpdateEvent) bool { return want(e.ObjectNew) },
			DeleteFunc:  func(event.DeleteEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		}).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers, RateLimiter: o.RateLimiter}).
		Complete(&Reconciler{Client: mgr.GetClient(), Clock: o.Clock})
	if err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

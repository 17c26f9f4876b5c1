// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// ownerIndex is the field index of objects by the UID of their controller.
const ownerIndex = "ownerRefUID"

// addIndexes adds the owner index where no other controller has done so before.
func addIndexes(mgr ctrl.Manager, preDownload bool) error {
	byOwner := func(o client.Object) []string {
		if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
			return []string{string(ref.UID)}
		}
		return nil
	}
	objects := []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}}
	if preDownload {
		objects = append(objects, &v1beta1.ImagePullJob{})
	}
	for _, o := range objects {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), o, ownerIndex, byOwner)
		if err != nil && !strings.Contains(err.Error(), "indexer conflict") {
			return fmt.Errorf("indexing %T by owner: %w", o, err)
		}
	}
	return nil
}

// watch starts the sources of cloneset.md 9.2. Pods that nobody owns are of no interest:
// they are never adopted.
func watch(mgr ctrl.Manager, c controller.Controller, optimize bool) error {
	cache := mgr.GetCache()
	for _, s := range []source.Source{
		source.Kind(cache, &v1beta1.CloneSet{}, &handler.TypedEnqueueRequestForObject[*v1beta1.CloneSet]{}),
		source.Kind(cache, &corev1.Pod{}, ownerHandler(podChanged(optimize))),
		source.Kind(cache, &corev1.PersistentVolumeClaim{}, ownerHandler(claimChanged)),
	} {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("starting a watch: %w", err)
		}
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// ownerHandler enqueues the owning CloneSet, on update when changed says so, and the
// former owner too when that changed.
func ownerHandler[T client.Object](changed func(old, obj T) bool) handler.TypedEventHandler[T, reconcile.Request] {
	enqueue := func(o client.Object, q queue) {
		if key, ok := ownerOf(o); ok {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[T], q queue) { enqueue(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[T], q queue) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[T], q queue) {
			if e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() {
				return // a resync
			}
			was, owned := ownerOf(e.ObjectOld)
			if is, _ := ownerOf(e.ObjectNew); owned && was != is {
				enqueue(e.ObjectOld, q)
			} else if owned && !changed(e.ObjectOld, e.ObjectNew) {
				return
			}
			enqueue(e.ObjectNew, q)
		},
	}
}

// ownerOf is the CloneSet that controls o. Owner references are compared by group and
// kind, never by version: earlier releases wrote v1alpha1.
func ownerOf(o client.Object) (types.NamespacedName, bool) {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.Kind != "CloneSet" {
		return types.NamespacedName{}, false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != v1beta1.GroupVersion.Group {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}, true
}

// claimChanged: of updates of claims only the beginning of their end matters.
func claimChanged(old, claim *corev1.PersistentVolumeClaim) bool {
	return (old.DeletionTimestamp == nil) != (claim.DeletionTimestamp == nil)
}

// podChanged tells which updates of Pods are looked at: all, or, with the gate
// CloneSetEventHandlerOptimization, those that can change a decision.
func podChanged(optimize bool) func(old, pod *corev1.Pod) bool {
	if !optimize {
		return func(_, _ *corev1.Pod) bool { return true }
	}
	return func(old, pod *corev1.Pod) bool {
		return old.Generation != pod.Generation ||
			(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
			old.Spec.NodeName != pod.Spec.NodeName ||
			plan.IsActive(old) != plan.IsActive(pod) ||
			!equality.Semantic.DeepEqual(old.Labels, pod.Labels) ||
			!equality.Semantic.DeepEqual(old.Finalizers, pod.Finalizers) ||
			readiness(old) != readiness(pod) ||
			updating(pod)
	}
}

// readiness is the status of the conditions that availability depends on.
func readiness(p *corev1.Pod) (r [2]corev1.ConditionStatus) {
	for _, c := range p.Status.Conditions {
		switch c.Type {
		case corev1.PodReady:
			r[0] = c.Status
		case v1beta1.InPlaceUpdateReady:
			r[1] = c.Status
		}
	}
	return r
}

// updating: an in-place update is under way, so that any change of the status counts.
func updating(p *corev1.Pod) bool {
	state := p.Labels[v1beta1.LifecycleStateLabel]
	return state != "" && state != string(v1beta1.LifecycleNormal) || readiness(p)[1] != corev1.ConditionTrue
}

// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/owned"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// kind is the kind of the owners that are woken. Owners are known by group and kind: Pods
// that were made before v1beta1 name another version.
var kind = schema.GroupKind{Group: v1beta1.GroupVersion.Group, Kind: "DaemonSet"}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watch starts the sources of daemonset.md 7.1.
func watch(mgr ctrl.Manager, c controller.Controller) error {
	cache := mgr.GetCache()
	w := waker{sets: mgr.GetClient()}
	for _, s := range []source.Source{
		source.Kind(cache, &v1beta1.DaemonSet{}, &handler.TypedEnqueueRequestForObject[*v1beta1.DaemonSet]{}),
		source.Kind(cache, &corev1.Pod{}, owned.Handler(kind, func(_, _ *corev1.Pod) bool { return true })),
		source.Kind(cache, &corev1.Pod{}, w.orphans()),
		source.Kind(cache, &corev1.Node{}, w.nodes()),
	} {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("starting a watch: %w", err)
		}
	}
	return nil
}

// waker finds the sets that an object without owner concerns.
type waker struct{ sets client.Reader }

// each enqueues the sets of a namespace, or of all, that concern picks.
func (w waker) each(ctx context.Context, q queue, namespace string, concern func(*v1beta1.DaemonSet) bool) {
	var sets v1beta1.DaemonSetList
	if err := w.sets.List(ctx, &sets, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing DaemonSets for an event")
		return
	}
	for i := range sets.Items {
		if set := &sets.Items[i]; set.DeletionTimestamp == nil && concern(set) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		}
	}
}

// orphans wakes every set that may adopt a Pod.
func (w waker) orphans() handler.TypedEventHandler[*corev1.Pod, reconcile.Request] {
	wake := func(ctx context.Context, p *corev1.Pod, q queue) {
		if p.DeletionTimestamp != nil || metav1.GetControllerOfNoCopy(p) != nil {
			return
		}
		w.each(ctx, q, p.Namespace, func(set *v1beta1.DaemonSet) bool {
			selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
			return err == nil && !selector.Empty() && selector.Matches(labels.Set(p.Labels))
		})
	}
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) {
			if !equality.Semantic.DeepEqual(e.ObjectOld.Labels, e.ObjectNew.Labels) || metav1.GetControllerOfNoCopy(e.ObjectOld) != nil {
				wake(ctx, e.ObjectNew, q)
			}
		},
	}
}

// nodes wakes the sets for which a node has begun or ceased to count. Most updates of nodes
// are heartbeats and wake nobody.
func (w waker) nodes() handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) {
			w.each(ctx, q, metav1.NamespaceAll, func(set *v1beta1.DaemonSet) bool {
				run, _ := plan.EligibilityOf(&set.Spec.Template).On(e.Object)
				return run
			})
		},
		// A Pod that was not scheduled yet waits for its node for ever, and percentages are
		// of the nodes there are: neither brings an event of a Pod.
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) {
			w.each(ctx, q, metav1.NamespaceAll, func(set *v1beta1.DaemonSet) bool {
				_, stay := plan.EligibilityOf(&set.Spec.Template).On(e.Object)
				return stay
			})
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			if equality.Semantic.DeepEqual(e.ObjectOld.Labels, e.ObjectNew.Labels) && equality.Semantic.DeepEqual(e.ObjectOld.Spec.Taints, e.ObjectNew.Spec.Taints) {
				return
			}
			w.each(ctx, q, metav1.NamespaceAll, func(set *v1beta1.DaemonSet) bool {
				return counts(set, e.ObjectOld) != counts(set, e.ObjectNew)
			})
		},
	}
}

// counts is what a set makes of a node: whether it should have a Pod, whether a Pod may
// stay, and whether the update selector matches.
func counts(set *v1beta1.DaemonSet, node *corev1.Node) (c [3]bool) {
	c[0], c[1] = plan.EligibilityOf(&set.Spec.Template).On(node)
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(r.Selector)
		c[2] = err == nil && selector.Matches(labels.Set(node.Labels))
	}
	return c
}

// SPDX-License-Identifier: Apache-2.0

// Package nodeimage keeps one NodeImage per Node: it creates and deletes them, copies the
// Node's labels, removes tasks that nobody wants any more and fails those that the node
// agent does not answer. Decide is the pure part. Rules: images.md 8.
package nodeimage

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// EventPullFailed is the reason of the event on a NodeImage, and on the jobs that own the
// task, when a task is failed because of its node's silence. The node agent sends the same.
const EventPullFailed = "PullImageFailed"

// ownerIndex finds the NodeImages with a task of a job by the job's UID.
const ownerIndex = "taskOwnerUID"

// Options are what the manager decides.
type Options struct {
	Workers     int                                           // 3 when 0
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request] // nil: the library's
	Clock       clock.PassiveClock                            // nil: the real one
	// CreationDelay is --nodeimage-creation-delay: how long a node must be ready before it
	// gets a NodeImage. 0 is none.
	CreationDelay time.Duration
}

// Reconciler takes NodeImages one step closer to their nodes.
type Reconciler struct {
	Client  client.Client // reads from the cache
	Events  record.EventRecorder
	Options Options
}

// Reconcile takes one NodeImage one step further; the request's name is that of the node.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	snap, err := r.observe(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	plan := Decide(*snap, r.Options.Clock.Now())
	if err := r.act(ctx, snap, plan); err != nil {
		return ctrl.Result{}, err
	}
	wait := plan.Requeue
	if 0 < wait && wait < 3*time.Second {
		// Many nodes got the same task at the same time; they need not come back together.
		wait = 3*time.Second + rand.N(2*time.Second)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

func (r *Reconciler) observe(ctx context.Context, name string) (*Snapshot, error) {
	s := &Snapshot{Name: name, CreationDelay: r.Options.CreationDelay}
	var node corev1.Node
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &node); {
	case err == nil:
		s.Node = &node
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	var nodeImage v1beta1.NodeImage
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &nodeImage); {
	case apierrors.IsNotFound(err):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("reading NodeImage %s: %w", name, err)
	}
	s.NodeImage = &nodeImage
	s.GoneJobs, s.GoneSecrets = map[types.UID]bool{}, map[types.NamespacedName]bool{}
	for _, image := range nodeImage.Spec.Images {
		for _, tag := range image.Tags {
			for _, ref := range tag.OwnerReferences {
				s.GoneJobs[ref.UID] = r.jobGone(ctx, ref)
			}
		}
		for _, ref := range image.PullSecrets {
			if ref.Mode != v1beta1.PullSecretModeBatch {
				key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
				s.GoneSecrets[key] = r.secretGone(ctx, key)
			}
		}
	}
	return s, nil
}

// jobGone reports whether ref is surely of an ImagePullJob that does not exist; references
// of other kinds are not ours to judge.
func (r *Reconciler) jobGone(ctx context.Context, ref corev1.ObjectReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != v1beta1.GroupVersion.Group || ref.Kind != "ImagePullJob" {
		return false
	}
	var job v1beta1.ImagePullJob
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &job, client.UnsafeDisableDeepCopy)
	return apierrors.IsNotFound(err) || err == nil && job.UID != ref.UID
}

func (r *Reconciler) secretGone(ctx context.Context, key types.NamespacedName) bool {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return apierrors.IsNotFound(r.Client.Get(ctx, key, meta))
}

// act executes plan: at most one write.
func (r *Reconciler) act(ctx context.Context, snap *Snapshot, plan Plan) error {
	logger := log.FromContext(ctx)
	switch {
	case plan.Create != nil:
		if err := r.Client.Create(ctx, plan.Create); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating NodeImage %s: %w", snap.Name, err)
		}
		logger.Info("Created a NodeImage", "node", snap.Name)
	case plan.Delete:
		err := r.Client.Delete(ctx, snap.NodeImage, client.Preconditions{UID: &snap.NodeImage.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NodeImage %s: %w", snap.Name, err)
		}
		logger.Info("Deleted the NodeImage of a node that is gone", "node", snap.Name)
	case plan.Update != nil:
		if err := r.Client.Update(ctx, plan.Update); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("updating NodeImage %s: %w", snap.Name, err)
		}
	case plan.Status != nil:
		if err := r.Client.Status().Update(ctx, plan.Status); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("updating the status of NodeImage %s: %w", snap.Name, err)
		}
		for _, task := range plan.Failed {
			r.report(snap.NodeImage, task)
		}
	}
	return nil
}

func (r *Reconciler) report(nodeImage *v1beta1.NodeImage, task FailedTask) {
	text := fmt.Sprintf("Image %s:%s on node %s: %s", task.Image, task.Tag, nodeImage.Name, task.Message)
	for _, owner := range task.Owners {
		r.Events.Event(&owner, corev1.EventTypeWarning, EventPullFailed, text)
	}
	r.Events.Event(nodeImage, corev1.EventTypeWarning, EventPullFailed, text)
}

// Add runs the controller in mgr.
func Add(mgr ctrl.Manager, o Options) error {
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NodeImage{}, ownerIndex, ownersOf)
	if err != nil {
		return fmt.Errorf("indexing NodeImages: %w", err)
	}
	r := &Reconciler{
		Client:  mgr.GetClient(),
		Events:  mgr.GetEventRecorderFor("nodeimage-controller"), //nolint:staticcheck // events of core/v1 are part of the wire contract
		Options: o,
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("nodeimage-controller").
		For(&v1beta1.NodeImage{}).
		Watches(&corev1.Node{}, r.nodeEvents()).
		Watches(&v1beta1.ImagePullJob{}, r.jobEvents()).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers, RateLimiter: o.RateLimiter}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding nodeimage-controller: %w", err)
	}
	return nil
}

func ownersOf(obj client.Object) []string {
	uids := map[string]bool{}
	for _, image := range obj.(*v1beta1.NodeImage).Spec.Images {
		for _, tag := range image.Tags {
			for _, ref := range tag.OwnerReferences {
				uids[string(ref.UID)] = true
			}
		}
	}
	list := make([]string, 0, len(uids))
	for uid := range uids {
		list = append(list, uid)
	}
	return list
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// nodeEvents enqueues a node when its NodeImage has to be created, deleted or relabelled.
// Nodes are updated every few seconds; almost none of that matters here.
func (r *Reconciler) nodeEvents() handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, q queue) {
		node := obj.(*corev1.Node)
		var nodeImage v1beta1.NodeImage
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(node), &nodeImage, client.UnsafeDisableDeepCopy)
		if err == nil {
			if node.DeletionTimestamp == nil && maps.Equal(node.Labels, nodeImage.Labels) {
				return
			}
		} else if _, ready := readySince(node); !ready || node.Labels[virtualNodeLabel] == virtualNode {
			return
		}
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(node)})
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
		},
	}
}

// jobEvents enqueues the NodeImages with tasks of a job that was deleted.
func (r *Reconciler) jobEvents() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			var list v1beta1.NodeImageList
			err := r.Client.List(ctx, &list, client.MatchingFields{ownerIndex: string(e.Object.GetUID())}, client.UnsafeDisableDeepCopy)
			if err != nil {
				log.FromContext(ctx).Error(err, "Listing NodeImages of a deleted job", "job", e.Object.GetName())
				return
			}
			for _, nodeImage := range list.Items {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: nodeImage.Name}})
			}
		},
	}
}

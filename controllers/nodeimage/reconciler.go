// SPDX-License-Identifier: Apache-2.0

// Package nodeimage keeps one NodeImage per Node: it creates and deletes them, copies the
// Node's labels, removes tasks that nobody wants any more and fails those that the node
// agent does not answer. Decide is the pure part. Rules: images.md 8.
package nodeimage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
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
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
)

// EventPullFailed is the reason of the event on a NodeImage, and on the jobs that own the
// task, when a task is failed because of its node's silence. The node agent sends the same.
const EventPullFailed = "PullImageFailed"

// Options are what the manager decides.
type Options struct {
	Workers     int                                           // 3 when 0
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request] // nil: the library's
	Clock       clock.PassiveClock                            // nil: the real one
	// CreationDelay is --nodeimage-creation-delay: how long a node must be ready before it
	// gets a NodeImage. 0 is none.
	CreationDelay time.Duration
}

// Reconciler takes NodeImages one step closer to their nodes. The zero value is not usable;
// see New.
type Reconciler struct {
	client  client.Client // reads from the cache
	live    client.Reader
	events  record.EventRecorder
	options Options
	gone    tombs
}

// New makes a Reconciler. c reads from the cache, live from the API server.
func New(c client.Client, live client.Reader, recorder record.EventRecorder, o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Reconciler{client: c, live: live, events: recorder, options: o}
}

// Reconcile takes one NodeImage one step further; the request's name is that of the node.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	snap, err := r.observe(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	plan := Decide(*snap, r.options.Clock.Now())
	wait := plan.Requeue
	switch err := r.act(ctx, snap, plan); {
	case apierrors.IsConflict(err):
		// The node agent or a job was faster: look at what it wrote.
		log.FromContext(ctx).V(1).Info("Trying again", "reason", err.Error())
		wait = time.Second
	case err != nil:
		return ctrl.Result{}, err
	}
	if 0 < wait && wait < 3*time.Second {
		// Many nodes got the same task at the same time; they need not come back together.
		wait = 3*time.Second + rand.N(2*time.Second)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// observe gathers the snapshot. What it reads is not copied; Decide writes to nothing of it.
func (r *Reconciler) observe(ctx context.Context, name string) (*Snapshot, error) {
	s := &Snapshot{Name: name, CreationDelay: r.options.CreationDelay}
	var node corev1.Node
	switch err := r.client.Get(ctx, types.NamespacedName{Name: name}, &node, client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.Node = &node
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	var nodeImage v1beta1.NodeImage
	switch err := r.client.Get(ctx, types.NamespacedName{Name: name}, &nodeImage, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("reading NodeImage %s: %w", name, err)
	}
	s.NodeImage = &nodeImage
	s.GoneJobs, s.RunningJobs, s.GoneSecrets = map[types.UID]bool{}, map[types.UID]bool{}, map[types.NamespacedName]bool{}
	for _, image := range nodeImage.Spec.Images {
		for _, tag := range image.Tags {
			for _, ref := range tag.OwnerReferences {
				s.GoneJobs[ref.UID], s.RunningJobs[ref.UID] = r.job(ctx, ref)
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

// job reports whether ref is surely of an ImagePullJob that does not exist, and whether it is
// of one that runs and will end; references of other kinds are not ours to judge. A cache that does not show a job may be behind the
// one that shows the NodeImage, as after a change of leaders: then the API server decides,
// once for each job, since no other job ever has its UID.
func (r *Reconciler) job(ctx context.Context, ref corev1.ObjectReference) (gone, running bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != v1beta1.GroupVersion.Group || ref.Kind != "ImagePullJob" {
		return false, false
	}
	if r.gone.has(ref.UID) {
		return true, false
	}
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	var job v1beta1.ImagePullJob
	if err := r.client.Get(ctx, key, &job, client.UnsafeDisableDeepCopy); err == nil && job.UID == ref.UID {
		ends := job.Spec.CompletionPolicy.Type != v1beta1.Never
		return false, ends && job.DeletionTimestamp == nil && job.Status.CompletionTime == nil
	}
	job = v1beta1.ImagePullJob{}
	err = r.live.Get(ctx, key, &job)
	if apierrors.IsNotFound(err) || err == nil && job.UID != ref.UID {
		r.gone.add(ref.UID)
		return true, false
	}
	return false, false
}

func (r *Reconciler) secretGone(ctx context.Context, key types.NamespacedName) bool {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return apierrors.IsNotFound(r.client.Get(ctx, key, meta))
}

// nodeGone asks the API server: tasks that vanish with a NodeImage do not come back.
func (r *Reconciler) nodeGone(ctx context.Context, name string) (bool, error) {
	var node corev1.Node
	switch err := r.live.Get(ctx, types.NamespacedName{Name: name}, &node); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading Node %s: %w", name, err)
	}
	return node.DeletionTimestamp != nil, nil
}

// tombs are UIDs of jobs that do not exist any more. The zero value is ready for concurrent
// use.
type tombs struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

// maxTombs bounds the memory; whoever is forgotten is asked for once more.
const maxTombs = 10000

func (t *tombs) has(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uids[uid]
}

func (t *tombs) add(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.uids == nil || len(t.uids) >= maxTombs {
		t.uids = map[types.UID]bool{}
	}
	t.uids[uid] = true
}

// act executes plan: at most one write.
func (r *Reconciler) act(ctx context.Context, snap *Snapshot, plan Plan) error {
	logger := log.FromContext(ctx)
	switch {
	case plan.Create != nil:
		if err := r.client.Create(ctx, plan.Create); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating NodeImage %s: %w", snap.Name, err)
		}
		logger.Info("Created a NodeImage", "node", snap.Name)
	case plan.Delete:
		gone, err := r.nodeGone(ctx, snap.Name)
		if err != nil || !gone {
			return err // the cache is behind; the Node's event brings us back
		}
		err = r.client.Delete(ctx, snap.NodeImage, client.Preconditions{UID: &snap.NodeImage.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NodeImage %s: %w", snap.Name, err)
		}
		logger.Info("Deleted the NodeImage of a node that is gone", "node", snap.Name)
	case plan.Update != nil:
		if err := r.client.Update(ctx, plan.Update); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("updating NodeImage %s: %w", snap.Name, err)
		}
	case plan.Status != nil:
		if err := r.client.Status().Update(ctx, plan.Status); client.IgnoreNotFound(err) != nil {
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
		events.Send(r.events, &owner, events.Warning, EventPullFailed, "%s", text)
	}
	events.Send(r.events, nodeImage, events.Warning, EventPullFailed, "%s", text)
}

// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/imageref"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
	"github.com/kruisectl/kruisectl/internal/valid"
)

// name is that of the controller, in logs, metrics and events.
const name = "imagepulljob-controller"

// activeIndex finds the jobs that are neither deleted nor complete, by the value "true".
const activeIndex = "isActive"

// settle is how long a change on a node waits for those on other nodes, so that a job on a
// thousand nodes is looked at, and its status written, twice a second at most.
const settle = 500 * time.Millisecond

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add runs the controller in mgr. It adds the index isActive on ImagePullJobs, and a cache
// of the Secrets of the namespace that holds the copies.
func Add(mgr ctrl.Manager, o Options) error {
	o.complete()
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.ImagePullJob{}, activeIndex, func(obj client.Object) []string {
		job := obj.(*v1beta1.ImagePullJob)
		return []string{fmt.Sprint(job.DeletionTimestamp == nil && job.Status.CompletionTime == nil)}
	})
	if err != nil {
		return fmt.Errorf("indexing ImagePullJobs: %w", err)
	}
	copies, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.ConfigNamespace: {}}}},
	})
	if err != nil {
		return fmt.Errorf("making the cache of pull secrets: %w", err)
	}
	if err := mgr.Add(copies); err != nil {
		return fmt.Errorf("adding the cache of pull secrets: %w", err)
	}
	recorder, err := events.NewRecorder(mgr, name)
	if err != nil {
		return err
	}
	secrets := &pullsecret.Syncer{Client: mgr.GetClient(), Copies: copies, Live: mgr.GetAPIReader(), Namespace: o.ConfigNamespace}
	r := New(mgr.GetClient(), mgr.GetAPIReader(), secrets, recorder, o)
	c, err := controller.New(name, mgr, controller.Options{MaxConcurrentReconciles: o.Workers, RateLimiter: o.RateLimiter, Reconciler: r})
	if err != nil {
		return fmt.Errorf("making %s: %w", name, err)
	}
	secretMeta := &metav1.PartialObjectMetadata{}
	secretMeta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	watches := []source.Source{
		source.Kind[client.Object](mgr.GetCache(), &v1beta1.ImagePullJob{}, jobEvents()),
		source.Kind[client.Object](mgr.GetCache(), &v1beta1.NodeImage{}, r.nodeImageEvents()),
		source.Kind[client.Object](mgr.GetCache(), &corev1.Pod{}, r.podEvents()),
		source.Kind[client.Object](mgr.GetCache(), secretMeta, r.secretEvents()),
		source.Kind[client.Object](copies, &corev1.Secret{}, r.copyEvents()),
	}
	for _, w := range watches {
		if err := c.Watch(w); err != nil {
			return fmt.Errorf("watching for %s: %w", name, err)
		}
	}
	return nil
}

// activeJobs lists the active jobs of a namespace, of all when it is empty. Read-only.
func (r *Reconciler) activeJobs(ctx context.Context, namespace string) []v1beta1.ImagePullJob {
	var list v1beta1.ImagePullJobList
	err := r.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{activeIndex: "true"}, client.UnsafeDisableDeepCopy)
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing active ImagePullJobs")
	}
	return list.Items
}

func enqueue(q queue, job *v1beta1.ImagePullJob) {
	q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)}, settle)
}

// jobEvents wakes a job at once when somebody changed it, and with the next look at its
// nodes when only its status is new: mostly that is our own write.
func jobEvents() handler.EventHandler {
	wake := func(obj client.Object, q queue) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wake(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { wake(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1beta1.ImagePullJob), e.ObjectNew.(*v1beta1.ImagePullJob)
			if before.Generation == after.Generation && after.DeletionTimestamp == nil && after.Status.CompletionTime == nil {
				enqueue(q, after)
				return
			}
			wake(after, q)
		},
	}
}

// concerns reports whether what happens to node may matter to the job. Which nodes run the
// Pods of a job that follows Pods is not asked here: that takes a look at all Pods.
func concerns(job *v1beta1.ImagePullJob, node *v1beta1.NodeImage) bool {
	m, err := newMatcher(job)
	return err == nil && (m.pods != nil || m.node(node))
}

func (r *Reconciler) nodeImageEvents() handler.EventHandler {
	all := func(ctx context.Context, obj client.Object, q queue) {
		node := obj.(*v1beta1.NodeImage)
		for _, job := range r.activeJobs(ctx, "") {
			if concerns(&job, node) {
				enqueue(q, &job)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { all(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { all(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1beta1.NodeImage), e.ObjectNew.(*v1beta1.NodeImage)
			if before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
				all(ctx, after, q)
				return
			}
			wakes := change(before, after)
			if wakes == nil {
				return
			}
			for _, job := range r.activeJobs(ctx, "") {
				if wakes(&job) {
					enqueue(q, &job)
				}
			}
		},
	}
}

// change tells which jobs have to look again after a NodeImage changed; nil is none.
func change(before, after *v1beta1.NodeImage) (wakes func(*v1beta1.ImagePullJob) bool) {
	changed := changedTasks(before, after)
	filled := full(before) != full(after)
	if len(changed) == 0 && !filled && maps.Equal(before.Labels, after.Labels) {
		return nil
	}
	return func(job *v1beta1.ImagePullJob) bool {
		if concerns(job, after) {
			image, err := imageref.Parse(job.Spec.Image)
			if filled || err == nil && (changed[image] || changed[imageref.Ref{Name: image.Name}]) {
				return true
			}
		}
		m, err := newMatcher(job)
		return err == nil && m.pods == nil && m.node(before) != m.node(after)
	}
}

func full(node *v1beta1.NodeImage) bool { return len(node.Spec.Images) >= valid.MaxNodeImages }

// changedTasks lists the tasks that differ in spec or status. A Ref without tag stands for
// all tags of an image. Comparing whole images instead makes every job of an image look
// at every node.
func changedTasks(before, after *v1beta1.NodeImage) map[imageref.Ref]bool {
	changed := map[imageref.Ref]bool{}
	for _, name := range names(before.Spec.Images, after.Spec.Images) {
		old, is := before.Spec.Images[name], after.Spec.Images[name]
		_, stays := after.Spec.Images[name]
		if !stays || !apiequality.Semantic.DeepEqual(old.PullSecrets, is.PullSecrets) || !apiequality.Semantic.DeepEqual(old.SandboxConfig, is.SandboxConfig) {
			changed[imageref.Ref{Name: name}] = true
		}
		diffTags(changed, name, old.Tags, is.Tags, func(t v1beta1.ImageTagSpec) string { return t.Tag })
	}
	for _, name := range names(before.Status.ImageStatuses, after.Status.ImageStatuses) {
		diffTags(changed, name, before.Status.ImageStatuses[name].Tags, after.Status.ImageStatuses[name].Tags,
			func(t v1beta1.ImageTagStatus) string { return t.Tag })
	}
	return changed
}

func diffTags[T any](changed map[imageref.Ref]bool, name string, before, after []T, tag func(T) string) {
	byTag := map[string]T{}
	for _, t := range before {
		byTag[tag(t)] = t
	}
	for _, t := range after {
		old, ok := byTag[tag(t)]
		delete(byTag, tag(t))
		if !ok || !apiequality.Semantic.DeepEqual(old, t) {
			changed[imageref.Ref{Name: name, Tag: tag(t)}] = true
		}
	}
	for t := range byTag {
		changed[imageref.Ref{Name: name, Tag: t}] = true
	}
}

func names[T any](a, b map[string]T) []string {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return slices.Collect(maps.Keys(all))
}

// podEvents wakes the jobs that follow Pods when a Pod enters or leaves their selection.
func (r *Reconciler) podEvents() handler.EventHandler {
	changed := func(ctx context.Context, before, after *corev1.Pod, q queue) {
		pod := after
		if pod == nil {
			pod = before
		}
		for _, job := range r.activeJobs(ctx, pod.Namespace) {
			m, err := newMatcher(&job)
			if err != nil || m.pods == nil {
				continue
			}
			was := before != nil && m.pod(before)
			is := after != nil && m.pod(after)
			if was != is {
				enqueue(q, &job)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { changed(ctx, nil, e.Object.(*corev1.Pod), q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			pod := e.Object.(*corev1.Pod).DeepCopy()
			pod.DeletionTimestamp = nil // it counted until now
			changed(ctx, pod, nil, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if active(before) == active(after) && maps.Equal(before.Labels, after.Labels) {
				return
			}
			changed(ctx, before, after, q)
		},
	}
}

// secretEvents wakes the jobs that use a secret that appeared or changed.
func (r *Reconciler) secretEvents() handler.EventHandler {
	users := func(ctx context.Context, obj client.Object, q queue) {
		if obj.GetNamespace() == r.options.ConfigNamespace {
			return
		}
		for _, job := range r.activeJobs(ctx, obj.GetNamespace()) {
			if slices.Contains(job.Spec.PullSecrets, obj.GetName()) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&job)})
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { users(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				users(ctx, e.ObjectNew, q)
			}
		},
	}
}

// copyEvents wakes the jobs whose copy of a secret was deleted or changed by somebody else,
// and those that are over and still named by a copy.
func (r *Reconciler) copyEvents() handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, q queue, active bool) {
		for _, key := range pullsecret.References(obj.GetAnnotations()) {
			if r.isActive(ctx, key) == active {
				q.AddAfter(reconcile.Request{NamespacedName: key}, settle)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q, false) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q, true) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				wake(ctx, e.ObjectNew, q, false)
			}
		},
	}
}

func (r *Reconciler) isActive(ctx context.Context, key types.NamespacedName) bool {
	var job v1beta1.ImagePullJob
	if err := r.client.Get(ctx, key, &job, client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	return job.DeletionTimestamp == nil && job.Status.CompletionTime == nil
}

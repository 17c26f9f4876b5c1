// SPDX-License-Identifier: Apache-2.0

package prepull

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/controllers/imagelistpulljob"
	"github.com/kruisectl/kruisectl/controllers/imagepulljob"
	"github.com/kruisectl/kruisectl/controllers/nodeimage"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
	"github.com/kruisectl/kruisectl/internal/valid"
)

const (
	space  = "shop"
	config = "kruise-daemon-config"
)

// world is a cluster: the server, one manager, an agent on each node.
type world struct {
	t       *rapid.T
	clock   *clocktesting.FakePassiveClock
	server  *server
	manager *cached
	user    *cached // never lags: users look before they write

	jobs  *imagepulljob.Reconciler
	lists *imagelistpulljob.Reconciler
	tasks *nodeimage.Reconciler

	names int
	// parallelism is the most that each job, by UID, ever was allowed, image its first image.
	parallelism map[types.UID]int
	image       map[types.UID]string
	// asked is the version of each task with which a job asked for it; a later version is
	// another job's.
	asked    map[string]int64
	breaches []string
	// silent are nodes whose agent does not answer any more.
	silent map[string]bool
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)),
		parallelism: map[types.UID]int{}, image: map[types.UID]string{}, asked: map[string]int64{}, silent: map[string]bool{},
	}
	w.server = newServer(w.clock.Now)
	w.server.onWrite = w.check
	w.user = newCached(w.server)
	w.manager = newCached(w.server)
	w.restart()
	return w
}

// restart forgets all that a manager keeps in memory.
func (w *world) restart() {
	w.manager.restart()
	none := &record.FakeRecorder{} // without channel it drops everything
	copies := &pullsecret.Syncer{Client: w.manager, Copies: w.manager, Live: live{w.server}, Namespace: config}
	w.jobs = imagepulljob.New(w.manager, live{w.server}, copies, none, imagepulljob.Options{
		Clock: w.clock, Jitter: func(int32) int32 { return 0 }, ConfigNamespace: config, ExtraTTLSeconds: 300,
	})
	w.lists = imagelistpulljob.New(w.manager, live{w.server}, none, imagelistpulljob.Options{Clock: w.clock})
	w.tasks = nodeimage.New(w.manager, live{w.server}, none, nodeimage.Options{Clock: w.clock})
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// reconcile looks at one object of a kind. Errors are what the queue retries later.
func (w *world) reconcile(k kind, key types.NamespacedName) {
	var r reconcile.Reconciler = w.jobs
	switch k {
	case listJobs:
		r = w.lists
	case nodeImages:
		r = w.tasks
	}
	ctx := log.IntoContext(context.Background(), logr.Discard())
	_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	if err != nil && !apierrors.IsInternalError(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		w.t.Fatalf("reconciling %s %s: %v", k, key, err)
	}
	if len(w.breaches) > 0 {
		w.t.Fatalf("reconciling %s %s: %s", k, key, strings.Join(w.breaches, "; "))
	}
}

// keys are those of the objects that a kind's controller may be woken for.
func (w *world) keys(k kind) []types.NamespacedName {
	all := map[types.NamespacedName]bool{}
	add := func(o objects) {
		for key := range o {
			all[key] = true
		}
	}
	add(w.server.live[k])
	add(w.manager.seen[k])
	switch k {
	case nodeImages:
		add(w.server.live[nodes])
	case pullJobs: // copies wake the jobs that they name
		for _, obj := range w.manager.seen[secrets] {
			for _, key := range pullsecret.References(obj.GetAnnotations()) {
				all[key] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func get[T client.Object](w *world, k kind, key types.NamespacedName) T {
	obj, _ := w.server.live[k][key].(T)
	return obj
}

func ref(node, image, tag string) string { return node + " " + image + ":" + tag }

// breach notes that a promise is broken; a goroutine of a controller may be the first to see.
func (w *world) breach(format string, args ...any) {
	w.breaches = append(w.breaches, fmt.Sprintf(format, args...))
}

// check holds what must be true at every write of a NodeImage.
func (w *world) check(before, after *v1beta1.NodeImage) {
	if len(after.Spec.Images) > valid.MaxNodeImages {
		w.breach("NodeImage %s lists %d images", after.Name, len(after.Spec.Images))
	}
	for name, image := range after.Spec.Images {
		for _, tag := range image.Tags {
			var old *v1beta1.ImageTagSpec
			if before != nil {
				old = find(before.Spec.Images[name].Tags, tag.Tag)
			}
			if old != nil && old.Version == tag.Version {
				continue
			}
			// The task is new, or asked for anew: nothing that was reported may satisfy it.
			for _, s := range after.Status.ImageStatuses[name].Tags {
				if s.Tag == tag.Tag && s.Version >= tag.Version {
					w.breach("%s has version %d, the node has reported %d", ref(after.Name, name, tag.Tag), tag.Version, s.Version)
				}
			}
			owner := tag.OwnerReferences[len(tag.OwnerReferences)-1]
			w.asked[string(owner.UID)+" "+ref(after.Name, name, tag.Tag)] = tag.Version
			w.checkParallelism(owner)
		}
	}
}

// know remembers what a job, of a user or of a list, was at first.
func (w *world) know(job *v1beta1.ImagePullJob) {
	if _, known := w.image[job.UID]; !known {
		w.image[job.UID] = job.Spec.Image
		w.parallelism[job.UID] = job.Spec.Parallelism.IntValue()
	}
}

func find(tags []v1beta1.ImageTagSpec, tag string) *v1beta1.ImageTagSpec {
	if i := slices.IndexFunc(tags, func(t v1beta1.ImageTagSpec) bool { return t.Tag == tag }); i >= 0 {
		return &tags[i]
	}
	return nil
}

// checkParallelism counts the nodes that pull because of a job.
func (w *world) checkParallelism(owner corev1.ObjectReference) {
	job := get[*v1beta1.ImagePullJob](w, pullJobs, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name})
	if job == nil || job.UID != owner.UID {
		return // gone
	}
	if w.know(job); job.Spec.Image != w.image[job.UID] {
		return // edited to another image: what it asked for before may still be pulled
	}
	pulling := 0
	for _, obj := range w.server.live[nodeImages] {
		node := obj.(*v1beta1.NodeImage)
		for name, image := range node.Spec.Images {
			for _, tag := range image.Tags {
				mine := slices.ContainsFunc(tag.OwnerReferences, func(r corev1.ObjectReference) bool { return r.UID == owner.UID })
				if mine && w.asked[string(owner.UID)+" "+ref(node.Name, name, tag.Tag)] == tag.Version && !done(node, name, tag) {
					pulling++
				}
			}
		}
	}
	if pulling > w.parallelism[owner.UID] {
		w.breach("%d nodes pull for job %s, allowed are %d", pulling, owner.Name, w.parallelism[owner.UID])
	}
}

func done(node *v1beta1.NodeImage, name string, tag v1beta1.ImageTagSpec) bool {
	return slices.ContainsFunc(node.Status.ImageStatuses[name].Tags, func(s v1beta1.ImageTagStatus) bool {
		return s.Tag == tag.Tag && s.Version == tag.Version && s.CompletionTime != nil
	})
}

// agent lets the agent of a node report: what it pulls, or the end of it.
func (w *world) agent(name string, end bool, phase v1beta1.ImagePullPhase) {
	have := get[*v1beta1.NodeImage](w, nodeImages, types.NamespacedName{Name: name})
	if have == nil || w.silent[name] {
		return
	}
	node := have.DeepCopy()
	node.Status = v1beta1.NodeImageStatus{}
	for image, spec := range have.Spec.Images {
		var tags []v1beta1.ImageTagStatus
		for _, tag := range spec.Tags {
			status := v1beta1.ImageTagStatus{Tag: tag.Tag, Version: tag.Version, Phase: v1beta1.ImagePhasePulling}
			for _, s := range have.Status.ImageStatuses[image].Tags {
				if s.Tag == tag.Tag && s.Version == tag.Version {
					status = s
				}
			}
			if end && status.CompletionTime == nil {
				status.Phase, status.CompletionTime = phase, &metav1.Time{Time: w.clock.Now()}
			}
			if status.CompletionTime == nil {
				node.Status.Pulling++
			}
			tags = append(tags, status)
		}
		if node.Status.ImageStatuses == nil {
			node.Status.ImageStatuses = map[string]v1beta1.ImageStatus{}
		}
		node.Status.ImageStatuses[image] = v1beta1.ImageStatus{Tags: tags}
	}
	w.must(w.user.Status().Update(context.Background(), node))
}

func (w *world) name(prefix string) string {
	w.names++
	return fmt.Sprintf("%s%d", prefix, w.names)
}

func (w *world) addNode() {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name("node")}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: w.clock.Now()}}}
	w.must(w.user.Create(context.Background(), node))
}

func (w *world) template() v1beta1.ImagePullJobTemplate {
	t := w.t
	template := v1beta1.ImagePullJobTemplate{
		Parallelism:      new(intstr.FromInt(rapid.IntRange(1, 3).Draw(t, "parallelism"))),
		CompletionPolicy: v1beta1.CompletionPolicy{Type: rapid.SampledFrom([]v1beta1.CompletionPolicyType{v1beta1.Always, v1beta1.Always, v1beta1.Never}).Draw(t, "type")},
	}
	if template.CompletionPolicy.Type == v1beta1.Always {
		if rapid.IntRange(0, 3).Draw(t, "has a TTL") == 0 {
			template.CompletionPolicy.TTLSecondsAfterFinished = new(int32(20))
		}
		if rapid.IntRange(0, 3).Draw(t, "has a deadline") == 0 {
			template.CompletionPolicy.ActiveDeadlineSeconds = new(int64(1200))
		}
	}
	if rapid.Bool().Draw(t, "has secrets") {
		template.PullSecrets = rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}, {"missing"}}).Draw(t, "secrets")
	}
	return template
}

var images = []string{"nginx:1", "nginx:2", "redis:7"}

func (w *world) addJob() {
	job := &v1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(w.t, "job")},
		Spec:       v1beta1.ImagePullJobSpec{Image: rapid.SampledFrom(images).Draw(w.t, "image"), ImagePullJobTemplate: w.template()},
	}
	v1beta1.SetDefaultsImagePullJob(job)
	if err := w.user.Create(context.Background(), job); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

func (w *world) addList() {
	job := &v1beta1.ImageListPullJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "list"},
		Spec:       v1beta1.ImageListPullJobSpec{Images: rapid.SampledFrom([][]string{{"nginx:1"}, {"nginx:1", "redis:7"}, images}).Draw(w.t, "images"), ImagePullJobTemplate: w.template()},
	}
	v1beta1.SetDefaultsImageListPullJob(job)
	if err := w.user.Create(context.Background(), job); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

// edit changes an object as a user does.
func (w *world) edit(k kind, key types.NamespacedName) {
	if w.server.live[k][key] == nil || w.server.live[k][key].GetDeletionTimestamp() != nil {
		return
	}
	obj := w.server.live[k][key].DeepCopyObject().(client.Object)
	var template *v1beta1.ImagePullJobTemplate
	switch job := obj.(type) {
	case *v1beta1.ImagePullJob:
		w.know(job)
		template = &job.Spec.ImagePullJobTemplate
	case *v1beta1.ImageListPullJob:
		template = &job.Spec.ImagePullJobTemplate
		if rapid.Bool().Draw(w.t, "edit images") {
			job.Spec.Images = rapid.SampledFrom([][]string{{"redis:7"}, {"nginx:2", "nginx:1"}}).Draw(w.t, "new images")
		}
	}
	switch rapid.SampledFrom([]string{"parallelism", "timeout", "image"}).Draw(w.t, "edit") {
	case "parallelism":
		template.Parallelism = new(intstr.FromInt(rapid.IntRange(0, 4).Draw(w.t, "new parallelism")))
		w.parallelism[obj.GetUID()] = max(w.parallelism[obj.GetUID()], template.Parallelism.IntValue())
	case "timeout":
		template.PullPolicy.TimeoutSeconds = new(int32(rapid.IntRange(60, 61).Draw(w.t, "new timeout")))
	case "image":
		if job, is := obj.(*v1beta1.ImagePullJob); is {
			job.Spec.Image = rapid.SampledFrom(images).Draw(w.t, "new image")
		}
	}
	w.must(w.user.Update(context.Background(), obj))
}

// unpauseAll lets paused jobs go on.
func (w *world) unpauseAll() {
	for _, k := range []kind{pullJobs, listJobs} {
		for _, key := range w.keys(k) {
			obj := w.server.live[k][key]
			if obj == nil || obj.GetDeletionTimestamp() != nil {
				continue
			}
			switch job := obj.DeepCopyObject().(type) {
			case *v1beta1.ImagePullJob:
				if job.Spec.Parallelism.IntValue() == 0 {
					w.know(job)
					job.Spec.Parallelism = new(intstr.FromInt(1))
					w.parallelism[job.UID] = max(1, w.parallelism[job.UID])
					w.must(w.user.Update(context.Background(), job))
				}
			case *v1beta1.ImageListPullJob:
				if job.Spec.Parallelism.IntValue() == 0 {
					job.Spec.Parallelism = new(intstr.FromInt(1))
					w.must(w.user.Update(context.Background(), job))
				}
			}
		}
	}
}

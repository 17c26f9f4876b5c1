// SPDX-License-Identifier: Apache-2.0

package prepull

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/property"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
)

// TestImagesArePulledThroughChaos: while caches lag, writes fail, managers restart, nodes come
// and go and users change their minds, no job has more nodes pull than it may and no old
// report satisfies a new task; and once all is quiet every job is where it should be and
// nothing is left behind of those that are gone.
func TestImagesArePulledThroughChaos(t *testing.T) {
	property.Many(t, 200, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 5).Draw(t, "nodes") {
			w.addNode()
		}
		for _, name := range []string{"a", "b"} {
			w.must(w.user.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}, Data: map[string][]byte{"v": []byte("0")}}))
		}
		w.addJob()
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			w.step()
		}
		w.calmDown()
		w.checkTheEnd()
	})
}

// step is one thing that happens.
func (w *world) step() {
	t := w.t
	switch rapid.SampledFrom([]string{
		"manager", "manager", "manager", "manager", "cache", "cache", "agent", "agent", "agent", "time",
		"user", "user", "node", "restart", "failure", "rest",
	}).Draw(t, "step") {
	case "manager":
		k := rapid.SampledFrom([]kind{pullJobs, pullJobs, listJobs, nodeImages}).Draw(t, "kind")
		if keys := w.keys(k); len(keys) > 0 {
			w.reconcile(k, rapid.SampledFrom(keys).Draw(t, "key"))
		}
	case "cache":
		w.manager.follow(rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.IntRange(1, 5).Draw(t, "changes"))
	case "agent":
		if keys := w.keys(nodeImages); len(keys) > 0 {
			name := rapid.SampledFrom(keys).Draw(t, "agent").Name
			if rapid.IntRange(0, 20).Draw(t, "falls silent") == 0 {
				w.silent[name] = true
			}
			w.agent(name, rapid.Bool().Draw(t, "ends"), rapid.SampledFrom([]v1beta1.ImagePullPhase{v1beta1.ImagePhaseSucceeded, v1beta1.ImagePhaseFailed}).Draw(t, "phase"))
		}
	case "time":
		w.pass(time.Duration(rapid.SampledFrom([]int{1, 5, 30, 700}).Draw(t, "seconds")) * time.Second)
	case "user":
		w.userActs()
	case "node":
		if keys := w.keys(nodes); len(keys) > 1 && rapid.Bool().Draw(t, "leaves") {
			w.server.remove(nodes, keys[0])
		} else {
			w.addNode()
		}
	case "restart":
		w.restart()
	case "failure":
		left := rapid.IntRange(1, 3).Draw(t, "failures")
		w.manager.fail = func(verb string, k kind) error {
			if left--; left < 0 {
				w.manager.fail = nil
				return nil
			}
			if verb == "update" && k == nodeImages {
				return conflict(k, "any")
			}
			return apierrors.NewInternalError(fmt.Errorf("the server is tired"))
		}
	case "rest":
		w.round()
	}
}

func (w *world) userActs() {
	t := w.t
	switch rapid.SampledFrom([]string{"job", "list", "delete", "edit", "secret"}).Draw(t, "user") {
	case "job":
		w.addJob()
	case "list":
		w.addList()
	case "secret":
		secret := get[*corev1.Secret](w, secrets, types.NamespacedName{Namespace: space, Name: "a"})
		if secret == nil {
			w.must(w.user.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "a"}}))
			return
		}
		if rapid.IntRange(0, 4).Draw(t, "secret goes") == 0 {
			w.server.remove(secrets, types.NamespacedName{Namespace: space, Name: "a"})
			return
		}
		secret = secret.DeepCopy()
		secret.Data = map[string][]byte{"v": []byte(w.name("v"))}
		w.must(w.user.Update(context.Background(), secret))
	default:
		k := rapid.SampledFrom([]kind{pullJobs, listJobs}).Draw(t, "kind")
		var keys []types.NamespacedName
		for _, key := range w.keys(k) {
			if w.server.live[k][key] != nil {
				keys = append(keys, key)
			}
		}
		if len(keys) == 0 {
			return
		}
		key := rapid.SampledFrom(keys).Draw(t, "whose")
		if rapid.Bool().Draw(t, "delete") {
			w.server.remove(k, key)
			return
		}
		w.edit(k, key)
	}
}

// round lets everybody act once, with what they know by then.
func (w *world) round() {
	w.pass(time.Second)
	w.server.collectGarbage()
	for _, k := range []kind{listJobs, pullJobs, nodeImages} {
		for _, key := range w.keys(k) {
			w.manager.followAll()
			w.reconcile(k, key)
		}
	}
	for _, key := range w.keys(nodeImages) {
		w.agent(key.Name, true, v1beta1.ImagePhaseSucceeded)
	}
}

// calmDown lets the world come to rest: paused jobs go on, agents answer or are given up. An
// agent that fell silent while it pulled comes back: without a deadline it is waited for.
func (w *world) calmDown() {
	w.manager.fail = nil
	w.unpauseAll()
	for name := range w.silent {
		node := get[*v1beta1.NodeImage](w, nodeImages, types.NamespacedName{Name: name})
		if node != nil && node.Status.Pulling > 0 {
			delete(w.silent, name)
		}
	}
	for i := range 120 {
		before := w.server.writes
		w.round()
		if i%10 == 9 {
			w.pass(11 * time.Minute) // silent nodes are given up
			continue
		}
		if i > 40 && before == w.server.writes {
			return
		}
	}
	w.t.Fatal("the world does not come to rest")
}

func (w *world) checkTheEnd() {
	t := w.t
	for key, obj := range w.server.live[nodeImages] {
		if w.server.live[nodes][key] == nil {
			t.Errorf("NodeImage %s has no node", key.Name)
		}
		w.checkTasks(obj.(*v1beta1.NodeImage))
	}
	if n, want := len(w.server.live[nodeImages]), len(w.server.live[nodes]); n != want {
		t.Errorf("%d NodeImages, %d nodes", n, want)
	}
	for key, obj := range w.server.live[pullJobs] {
		w.checkJob(key, obj.(*v1beta1.ImagePullJob))
	}
	for key, obj := range w.server.live[listJobs] {
		w.checkList(key, obj.(*v1beta1.ImageListPullJob))
	}
	w.checkCopies()
}

func (w *world) checkTasks(node *v1beta1.NodeImage) {
	for name, image := range node.Spec.Images {
		if len(image.Tags) == 0 {
			w.t.Errorf("%s: image %s without tag", node.Name, name)
		}
		for _, tag := range image.Tags {
			for _, owner := range tag.OwnerReferences {
				job := get[*v1beta1.ImagePullJob](w, pullJobs, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name})
				if job == nil || job.UID != owner.UID {
					w.t.Errorf("%s is left behind by job %s", ref(node.Name, name, tag.Tag), owner.Name)
				}
			}
			if len(tag.OwnerReferences) == 0 || !done(node, name, tag) {
				w.t.Errorf("%s: %d owners, done %v", ref(node.Name, name, tag.Tag), len(tag.OwnerReferences), done(node, name, tag))
			}
		}
	}
}

func (w *world) checkJob(key types.NamespacedName, job *v1beta1.ImagePullJob) {
	s, ends := job.Status, job.Spec.CompletionPolicy.Type == v1beta1.Always
	switch {
	case job.DeletionTimestamp != nil:
		w.t.Errorf("job %s is not deleted", key)
	case ends != (s.CompletionTime != nil):
		w.t.Errorf("job %s of type %s: %+v", key, job.Spec.CompletionPolicy.Type, s)
	case s.Active != 0 || s.Desired != s.Succeeded+s.Failed || int(s.Failed) != len(s.FailedNodes):
		w.t.Errorf("job %s does not add up: %+v", key, s)
	case !ends && int(s.Desired) != len(w.server.live[nodes]):
		w.t.Errorf("job %s counts %d of %d nodes", key, s.Desired, len(w.server.live[nodes]))
	case ends != (len(job.Finalizers) == 0):
		w.t.Errorf("job %s has the finalizers %v", key, job.Finalizers)
	}
}

func (w *world) checkList(key types.NamespacedName, job *v1beta1.ImageListPullJob) {
	s, ends := job.Status, job.Spec.CompletionPolicy.Type == v1beta1.Always
	if ends != (s.CompletionTime != nil) || s.Completed != s.Desired || s.Active != 0 {
		w.t.Errorf("list %s: %+v", key, s)
	}
	if ends {
		return // edited after its end: nothing happens
	}
	var have []string
	for _, obj := range w.server.live[pullJobs] {
		if child := obj.(*v1beta1.ImagePullJob); metav1.IsControlledBy(child, job) {
			have = append(have, child.Spec.Image)
		}
	}
	want := slices.Sorted(slices.Values(job.Spec.Images))
	if slices.Sort(have); !slices.Equal(have, want) {
		w.t.Errorf("list %s has jobs for %v, wants %v", key, have, want)
	}
}

// checkCopies: each secret of each job that runs has one copy, and nothing else has.
func (w *world) checkCopies() {
	want := map[string]bool{} // source and job
	for key, obj := range w.server.live[pullJobs] {
		job := obj.(*v1beta1.ImagePullJob)
		for _, name := range job.Spec.PullSecrets {
			if job.Status.CompletionTime == nil && w.server.live[secrets][types.NamespacedName{Namespace: space, Name: name}] != nil {
				want[space+"/"+name+" for "+key.String()] = true
			}
		}
	}
	for key, obj := range w.server.live[secrets] {
		if key.Namespace != config {
			continue
		}
		copied := obj.(*corev1.Secret)
		from := copied.Annotations[pullsecret.SourceAnnotation]
		_, name, _ := strings.Cut(from, "/")
		source := get[*corev1.Secret](w, secrets, types.NamespacedName{Namespace: space, Name: name})
		if source != nil && string(source.Data["v"]) != string(copied.Data["v"]) {
			w.t.Errorf("copy %s is not what %s is", key, from)
		}
		jobs := pullsecret.References(copied.Annotations)
		if len(jobs) == 0 {
			w.t.Errorf("copy %s is nobody's", key)
		}
		for _, job := range jobs {
			at := from + " for " + job.String()
			if source != nil && !want[at] {
				w.t.Errorf("copy %s of %s should not be, or is one of two", key, at)
			}
			delete(want, at)
		}
	}
	for at := range want {
		w.t.Errorf("no copy of %s", at)
	}
}

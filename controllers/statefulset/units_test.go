// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bare is a set as the webhook would not let it pass: selector and template only.
func bare(name string) *v1beta1.StatefulSet {
	labels := map[string]string{"app": name}
	return &v1beta1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec: v1beta1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			},
		},
	}
}

func claimTemplate(name string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestParentOf(t *testing.T) {
	cases := map[string]struct {
		pod, set string
	}{
		"a Pod":                             {"db-0", "db"},
		"a set with a dash and a number":    {"db-1-23", "db-1"},
		"an ordinal above 32 bits":          {"db-5000000000", "db"},
		"no ordinal":                        {"db", ""},
		"no digits":                         {"db-x1", ""},
		"a sign":                            {"db--1", "db-"},
		"a sign that Go's numbers may have": {"db-+1", ""},
		"only an ordinal":                   {"-1", ""},
		"nothing":                           {"", ""},
		"an empty ordinal":                  {"db-", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, ok := parentOf(tc.pod)
			assert.Equal(t, tc.set, set)
			assert.Equal(t, tc.set != "", ok)
		})
	}
}

func TestClaimOf(t *testing.T) {
	set := bare("db")
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate("data"), claimTemplate("data-db")}
	cases := map[string]bool{
		"data-db-0": true, "data-db-17": true, "data-db-db-0": true,
		"data-db": false, "data-db-x": false, "logs-db-0": false, "data-web-0": false, "data-db-1-0": false, "data-db-007": false,
	}
	for claim, want := range cases {
		assert.Equal(t, want, claimOf(set, claim), claim)
	}
}

func TestNewPod(t *testing.T) {
	set := bare("db")
	set.Spec.ServiceName = "dbs"
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate("logs"), claimTemplate("data")}
	set.Spec.Template.Annotations = map[string]string{"note": "n"}
	set.Spec.Template.Finalizers = []string{"example.com/drain"}
	set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "own"}}
	before := set.DeepCopy()
	pod := newPod(set, &set.Spec.Template, plan.Creation{Pod: "db-3", Ordinal: 3, Revision: "db-abc", State: v1beta1.LifecyclePreparingNormal},
		plan.Gates{PodIndexLabel: true}, t0)
	text, err := yaml.Marshal(pod)
	assert.NoError(t, err)
	want := `metadata:
  annotations:
    lifecycle.apps.kruise.io/timestamp: "2026-01-02T03:04:05Z"
    note: "n"
  finalizers:
  - example.com/drain
  generateName: db-
  labels:
    app: db
    apps.kubernetes.io/pod-index: "3"
    controller-revision-hash: db-abc
    lifecycle.apps.kruise.io/state: PreparingNormal
    statefulset.kubernetes.io/pod-name: db-3
  name: db-3
  namespace: shop
  ownerReferences:
  - apiVersion: apps.kruise.io/v1beta1
    blockOwnerDeletion: true
    controller: true
    kind: StatefulSet
    name: db
    uid: uid-db
spec:
  containers:
  - image: app:1
    name: app
    resources: {}
  hostname: db-3
  subdomain: dbs
  volumes:
  - name: own
  - name: logs
    persistentVolumeClaim:
      claimName: logs-db-3
  - name: data
    persistentVolumeClaim:
      claimName: data-db-3
status: {}
`
	assert.Empty(t, cmp.Diff(want, string(text)))
	assert.Empty(t, cmp.Diff(before, set), "the set is only read")
}

// woken collects the names of sets that an event wakes.
func woken(t *testing.T, send func(context.Context, queue)) (names []string) {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	send(t.Context(), q)
	for q.Len() > 0 {
		r, _ := q.Get()
		q.Done(r)
		names = append(names, r.Name)
	}
	return names
}

func TestPodEventsWakeOwnersAdoptersAndThoseWhoWaitForAName(t *testing.T) {
	w := watches{sets: fake.NewClientBuilder().WithScheme(apitest.Scheme()).WithObjects(bare("db"), bare("web")).Build()}
	pod := func(name, label, owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": label}, ResourceVersion: label + owner}}
		switch owner {
		case "":
		case "job":
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: owner, UID: "1", Controller: new(true)}}
		case "apps":
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "1", Controller: new(true)}}
		default:
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: "StatefulSet", Name: owner, UID: "1", Controller: new(true)}}
		}
		return p
	}
	h := w.pods()
	created := func(p *corev1.Pod) []string {
		return woken(t, func(ctx context.Context, q queue) { h.Create(ctx, event.TypedCreateEvent[*corev1.Pod]{Object: p}, q) })
	}
	deleted := func(p *corev1.Pod) []string {
		return woken(t, func(ctx context.Context, q queue) { h.Delete(ctx, event.TypedDeleteEvent[*corev1.Pod]{Object: p}, q) })
	}
	changed := func(old, p *corev1.Pod) []string {
		return woken(t, func(ctx context.Context, q queue) {
			h.Update(ctx, event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: old, ObjectNew: p}, q)
		})
	}
	assert.Equal(t, []string{"db"}, created(pod("db-0", "db", "db")), "an owner, whatever the version of its reference")
	assert.Equal(t, []string{"db"}, created(pod("db-0", "db", "")), "an orphan that fits")
	assert.Empty(t, created(pod("db-0", "other", "")), "an orphan that the selector does not match")
	assert.Empty(t, created(pod("db-x", "db", "")), "an orphan without an ordinal")
	assert.Empty(t, created(pod("mail-0", "db", "")), "an orphan of no set")
	assert.Empty(t, created(pod("db-0", "db", "apps")), "a Pod of a built-in StatefulSet")
	assert.Equal(t, []string{"db"}, deleted(pod("db-0", "x", "job")), "a name that becomes free")
	assert.Empty(t, deleted(pod("mail-0", "x", "job")))
	assert.Equal(t, []string{"db", "web"}, changed(pod("p-0", "db", "db"), pod("p-0", "db", "web")), "the former and the new owner")
	assert.Equal(t, []string{"db"}, changed(pod("p-0", "db", "db"), pod("p-0", "db", "")), "the former owner")
	assert.Equal(t, []string{"db"}, changed(pod("db-0", "x", ""), pod("db-0", "db", "")), "an orphan that fits now")
	assert.Empty(t, changed(pod("db-0", "db", "db"), pod("db-0", "db", "db")), "a resync")
}

func TestClaimEventsWakeTheirSet(t *testing.T) {
	db, other := bare("db"), bare("db-1")
	db.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate("data")}
	other.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate("data")}
	w := watches{sets: fake.NewClientBuilder().WithScheme(apitest.Scheme()).WithObjects(db, other).Build()}
	h := w.claims()
	claim := func(name string, edit func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := claimTemplate(name)
		c.Namespace = "shop"
		if edit != nil {
			edit(&c)
		}
		return &c
	}
	deleted := func(c *corev1.PersistentVolumeClaim) []string {
		return woken(t, func(ctx context.Context, q queue) {
			h.Delete(ctx, event.TypedDeleteEvent[*corev1.PersistentVolumeClaim]{Object: c}, q)
		})
	}
	assert.Equal(t, []string{"db"}, deleted(claim("data-db-0", nil)))
	assert.Equal(t, []string{"db-1"}, deleted(claim("data-db-1-0", nil)))
	assert.Equal(t, []string{"web"}, deleted(claim("x", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{"apps.kruise.io/owned-by-asts": "web"}
	})))
	assert.Empty(t, deleted(claim("mail-0", nil)))
	for name, edit := range map[string]func(*corev1.PersistentVolumeClaim){
		"ends":   func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(metav1.NewTime(t0)) },
		"owners": func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = []metav1.OwnerReference{{UID: "1"}} },
		"expands": func(c *corev1.PersistentVolumeClaim) {
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "Resizing"}}
		},
		"nothing": nil,
	} {
		got := woken(t, func(ctx context.Context, q queue) {
			h.Update(ctx, event.TypedUpdateEvent[*corev1.PersistentVolumeClaim]{ObjectOld: claim("data-db-0", nil), ObjectNew: claim("data-db-0", edit)}, q)
		})
		assert.Equal(t, name != "nothing", len(got) > 0, name)
	}
}

func TestStorageClassesWakeSetsThatMayWaitForThem(t *testing.T) {
	grows, stays := sized("1Gi"), bare("web")
	stays.Spec.VolumeClaimTemplates = grows.Spec.VolumeClaimTemplates
	reader := fake.NewClientBuilder().WithScheme(apitest.Scheme()).WithObjects(grows, stays).Build()
	h := watches{sets: reader, gates: plan.Gates{AutoResizePVC: true}}.classes()
	changed := func(old, now bool) []string {
		return woken(t, func(ctx context.Context, q queue) {
			h.Update(ctx, event.TypedUpdateEvent[*storagev1.StorageClass]{ObjectOld: class(old), ObjectNew: class(now)}, q)
		})
	}
	created := func(c *storagev1.StorageClass, initial bool) []string {
		return woken(t, func(ctx context.Context, q queue) {
			h.Create(ctx, event.TypedCreateEvent[*storagev1.StorageClass]{Object: c, IsInInitialList: initial}, q)
		})
	}
	assert.Equal(t, []string{"db"}, changed(false, true))
	assert.Empty(t, changed(true, true))
	assert.Empty(t, changed(true, false))
	assert.Equal(t, []string{"db"}, created(class(true), false))
	assert.Empty(t, created(class(false), false))
	assert.Empty(t, created(class(true), true), "at the start every set is looked at anyway")
}

func TestMergeReplacesAndAddsInOrder(t *testing.T) {
	pod := func(name, rv string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rv}}
	}
	got := merge([]*corev1.Pod{pod("b", "1"), pod("a", "1")}, map[string]*corev1.Pod{"c": pod("c", "2"), "b": pod("b", "2")})
	var text []string
	for _, p := range got {
		text = append(text, p.Name+p.ResourceVersion)
	}
	assert.Equal(t, []string{"a1", "b2", "c2"}, text)
}

func TestMessagesOfConditions(t *testing.T) {
	assert.Empty(t, message("create", nil))
	assert.Equal(t, "StatefulPodControl failed to create Pod error: boom", message("create", errors.New("boom")))
	assert.Less(t, len(message("update", errors.New(string(make([]byte, 5000))))), 1100)
}

func parsed(text string) *intstr.IntOrString { return new(intstr.FromString(text)) }

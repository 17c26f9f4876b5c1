// SPDX-License-Identifier: Apache-2.0

package owned_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/owned"
)

var (
	kind = v1beta1.GroupVersion.WithKind("CloneSet")
	web  = types.NamespacedName{Namespace: "shop", Name: "web"}
)

func ownedBy(uid types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: uid, Controller: new(true)}}
	}
}

func orphan(p *corev1.Pod) { p.OwnerReferences = nil }

func TestControllerOfComparesGroupAndKindOnly(t *testing.T) {
	owner := func(apiVersion, kind string, controller bool) *corev1.Pod {
		p := fixture.Pod("a").Obj()
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", Controller: &controller}}
		return p
	}
	cases := map[string]struct {
		pod  *corev1.Pod
		want types.NamespacedName
	}{
		"ours":                           {owner("apps.kruise.io/v1beta1", "CloneSet", true), web},
		"as earlier releases wrote it":   {owner("apps.kruise.io/v1alpha1", "CloneSet", true), web},
		"another group":                  {owner("apps.example.com/v1", "CloneSet", true), types.NamespacedName{}},
		"another kind":                   {owner("apps.kruise.io/v1beta1", "StatefulSet", true), types.NamespacedName{}},
		"an owner that does not control": {owner("apps.kruise.io/v1beta1", "CloneSet", false), types.NamespacedName{}},
		"an orphan":                      {fixture.Pod("a").Obj(), types.NamespacedName{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := owned.ControllerOf(tc.pod, kind.GroupKind())
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.want.Name != "", ok)
		})
	}
}

func TestOnlyCertainFailuresCancelExpectations(t *testing.T) {
	pods := corev1.Resource("pods")
	assert.True(t, owned.Certainly(apierrors.NewForbidden(pods, "a", errors.New("quota"))))
	assert.True(t, owned.Certainly(apierrors.NewAlreadyExists(pods, "a")))
	assert.False(t, owned.Certainly(apierrors.NewTimeoutError("slow", 1)))
	assert.False(t, owned.Certainly(apierrors.NewServerTimeout(pods, "create", 1)))
	assert.False(t, owned.Certainly(apierrors.NewInternalError(errors.New("etcd"))))
	assert.False(t, owned.Certainly(errors.New("connection reset by peer")))
}

// The API server names the cause beside the reason Forbidden; the reason alone also
// stands for a quota or a policy, which a retry may find changed.
func TestOnlyATerminatingNamespaceEndsCreation(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-abcde", errors.New("because it is being terminated"))
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-abcde", errors.New("exceeded quota"))
	forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	assert.True(t, owned.NamespaceEnds(errors.Join(nil, fmt.Errorf("creating Pod web-abcde: %w", forbidden))))
	assert.False(t, owned.NamespaceEnds(errors.Join(quota)))
	assert.False(t, owned.NamespaceEnds(nil))
}

func TestJudge(t *testing.T) {
	set := fixture.CloneSet("web")
	pod := fixture.PodOf(set, "a")
	ending := set.With(func(c *v1beta1.CloneSet) { c.DeletionTimestamp = &metav1.Time{Time: fixture.Created} })
	strange := pod.Label("app", "db")
	cases := map[string]struct {
		set  fixture.CloneSetBuilder
		pod  fixture.PodBuilder
		want owned.Verdict
	}{
		"its own": {set, pod, owned.Keep},
		"its own that the selector does not match": {set, strange, owned.Release},
		"its own of another name":                  {set, pod.With(func(p *corev1.Pod) { p.Name = "db-a" }), owned.Release},
		"another's":                                {set, pod.With(ownedBy("uid-other")), owned.Ignore},
		"an orphan that fits":                      {set, pod.With(orphan), owned.Adopt},
		"an orphan that does not fit":              {set, strange.With(orphan), owned.Ignore},
		"a terminating orphan":                     {set, pod.With(orphan).Terminating(fixture.Created), owned.Ignore},
		"an orphan, while the workload ends":       {ending, pod.With(orphan), owned.Ignore},
		"its own, while the workload ends":         {ending, pod, owned.Keep},
		"a stranger, while the workload ends":      {ending, strange, owned.Ignore},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := owned.Claimer{Owner: tc.set.Obj(), Kind: kind, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
				Fits: func(o client.Object) bool { return o.GetName() != "db-a" }}
			assert.Equal(t, tc.want, c.Judge(tc.pod.Obj()))
		})
	}
}

type world struct {
	owned.Writer
	clock *clocktesting.FakePassiveClock
}

func newWorld(t *testing.T, f interceptor.Funcs, objects ...client.Object) world {
	t.Helper()
	c := clocktesting.NewFakePassiveClock(fixture.Created)
	cl := fake.NewClientBuilder().WithScheme(apitest.Scheme()).WithObjects(objects...).WithInterceptorFuncs(f).Build()
	return world{owned.Writer{Client: cl, Tracker: expectation.NewTracker(c, time.Minute, nil)}, c}
}

func (w world) pending(t *testing.T, cached ...*corev1.Pod) []expectation.Object {
	t.Helper()
	stale := fake.NewClientBuilder().WithScheme(apitest.Scheme()).Build()
	return w.Tracker.Satisfied(t.Context(), web, owned.Lookup(t.Context(), stale, "shop", func(l owned.Listed) { owned.List(l, cached) }), owned.Read(w.Client, "shop")).Objects
}

func TestClaimAdoptsOnlyForALivingOwner(t *testing.T) {
	set, pod := fixture.CloneSet("web").Obj(), fixture.PodOf(fixture.CloneSet("web"), "a").With(orphan).Obj()
	claimer := func(w world) *owned.Claimer {
		return &owned.Claimer{Writer: w.Writer, Live: w.Client, Owner: set, Kind: kind, Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}
	}
	t.Run("it lives", func(t *testing.T) {
		w := newWorld(t, interceptor.Funcs{}, set.DeepCopy(), pod.DeepCopy())
		stored := &corev1.Pod{}
		require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), stored))
		got, err := claimer(w).Claim(t.Context(), stored)
		require.NoError(t, err)
		assert.Equal(t, set.UID, metav1.GetControllerOf(got).UID)
		assert.Empty(t, stored.OwnerReferences, "what was read is only read")
		assert.Len(t, w.pending(t, stored), 1, "the cache must show the adoption")
		assert.Empty(t, w.pending(t, got.(*corev1.Pod)))
	})
	t.Run("another has its name", func(t *testing.T) {
		other := set.DeepCopy()
		other.UID = "uid-later"
		w := newWorld(t, interceptor.Funcs{}, other, pod.DeepCopy())
		got, err := claimer(w).Claim(t.Context(), pod)
		require.NoError(t, err)
		assert.Nil(t, got)
	})
	t.Run("it is gone", func(t *testing.T) {
		w := newWorld(t, interceptor.Funcs{}, pod.DeepCopy())
		got, err := claimer(w).Claim(t.Context(), pod)
		require.NoError(t, err)
		assert.Nil(t, got)
	})
}

func TestClaimReleases(t *testing.T) {
	set := fixture.CloneSet("web").Obj()
	w := newWorld(t, interceptor.Funcs{}, fixture.PodOf(fixture.CloneSet("web"), "a").Label("app", "db").With(func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "uid-n"})
	}).Obj())
	pod := &corev1.Pod{}
	require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "a"}, pod))
	c := &owned.Claimer{Writer: w.Writer, Live: w.Client, Owner: set, Kind: kind, Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}
	got, err := c.Claim(t.Context(), pod)
	require.NoError(t, err)
	assert.Nil(t, got)
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.Len(t, pod.OwnerReferences, 1, "other owners stay")
	assert.Equal(t, types.UID("uid-n"), pod.OwnerReferences[0].UID)
	require.NoError(t, w.Client.Delete(t.Context(), pod))
	gone, err := w.Release(t.Context(), web, pod, set.UID)
	require.NoError(t, err, "a Pod that is gone needs no release")
	assert.Nil(t, gone)
}

func TestWriterLeavesExpectations(t *testing.T) {
	lost := errors.New("connection reset by peer")
	var answer error
	w := newWorld(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if answer != nil {
			return answer
		}
		return c.Create(ctx, o, opts...)
	}})
	pod := func() *corev1.Pod { p := fixture.Pod("a").Obj(); p.ResourceVersion = ""; return p }

	answer = apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("quota"))
	require.Error(t, w.Create(t.Context(), web, pod()))
	assert.Empty(t, w.pending(t), "it certainly was not created")

	answer = lost
	require.ErrorIs(t, w.Create(t.Context(), web, pod()), lost)
	assert.Len(t, w.pending(t), 1, "it may have been created")

	answer = nil
	made := pod()
	require.NoError(t, w.Create(t.Context(), web, made))
	assert.Len(t, w.pending(t), 1)
	assert.Empty(t, w.pending(t, made))

	stale := made.DeepCopy()
	stale.ResourceVersion = "1"
	made.Labels["x"] = "y"
	require.NoError(t, w.Client.Update(t.Context(), made))
	require.True(t, apierrors.IsConflict(w.DeleteVersion(t.Context(), web, stale)))
	assert.Empty(t, w.pending(t, made), "it was not deleted")
	require.NoError(t, w.DeleteVersion(t.Context(), web, made))
	assert.Len(t, w.pending(t, made), 1, "the cache still has it")
	assert.Empty(t, w.pending(t))
	require.NoError(t, w.Delete(t.Context(), web, made), "gone already")
}

func TestHandlerWakesOwners(t *testing.T) {
	mine := fixture.PodOf(fixture.CloneSet("web"), "a").Obj()
	next := func(change func(*corev1.Pod)) *corev1.Pod {
		p := mine.DeepCopy()
		p.ResourceVersion += "1"
		change(p)
		return p
	}
	other := next(func(p *corev1.Pod) { p.OwnerReferences[0].Name = "api" })
	cases := map[string]struct {
		old, pod *corev1.Pod
		changed  bool
		want     []string
	}{
		"a change that matters":      {mine, next(func(*corev1.Pod) {}), true, []string{"web"}},
		"a change that does not":     {mine, next(func(*corev1.Pod) {}), false, nil},
		"a resync":                   {mine, mine, true, nil},
		"a release":                  {mine, next(orphan), false, []string{"web"}},
		"a change of owner":          {mine, other, false, []string{"web", "api"}},
		"an adoption":                {next(orphan), mine, false, []string{"web"}},
		"a Pod that nobody controls": {next(orphan), fixture.Pod("x").Obj(), true, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer q.ShutDown()
			h := owned.Handler(kind.GroupKind(), func(_, _ *corev1.Pod) bool { return tc.changed })
			h.Update(t.Context(), event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: tc.old, ObjectNew: tc.pod}, q)
			var got []string
			for q.Len() > 0 {
				r, _ := q.Get()
				got = append(got, r.Name)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

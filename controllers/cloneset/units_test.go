// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

func TestSlowStart(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		n, limit int
		patience patience
		fails    []int
		calls    int
		errs     int
	}{
		"nothing to do":                             {0, 8, stopAtFirst, nil, 0, 0},
		"all succeed":                               {20, 8, stopAtFirst, nil, 20, 0},
		"the first call fails":                      {20, 8, stopAtFirst, []int{0}, 1, 1},
		"a call of the third batch fails":           {20, 8, stopAtFirst, []int{4}, 7, 1},
		"one failure of many goes on":               {20, 8, stopAtAll, []int{4}, 20, 1},
		"a batch that fails altogether ends it":     {20, 8, stopAtAll, []int{3, 4, 5, 6}, 7, 4},
		"what must be done for each is done anyway": {20, 8, neverStop, []int{0, 1, 2}, 20, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var calls []int
			running, most := 0, 0
			errs := slowStart(tc.n, tc.limit, tc.patience, func(i int) error {
				mu.Lock()
				calls = append(calls, i)
				running++
				most = max(most, running)
				mu.Unlock()
				defer func() { mu.Lock(); running--; mu.Unlock() }()
				if slices.Contains(tc.fails, i) {
					return boom
				}
				return nil
			})
			assert.Len(t, calls, tc.calls)
			assert.Len(t, errs, tc.errs)
			assert.LessOrEqual(t, most, tc.limit)
		})
	}
}

func TestOwnerOfComparesGroupAndKindOnly(t *testing.T) {
	owner := func(apiVersion, kind string, controller bool) *corev1.Pod {
		p := fixture.Pod("a").Obj()
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", Controller: &controller}}
		return p
	}
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
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
			got, ok := ownerOf(tc.pod)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.want.Name != "", ok)
		})
	}
}

func TestPodChangedKeepsWhatCanMatter(t *testing.T) {
	settled := fixture.PodOf(fixture.CloneSet("web"), "a")
	updating := settled.State(v1beta1.LifecycleUpdating)
	later := fixture.Created.Add(time.Minute)
	restarted := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }
	cases := map[string]struct {
		old, pod fixture.PodBuilder
		want     bool
	}{
		"an annotation of a settled Pod": {settled, settled.Annotation("x", "y"), false},
		"a restart of a settled Pod":     {settled, settled.With(restarted), false},
		"a label":                        {settled, settled.Label("x", "y"), true},
		"a finalizer":                    {settled, settled.With(func(p *corev1.Pod) { p.Finalizers = []string{"a/b"} }), true},
		"a spec":                         {settled, settled.With(func(p *corev1.Pod) { p.Generation++ }), true},
		"readiness":                      {settled, settled.NotReady(later), true},
		"an evicted Pod":                 {settled, settled.Phase(corev1.PodFailed), true},
		"termination":                    {settled, settled.Terminating(later), true},
		"scheduling":                     {settled.Node(""), settled, true},
		"a restart during an update":     {updating, updating.With(restarted), true},
		"a Pod that has no condition of ours yet": {
			fixture.Pod("b"), fixture.Pod("b").Annotation("x", "y"), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, podChanged(true)(tc.old.Obj(), tc.pod.Obj()))
			assert.True(t, podChanged(false)(tc.old.Obj(), tc.pod.Obj()))
		})
	}
}

func TestNewPodAndClaims(t *testing.T) {
	b := fixture.CloneSet("web").Claim("logs", "1Gi").Claim("data", "2Gi").TemplateLabel("tier", "front").With(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Annotations = map[string]string{"note": "n"}
		c.Spec.Template.Finalizers = []string{"example.com/drain"}
		c.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "own"}}
		c.Spec.VolumeClaimTemplates[0].Labels = map[string]string{"disk": "slow"}
	})
	set, rev := b.Obj(), fixture.Revision(b, 1)
	snap := &snapshot{Snapshot: plan.Snapshot{Set: set, Update: rev, Current: rev, Gates: plan.Gates{ShortHash: true}}}
	before := set.DeepCopy()
	pod := newPod(snap, &set.Spec.Template, rev, "abcde", fixture.Created)
	text, err := yaml.Marshal(pod)
	assert.NoError(t, err)
	hash := rev.Labels["controller.kubernetes.io/hash"]
	want := `metadata:
  annotations:
    lifecycle.apps.kruise.io/timestamp: "2026-01-02T03:04:05Z"
    note: "n"
  finalizers:
  - example.com/drain
  generateName: web-
  labels:
    app: web
    apps.kruise.io/cloneset-instance-id: abcde
    controller-revision-hash: ` + hash + `
    lifecycle.apps.kruise.io/state: PreparingNormal
    pod-template-hash: ` + hash + `
    tier: front
  name: web-abcde
  namespace: shop
  ownerReferences:
  - apiVersion: apps.kruise.io/v1beta1
    blockOwnerDeletion: true
    controller: true
    kind: CloneSet
    name: web
    uid: uid-web
spec:
  containers:
  - image: app:1
    imagePullPolicy: Always
    name: app
    resources: {}
  readinessGates:
  - conditionType: InPlaceUpdateReady
  volumes:
  - name: own
  - name: logs
    persistentVolumeClaim:
      claimName: logs-web-abcde
  - name: data
    persistentVolumeClaim:
      claimName: data-web-abcde
status: {}
`
	assert.Empty(t, cmp.Diff(want, string(text)))
	assert.Empty(t, cmp.Diff(before, set), "the set is only read")

	claims := newClaims(snap, "abcde")
	assert.Equal(t, "logs-web-abcde", claims[0].Name)
	assert.Equal(t, map[string]string{"app": "web", "apps.kruise.io/cloneset-instance-id": "abcde", "disk": "slow"}, claims[0].Labels)
	assert.Equal(t, "CloneSet", claims[0].OwnerReferences[0].Kind)
}

func TestInstanceIDsAreFreeSortedAndUnique(t *testing.T) {
	draws := []string{"taken", "zzzzz", "claim", "zzzzz", "aaaaa"}
	r := &Reconciler{newID: func() string { id := draws[0]; draws = draws[1:]; return id }}
	snap := &snapshot{
		Snapshot: plan.Snapshot{Set: fixture.CloneSet("web").Obj(), Claims: []*corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"apps.kruise.io/cloneset-instance-id": "claim"}}},
		}},
		pods: map[string]*corev1.Pod{"web-taken": nil},
	}
	assert.Equal(t, []string{"aaaaa", "mmmmm", "zzzzz"}, r.instanceIDs(snap, []string{"mmmmm"}, 3))
}

func TestOnlyCertainFailuresCancelExpectations(t *testing.T) {
	pods := corev1.Resource("pods")
	assert.True(t, certainly(apierrors.NewForbidden(pods, "a", errors.New("quota"))))
	assert.True(t, certainly(apierrors.NewAlreadyExists(pods, "a")))
	assert.False(t, certainly(apierrors.NewTimeoutError("slow", 1)))
	assert.False(t, certainly(apierrors.NewServerTimeout(pods, "create", 1)))
	assert.False(t, certainly(apierrors.NewInternalError(errors.New("etcd"))))
	assert.False(t, certainly(errors.New("connection reset by peer")))
}

func TestSoonest(t *testing.T) {
	assert.Zero(t, soonest())
	assert.Zero(t, soonest(0, 0))
	assert.Equal(t, time.Second, soonest(0, time.Minute, time.Second))
}

func TestLongMessagesAreCut(t *testing.T) {
	assert.Empty(t, message(nil))
	assert.Less(t, len(message(errors.New(string(make([]byte, 5000))))), 1100)
}

// The API server names the cause beside the reason Forbidden; the reason alone also
// stands for a quota or a policy, which a retry may find changed.
func TestOnlyATerminatingNamespaceEndsCreation(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-abcde", errors.New("because it is being terminated"))
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-abcde", errors.New("exceeded quota"))
	forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	assert.True(t, namespaceEnds(errors.Join(nil, fmt.Errorf("creating Pod web-abcde: %w", forbidden))))
	assert.False(t, namespaceEnds(errors.Join(quota)))
	assert.False(t, namespaceEnds(nil))
}

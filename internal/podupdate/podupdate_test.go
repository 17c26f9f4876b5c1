// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/podready"
)

const (
	stateLabel = "lifecycle.apps.kruise.io/state"
	graceKey   = "apps.kruise.io/inplace-update-grace"
	stateKey   = "apps.kruise.io/inplace-update-state"
)

var (
	target = &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "web-2"}}
	app2   = &inplace.UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"app": "app:2"}}
)

func state(s string) Mutation {
	return func(p *corev1.Pod) { p.Labels[stateLabel] = s }
}

func start(t testing.TB, s *server, cached *corev1.Pod, spec *inplace.UpdateSpec, o inplace.Options) *corev1.Pod {
	t.Helper()
	before := cached.DeepCopy()
	got, _, err := s.updater().Start(t.Context(), cached, spec, target, o, state("Updating"))
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(before, cached) {
		t.Error("the cached Pod was changed")
	}
	if got.ResourceVersion != s.pod.ResourceVersion {
		t.Errorf("the Pod returned is version %s, the server has %s", got.ResourceVersion, s.pod.ResourceVersion)
	}
	return got
}

func TestOneBatchCostsThreeWritesAndNoRead(t *testing.T) {
	s := &server{pod: readyPod("app")}
	start(t, s, s.pod.DeepCopy(), app2, inplace.Options{})
	if s.pod.Spec.Containers[0].Image != "app:2" || s.pod.Labels["controller-revision-hash"] != "web-2" || s.pod.Labels[stateLabel] != "Updating" ||
		s.condition("InPlaceUpdateReady") != "False" || s.condition("Ready") != "False" || s.pod.Annotations[stateKey] == "" {
		t.Errorf("after Start the Pod is %v", s.pod)
	}

	res, err := s.updater().Refresh(t.Context(), s.pod.DeepCopy(), inplace.Options{}, state("Normal"))
	if err != nil || res.Changed || res.Complete || len(res.Waiting) != 1 {
		t.Errorf("Refresh() = %+v, %v while the container has not changed", res, err)
	}
	s.ran()
	res, err = s.updater().Refresh(t.Context(), s.pod.DeepCopy(), inplace.Options{}, state("Normal"))
	if err != nil || !res.Changed || !res.Complete || res.Pod.ResourceVersion != s.pod.ResourceVersion {
		t.Errorf("Refresh() = %+v, %v", res, err)
	}
	if s.condition("InPlaceUpdateReady") != "True" || s.pod.Labels[stateLabel] != "Normal" {
		t.Errorf("at the end the Pod is %v", s.pod)
	}
	s.wantRequests(t, "status", "pods", "status")
	if s.writes != 3 || s.reads != 0 {
		t.Errorf("%d writes and %d reads, want 3 and 0", s.writes, s.reads)
	}

	res, err = s.updater().Refresh(t.Context(), s.pod.DeepCopy(), inplace.Options{}, state("Normal"))
	if err != nil || res.Changed || !res.Complete {
		t.Errorf("Refresh() = %+v, %v on a settled Pod", res, err)
	}
	s.wantRequests(t)
}

func TestLabelsThatTheStatusDoesNotTakeFollow(t *testing.T) {
	s := &server{pod: readyPod("app"), statusOnly: true}
	start(t, s, s.pod.DeepCopy(), app2, inplace.Options{})
	s.ran()
	res, err := s.updater().Refresh(t.Context(), s.pod.DeepCopy(), inplace.Options{}, state("Normal"))
	if err != nil || s.pod.Labels[stateLabel] != "Normal" || s.condition("InPlaceUpdateReady") != "True" || res.Pod.ResourceVersion != s.pod.ResourceVersion {
		t.Errorf("Refresh() = %+v, %v; the Pod is %v", res, err, s.pod)
	}
	s.wantRequests(t, "status", "pods", "status", "pods")
}

func TestAStaleCacheNeverSkipsTheDrain(t *testing.T) {
	stale := readyPod("app") // the cache still has the Pod as it was during the update before
	stale.Status.Conditions[0].Status = corev1.ConditionFalse
	s := &server{pod: readyPod("app")}
	s.pod.ResourceVersion = "11"
	s.before = func(int) {
		if s.requests[len(s.requests)-1] == "pods" && s.condition("InPlaceUpdateReady") != "False" {
			t.Error("the spec is written while the Pod is ready")
		}
	}
	start(t, s, stale, app2, inplace.Options{})
	s.wantRequests(t, "status", "status", "pods")
	if s.reads != 1 || s.condition("InPlaceUpdateReady") != "False" {
		t.Errorf("%d reads, the Pod is %v", s.reads, s.pod)
	}
}

func TestANotReadyPodIsConfirmedToBeSo(t *testing.T) {
	s := &server{pod: readyPod("app")}
	s.pod.Status.Conditions[0].Status = corev1.ConditionFalse
	s.pod.Status.Conditions[3].Status = corev1.ConditionFalse
	start(t, s, s.pod.DeepCopy(), app2, inplace.Options{})
	s.wantRequests(t, "status", "pods") // the first changes nothing on the server
	if s.writes != 1 {
		t.Errorf("%d writes, want 1", s.writes)
	}
}

func TestAConflictStartsOverWithTheLivePod(t *testing.T) {
	s := &server{pod: readyPod("app")}
	s.before = func(n int) {
		if n == 2 { // between not ready and the spec, an old leader makes the Pod ready again
			s.touch(func(p *corev1.Pod) {
				p.Status.Conditions[0].Status = corev1.ConditionTrue
				p.Labels["added"] = "meanwhile"
			})
		}
	}
	start(t, s, s.pod.DeepCopy(), app2, inplace.Options{})
	s.wantRequests(t, "status", "pods", "status", "pods")
	if s.condition("InPlaceUpdateReady") != "False" || s.pod.Labels["added"] != "meanwhile" || s.reads != 1 {
		t.Errorf("%d reads; the Pod is %v", s.reads, s.pod)
	}
}

func TestOnceWritesOnlyToTheVersionGiven(t *testing.T) {
	s := &server{pod: readyPod("app")}
	stale := s.pod.DeepCopy()
	s.touch(func(p *corev1.Pod) { p.Labels["added"] = "meanwhile" })
	before := s.pod.DeepCopy()
	if _, _, err := s.updater().Once().Start(t.Context(), stale, app2, target, inplace.Options{}); !apierrors.IsConflict(err) {
		t.Errorf("Start() = %v", err)
	}
	if _, err := s.updater().Once().Patch(t.Context(), stale, state("PreparingDelete")); !apierrors.IsConflict(err) {
		t.Errorf("Patch() = %v", err)
	}
	if !equality.Semantic.DeepEqual(before, s.pod) || s.reads != 0 {
		t.Errorf("%d reads; the Pod is %v", s.reads, s.pod)
	}
	// Once it is out of service the kubelet writes that, and the update goes on.
	s.requests = nil
	s.before = func(n int) {
		if n == 2 {
			s.touch(func(p *corev1.Pod) { p.Labels["added"] = "again" })
		}
	}
	if _, _, err := s.updater().Once().Start(t.Context(), s.pod.DeepCopy(), app2, target, inplace.Options{}); err != nil {
		t.Error(err)
	}
	s.wantRequests(t, "status", "pods", "status", "pods")
}

func TestConflictsForEverEndInAConflict(t *testing.T) {
	s := &server{pod: readyPod("app")}
	s.before = func(int) { s.touch(func(*corev1.Pod) {}) }
	_, _, err := s.updater().Start(t.Context(), s.pod.DeepCopy(), app2, target, inplace.Options{})
	if !apierrors.IsConflict(err) || len(s.requests) != attempts {
		t.Errorf("Start() = %v after %d requests", err, len(s.requests))
	}
}

func TestReadyIsTriedOnceOnTheVersionChecked(t *testing.T) {
	s := &server{pod: readyPod("app")}
	start(t, s, s.pod.DeepCopy(), app2, inplace.Options{})
	s.ran()
	checked := s.pod.DeepCopy()
	// Another update begins before the ready write arrives.
	start(t, s, s.pod.DeepCopy(), &inplace.UpdateSpec{Revision: "web-3", ContainerImages: map[string]string{"app": "app:3"}}, inplace.Options{})
	s.requests = nil
	res, err := s.updater().Refresh(t.Context(), checked, inplace.Options{}, state("Normal"))
	if !apierrors.IsConflict(err) || res.Complete {
		t.Errorf("Refresh() = %+v, %v, want a conflict", res, err)
	}
	s.wantRequests(t, "status")
	if s.condition("InPlaceUpdateReady") != "False" || s.pod.Labels[stateLabel] != "Updating" || s.reads != 0 {
		t.Errorf("a Pod in its next update was made ready: %v", s.pod)
	}
}

func TestRefreshOfNewAndUngatedPods(t *testing.T) {
	s := &server{pod: readyPod("app")}
	s.pod.Status.Conditions = nil
	if _, err := s.updater().Refresh(t.Context(), s.pod.DeepCopy(), inplace.Options{}); err != nil || s.condition("InPlaceUpdateReady") != "True" {
		t.Errorf("a new Pod: %v, %v", err, s.pod)
	}
	s.wantRequests(t, "status")

	s = &server{pod: readyPod("app")}
	s.pod.Spec.ReadinessGates = nil
	start(t, s, s.pod.DeepCopy(), app2, inplace.Options{})
	s.ran()
	if _, err := s.updater().Refresh(t.Context(), s.pod.DeepCopy(), inplace.Options{}, state("Normal")); err != nil || s.pod.Labels[stateLabel] != "Normal" {
		t.Errorf("a Pod without the gate: %v, %v", err, s.pod)
	}
	s.wantRequests(t, "pods", "pods")
}

func TestGracePeriod(t *testing.T) {
	s := &server{pod: readyPod("app")}
	spec := *app2
	spec.GraceSeconds = 30
	u := s.updater()
	_, requeue, err := u.Start(t.Context(), s.pod.DeepCopy(), &spec, target, inplace.Options{}, state("Updating"))
	if err != nil || requeue != 30*time.Second || s.pod.Spec.Containers[0].Image != "app:1" || s.pod.Annotations[graceKey] == "" {
		t.Fatalf("Start() = %s, %v; the Pod is %v", requeue, err, s.pod)
	}
	s.wantRequests(t, "status", "pods")
	res, err := u.Refresh(t.Context(), s.pod.DeepCopy(), inplace.Options{}, state("Normal"))
	if err != nil || res.RequeueAfter != 30*time.Second || res.Waiting[0].Message != "grace period ends in 30s" {
		t.Errorf("Refresh() = %+v, %v", res, err)
	}

	moved := &server{pod: s.pod.DeepCopy()}
	moved.pod.Labels["controller-revision-hash"] = "web-9"
	if _, err := moved.updater().Refresh(t.Context(), moved.pod.DeepCopy(), inplace.Options{}); err != nil || moved.pod.Annotations[graceKey] != "" || moved.pod.Spec.Containers[0].Image != "app:1" {
		t.Errorf("moved to another revision: %v, %v", err, moved.pod)
	}

	u.Clock = clocktesting.NewFakePassiveClock(t0.Add(30 * time.Second))
	stale := s.pod.DeepCopy()
	s.touch(func(p *corev1.Pod) { p.Labels["added"] = "meanwhile" })
	res, err = u.Refresh(t.Context(), stale, inplace.Options{}, state("Normal"))
	if err != nil || !res.Changed || res.Complete || s.pod.Spec.Containers[0].Image != "app:2" || s.pod.Annotations[graceKey] != "" || s.pod.Labels["added"] == "" {
		t.Errorf("Refresh() = %+v, %v; the Pod is %v", res, err, s.pod)
	}
	s.wantRequests(t, "pods", "pods")
}

func TestNextBatchReadsTheFreshState(t *testing.T) {
	s := &server{pod: readyPod("app", "redis")}
	for i, key := range []string{"p_0", "p_10"} {
		s.pod.Spec.Containers[i].Env = []corev1.EnvVar{{Name: "KRUISE_CONTAINER_BARRIER", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: key}}}}
	}
	start(t, s, s.pod.DeepCopy(), &inplace.UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"app": "app:2", "redis": "redis:2"}}, inplace.Options{})
	s.ran()
	stale := s.pod.DeepCopy()
	// The live Pod is already at another update, which wants app:3.
	start(t, s, s.pod.DeepCopy(), &inplace.UpdateSpec{Revision: "web-3", ContainerImages: map[string]string{"app": "app:3", "redis": "redis:3"}}, inplace.Options{})
	s.requests = nil
	res, err := s.updater().Refresh(t.Context(), stale, inplace.Options{})
	if err != nil || len(res.Waiting) == 0 {
		t.Errorf("Refresh() = %+v, %v, want it to wait for redis:3", res, err)
	}
	s.wantRequests(t, "pods") // refused, and not repeated
	if got := s.pod.Spec.Containers[0].Image; got != "app:1" {
		t.Errorf("app is %s", got)
	}
}

func resizing() (*server, *inplace.UpdateSpec, inplace.Options) {
	s := &server{pod: readyPod("app")}
	s.pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}
	spec := &inplace.UpdateSpec{
		Revision:           "web-2",
		ContainerImages:    map[string]string{"app": "app:2"},
		ContainerResources: map[string]corev1.ResourceRequirements{"app": {Requests: corev1.ResourceList{"cpu": resource.MustParse("200m")}}},
	}
	return s, spec, inplace.Options{VerticalScaling: true, ResizeSubresource: true}
}

func TestResizeGoesFirst(t *testing.T) {
	s, spec, o := resizing()
	start(t, s, s.pod.DeepCopy(), spec, o)
	s.wantRequests(t, "try resize", "status", "resize", "pods")
	c := s.pod.Spec.Containers[0]
	if c.Image != "app:2" || c.Resources.Requests.Cpu().String() != "200m" || c.Resources.Requests.Memory().String() != "1Gi" || s.reads != 0 {
		t.Errorf("the container is %v after %d reads", c, s.reads)
	}

	s, spec, o = resizing()
	spec.ContainerImages = nil // a resize alone needs no drain
	start(t, s, s.pod.DeepCopy(), spec, o)
	s.wantRequests(t, "resize", "pods")

	s, spec, o = resizing()
	o.ResizeSubresource = false
	start(t, s, s.pod.DeepCopy(), spec, o)
	s.wantRequests(t, "status", "pods")
	if got := s.pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "200m" {
		t.Errorf("cpu is %s", got)
	}
}

func TestABatchAfterTheGracePeriodResizesFirst(t *testing.T) {
	s, spec, o := resizing()
	spec.GraceSeconds = 10
	u := s.updater()
	if _, _, err := u.Start(t.Context(), s.pod.DeepCopy(), spec, target, o); err != nil {
		t.Fatal(err)
	}
	s.requests = nil
	u.Clock = clocktesting.NewFakePassiveClock(t0.Add(time.Minute))
	s.pod.Generation, s.pod.Status.ObservedGeneration = 2, 1 // the kubelet is behind, as after a resize
	if _, err := u.Refresh(t.Context(), s.pod.DeepCopy(), o); err != nil {
		t.Fatal(err)
	}
	s.wantRequests(t, "resize", "pods")
	if c := s.pod.Spec.Containers[0]; c.Image != "app:2" || c.Resources.Requests.Cpu().String() != "200m" {
		t.Errorf("the container is %v", c)
	}
}

func TestWhatTheServerWillNeverAcceptIsRejected(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-abcde", nil)
	noSubresource := apierrors.NewGenericServerResponse(404, "patch", corev1.Resource("pods"), "web-abcde", "", 0, true)
	quota := apierrors.NewForbidden(corev1.Resource("pods"), "web-abcde", errors.New("exceeded quota: q, requested: cpu=1"))
	permission := apierrors.NewForbidden(corev1.Resource("pods"), "web-abcde", errors.New(`User "x" cannot patch resource "pods/resize" in API group ""`))
	node := apierrors.NewForbidden(corev1.Resource("pods"), "web-abcde", errors.New("node didn't have enough allocatable resources: cpu"))
	cases := map[string]struct {
		refuse map[string]error
		gone   bool
		want   bool
	}{
		"an invalid resize":                {refuse: map[string]error{"resize": invalid}, want: true},
		"a server without pods/resize":     {refuse: map[string]error{"resize": noSubresource}, want: true},
		"a node that is too small":         {refuse: map[string]error{"resize": node}, want: true},
		"a Pod that is gone":               {refuse: map[string]error{"resize": notFound()}, gone: true},
		"a quota, which may be raised":     {refuse: map[string]error{"resize": quota}},
		"a permission, which may be given": {refuse: map[string]error{"resize": permission}},
		"an invalid Pod":                   {refuse: map[string]error{"pods": invalid}, want: true},
		"a Pod that may not be written":    {refuse: map[string]error{"pods": permission}},
		"a status that may not be written": {refuse: map[string]error{"status": permission}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, spec, o := resizing()
			cached := s.pod.DeepCopy()
			s.refuse = tc.refuse
			if tc.gone {
				s.before = func(n int) {
					if n == 1 {
						s.pod = nil
					}
				}
			}
			_, _, err := s.updater().Start(t.Context(), cached, spec, target, o)
			if err == nil || IsRejected(err) != tc.want || err.Error() == "" {
				t.Errorf("Start() = %v, rejected %t, want %t", err, IsRejected(err), tc.want)
			}
			if tc.gone && !apierrors.IsNotFound(err) {
				t.Errorf("Start() = %v, want not found", err)
			}
			if tc.refuse["resize"] != nil && s.writes > 0 {
				t.Errorf("the Pod was drained for a resize that was refused: %v", s.requests)
			}
		})
	}
}

func TestPodsThatAreGone(t *testing.T) {
	s := &server{pod: readyPod("app")}
	cached := s.pod.DeepCopy()
	s.pod = nil
	if _, _, err := s.updater().Start(t.Context(), cached, app2, target, inplace.Options{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleted: Start() = %v", err)
	}

	s = &server{pod: readyPod("app")}
	s.pod.UID, s.pod.ResourceVersion = types.UID("uid-2"), "20"
	if _, _, err := s.updater().Start(t.Context(), cached, app2, target, inplace.Options{}); !apierrors.IsNotFound(err) || s.writes > 0 {
		t.Errorf("replaced by another: Start() = %v after %d writes", err, s.writes)
	}

	s = &server{pod: readyPod("app")}
	terminating := s.pod.DeepCopy()
	terminating.DeletionTimestamp = new(metav1.NewTime(t0))
	if _, _, err := s.updater().Start(t.Context(), terminating, app2, target, inplace.Options{}); !apierrors.IsNotFound(err) || len(s.requests) > 0 {
		t.Errorf("terminating: Start() = %v after %v", err, s.requests)
	}
}

func TestUnreadableStateIsAnError(t *testing.T) {
	s := &server{pod: readyPod("app")}
	s.pod.Annotations = map[string]string{stateKey: "{"}
	if _, err := s.updater().Refresh(t.Context(), s.pod.DeepCopy(), inplace.Options{}); err == nil || len(s.requests) > 0 {
		t.Errorf("Refresh() = %v after %v", err, s.requests)
	}
	if _, _, err := s.updater().Start(t.Context(), s.pod.DeepCopy(), &inplace.UpdateSpec{Revision: "web-2", MetaDataPatch: []byte("[")}, target, inplace.Options{}); err == nil {
		t.Error("an unreadable metadata patch gives no error")
	}
}

func TestPatch(t *testing.T) {
	s := &server{pod: readyPod("app")}
	u := s.updater()
	hold := func(p *corev1.Pod) { podready.Hold(p, podready.PreDeleteHook, t0) }
	if _, err := u.Patch(t.Context(), s.pod.DeepCopy(), hold, state("PreparingDelete")); err != nil {
		t.Fatal(err)
	}
	s.wantRequests(t, "status") // label and hold in one
	if s.pod.Labels[stateLabel] != "PreparingDelete" || s.condition("KruisePodReady") != "False" {
		t.Errorf("the Pod is %v", s.pod)
	}
	if _, err := u.Patch(t.Context(), s.pod.DeepCopy(), hold, state("PreparingDelete")); err != nil {
		t.Fatal(err)
	}
	s.wantRequests(t)

	other := podready.Holder{UserAgent: "Test", Key: "x"}
	if _, err := u.Hold(t.Context(), s.pod.DeepCopy(), other); err != nil {
		t.Fatal(err)
	}
	stale := s.pod.DeepCopy()
	s.touch(func(p *corev1.Pod) { podready.Release(p, podready.PreDeleteHook, t0) })
	if _, err := u.Release(t.Context(), stale, other); err != nil || s.condition("KruisePodReady") != "True" {
		t.Errorf("Release() = %v; the Pod is %v", err, s.pod)
	}
	s.wantRequests(t, "status", "status", "status")

	finalizer := func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "example.com/hook") }
	if _, err := u.Patch(t.Context(), s.pod.DeepCopy(), finalizer, state("PreparingUpdate")); err != nil || len(s.pod.Finalizers) != 1 {
		t.Errorf("Patch() = %v; finalizers are %v", err, s.pod.Finalizers)
	}
	s.wantRequests(t, "pods")
}

// Whoever writes the Pod in between, and whenever: Start ends with the Pod drained and at
// the target, all of the update in it, and what others wrote still there.
func TestStartUnderAnyConflicts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, spec, o := resizing()
		var wrote []string
		s.before = func(n int) {
			if n > 8 || !rapid.Bool().Draw(rt, "somebody writes") || len(wrote) == attempts-1 {
				return
			}
			key := fmt.Sprint("k", n)
			wrote = append(wrote, key)
			s.touch(func(p *corev1.Pod) {
				p.Labels[key] = "x"
				if rapid.Bool().Draw(rt, "and makes it ready") {
					p.Status.Conditions[0].Status = corev1.ConditionTrue
				}
			})
		}
		cached := s.pod.DeepCopy()
		if rapid.Bool().Draw(rt, "the cache shows not ready") {
			cached.Status.Conditions[0].Status = corev1.ConditionFalse
			cached.ResourceVersion = "9"
			wrote = append(wrote, "")
		}
		if _, _, err := s.updater().Start(t.Context(), cached, spec, target, o, state("Updating")); err != nil {
			rt.Fatal(err)
		}
		c := s.pod.Spec.Containers[0]
		if c.Image != "app:2" || c.Resources.Requests.Cpu().String() != "200m" || s.condition("InPlaceUpdateReady") != "False" ||
			s.pod.Labels["controller-revision-hash"] != "web-2" || s.pod.Labels[stateLabel] != "Updating" {
			rt.Fatalf("the Pod is %v", s.pod)
		}
		for _, key := range slices.Sorted(slices.Values(wrote)) {
			if _, ok := s.pod.Labels[key]; !ok && key != "" {
				rt.Fatalf("label %s is lost: %v", key, maps.Clone(s.pod.Labels))
			}
		}
	})
}

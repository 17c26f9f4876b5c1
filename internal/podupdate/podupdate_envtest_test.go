// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package podupdate

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// recorder notes every request about a Pod: method and what it is about.
type recorder struct {
	mu       sync.Mutex
	requests []string
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		rest, ok := strings.CutPrefix(req.URL.Path, "/api/v1/namespaces/default/pods/")
		if !ok { // discovery
			return next.RoundTrip(req)
		}
		about := "pods"
		if _, sub, ok := strings.Cut(rest, "/"); ok {
			about = sub
		}
		if req.URL.Query().Has("dryRun") {
			about += " (trial)"
		}
		r.mu.Lock()
		r.requests = append(r.requests, req.Method+" "+about)
		r.mu.Unlock()
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (r *recorder) want(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.requests, want) {
		t.Errorf("requests are %q, want %q", r.requests, want)
	}
	r.requests = nil
}

// cluster is a real API server with a Pod whose kubelet the test plays.
type cluster struct {
	t       *testing.T
	kubelet client.Client // requests are not recorded
	rec     recorder
	updater *Updater
}

func newCluster(t *testing.T) *cluster {
	cfg := apitest.Start(t, apitest.WithoutCRDs())
	c := &cluster{t: t, kubelet: apitest.NewClient(t, cfg)}
	// The server looks at the node before it accepts a resize.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	if err := c.kubelet.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("99")}
	if err := c.kubelet.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	recorded := rest.CopyConfig(cfg)
	recorded.Wrap(c.rec.wrap)
	writer := apitest.NewClient(t, recorded)
	c.updater = &Updater{Client: writer, Live: writer, Clock: clock.RealClock{}}
	return c
}

// create makes a scheduled Pod with one container that runs and is ready.
func (c *cluster) create(name string) *corev1.Pod {
	c.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"controller-revision-hash": "web-1", stateLabel: "Normal"}},
		Spec: corev1.PodSpec{
			NodeName:       "node-1",
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "InPlaceUpdateReady"}, {ConditionType: "KruisePodReady"}},
			Containers: []corev1.Container{{Name: "app", Image: "app:1", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
			}}},
		},
	}
	if err := c.kubelet.Create(c.t.Context(), pod); err != nil {
		c.t.Fatal(err)
	}
	return c.run(pod, func(p *corev1.Pod) {
		for _, t := range []corev1.PodConditionType{"InPlaceUpdateReady", "KruisePodReady", "ContainersReady", "Ready"} {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue})
		}
	})
}

// run reports the container of the Pod's present spec as running.
func (c *cluster) run(pod *corev1.Pod, mutate ...Mutation) *corev1.Pod {
	c.t.Helper()
	pod = c.get(pod)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ObservedGeneration = pod.Generation
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{running(pod.Spec.Containers[0])}
	apply(pod, mutate)
	if err := c.kubelet.Status().Update(c.t.Context(), pod); err != nil {
		c.t.Fatal(err)
	}
	return c.get(pod)
}

func (c *cluster) get(pod *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	got := &corev1.Pod{}
	if err := c.kubelet.Get(c.t.Context(), client.ObjectKeyFromObject(pod), got); err != nil {
		c.t.Fatal(err)
	}
	return got
}

func condition(pod *corev1.Pod, t corev1.PodConditionType) corev1.ConditionStatus {
	if c := podready.Condition(pod, t); c != nil {
		return c.Status
	}
	return ""
}

func TestOnARealServer(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	o := inplace.Options{VerticalScaling: true, ResizeSubresource: true, EnvFromMetadata: true}

	t.Run("one batch costs three writes and no read", func(t *testing.T) {
		pod := c.create("three-writes")
		got, _, err := c.updater.Start(ctx, pod, app2, target, o, state("Updating"))
		if err != nil {
			t.Fatal(err)
		}
		if live := c.get(pod); live.ResourceVersion != got.ResourceVersion || live.Spec.Containers[0].Image != "app:2" || live.Generation != 2 ||
			condition(live, "InPlaceUpdateReady") != "False" || condition(live, "Ready") != "False" || live.Labels[stateLabel] != "Updating" {
			t.Errorf("after Start the Pod is %v", live)
		}
		res, err := c.updater.Refresh(ctx, got, o, state("Normal"))
		if err != nil || len(res.Waiting) != 1 || res.Waiting[0].Code != inplace.WaitKubelet {
			t.Errorf("Refresh() = %+v, %v", res, err)
		}
		res, err = c.updater.Refresh(ctx, c.run(pod), o, state("Normal"))
		if err != nil || !res.Complete {
			t.Errorf("Refresh() = %+v, %v", res, err)
		}
		if live := c.get(pod); live.ResourceVersion != res.Pod.ResourceVersion || condition(live, "InPlaceUpdateReady") != "True" || live.Labels[stateLabel] != "Normal" {
			t.Errorf("at the end the Pod is %v", live)
		}
		c.rec.want(t, "PATCH status", "PATCH pods", "PATCH status")
	})

	t.Run("an unchanged status is confirmed without a new version", func(t *testing.T) {
		pod := c.create("confirmed")
		fresh := c.run(pod, func(p *corev1.Pod) {
			podready.SetCondition(p, corev1.PodCondition{Type: "InPlaceUpdateReady", Status: corev1.ConditionFalse}, t0)
			podready.RecomputeReady(p, t0)
		})
		got, err := c.updater.patchStatus(ctx, fresh, inplace.NotReady(fresh, t0))
		if err != nil || got.ResourceVersion != fresh.ResourceVersion {
			t.Errorf("confirmed: %v, version %s", err, got.ResourceVersion)
		}
		stale := fresh.DeepCopy()
		c.run(pod, func(p *corev1.Pod) { podready.Condition(p, "InPlaceUpdateReady").Status = corev1.ConditionTrue })
		if _, err := c.updater.patchStatus(ctx, stale, inplace.NotReady(stale, t0)); !apierrors.IsConflict(err) {
			t.Errorf("a stale version that changes nothing gives %v, want a conflict", err)
		}
		c.rec.want(t, "PATCH status", "PATCH status")
		if _, _, err := c.updater.Start(ctx, stale, app2, target, o); err != nil {
			t.Fatal(err)
		}
		if live := c.get(pod); condition(live, "InPlaceUpdateReady") != "False" || condition(live, "Ready") != "False" {
			t.Errorf("updated while ready: %v", live)
		}
		c.rec.want(t, "PATCH status", "GET pods", "PATCH status", "PATCH pods")
	})

	t.Run("ready is refused for another version", func(t *testing.T) {
		pod := c.create("ready-once")
		if _, _, err := c.updater.Start(ctx, pod, app2, target, o); err != nil {
			t.Fatal(err)
		}
		checked := c.run(pod)
		if _, _, err := c.updater.Start(ctx, checked, &inplace.UpdateSpec{Revision: "web-3", ContainerImages: map[string]string{"app": "app:3"}}, target, o); err != nil {
			t.Fatal(err)
		}
		if _, err := c.updater.Refresh(ctx, checked, o, state("Normal")); !apierrors.IsConflict(err) {
			t.Errorf("Refresh() = %v, want a conflict", err)
		}
		if live := c.get(pod); condition(live, "InPlaceUpdateReady") != "False" {
			t.Errorf("made ready in its next update: %v", live)
		}
		c.rec.want(t, "PATCH status", "PATCH pods", "PATCH status", "PATCH pods", "PATCH status")
	})

	t.Run("resources go by the resize subresource", func(t *testing.T) {
		pod := c.create("resized")
		spec := &inplace.UpdateSpec{
			Revision:           "web-2",
			ContainerImages:    map[string]string{"app": "app:2"},
			ContainerResources: map[string]corev1.ResourceRequirements{"app": {Requests: corev1.ResourceList{"cpu": resource.MustParse("200m")}}},
		}
		got, _, err := c.updater.Start(ctx, pod, spec, target, o)
		if err != nil {
			t.Fatal(err)
		}
		r := got.Spec.Containers[0].Resources.Requests
		if got.Spec.Containers[0].Image != "app:2" || r.Cpu().String() != "200m" || r.Memory().String() != "64Mi" {
			t.Errorf("the container is %v", got.Spec.Containers[0])
		}
		c.rec.want(t, "PATCH resize (trial)", "PATCH status", "PATCH resize", "PATCH pods")
		if res, err := c.updater.Refresh(ctx, c.run(pod), o); err != nil || !res.Complete {
			t.Errorf("Refresh() = %+v, %v", res, err)
		}
		c.rec.want(t, "PATCH status")
	})

	t.Run("a resize that the server forbids is rejected", func(t *testing.T) {
		pod := c.create("rejected")
		spec := &inplace.UpdateSpec{Revision: "web-2", ContainerResources: map[string]corev1.ResourceRequirements{
			"app": {Limits: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}}, // another QoS class
		}}
		if _, _, err := c.updater.Start(ctx, pod, spec, target, o); !IsRejected(err) {
			t.Errorf("Start() = %v, want it rejected", err)
		}
		c.rec.want(t, "PATCH resize")
		tooLarge := &inplace.UpdateSpec{
			Revision:           "web-2",
			ContainerImages:    map[string]string{"app": "app:2"},
			ContainerResources: map[string]corev1.ResourceRequirements{"app": {Requests: corev1.ResourceList{"cpu": resource.MustParse("100")}}},
		}
		if _, _, err := c.updater.Start(ctx, pod, tooLarge, target, o); !IsRejected(err) {
			t.Errorf("Start() = %v for a resize that the node cannot do, want it rejected", err)
		}
		if live := c.get(pod); live.ResourceVersion != pod.ResourceVersion {
			t.Errorf("the Pod was drained for it: %v", live)
		}
		c.rec.want(t, "PATCH resize (trial)")
		gone := pod.DeepCopy()
		gone.Name = "no-such-pod"
		if _, _, err := c.updater.Start(ctx, gone, spec, target, o); !apierrors.IsNotFound(err) || IsRejected(err) {
			t.Errorf("Start() of a Pod that is gone = %v", err)
		}
		c.rec.want(t, "PATCH resize", "GET pods")
	})

	t.Run("a hold, a label and a finalizer", func(t *testing.T) {
		pod := c.create("held")
		held, err := c.updater.Patch(ctx, pod, state("PreparingDelete"), func(p *corev1.Pod) { podready.Hold(p, podready.PreDeleteHook, t0) })
		if err != nil || held.Labels[stateLabel] != "PreparingDelete" || condition(held, "KruisePodReady") != "False" || condition(held, "Ready") != "False" {
			t.Errorf("Patch() = %v, %v", held, err)
		}
		c.rec.want(t, "PATCH status")
		both, err := c.updater.Patch(ctx, held, state("PreparingNormal"), func(p *corev1.Pod) {
			podready.Release(p, podready.PreDeleteHook, t0)
			p.Finalizers = append(p.Finalizers, "example.com/hook")
		})
		if err != nil || len(both.Finalizers) != 1 || condition(both, "KruisePodReady") != "True" || both.Labels[stateLabel] != "PreparingNormal" {
			t.Errorf("Patch() = %v, %v", both, err)
		}
		c.rec.want(t, "PATCH status", "PATCH pods")
	})

	t.Run("a metadata patch with the batch removes and keeps keys", func(t *testing.T) {
		pod := c.create("metadata")
		spec := &inplace.UpdateSpec{Revision: "web-2", MetaDataPatch: []byte(`{"metadata":{"labels":{"lifecycle.apps.kruise.io/state":null,"new":"x"}}}`)}
		got, _, err := c.updater.Start(ctx, pod, spec, target, o)
		_, has := got.Labels[stateLabel]
		if err != nil || has || got.Labels["new"] != "x" || got.Generation != 1 {
			t.Errorf("Start() = %v, %v", got, err)
		}
		c.rec.want(t, "PATCH status", "PATCH pods")
		if res, err := c.updater.Refresh(ctx, got, o); err != nil || !res.Complete {
			t.Errorf("Refresh() = %+v, %v", res, err)
		}
		c.rec.want(t, "PATCH status")
	})
}

// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/history"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// stored lists fixed objects for an informer, and never changes.
type stored struct{ list kruntime.Object }

func (s stored) List(metav1.ListOptions) (kruntime.Object, error) {
	return s.list.DeepCopyObject(), nil
}
func (s stored) Watch(metav1.ListOptions) (apiwatch.Interface, error) { return apiwatch.NewFake(), nil }
func (stored) IsWatchListSemanticsUnSupported() bool                  { return true }
func (c *calls) RoundTrip(r *http.Request) (*http.Response, error)    { return nil, c.refuse(r) }
func (c *calls) refuse(r *http.Request) error {
	c.n.Add(1)
	return errors.New(r.Method + " " + r.URL.Path)
}

// calls counts and refuses every call of the API server.
type calls struct{ n atomic.Int64 }

// bench is a reconciler with the real cache of a manager, over objects in memory.
type bench struct {
	*Reconciler
	calls *calls
	key   types.NamespacedName
}

// settled is a CloneSet that has nothing to do, with n Pods as a cluster has them after
// some rollouts.
func settled(n int) (*v1beta1.CloneSet, *appsv1.ControllerRevision, []corev1.Pod) {
	b := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).Replicas(int32(n)).ProgressDeadlineSeconds(600)
	rev := fixture.Revision(b, 1)
	pod := fixture.PodOf(b, "web").
		Annotation(v1beta1.InPlaceUpdateStateAnnotation, `{"revision":"web-7c9fd8b6d4","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":{"app":{"imageID":"id-of-app:0"}},"updateImages":true,"containerBatchesRecord":[{"timestamp":"2026-01-02T03:04:05Z","containers":["app"]}]}`).
		Annotation(v1beta1.RuntimeContainersMetaAnnotation, `{"containers":[{"name":"app","containerID":"containerd://9f8d","restartCount":1,"hashes":{"plainHash":1236152716,"extractedEnvFromMetadataHash":2346}}]}`)
	pods := make([]corev1.Pod, n)
	for i := range pods {
		p := pod.Obj()
		p.Name = fmt.Sprintf("web-%05d", i)
		p.UID, p.ResourceVersion = types.UID(p.Name), fmt.Sprint(1000+i)
		pods[i] = *p
	}
	set := b.Status(rev.Name, rev.Name).Obj()
	snap := plan.Snapshot{Set: set, Update: rev, Current: rev, Revisions: []*appsv1.ControllerRevision{rev}}
	for i := range pods {
		snap.Pods = append(snap.Pods, &pods[i])
	}
	set.Status = plan.Status(snap, fixture.Created.Add(time.Hour))
	return set, rev, pods
}

func newBench(tb testing.TB, pods int) *bench {
	tb.Helper()
	set, rev, list := settled(pods)
	objects := map[string]kruntime.Object{
		"*v1beta1.CloneSet":         &v1beta1.CloneSetList{Items: []v1beta1.CloneSet{*set}},
		"*v1.Pod":                   &corev1.PodList{Items: list},
		"*v1.PersistentVolumeClaim": &corev1.PersistentVolumeClaimList{},
		"*v1.ControllerRevision":    &appsv1.ControllerRevisionList{Items: []appsv1.ControllerRevision{*rev}},
	}
	counted := &calls{}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range []string{"CloneSet", "ImagePullJob"} {
		mapper.Add(v1beta1.GroupVersion.WithKind(gvk), meta.RESTScopeNamespace)
	}
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), meta.RESTScopeNamespace)
	config, httpClient := &rest.Config{Host: "http://127.0.0.1:1"}, &http.Client{Transport: counted}

	c, err := cache.New(config, cache.Options{
		Scheme: apitest.Scheme(), Mapper: mapper, HTTPClient: httpClient,
		NewInformer: func(_ toolscache.ListerWatcher, o kruntime.Object, resync time.Duration, ix toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(stored{objects[fmt.Sprintf("%T", o)]}, o, resync, ix)
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := owned.AddIndexes(tb.Context(), c, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}); err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Start(ctx) })
	tb.Cleanup(func() { stop(); running.Wait() })
	for _, o := range []client.Object{&v1beta1.CloneSet{}, &appsv1.ControllerRevision{}} {
		if _, err := c.GetInformer(tb.Context(), o); err != nil {
			tb.Fatal(err)
		}
	}
	if !c.WaitForCacheSync(tb.Context()) {
		tb.Fatal("the cache does not fill")
	}
	cl, err := client.New(config, client.Options{
		Scheme: apitest.Scheme(), Mapper: mapper, HTTPClient: httpClient, Cache: &client.CacheOptions{Reader: c},
	})
	if err != nil {
		tb.Fatal(err)
	}
	podsOf, err := owned.CachedPods(tb.Context(), c, cl)
	if err != nil {
		tb.Fatal(err)
	}
	clock := clocktesting.NewFakePassiveClock(fixture.Created.Add(time.Hour))
	writer := owned.Writer{Client: cl, Tracker: expectation.NewTracker(clock, time.Minute, nil)}
	return &bench{
		Reconciler: &Reconciler{
			client: cl, live: cl, scheme: apitest.Scheme(), events: record.NewFakeRecorder(100), clock: clock,
			podsOf: podsOf, writer: writer, history: history.Store{Writer: writer, Live: cl},
			pods: &podupdate.Updater{Client: cl, Live: cl, Clock: clock}, parallel: 32,
		},
		calls: counted, key: client.ObjectKeyFromObject(set),
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A pass over 5,000 Pods with nothing to do calls the API server not once; its processor
// time is to stay below 20 ms.
func BenchmarkReconcile5000SettledPods(b *testing.B) {
	r := newBench(b, 5000)
	var began time.Duration
	b.ReportAllocs()
	for b.Loop() {
		if began == 0 {
			began = cpuTime()
		}
		if _, err := r.Reconcile(b.Context(), ctrl.Request{NamespacedName: r.key}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime()-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(r.calls.n.Load())/float64(b.N), "calls/op")
	if r.calls.n.Load() > 0 {
		b.Fatalf("%d calls of the API server", r.calls.n.Load())
	}
}

func TestAPassWithNothingToDoCallsNobody(t *testing.T) {
	r := newBench(t, 200)
	for range 3 {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: r.key})
		if err != nil || result != (ctrl.Result{}) {
			t.Fatal(result, err)
		}
	}
	if n := r.calls.n.Load(); n > 0 {
		t.Fatalf("%d calls of the API server", n)
	}
}

// What the controller keeps for each Pod between passes, besides the Pod in the cache: its
// place in the index by owner, and, right after a write, an expectation. It is to stay
// below 6 KiB.
func BenchmarkMemoryPerPod(b *testing.B) {
	const pods = 5000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		_, rev, list := settled(pods)
		before := heap()
		index := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
		if err := index.AddIndexers(toolscache.Indexers{owned.Index: func(o any) ([]string, error) {
			return []string{string(metav1.GetControllerOfNoCopy(o.(client.Object)).UID)}, nil
		}}); err != nil {
			b.Fatal(err)
		}
		clock := clocktesting.NewFakePassiveClock(fixture.Created)
		writer := owned.Writer{Tracker: expectation.NewTracker(clock, time.Minute, nil)}
		for i := range list {
			if err := index.Add(&list[i]); err != nil {
				b.Fatal(err)
			}
			writer.Wrote(types.NamespacedName{Namespace: "shop", Name: "web"}, &list[i])
		}
		after := heap()
		b.ReportMetric(float64(after-before)/pods, "bytes/Pod")
		runtime.KeepAlive(index)
		runtime.KeepAlive(writer)
		runtime.KeepAlive(list)
		runtime.KeepAlive(rev)
	}
}

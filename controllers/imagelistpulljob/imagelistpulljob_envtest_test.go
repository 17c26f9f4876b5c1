// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package imagelistpulljob

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

const (
	soon = 2 * time.Minute
	tick = 50 * time.Millisecond
)

// cluster is an API server with the controller; the test plays the one of ImagePullJobs.
type cluster struct {
	client.Client
	t *testing.T

	mu     sync.Mutex
	writes map[string]int
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// count counts the controller's writes by method and resource.
func (c *cluster) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if r.Method == http.MethodGet || err != nil || strings.Contains(r.URL.Path, "/events") {
			return response, err
		}
		what := r.Method
		for _, part := range []string{"imagelistpulljobs", "imagepulljobs", "status"} {
			if strings.Contains(r.URL.Path, "/"+part) {
				what += " " + part
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writes[what]++
		return response, err
	})
}

func (c *cluster) written() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.writes)
}

func start(t *testing.T) *cluster {
	t.Helper()
	base := apitest.Start(t)
	c := &cluster{Client: apitest.NewClient(t, base), t: t, writes: map[string]int{}}
	managed := rest.CopyConfig(base)
	managed.Wrap(c.count)
	mgr, err := ctrl.NewManager(managed, ctrl.Options{
		Scheme: apitest.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}, Logger: logr.Discard(),
	})
	require.NoError(t, err)
	require.NoError(t, Add(mgr, Options{}))
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return c
}

func (c *cluster) create(change func(*v1beta1.ImageListPullJob), images ...string) *v1beta1.ImageListPullJob {
	c.t.Helper()
	job := &v1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "list"}, Spec: v1beta1.ImageListPullJobSpec{Images: images}}
	job.Spec.CompletionPolicy.Type = v1beta1.Always
	if change != nil {
		change(job)
	}
	require.NoError(c.t, c.Create(c.t.Context(), job))
	return job
}

func (c *cluster) update(job *v1beta1.ImageListPullJob, change func(*v1beta1.ImageListPullJob)) {
	c.t.Helper()
	require.NoError(c.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(c.t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		change(job)
		return c.Update(c.t.Context(), job)
	}))
}

// children are the jobs of the list, by image.
func (c *cluster) children() map[string]v1beta1.ImagePullJob {
	c.t.Helper()
	var list v1beta1.ImagePullJobList
	require.NoError(c.t, c.List(c.t.Context(), &list))
	byImage := map[string]v1beta1.ImagePullJob{}
	for _, child := range list.Items {
		require.NotContains(c.t, byImage, child.Spec.Image, "two children for one image")
		byImage[child.Spec.Image] = child
	}
	return byImage
}

// report writes the status of the child of an image, on three nodes.
func (c *cluster) report(image string, active, succeeded, failed int32) {
	c.t.Helper()
	child := c.children()[image]
	child.Status = v1beta1.ImagePullJobStatus{StartTime: new(metav1.Now()), Desired: 3, Active: active, Succeeded: succeeded, Failed: failed}
	require.NoError(c.t, c.Status().Update(c.t.Context(), &child))
}

func (c *cluster) eventually(what string, job *v1beta1.ImageListPullJob, ok func() bool) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		err := c.Get(c.t.Context(), client.ObjectKeyFromObject(job), job)
		if apierrors.IsNotFound(err) {
			job.UID = ""
		} else if err != nil {
			return false
		}
		return ok()
	}, soon, tick, what)
}

func (c *cluster) images() []string { return slices.Sorted(maps.Keys(c.children())) }

func (c *cluster) event(reason, message string) bool {
	var list corev1.EventList
	if c.List(c.t.Context(), &list, client.InNamespace("default")) != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == "ImageListPullJob" && e.Reason == reason && strings.Contains(e.Message, message)
	})
}

func TestListRunsToItsEnd(t *testing.T) {
	c := start(t)
	job := c.create(func(j *v1beta1.ImageListPullJob) { j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(2)) }, "nginx:1", "busybox:1")
	c.eventually("children and desired", job, func() bool { return len(c.children()) == 2 && job.Status.Desired == 2 })
	require.True(t, metav1.IsControlledBy(new(c.children()["nginx:1"]), job))
	require.Equal(t, job.Labels[hashLabel], c.children()["nginx:1"].Labels[hashLabel])
	c.report("nginx:1", 2, 0, 0)
	c.eventually("active", job, func() bool { return job.Status.Active == 1 })
	c.report("nginx:1", 1, 1, 0)
	c.report("nginx:1", 1, 2, 0)
	c.report("busybox:1", 0, 2, 1)
	c.eventually("one is completed, with a failure", job, func() bool { return job.Status.Completed == 1 && len(job.Status.FailedImageStatuses) == 1 })
	require.Equal(t, "busybox:1", job.Status.FailedImageStatuses[0].Name)
	c.report("nginx:1", 0, 3, 0)
	c.eventually("the end", job, func() bool { return job.Status.CompletionTime != nil })
	require.EqualValues(t, 1, job.Status.Succeeded)
	c.eventually("deletion after the TTL", job, func() bool { return job.UID == "" })
	require.Eventually(t, func() bool { return c.event(EventCreated, "Create 2 ImagePullJob") }, soon, tick)

	// The label, the children, a status for each thing that happened to the list: it began,
	// became active, one image failed, it ended. Progress on nodes costs nothing.
	counts := c.written()
	t.Logf("writes: %v", counts)
	require.Equal(t, 1, counts["PATCH imagelistpulljobs"])
	require.Equal(t, 2, counts["POST imagepulljobs"])
	require.LessOrEqual(t, counts["PUT imagelistpulljobs status"], 4)
	require.Equal(t, 1, counts["DELETE imagelistpulljobs"])
	require.Len(t, counts, 4)
}

func TestEditsOfAList(t *testing.T) {
	c := start(t)
	job := c.create(func(j *v1beta1.ImageListPullJob) { j.Spec.CompletionPolicy.Type = v1beta1.Never }, "nginx:1", "busybox:1")
	c.eventually("children", job, func() bool { return len(c.children()) == 2 })
	before := c.children()
	c.update(job, func(j *v1beta1.ImageListPullJob) { j.Spec.Images = []string{"nginx:1", "redis:7"} })
	c.eventually("an image comes, another goes", job, func() bool { return slices.Equal(c.images(), []string{"nginx:1", "redis:7"}) })
	require.Equal(t, before["nginx:1"].UID, c.children()["nginx:1"].UID, "the one that stays is the same")
	require.Eventually(t, func() bool { return c.event(EventDeleted, "Delete 1 ImagePullJob") }, soon, tick)

	c.update(job, func(j *v1beta1.ImageListPullJob) {
		j.Spec.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(77))}
	})
	require.Eventually(t, func() bool {
		var list v1beta1.ImagePullJobList
		require.NoError(t, c.List(t.Context(), &list))
		return len(list.Items) == 2 && !slices.ContainsFunc(list.Items, func(child v1beta1.ImagePullJob) bool {
			return child.Spec.PullPolicy == nil || *child.Spec.PullPolicy.TimeoutSeconds != 77
		})
	}, soon, tick, "a new template makes new children")
	for _, child := range c.children() {
		require.NoError(t, c.Delete(t.Context(), &child))
	}
	c.eventually("children that were deleted are made again", job, func() bool { return len(c.children()) == 2 })
	require.Never(t, func() bool { return c.written()["POST imagepulljobs"] != 7 }, time.Second, tick, "2, 1 for redis, 2 anew, 2 made again")
}

// The fault is the list job's, and it says so; nothing is tried again and again.
func TestADeadlineThatNoChildCanHave(t *testing.T) {
	c := start(t)
	job := c.create(func(j *v1beta1.ImageListPullJob) {
		j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(50))
		j.Spec.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(60))}
	}, "nginx:1")
	c.eventually("the status says it", job, func() bool { return len(job.Status.FailedImageStatuses) == 1 })
	require.Contains(t, job.Status.FailedImageStatuses[0].Message, "spec.completionPolicy.activeDeadlineSeconds: Invalid value: 50")
	require.Eventually(t, func() bool { return c.event(EventInvalid, "nginx:1: no ImagePullJob can be made") }, soon, tick)
	require.Never(t, func() bool { return c.written()["POST imagepulljobs"] > 0 }, 2*time.Second, tick)

	c.update(job, func(j *v1beta1.ImageListPullJob) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(60)) })
	c.eventually("mended", job, func() bool { return len(c.children()) == 1 && len(job.Status.FailedImageStatuses) == 0 })
}

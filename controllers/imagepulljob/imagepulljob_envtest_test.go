// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package imagepulljob

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
)

// Times of images.md 12, with room for a busy machine.
const (
	soon = 2 * time.Minute
	long = 4 * time.Minute
	tick = 50 * time.Millisecond
)

// writes counts the manager's requests that change something, by kind of request.
type writes struct {
	mu     sync.Mutex
	counts map[string]int
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if r.Method != http.MethodGet && err == nil && !strings.Contains(r.URL.Path, "/events") {
			what := r.Method + " "
			for _, part := range []string{"nodeimages", "imagepulljobs", "secrets", "status"} {
				if strings.Contains(r.URL.Path, "/"+part) {
					what += part + " "
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.counts[strings.TrimSpace(what)]++
			if response.StatusCode == http.StatusConflict {
				w.counts["conflicts"]++
			}
		}
		return response, err
	})
}

// since returns what was counted since the last call.
func (w *writes) since() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := w.counts
	w.counts = map[string]int{}
	return counts
}

// cluster is an API server with the controller and simulated node agents.
type cluster struct {
	client.Client
	writes *writes

	mu       sync.Mutex
	answers  map[string]v1beta1.ImagePullPhase // by node; absent: Succeeded; empty: silence
	pulling  int
	most     int
	duration time.Duration
}

// answerWith makes a node's agent answer with phase from now on; with "" it is silent.
func (c *cluster) answerWith(node string, phase v1beta1.ImagePullPhase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[node] = phase
}

// answerAfter sets how long agents pull.
func (c *cluster) answerAfter(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.duration = d
}

// busiest is how many nodes have pulled at the same time, at most.
func (c *cluster) busiest() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

func start(t *testing.T) *cluster {
	t.Helper()
	base := apitest.Start(t)
	c := &cluster{Client: apitest.NewClient(t, base), writes: &writes{counts: map[string]int{}}, answers: map[string]v1beta1.ImagePullPhase{}, duration: 300 * time.Millisecond}
	managed := rest.CopyConfig(base)
	managed.Wrap(c.writes.wrap)
	mgr, err := ctrl.NewManager(managed, ctrl.Options{
		Scheme: apitest.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}, Logger: logr.Discard(),
	})
	require.NoError(t, err)
	require.NoError(t, Add(mgr, Options{ExtraTTLSeconds: 300}))
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	group.Go(func() { c.agents(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pullsecret.DefaultNamespace}}))
	return c
}

// agents play the node agents: each task is answered after a while.
func (c *cluster) agents(ctx context.Context) {
	started := map[string]time.Time{}
	for ctx.Err() == nil {
		time.Sleep(tick)
		var list v1beta1.NodeImageList
		if c.List(ctx, &list) != nil {
			continue
		}
		pulling := 0
		for i := range list.Items {
			node := &list.Items[i]
			for name, image := range node.Spec.Images {
				for _, tag := range image.Tags {
					key := fmt.Sprintf("%s %s:%s %d %s", node.Name, name, tag.Tag, tag.Version, tag.CreatedAt)
					if done(node, name, tag) {
						continue
					}
					if started[key].IsZero() {
						started[key] = time.Now()
					}
					pulling++
					c.mu.Lock()
					phase, set := c.answers[node.Name]
					duration := c.duration
					c.mu.Unlock()
					if !set {
						phase = v1beta1.ImagePhaseSucceeded
					}
					if phase != "" && time.Since(started[key]) > duration {
						c.answer(ctx, node.Name, name, tag, phase)
					}
				}
			}
		}
		c.mu.Lock()
		c.pulling, c.most = pulling, max(c.most, pulling)
		c.mu.Unlock()
	}
}

func done(node *v1beta1.NodeImage, image string, tag v1beta1.ImageTagSpec) bool {
	for _, s := range node.Status.ImageStatuses[image].Tags {
		if s.Tag == tag.Tag && s.Version == tag.Version {
			return s.CompletionTime != nil
		}
	}
	return false
}

func (c *cluster) answer(ctx context.Context, node, image string, tag v1beta1.ImageTagSpec, phase v1beta1.ImagePullPhase) {
	_ = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var n v1beta1.NodeImage
		if err := c.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return err
		}
		if n.Status.ImageStatuses == nil {
			n.Status.ImageStatuses = map[string]v1beta1.ImageStatus{}
		}
		var kept []v1beta1.ImageTagStatus
		for _, s := range n.Status.ImageStatuses[image].Tags {
			if s.Tag != tag.Tag {
				kept = append(kept, s)
			}
		}
		n.Status.ImageStatuses[image] = v1beta1.ImageStatus{Tags: append(kept, v1beta1.ImageTagStatus{Tag: tag.Tag, Version: tag.Version, Phase: phase, CompletionTime: new(metav1.Now())})}
		return c.Status().Update(ctx, &n)
	}) // the next round tries again
}

func (c *cluster) nodes(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, c.Create(t.Context(), newNode(fmt.Sprintf("node%d", i)).with(func(n *v1beta1.NodeImage) {
			n.Labels = map[string]string{"parity": []string{"even", "odd"}[i%2]}
		}).obj))
	}
}

func (c *cluster) job(t *testing.T, name string, change func(*v1beta1.ImagePullJob)) client.ObjectKey {
	t.Helper()
	job := &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1beta1.ImagePullJobSpec{Image: "nginx:1"}}
	job.Spec.Parallelism = new(intstr.FromInt(10))
	if change != nil {
		change(job)
	}
	require.NoError(t, c.Create(t.Context(), job))
	return client.ObjectKeyFromObject(job)
}

// eventually waits until ok accepts the job, which is nil when it does not exist.
func (c *cluster) eventually(t *testing.T, key client.ObjectKey, within time.Duration, what string, ok func(*v1beta1.ImagePullJob) bool) *v1beta1.ImagePullJob {
	t.Helper()
	var last *v1beta1.ImagePullJob
	deadline := time.Now().Add(within)
	for time.Now().Before(deadline) {
		job := &v1beta1.ImagePullJob{}
		switch err := c.Get(t.Context(), key, job); {
		case apierrors.IsNotFound(err):
			job = nil
		case err != nil:
			t.Fatal(err)
		}
		if last = job; ok(job) {
			return job
		}
		time.Sleep(tick)
	}
	t.Fatalf("%s: not within %s: %+v", what, within, last)
	return nil
}

func complete(job *v1beta1.ImagePullJob) bool {
	return job != nil && job.Status.CompletionTime != nil && len(job.Finalizers) == 0
}

func gone(job *v1beta1.ImagePullJob) bool { return job == nil }

func TestJobRunsToItsEnd(t *testing.T) {
	c := start(t)
	c.nodes(t, 5)
	c.answerWith("node3", v1beta1.ImagePhaseFailed)
	key := c.job(t, "pull", func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromInt(4)) })
	c.eventually(t, key, soon, "desired", func(j *v1beta1.ImagePullJob) bool { return j.Status.Desired == 5 })
	job := c.eventually(t, key, long, "completion", complete)
	require.EqualValues(t, 4, job.Status.Succeeded)
	require.Equal(t, []string{"node3"}, job.Status.FailedNodes)
	require.Equal(t, "job has completed", job.Status.Message)
	require.LessOrEqual(t, c.busiest(), 4, "parallelism")

	// One write per node. Per job: finalizer on, one status per look (the first batch, its
	// results and the last node may share one or not), finalizer off.
	counts := c.writes.since()
	t.Logf("writes: %v", counts)
	require.Equal(t, 5, counts["PUT nodeimages"])
	require.Equal(t, 2, counts["PATCH imagepulljobs"])
	require.LessOrEqual(t, counts["PUT imagepulljobs status"], 6)
	require.Zero(t, counts["conflicts"])

	second := c.job(t, "again", nil)
	c.eventually(t, second, long, "another job for the same image", complete)
	var node v1beta1.NodeImage
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "node0"}, &node))
	tag := node.Spec.Images["nginx"].Tags[0]
	require.EqualValues(t, 1, tag.Version)
	require.Len(t, tag.OwnerReferences, 2)

	// A job at rest costs nothing.
	c.writes.since()
	require.NoError(t, c.Create(t.Context(), newNode("late").obj))
	require.Never(t, func() bool { return len(c.writes.since()) > 0 }, 2*time.Second, tick)
}

func TestManyNodesAreCountedTogether(t *testing.T) {
	c := start(t)
	const nodes = 40
	c.nodes(t, nodes)
	c.answerAfter(100 * time.Millisecond)
	key := c.job(t, "pull", func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromInt(nodes)) })
	c.eventually(t, key, long, "completion", complete)
	counts := c.writes.since()
	t.Logf("writes: %v", counts)
	require.Equal(t, nodes, counts["PUT nodeimages"])
	require.Less(t, counts["PUT imagepulljobs status"], nodes/3)
}

func TestPullSecretsAreSharedAndReleased(t *testing.T) {
	c := start(t)
	c.nodes(t, 1)
	source := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pull-secret"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	}
	require.NoError(t, c.Create(t.Context(), source))
	copies := func() []corev1.Secret {
		var list corev1.SecretList
		require.NoError(t, c.List(t.Context(), &list, client.InNamespace(pullsecret.DefaultNamespace)))
		return list.Items
	}
	withSecret := func(j *v1beta1.ImagePullJob) {
		j.Spec.PullSecrets = []string{"pull-secret"}
		j.Spec.CompletionPolicy.Type = v1beta1.Never
	}
	first, second := c.job(t, "first", withSecret), c.job(t, "second", withSecret)
	require.Eventually(t, func() bool {
		list := copies()
		return len(list) == 1 && list[0].Annotations["imagepulljobs.kruise.io/source-key"] == "default/pull-secret" &&
			list[0].Annotations["imagepulljobs.kruise.io/references"] == "default/first,default/second"
	}, soon, tick, "one copy for both jobs")

	source.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"quay.io":{}}}`)
	require.NoError(t, c.Update(t.Context(), source))
	require.Eventually(t, func() bool {
		list := copies()
		return len(list) == 1 && string(list[0].Data[corev1.DockerConfigJsonKey]) == `{"auths":{"quay.io":{}}}`
	}, soon, tick, "the copy follows its source")

	c.eventually(t, first, long, "success", func(j *v1beta1.ImagePullJob) bool { return j.Status.Succeeded == 1 })
	var node v1beta1.NodeImage
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "node0"}, &node))
	require.Equal(t, []v1beta1.ReferenceObject{{Namespace: pullsecret.DefaultNamespace, Name: copies()[0].Name, Mode: "batch"}}, node.Spec.Images["nginx"].PullSecrets)

	require.NoError(t, c.Delete(t.Context(), c.eventually(t, first, soon, "finalizer", func(j *v1beta1.ImagePullJob) bool { return len(j.Finalizers) == 1 })))
	require.NoError(t, c.Get(t.Context(), first, &v1beta1.ImagePullJob{}), "found right after its deletion")
	c.eventually(t, first, soon, "deletion", gone)
	require.Equal(t, "default/second", copies()[0].Annotations["imagepulljobs.kruise.io/references"])

	require.NoError(t, c.Delete(t.Context(), c.eventually(t, second, soon, "success", func(j *v1beta1.ImagePullJob) bool { return j.Status.Succeeded == 1 })))
	c.eventually(t, second, soon, "deletion", gone)
	require.Eventually(t, func() bool { return len(copies()) == 0 }, soon, tick, "no copy is left over")
}

func TestSecretThatAppearsLater(t *testing.T) {
	c := start(t)
	c.nodes(t, 1)
	key := c.job(t, "pull", func(j *v1beta1.ImagePullJob) {
		j.Spec.PullSecrets, j.Spec.CompletionPolicy.Type = []string{"late"}, v1beta1.Never
	})
	c.eventually(t, key, long, "success without the secret", func(j *v1beta1.ImagePullJob) bool { return j.Status.Succeeded == 1 })
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}))
	require.Eventually(t, func() bool {
		var node v1beta1.NodeImage
		return c.Get(t.Context(), client.ObjectKey{Name: "node0"}, &node) == nil && len(node.Spec.Images["nginx"].PullSecrets) == 1
	}, soon, tick)
}

func TestCompletedJobs(t *testing.T) {
	c := start(t)
	c.nodes(t, 2)
	c.answerWith("node1", "") // silent
	ttl := c.job(t, "ttl", func(j *v1beta1.ImagePullJob) {
		j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{Names: []string{"node0"}}
		j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(1))
	})
	deadline := c.job(t, "deadline", func(j *v1beta1.ImagePullJob) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(3)) })
	none := c.job(t, "none", func(j *v1beta1.ImagePullJob) {
		j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{Names: []string{"unknown"}}
	})
	c.eventually(t, none, soon, "completion of a job without nodes", complete)
	c.eventually(t, ttl, long, "deletion after the TTL", gone)
	job := c.eventually(t, deadline, long, "completion at the deadline", complete)
	require.Equal(t, "job exceeds activeDeadlineSeconds", job.Status.Message)
	require.Equal(t, []string{"node1"}, job.Status.FailedNodes)
	require.EqualValues(t, 1, job.Status.Succeeded)
}

func TestJobsFollowNodesAndPods(t *testing.T) {
	c := start(t)
	c.nodes(t, 3)
	never := func(change func(*v1beta1.ImagePullJob)) func(*v1beta1.ImagePullJob) {
		return func(j *v1beta1.ImagePullJob) {
			j.Spec.CompletionPolicy.Type = v1beta1.Never
			change(j)
		}
	}
	all := c.job(t, "all", never(func(j *v1beta1.ImagePullJob) { j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{} }))
	odd := c.job(t, "odd", never(func(j *v1beta1.ImagePullJob) {
		j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"parity": "odd"}}}
	}))
	pods := c.job(t, "pods", never(func(j *v1beta1.ImagePullJob) {
		j.Spec.PodSelector = &v1beta1.ImagePullJobPodSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	}))
	succeeded := func(n int32) func(*v1beta1.ImagePullJob) bool {
		return func(j *v1beta1.ImagePullJob) bool { return j.Status.Desired == n && j.Status.Succeeded == n }
	}
	c.eventually(t, all, long, "all nodes", succeeded(3))
	c.eventually(t, odd, long, "odd nodes", succeeded(1))
	c.eventually(t, pods, soon, "no Pods", succeeded(0))

	late := newNode("late").with(func(n *v1beta1.NodeImage) { n.Labels = map[string]string{"parity": "odd"} }).obj
	require.NoError(t, c.Create(t.Context(), late))
	c.eventually(t, all, long, "a new node", succeeded(4))
	c.eventually(t, odd, long, "a new odd node", succeeded(2))

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node0", Containers: []corev1.Container{{Name: "main", Image: "busybox"}}},
	}
	require.NoError(t, c.Create(t.Context(), pod))
	c.eventually(t, pods, long, "a Pod's node", succeeded(1))
	require.NoError(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	c.eventually(t, pods, soon, "the Pod is gone", succeeded(0))

	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(late), late))
	late.Labels["parity"] = "even"
	require.NoError(t, c.Update(t.Context(), late))
	c.eventually(t, odd, soon, "a node that does not match any more", func(j *v1beta1.ImagePullJob) bool { return j.Status.Desired == 1 })
}

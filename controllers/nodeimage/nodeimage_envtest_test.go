// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package nodeimage

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

const (
	soon = 2 * time.Minute // images.md 12
	tick = 50 * time.Millisecond
)

// ahead is a clock that can be put forward.
type ahead struct {
	clock.RealClock
	mu sync.Mutex
	by time.Duration
}

func (a *ahead) Now() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Add(a.by)
}

func start(t *testing.T) (client.Client, *ahead) {
	t.Helper()
	cfg := apitest.Start(t)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: apitest.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}, Logger: logr.Discard(),
	})
	require.NoError(t, err)
	now := &ahead{}
	require.NoError(t, Add(mgr, Options{Clock: now}))
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
	return apitest.NewClient(t, cfg), now
}

func get(t *testing.T, c client.Client, name string) *v1beta1.NodeImage {
	t.Helper()
	ni := &v1beta1.NodeImage{}
	err := c.Get(t.Context(), client.ObjectKey{Name: name}, ni)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return ni
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, soon, tick, what)
}

func TestNodeImageFollowsItsNode(t *testing.T) {
	c, _ := start(t)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "real", Labels: map[string]string{"zone": "east"}}}
	require.NoError(t, c.Create(t.Context(), n))
	virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: map[string]string{"type": "virtual-kubelet"}}}
	require.NoError(t, c.Create(t.Context(), virtual))
	fake := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "fake", Labels: map[string]string{v1beta1.FakeNodeImageLabel: "true"}}}
	require.NoError(t, c.Create(t.Context(), fake))
	for _, node := range []*corev1.Node{n, virtual} {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		require.NoError(t, c.Status().Update(t.Context(), node))
	}
	eventually(t, "a ready node has a NodeImage with its labels", func() bool {
		ni := get(t, c, "real")
		return ni != nil && ni.Labels["zone"] == "east"
	})
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	n.Labels["zone"] = "west"
	require.NoError(t, c.Update(t.Context(), n))
	eventually(t, "labels follow", func() bool { return get(t, c, "real").Labels["zone"] == "west" })

	require.NoError(t, c.Delete(t.Context(), n))
	eventually(t, "without node there is no NodeImage", func() bool { return get(t, c, "real") == nil })
	require.NotNil(t, get(t, c, "fake"), "except for fakes")
	require.Nil(t, get(t, c, "virtual"))
}

func TestTasksGoWithTheirJobs(t *testing.T) {
	c, now := start(t)
	job := &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pull"}, Spec: v1beta1.ImagePullJobSpec{Image: "nginx:1"}}
	require.NoError(t, c.Create(t.Context(), job))
	task := func(tag string) v1beta1.ImageTagSpec {
		return v1beta1.ImageTagSpec{
			Tag: tag, CreatedAt: new(metav1.Now()),
			PullPolicy:      &v1beta1.ImageTagPullPolicy{TTLSecondsAfterFinished: new(int32(3600))},
			OwnerReferences: []corev1.ObjectReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "ImagePullJob", Namespace: "default", Name: "pull", UID: job.UID}},
		}
	}
	byHand := task("hand")
	byHand.OwnerReferences = nil
	fake := &v1beta1.NodeImage{
		ObjectMeta: metav1.ObjectMeta{Name: "fake", Labels: map[string]string{v1beta1.FakeNodeImageLabel: "true"}},
		Spec:       v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{"nginx": {Tags: []v1beta1.ImageTagSpec{task("1"), byHand}}}},
	}
	require.NoError(t, c.Create(t.Context(), fake))
	tags := func() []v1beta1.ImageTagSpec { return get(t, c, "fake").Spec.Images["nginx"].Tags }
	require.Never(t, func() bool { return len(tags()) != 2 }, time.Second, tick, "while the job lives, its task does")

	// The node does not answer: after ten minutes the tasks have failed, and the job is told.
	now.mu.Lock()
	now.by = 11 * time.Minute
	now.mu.Unlock()
	poke := get(t, c, "fake")
	poke.Annotations = map[string]string{"poke": "1"}
	require.NoError(t, c.Update(t.Context(), poke))
	eventually(t, "silence fails tasks", func() bool {
		s := get(t, c, "fake").Status
		return s.Failed == 2 && s.Desired == 2 && s.ImageStatuses["nginx"].Tags[0].Message == "node has not responded for a long time"
	})
	eventually(t, "and the job has an event", func() bool {
		var events corev1.EventList
		require.NoError(t, c.List(t.Context(), &events, client.InNamespace("default")))
		for _, e := range events.Items {
			if e.Reason == "PullImageFailed" && e.InvolvedObject.UID == job.UID && e.Source.Component == "nodeimage-controller" {
				return true
			}
		}
		return false
	})

	require.NoError(t, c.Delete(t.Context(), job))
	eventually(t, "the task goes with its job, the one written by hand stays", func() bool {
		left := tags()
		return len(left) == 1 && left[0].Tag == "hand"
	})
}

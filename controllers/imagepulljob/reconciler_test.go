// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
)

func newReconciler(c client.Client, now time.Time) *Reconciler {
	secrets := &pullsecret.Syncer{Client: c, Copies: c, Live: c, Namespace: pullsecret.DefaultNamespace}
	return New(c, c, secrets, &record.FakeRecorder{}, Options{Clock: clocktesting.NewFakePassiveClock(now)})
}

func TestTTL(t *testing.T) {
	complete := newJob().with(func(j *v1beta1.ImagePullJob) {
		j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(20))
		j.Status.CompletionTime = &metav1.Time{Time: t0}
	})
	owned := func(kind string) jobBuilder {
		return complete.with(func(j *v1beta1.ImagePullJob) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: kind, Name: "owner", UID: "owner", Controller: new(true)}}
		})
	}
	cases := map[string]struct {
		job   jobBuilder
		after time.Duration
		gone  bool
		wait  time.Duration
	}{
		"before its TTL a job waits for it":          {complete, 15 * time.Second, false, 5 * time.Second},
		"after its TTL it goes":                      {complete, 20 * time.Second, true, 0},
		"a job of a list goes with the list":         {owned("ImageListPullJob"), time.Hour, false, 0},
		"a job of a workload goes after its own TTL": {owned("CloneSet"), time.Hour, true, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(tc.job.obj).WithStatusSubresource(tc.job.obj).Build()
			key := client.ObjectKeyFromObject(tc.job.obj)
			result, err := newReconciler(c, t0.Add(tc.after)).Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			require.NoError(t, err)
			require.Equal(t, tc.wait, result.RequeueAfter)
			require.Equal(t, tc.gone, apierrors.IsNotFound(c.Get(t.Context(), key, &v1beta1.ImagePullJob{})))
		})
	}
}

// ticking is a clock that goes on by a second whenever somebody looks at it.
type ticking struct {
	*clocktesting.FakePassiveClock
	mu sync.Mutex
}

func (c *ticking) Since(t time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.SetTime(c.Now().Add(time.Second))
	return c.FakePassiveClock.Since(t)
}

// A slow API server must not keep the status, and edits, waiting for the last node.
func TestAPassEndsThoughTheServerIsSlow(t *testing.T) {
	job := newJob().parallelism(100).notStarted().obj
	objects := []client.Object{job}
	for i := range 40 {
		objects = append(objects, newNode(fmt.Sprintf("node%02d", i)).obj)
	}
	c := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(objects...).WithStatusSubresource(job).Build()
	r := newReconciler(c, t0)
	r.options.Clock = &ticking{FakePassiveClock: clocktesting.NewFakePassiveClock(t0)}
	key := client.ObjectKeyFromObject(job)
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)
	require.Equal(t, settle, result.RequeueAfter)
	require.NoError(t, c.Get(t.Context(), key, job))
	require.EqualValues(t, 40, job.Status.Desired)
	require.EqualValues(t, 2, job.Status.Active)
}

// BenchmarkDecide5000Nodes is what each look at a job on 5,000 nodes costs, besides reading.
func BenchmarkDecide5000Nodes(b *testing.B) {
	s := snapshot(newJob().parallelism(50))
	for i := range 5000 {
		s.Nodes = append(s.Nodes, newNode(fmt.Sprintf("node%04d", i)).task(0, "job").reports(v1beta1.ImagePhaseSucceeded, 0).obj)
	}
	b.ReportAllocs()
	for b.Loop() {
		Decide(s, t0)
	}
}

// BenchmarkChangeOf5000Nodes is what the events of one report of each of 5,000 nodes cost.
func BenchmarkChangeOf5000Nodes(b *testing.B) {
	before := newNode("node").task(0, "job").reports(v1beta1.ImagePhasePulling, 0).obj
	after := newNode("node").task(0, "job").reports(v1beta1.ImagePhaseSucceeded, 0).obj
	job := newJob().obj
	b.ReportAllocs()
	for b.Loop() {
		for range 5000 {
			if wakes := change(before, after); wakes == nil || !wakes(job) {
				b.Fatal("the job sleeps")
			}
		}
	}
}

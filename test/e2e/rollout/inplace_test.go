//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// One Pod at a time: with three replicas two must always be ready.
func TestImageChangeKeepsPodsAndOtherChangeRecreatesThem(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 3))
	e.WaitAvailable("web", 3)
	before := harness.Identities(e.Pods("web"))

	watch := e.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})
	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx2)
	e.Kruisectl("rollout", "status", "cloneset/web", "--timeout", "6m")
	e.WaitAvailable("web", 3)
	watch.Check(e)

	e.RequireSamePods("web", before)
	for _, p := range e.Pods("web") {
		require.Equal(t, harness.Nginx2, harness.Image(p, "app"), "image of %s", p.Name)
		require.EqualValues(t, 1, harness.Restarts(p, "app"), "restarts of app in %s", p.Name)
		require.EqualValues(t, 0, harness.Restarts(p, "sidecar"), "restarts of sidecar in %s", p.Name)
	}

	preview := e.Kruisectl("rollout", "preview", "cloneset/web", "--env", "TIER=two")
	require.Contains(t, strings.ToLower(preview.Stdout), "recreate")
	e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Env[0].Value = "two" })
	e.WaitAvailable("web", 3)
	for _, p := range e.Pods("web") {
		require.NotContains(t, before, p.Name, "an env change must recreate every Pod")
	}
}

func TestInPlaceOnlyRefusesAndNamesTheField(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 2, harness.Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType)))
	e.WaitAvailable("web", 2)
	before := harness.Identities(e.Pods("web"))

	// Admission refuses what it can see.
	cs := e.CloneSet("web")
	cs.Spec.Template.Spec.Containers[0].Env[0].Value = "two"
	err := e.Client.Update(e.Ctx(), cs)
	if err == nil {
		// Accepted: then the controller must say it, and kruisectl too.
		e.Eventually("condition FailedUpdate names the field", harness.Short, func() string {
			for _, c := range e.CloneSet("web").Status.Conditions {
				if c.Type == v1beta1.CloneSetConditionFailedUpdate && strings.Contains(c.Message, "env") {
					return ""
				}
			}
			return "no such condition"
		})
		r := e.Try("rollout", "status", "cloneset/web", "--timeout", "1m")
		require.Equal(t, 3, r.Code, "exit code of rollout status:\n%s", r.Text())
		require.Contains(t, r.Text(), "env")
	} else {
		require.ErrorContains(t, err, "env")
	}
	e.RequireSamePods("web", before)

	// And the way out: a change that is possible in place.
	e.Update("web", func(cs *v1beta1.CloneSet) {
		cs.Spec.Template.Spec.Containers[0].Env[0].Value = "one"
		cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx2
	})
	e.WaitAvailable("web", 2)
	e.RequireSamePods("web", before)
}

func TestBadImageStallsWithinLimitsAndAFixCompletesTheRollout(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 4))
	e.WaitAvailable("web", 4)
	before := harness.Identities(e.Pods("web"))
	watch := e.Observe("web", harness.Limits{MinReady: 3, MaxPods: 4, KeepPods: true})

	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.NoImage)
	e.Eventually("one Pod waits for the image that does not exist", harness.Long, func() string {
		for _, p := range e.Pods("web") {
			for _, s := range p.Status.ContainerStatuses {
				if w := s.State.Waiting; s.Name == "app" && w != nil && strings.Contains(w.Reason, "ImagePull") {
					return ""
				}
			}
		}
		return "no container waits for its image"
	})
	why := e.Try("why", "cloneset/web")
	require.Contains(t, why.Stdout, harness.NoImage)
	require.Equal(t, 1, harness.CountImage(e.Pods("web"), "app", harness.NoImage), "Pods that got the bad image")

	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx2)
	e.WaitAvailable("web", 4)
	watch.Check(e)
	e.RequireSamePods("web", before)
	require.Equal(t, 4, harness.CountImage(e.Pods("web"), "app", harness.Nginx2))
}

func TestScaleDuringUpdate(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 3))
	e.WaitAvailable("web", 3)
	watch := e.Observe("web", harness.Limits{MinReady: 2, MaxPods: 5})

	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx2)
	e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Replicas = new(int32(5)) })
	e.WaitAvailable("web", 5)
	watch.Check(e)
	require.Equal(t, 5, harness.CountImage(e.Pods("web"), "app", harness.Nginx2))

	e.Update("web", func(cs *v1beta1.CloneSet) {
		cs.Spec.Replicas = new(int32(2))
		cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx3
	})
	e.WaitAvailable("web", 2)
	require.Equal(t, 2, harness.CountImage(e.Pods("web"), "app", harness.Nginx3))
}

// The image must be on the node before the Pod on it is touched, so that the time out of
// service is a restart and not a pull.
func TestImageIsPulledBeforeThePodIsTouched(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 4)) // pre-download starts at four replicas
	e.WaitAvailable("web", 4)
	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx3)
	e.Eventually("an ImagePullJob for the new image", harness.Short, func() string {
		jobs := &v1beta1.ImagePullJobList{}
		if err := e.Client.List(e.Ctx(), jobs, client.InNamespace(e.Namespace)); err != nil {
			return err.Error()
		}
		for _, j := range jobs.Items {
			if j.Spec.Image == harness.Nginx3 {
				return ""
			}
		}
		return "none yet"
	})
	e.WaitAvailable("web", 4)
	events := &corev1.EventList{}
	require.NoError(t, e.Client.List(e.Ctx(), events, client.InNamespace(e.Namespace)))
	var created bool
	for _, ev := range events.Items {
		created = created || ev.Reason == "CreatedImagePullJob"
	}
	require.True(t, created, "event CreatedImagePullJob")
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// settled is what every scenario of updates starts from.
func settled(f fields) {
	*f.MinReady = int32(harness.MinReady / time.Second)
	*f.Deadline = new(int32(600))
}

// envFrom gives container i a variable that comes from metadata of the Pod.
func envFrom(f fields, i int, name, path string) {
	c := &f.Template.Spec.Containers[i]
	c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}})
}

// U1: two tags of one image. No image ID changes, and the update must end all the same.
func TestUpdateToAnotherTagOfTheSameImage(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 1, func(f fields) {
			settled(f)
			f.Template.Spec.Containers[0].Image = harness.SameImage1
		})
		waitCondition(e, "CloneSetAvailable")
		before := theOnlyPod(e)

		api.change(e, func(f fields) { f.Template.Spec.Containers[0].Image = harness.SameImage2 })
		e.WaitAvailable("web", 1)
		waitCondition(e, "CloneSetAvailable")
		after := theOnlyPod(e)
		require.Equal(e.T, before.UID, after.UID)
		require.Equal(e.T, harness.SameImage2, harness.Image(after, "app"))
		was, is := status(e, before, "app"), status(e, after, "app")
		require.NotEqual(e.T, was.ContainerID, is.ContainerID)
		require.Equal(e.T, was.ImageID, is.ImageID)
	})
}

// U2: image and env change together, and the container restarts once.
func TestImageAndEnvFromLabelRestartTheContainerOnce(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 1, func(f fields) {
			settled(f)
			f.Template.Labels["test-env"] = "foo"
			envFrom(f, 0, "TEST_ENV", "metadata.labels['test-env']")
		})
		waitCondition(e, "CloneSetAvailable")
		before := theOnlyPod(e)
		require.Equal(e.T, "foo\n", envInside(e, before.Name, "TEST_ENV"))

		api.change(e, func(f fields) {
			f.Template.Labels["test-env"] = "bar"
			f.Template.Spec.Containers[0].Image = harness.Nginx2
		})
		e.WaitAvailable("web", 1)
		waitCondition(e, "CloneSetAvailable")
		after := theOnlyPod(e)
		require.Equal(e.T, before.UID, after.UID)
		require.NotEqual(e.T, status(e, before, "app").ContainerID, status(e, after, "app").ContainerID)
		require.EqualValues(e.T, 1, harness.Restarts(after, "app"), "restarts of app")
		require.EqualValues(e.T, 0, harness.Restarts(after, "sidecar"), "restarts of sidecar")
		require.Equal(e.T, "bar\n", envInside(e, after.Name, "TEST_ENV"))
	})
}

// ContainerMeta: a Pod edited by hand restarts nothing; the same change in the template
// restarts every container once, that of the edited Pod too.
func TestEnvFromAnnotationRestartsOnlyWhenTheTemplateSaysSo(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 3, func(f fields) {
			f.Template.Annotations = map[string]string{"test-env": "foo"}
			envFrom(f, 0, "TEST_ENV", "metadata.annotations['test-env']")
		})
		e.WaitAvailable("web", 3)
		before := e.Pods("web")
		edited := before[0].Name
		patchPod(e, edited, `{"metadata":{"annotations":{"test-env":"bar"}}}`)
		e.Throughout("a Pod edited by hand restarts nothing", harness.Still, func() string {
			s := status(e, *getPod(e, edited), "app")
			if s.RestartCount != 0 || s.ContainerID != status(e, before[0], "app").ContainerID {
				return fmt.Sprintf("%d restarts, container %s", s.RestartCount, s.ContainerID)
			}
			return ""
		})

		watch := e.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})
		api.change(e, func(f fields) { f.Template.Annotations["test-env"] = "bar" })
		e.WaitAvailable("web", 3)
		watch.Check(e)
		e.RequireSamePods("web", harness.Identities(before))
		for i, p := range e.Pods("web") {
			require.EqualValues(e.T, 1, harness.Restarts(p, "app"), "restarts of app in %s", p.Name)
			require.NotEqual(e.T, status(e, before[i], "app").ContainerID, status(e, p, "app").ContainerID, "container of %s", p.Name)
			require.Equal(e.T, "bar\n", envInside(e, p.Name, "TEST_ENV"), "env inside %s", p.Name)
		}
	})
}

// withRedis replaces the second container by one that is updated before the first. The
// barriers are those that a launch priority brings about, written by hand; their ConfigMap
// need not exist, so that they do not delay the first start.
func withRedis(f fields, command ...string) {
	barrier := func(key string) corev1.EnvVar {
		return corev1.EnvVar{Name: "KRUISE_CONTAINER_BARRIER", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "barrier"}, Key: key, Optional: new(true),
		}}}
	}
	f.Template.Spec.TerminationGracePeriodSeconds = new(int64(3))
	app := &f.Template.Spec.Containers[0]
	app.Env = append(app.Env, barrier("p_0"))
	f.Template.Spec.Containers[1] = corev1.Container{
		Name: "redis", Image: harness.Redis, ImagePullPolicy: corev1.PullIfNotPresent, Command: command,
		Env: []corev1.EnvVar{barrier("p_10")},
		Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"sleep", "10"}},
		}},
	}
}

// requireRedisFirst fails unless both containers restarted once, redis first and app only
// after redis' postStart hook.
func requireRedisFirst(e *harness.Env) {
	e.T.Helper()
	p := theOnlyPod(e)
	app, redis := status(e, p, "app"), status(e, p, "redis")
	require.EqualValues(e.T, 1, app.RestartCount, "restarts of app")
	require.EqualValues(e.T, 1, redis.RestartCount, "restarts of redis")
	require.NotNil(e.T, redis.State.Running)
	require.NotNil(e.T, app.LastTerminationState.Terminated)
	require.Equal(e.T, [][]string{{"redis"}, {"app"}}, recordOf(e, p).batches())
	ended, started := app.LastTerminationState.Terminated.FinishedAt, redis.State.Running.StartedAt
	require.True(e.T, ended.After(started.Time), "app ended at %s, redis was started at %s", ended, started)
}

// U3: containers of a higher priority are updated first, and the others wait for them.
func TestImagesAreUpdatedInTheOrderOfPriorities(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 1, func(f fields) {
			settled(f)
			withRedis(f, "sleep", "999")
		})
		waitCondition(e, "CloneSetAvailable")
		before := harness.Identities(e.Pods("web"))
		api.change(e, func(f fields) {
			f.Template.Spec.Containers[0].Image = harness.Nginx2
			f.Template.Spec.Containers[1].Image = harness.Sidecar1
		})
		e.WaitAvailable("web", 1)
		e.RequireSamePods("web", before)
		requireRedisFirst(e)
		waitCondition(e, "CloneSetAvailable")
	})
}

// U4: where the first container fails, the others are left alone.
func TestAFailingContainerHoldsBackThoseOfLowerPriority(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 1, func(f fields) {
			settled(f)
			withRedis(f)
		})
		waitCondition(e, "CloneSetAvailable")
		api.change(e, func(f fields) {
			f.Template.Spec.Containers[0].Image = harness.Nginx2
			f.Template.Spec.Containers[1].Image = harness.Sidecar1 // a shell, which ends at once
		})
		e.Eventually("redis ends again and again", harness.Long, func() string {
			s := status(e, theOnlyPod(e), "redis")
			if s.LastTerminationState.Terminated == nil || s.State.Waiting == nil {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
		p := theOnlyPod(e)
		require.EqualValues(e.T, 0, harness.Restarts(p, "app"), "restarts of app")
		r := recordOf(e, p)
		require.Equal(e.T, [][]string{{"redis"}}, r.batches())
		require.Equal(e.T, map[string]string{"app": harness.Nginx2}, r.NextContainerImages)
		waitCondition(e, "CloneSetUpdated")
	})
}

// U5: the same order for an image and an env from an annotation.
func TestImageAndEnvFollowPriorities(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 1, func(f fields) {
			settled(f)
			withRedis(f, "sleep", "999")
			f.Template.Annotations = map[string]string{"config": "foo"}
			envFrom(f, 1, "CONFIG", "metadata.annotations['config']")
		})
		waitCondition(e, "CloneSetAvailable")
		before := harness.Identities(e.Pods("web"))
		api.change(e, func(f fields) {
			f.Template.Spec.Containers[0].Image = harness.Nginx2
			f.Template.Annotations["config"] = "bar"
		})
		e.WaitAvailable("web", 1)
		e.RequireSamePods("web", before)
		requireRedisFirst(e)
		waitCondition(e, "CloneSetAvailable")
	})
}

// U6: a partition of 99% of four Pods updates one.
func TestPartitionOf99PercentUpdatesOnePod(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 4, func(f fields) {
			settled(f)
			*f.MaxUnavailable, *f.Partition = new(intstr.FromString("50%")), new(intstr.FromString("99%"))
			f.Template.Spec.Containers[0].Image = harness.SameImage1
		})
		waitCondition(e, "CloneSetAvailable")
		watch := e.Observe("web", harness.Limits{MinReady: 3, MaxPods: 4, KeepPods: true})
		api.change(e, func(f fields) { f.Template.Spec.Containers[0].Image = harness.SameImage2 })
		e.WaitUpdated("web", 4, 1)
		waitCondition(e, "ProgressPartitionAvailable")
		e.Throughout("no second Pod is updated", harness.Still, func() string {
			if n := e.CloneSet("web").Status.UpdatedReplicas; n != 1 {
				return fmt.Sprintf("%d updated", n)
			}
			return ""
		})
		watch.Check(e)
		s := e.CloneSet("web").Status
		require.EqualValues(e.T, 1, s.UpdatedReadyReplicas)
		require.EqualValues(e.T, 1, s.ExpectedUpdatedReplicas)
	})
}

// U10: resources that make another QoS class need another Pod.
func TestAnotherQOSClassNeedsAnotherPod(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 1, func(f fields) {
			settled(f)
			f.Template.Labels["test-env"] = "foo"
			f.Template.Spec.Containers = f.Template.Spec.Containers[:1]
			f.Template.Spec.Containers[0].Resources = oldResources
			envFrom(f, 0, "TEST_ENV", "metadata.labels['test-env']")
		})
		waitCondition(e, "CloneSetAvailable")
		before := theOnlyPod(e)
		require.Equal(e.T, corev1.PodQOSBurstable, before.Status.QOSClass)
		api.change(e, func(f fields) {
			f.Template.Spec.Containers[0].Resources = resources("100m", "128Mi", "100m", "128Mi")
		})
		e.WaitAvailable("web", 1)
		waitCondition(e, "CloneSetAvailable")
		after := theOnlyPod(e)
		require.NotEqual(e.T, before.UID, after.UID)
		require.Equal(e.T, corev1.PodQOSGuaranteed, after.Status.QOSClass)
	})
}

// P1: images are pulled ahead, as many nodes at once as the CloneSet says.
func TestImagesArePulledAheadWithTheParallelismAskedFor(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 5, func(f fields) {
			settled(f)
			*f.Partition = new(intstr.FromInt32(1))
		})
		waitCondition(e, "CloneSetAvailable")
		api.change(e, func(f fields) {
			f.Template.Spec.Containers[0].Image = harness.Nginx3
			f.PullParallelism("2")
		})
		// Whoever sees the new generation observed sees the job.
		waitStatus(e, "the change is seen", func(v1beta1.CloneSetStatus) bool { return true })
		require.Equal(e.T, [][2]string{{harness.Nginx3, "2"}}, api.pulls(e))
		waitCondition(e, "ProgressPartitionAvailable")
	})
}

// D1: nothing is updated but what somebody deletes. Only v1beta1 has the type.
func TestOnDeleteUpdatesOnlyWhatIsDeleted(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	b := beta{}
	e.Create(harness.WebSet("web", 5, func(cs *v1beta1.CloneSet) {
		settled(b.fields(cs))
		cs.Spec.UpdateStrategy = v1beta1.CloneSetUpdateStrategy{Type: v1beta1.OnDeleteCloneSetUpdateStrategyType}
	}))
	e.WaitAvailable("web", 5)
	scale := func(n int32) {
		e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Replicas = new(n) })
	}
	remove := func(p corev1.Pod) { require.NoError(t, e.Client.Delete(e.Ctx(), &p)) }

	e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx2 })
	waitCondition(e, "CloneSetUpdated")
	before := e.Pods("web")
	e.Throughout("nothing is updated", harness.Still, func() string {
		if n := e.CloneSet("web").Status.UpdatedReplicas; n != 0 {
			return fmt.Sprintf("%d updated", n)
		}
		return ""
	})
	e.RequireSamePods("web", harness.Identities(before))

	remove(before[0])
	remove(before[1])
	e.WaitUpdated("web", 5, 2)
	scale(3) // old ones go first
	e.WaitUpdated("web", 3, 2)
	scale(5)
	e.WaitUpdated("web", 5, 4)
	left := slices.DeleteFunc(e.Pods("web"), func(p corev1.Pod) bool { return harness.Image(p, "app") != harness.Nginx1 })
	require.Len(t, left, 1, "old Pods")
	remove(left[0])
	e.WaitAvailable("web", 5)
	waitCondition(e, "CloneSetAvailable")
}

// A surge replaces every Pod without one ready Pod less.
func TestSurgeReplacesWithoutAnyUnavailability(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 3, harness.Policy(v1beta1.RecreatePodUpdatePolicyType), func(cs *v1beta1.CloneSet) {
		cs.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(0))
		cs.Spec.UpdateStrategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(1))
	}))
	e.WaitAvailable("web", 3)
	before := harness.Identities(e.Pods("web"))
	watch := e.Observe("web", harness.Limits{MinReady: 3, MaxActive: 4})
	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx2)
	e.Kruisectl("rollout", "status", "cloneset/web", "--timeout", "6m")
	e.WaitAvailable("web", 3)
	watch.Check(e)
	for _, p := range e.Pods("web") {
		require.NotContains(t, before, p.Name)
		require.Equal(t, harness.Nginx2, harness.Image(p, "app"))
	}
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The letters in comments are the scenarios of docs/conformance.md.

// C2: a Pod waits for the finalizer of its preNormal hook; it is ready, not available.
func TestPreNormalHookHoldsAPodBackFromBeingAvailable(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		const finalizer = "finalizers.sigs.k8s.io/test"
		api.create(e, 1, func(f fields) {
			f.ZeroStrategy()
			*f.Deadline = new(int32(11))
			*f.Lifecycle = &v1beta1.Lifecycle{PreNormal: &v1beta1.LifecycleHook{FinalizersHandler: []string{finalizer}}}
		})
		waitStatus(e, "the Pod is ready", func(s v1beta1.CloneSetStatus) bool { return s.ReadyReplicas == 1 })
		waitCondition(e, "ProgressDeadlineExceeded")
		require.Zero(e.T, e.CloneSet("web").Status.AvailableReplicas)

		// A plain write of the Pod as it was listed: the controller must have let go of it.
		pod := theOnlyPod(e)
		require.Equal(e.T, string(v1beta1.LifecyclePreparingNormal), pod.Labels[v1beta1.LifecycleStateLabel])
		pod.Finalizers = append(pod.Finalizers, finalizer)
		require.NoError(e.T, e.Client.Update(e.Ctx(), &pod))
		waitState(e, pod.Name, v1beta1.LifecycleNormal)

		patchPod(e, pod.Name, `{"metadata":{"finalizers":null}}`)
		waitStatus(e, "the Pod is available", func(s v1beta1.CloneSetStatus) bool { return s.AvailableReplicas == 1 })
		waitCondition(e, "CloneSetAvailable")
	})
}

// C3: a Pod that cannot be scheduled is replaced as soon as the template is repaired.
func TestUnschedulablePodIsReplacedByTheRepairedTemplate(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 1, func(f fields) {
			f.ZeroStrategy()
			*f.Deadline = new(int32(8))
			f.Template.Spec.SchedulerName = "unschedulable"
		})
		waitStatus(e, "one Pod", func(s v1beta1.CloneSetStatus) bool { return s.Replicas == 1 })
		e.Throughout("the Pod waits for its scheduler", harness.Still, func() string {
			p := theOnlyPod(e)
			if state := p.Labels[v1beta1.LifecycleStateLabel]; p.Status.Phase != corev1.PodPending || state != string(v1beta1.LifecyclePreparingNormal) {
				return fmt.Sprintf("phase %s, state %s", p.Status.Phase, state)
			}
			return ""
		})
		waitCondition(e, "ProgressDeadlineExceeded")

		api.change(e, func(f fields) { f.Template.Spec.SchedulerName = "" })
		e.WaitAvailable("web", 1)
		require.Equal(e.T, string(v1beta1.LifecycleNormal), theOnlyPod(e).Labels[v1beta1.LifecycleStateLabel])
		waitCondition(e, "CloneSetAvailable")
	})
}

// C4, C5: the largest numbers mean never, and do not overflow.
func TestTheLargestSecondsMeanNever(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		none := func(cs *v1beta1.CloneSet) {
			require.Equal(e.T, "no condition Progressing", conditionIs(cs, "CloneSetAvailable"))
		}
		ready := func(s v1beta1.CloneSetStatus) bool { return s.ReadyReplicas == 1 }
		api.create(e, 1, func(f fields) {
			*f.MinReady = math.MaxInt32
			*f.Deadline = new(int32(math.MaxInt32))
		})
		waitStatus(e, "the Pod is ready", ready)
		cs := e.CloneSet("web")
		require.EqualValues(e.T, math.MaxInt32, cs.Spec.MinReadySeconds)
		require.EqualValues(e.T, math.MaxInt32, *cs.Spec.ProgressDeadlineSeconds)
		require.Zero(e.T, cs.Status.AvailableReplicas)
		none(cs)

		api.change(e, func(f fields) { *f.MinReady, *f.Deadline = 1, nil })
		e.WaitAvailable("web", 1)
		none(e.CloneSet("web"))

		api.change(e, func(f fields) { *f.Deadline = new(int32(600)) })
		waitCondition(e, "CloneSetAvailable")
		require.EqualValues(e.T, 600, *e.CloneSet("web").Spec.ProgressDeadlineSeconds)
	})
}

// S2: scaling out creates one Pod after the other has become available.
func TestScaleOutWaitsForEachPod(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 3, func(cs *v1beta1.CloneSet) {
		cs.Spec.MinReadySeconds = int32(harness.MinReady / time.Second)
		cs.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(1))
	}))
	e.WaitAvailable("web", 3)
	pods := e.Pods("web")
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for i := 1; i < len(pods); i++ {
		for _, c := range pods[i-1].Status.Conditions {
			if c.Type != corev1.PodReady {
				continue
			}
			after := pods[i].CreationTimestamp.Sub(c.LastTransitionTime.Time)
			// Both times are cut to whole seconds.
			require.GreaterOrEqual(t, after, harness.MinReady-time.Second, "Pod %s was created this long after %s was ready", pods[i].Name, pods[i-1].Name)
		}
	}
}

// S3: a paused CloneSet still creates its Pods.
func TestPausedCloneSetStillScales(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 3, func(f fields) {
			*f.Paused, *f.MinReady, *f.Deadline = true, 60, new(int32(600))
		})
		waitStatus(e, "three Pods", func(s v1beta1.CloneSetStatus) bool { return s.Replicas == 3 })
		waitCondition(e, "CloneSetPaused")
		waitStatus(e, "three Pods are ready", func(s v1beta1.CloneSetStatus) bool { return s.ReadyReplicas == 3 })
	})
}

// hooked lets a label of the Pods hold their deletion.
func hooked(f fields) {
	*f.Deadline = new(int32(600))
	f.Template.Labels["lifecycle-hook"] = "true"
	*f.Lifecycle = &v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"lifecycle-hook": "true"}}}
}

// release takes the hook from a Pod and waits until it is gone, and two of the old ones
// and a new one are there.
func release(e *harness.Env, pod string, before []corev1.Pod) {
	e.T.Helper()
	patchPod(e, pod, `{"metadata":{"labels":{"lifecycle-hook":null}}}`)
	e.Eventually("Pod "+pod+" is replaced", harness.Short, func() string {
		old, all := 0, e.Pods("web")
		for _, p := range all {
			if p.Name == pod {
				return "it still exists"
			}
			if slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == p.UID }) {
				old++
			}
		}
		if len(all) != 3 || old != 2 {
			return fmt.Sprintf("%d Pods, %d of them old", len(all), old)
		}
		return ""
	})
	waitStatus(e, "three Pods", func(s v1beta1.CloneSetStatus) bool { return s.Replicas == 3 })
	waitCondition(e, "CloneSetAvailable")
}

// S4: a Pod that is to go waits for its hook, and counts until it goes.
func TestSpecifiedDeleteWaitsForItsHook(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 3, hooked)
		waitCondition(e, "CloneSetAvailable")
		before := e.Pods("web")
		first := before[0].Name

		patchPod(e, first, `{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"}}}`)
		waitState(e, first, v1beta1.LifecyclePreparingDelete)
		e.Throughout("the Pod still counts", harness.Still, func() string {
			if n := e.CloneSet("web").Status.Replicas; n != 3 {
				return fmt.Sprintf("%d replicas", n)
			}
			return ""
		})
		waitCondition(e, "CloneSetUpdated")
		release(e, first, before)
	})
}

// S5: the same, where Pods that wait to go do not count.
func TestPodsToDeleteWaitForTheirHookWithoutCounting(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 3, func(f fields) {
			hooked(f)
			f.ExcludePreparingDelete()
		})
		waitCondition(e, "CloneSetAvailable")
		before := e.Pods("web")
		first := before[0].Name

		api.change(e, func(f fields) {
			*f.Replicas, *f.PodsToDelete = new(int32(2)), []string{first}
		})
		waitState(e, first, v1beta1.LifecyclePreparingDelete)
		require.EqualValues(e.T, 3, e.CloneSet("web").Status.Replicas)
		waitCondition(e, "CloneSetUpdated")

		api.change(e, func(f fields) { *f.Replicas = new(int32(3)) })
		waitStatus(e, "a fourth Pod", func(s v1beta1.CloneSetStatus) bool { return s.Replicas == 4 })
		require.Empty(e.T, conditionIs(e.CloneSet("web"), "CloneSetUpdated"))
		release(e, first, before)
	})
}

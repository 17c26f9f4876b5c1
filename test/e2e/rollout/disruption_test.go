//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

const manager = "kruise-controller-manager"

// The tests of this file disturb every other one, so they are not parallel: they run
// before the parallel ones start.

func TestLeaderKilledInTheMiddleOfARollout(t *testing.T) {
	e := harness.New(t)
	e.Create(harness.WebSet("web", 6))
	e.WaitAvailable("web", 6)
	before := harness.Identities(e.Pods("web"))
	watch := e.Observe("web", harness.Limits{MinReady: 5, MaxPods: 6, KeepPods: true})

	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx2)
	e.Eventually("the rollout is on its way", harness.Long, func() string {
		n := harness.CountImage(e.Pods("web"), "app", harness.Nginx2)
		if n == 0 {
			return "no Pod updated yet"
		}
		return ""
	})
	killed := e.KillLeader()
	t.Logf("killed the leader %s with %d of 6 Pods updated", killed, harness.CountImage(e.Pods("web"), "app", harness.Nginx2))
	e.WaitAvailable("web", 6)
	watch.Check(e)
	e.RequireSamePods("web", before)
	waitForManager(e, 2)
}

func TestPodsOfOtherWorkloadsAreCreatedWhileTheManagerIsDown(t *testing.T) {
	e := harness.New(t)
	e.Create(harness.WebSet("web", 2))
	e.WaitAvailable("web", 2)
	scaleManager(e, 0)
	t.Cleanup(func() { scaleManager(e, 2) })
	waitForNoManager(e)

	labels := map[string]string{"app": "native"}
	e.Create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "native"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{
					Name: "app", Image: harness.Nginx1, ImagePullPolicy: corev1.PullIfNotPresent,
				}}},
			},
		},
	})
	e.Eventually("the Deployment is available", harness.Long, func() string {
		d := &appsv1.Deployment{}
		if err := e.Client.Get(e.Ctx(), e.Key("native"), d); err != nil {
			return err.Error()
		}
		if d.Status.AvailableReplicas != 2 {
			return fmt.Sprintf("%d of 2 available", d.Status.AvailableReplicas)
		}
		return ""
	})

	r := e.Try("status")
	require.Equal(t, 3, r.Code, "exit code of kruisectl status while the manager is down:\n%s", r.Text())
}

func scaleManager(e *harness.Env, replicas int32) {
	e.T.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: harness.SystemNamespace, Name: manager}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	ctx := e.Background()
	if err := e.Client.Patch(ctx, d, patch); err != nil {
		e.T.Errorf("scaling the manager to %d: %v", replicas, err)
	}
	if replicas > 0 {
		waitForManager(e, replicas)
	}
}

func waitForManager(e *harness.Env, replicas int32) {
	e.T.Helper()
	ctx := e.Background()
	e.EventuallyIn(ctx, "the manager is available", harness.Long, func() string {
		d := &appsv1.Deployment{}
		key := client.ObjectKey{Namespace: harness.SystemNamespace, Name: manager}
		if err := e.Client.Get(ctx, key, d); err != nil {
			return err.Error()
		}
		if d.Status.AvailableReplicas != replicas || d.Status.Replicas != replicas {
			return fmt.Sprintf("%d of %d available", d.Status.AvailableReplicas, replicas)
		}
		return ""
	})
}

func waitForNoManager(e *harness.Env) {
	e.T.Helper()
	e.Eventually("no manager Pod is left", harness.Long, func() string {
		pods := &corev1.PodList{}
		if err := e.Client.List(e.Ctx(), pods, client.InNamespace(harness.SystemNamespace), client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
			return err.Error()
		}
		if n := len(pods.Items); n > 0 {
			return fmt.Sprintf("%d left", n)
		}
		return ""
	})
}

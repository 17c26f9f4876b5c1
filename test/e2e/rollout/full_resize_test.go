//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

func resources(cpu, memory, cpuLimit, memoryLimit string) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(cpuLimit, memoryLimit)}
}

var (
	oldResources = resources("20m", "32Mi", "100m", "128Mi")
	newResources = resources("10m", "24Mi", "80m", "160Mi")
	tooLarge     = resources("100", "1000Gi", "800", "8000Gi")
)

// resizePolicies are those of InplaceVPA; restarts says whether a resize restarts the container.
var resizePolicies = map[string]struct {
	policy   []corev1.ContainerResizePolicy
	restarts bool
}{
	"restart for both": {[]corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer},
		{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
	}, true},
	"restart for memory": {[]corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}, true},
	"no restart": {[]corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
		{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.NotRequired},
	}, false},
}

// requireResized fails unless the kubelet reports what the template of web asks for, in the
// Pod that was there before.
func requireResized(e *harness.Env, before corev1.Pod, want corev1.ResourceRequirements) {
	e.T.Helper()
	after := theOnlyPod(e)
	require.Equal(e.T, before.UID, after.UID)
	got := status(e, after, "app").Resources
	require.NotNil(e.T, got, "resources that the kubelet reports")
	for name, lists := range map[string][2]corev1.ResourceList{"requests": {want.Requests, got.Requests}, "limits": {want.Limits, got.Limits}} {
		for key, q := range lists[0] {
			reported := lists[1][key]
			require.Zero(e.T, q.Cmp(reported), "%s of %s: asked for %s, reported %s", name, key, &q, &reported)
		}
	}
}

// InplaceVPA: cpu and memory change in the running Pod, with and without a new image.
func TestResourcesChangeInPlace(t *testing.T) {
	t.Parallel()
	for name, tc := range resizePolicies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t)
			e.Create(harness.WebSet("web", 1, func(cs *v1beta1.CloneSet) {
				c := &cs.Spec.Template.Spec.Containers[0]
				c.Resources, c.ResizePolicy = oldResources, tc.policy
			}))
			e.WaitAvailable("web", 1)
			before := theOnlyPod(e)

			e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Resources = newResources })
			e.WaitAvailable("web", 1)
			requireResized(e, before, newResources)
			restarts := harness.Restarts(theOnlyPod(e), "app")
			require.Equal(t, tc.restarts, restarts > 0, "restarts after a resize: %d", restarts)

			e.Update("web", func(cs *v1beta1.CloneSet) {
				cs.Spec.Template.Spec.Containers[0].Resources = oldResources
				cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx2
			})
			e.WaitAvailable("web", 1)
			requireResized(e, before, oldResources)
			require.Greater(t, harness.Restarts(theOnlyPod(e), "app"), restarts)
			require.Equal(t, harness.Nginx2, harness.Image(theOnlyPod(e), "app"))
		})
	}
}

// InplaceVPA: a resize that no node can do. Newer API servers refuse it themselves, so that
// the Pod is recreated and waits for a node; the next change of the template repairs it.
func TestAResizeThatNoNodeCanDoIsRepaired(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 1, func(f fields) { f.Template.Spec.Containers[0].Resources = oldResources })
		e.WaitAvailable("web", 1)

		api.change(e, func(f fields) {
			f.Template.Spec.Containers[0].Resources = tooLarge
			f.Template.Spec.Containers[0].Image = harness.Nginx2
		})
		e.Eventually("the Pod of the update revision waits for resources", harness.Long, func() string {
			pods, update := e.Pods("web"), e.CloneSet("web").Status.UpdateRevision
			if len(pods) != 1 || !revision.SameRevision(pods[0].Labels["controller-revision-hash"], update) {
				return "no Pod is at the update revision"
			}
			for _, c := range pods[0].Status.Conditions {
				infeasible := c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible
				unschedulable := c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
				if infeasible || unschedulable {
					return ""
				}
			}
			return fmt.Sprintf("conditions %+v", pods[0].Status.Conditions)
		})
		require.Zero(e.T, e.CloneSet("web").Status.UpdatedAvailableReplicas)
		require.NotZero(e.T, e.Try("rollout", "status", "cloneset/web", "--timeout", "5s").Code, "exit code while the Pod waits")
		require.Contains(e.T, e.Try("why", "cloneset/web").Stdout, "cpu")

		api.change(e, func(f fields) { f.Template.Spec.Containers[0].Resources = newResources })
		e.WaitAvailable("web", 1)
		after := theOnlyPod(e)
		requireResized(e, after, newResources)
		require.Equal(e.T, harness.Nginx2, harness.Image(after, "app"))
	})
}

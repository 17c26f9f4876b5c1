//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// inPlace updates in place, n nodes at a time.
func inPlace(n int32) func(fields) {
	return func(f fields) {
		f.Rolling.RollingUpdateType, f.Rolling.MaxUnavailable = v1beta1.InplaceRollingUpdateType, new(intstr.FromInt32(n))
	}
}

// D3: a Pod that has failed is replaced, and its object goes.
func TestAFailedPodIsReplaced(t *testing.T) {
	inBothVersions(t, func(s suite) {
		s.create()
		s.waitOn(s.nodes())
		failed := s.Pods(agentName)[0]
		s.Eventually("the Pod is marked as failed", harness.Short, func() string {
			p := &corev1.Pod{}
			if err := s.Client.Get(s.Ctx(), s.Key(failed.Name), p); err != nil {
				return err.Error()
			}
			p.Status.Phase = corev1.PodFailed
			return text(s.Client.Status().Update(s.Ctx(), p))
		})
		s.Eventually("the failed Pod is gone", harness.Long, func() string {
			err := s.Client.Get(s.Ctx(), s.Key(failed.Name), &corev1.Pod{})
			if apierrors.IsNotFound(err) {
				return ""
			}
			return fmt.Sprintf("it still exists (%v)", err)
		})
		s.waitOn(s.nodes())
	})
}

// D4: an image changes in the Pods that are there.
func TestAnImageChangesInPlace(t *testing.T) {
	inBothVersions(t, func(s suite) {
		s.create(inPlace(5))
		s.waitComplete()
		before := harness.Identities(s.Pods(agentName))
		s.change(func(f fields) { container(f).Image = harness.Nginx2 })
		s.waitComplete()
		s.RequireSamePods(agentName, before)
		s.requireGate(s.Pods(agentName))
		for _, p := range s.Pods(agentName) {
			require.True(s.T, strings.HasSuffix(p.Status.ContainerStatuses[0].Image, harness.Nginx2), "image that %s runs: %s", p.Name, p.Status.ContainerStatuses[0].Image)
		}
	})
}

// D5: where in place is impossible, Pods are recreated.
func TestAnotherEnvironmentTakesOtherPods(t *testing.T) {
	inBothVersions(t, func(s suite) {
		s.create(inPlace(20))
		s.waitComplete()
		before := names(s.all())
		s.change(func(f fields) { container(f).Image = harness.Nginx2 })
		s.waitComplete()
		require.Equal(s.T, before, names(s.all()))
		s.requireGate(s.all())

		s.change(func(f fields) { container(f).Env = []corev1.EnvVar{{Name: "NEW", Value: "yes"}} })
		st := s.waitComplete()
		require.Equal(s.T, st.DesiredNumberScheduled, st.UpdatedNumberScheduled)
		require.True(s.T, slices.ContainsFunc(s.Pods(agentName), func(p corev1.Pod) bool { return !slices.Contains(before, p.Name) }), "a Pod with another name")
		s.requireGate(s.all())
	})
}

// D6: a hook holds the one Pod that may go, and the others wait for it.
func TestAHookHoldsOnePodAndTheOthersWait(t *testing.T) {
	inBothVersions(t, func(s suite) {
		const hook = "my-pre-delete"
		s.create(inPlace(1), func(f fields) {
			f.Template.Labels[hook] = "true"
			*f.Lifecycle = &v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{hook: "true"}}}
			container(f).Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
		})
		s.waitComplete()
		before := names(s.Pods(agentName))
		s.change(func(f fields) {
			container(f).Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("12m")}
			container(f).Env = []corev1.EnvVar{{Name: "NEW", Value: "yes"}}
		})
		s.waitGeneration(2)
		var held []string
		preparing := func() []string {
			held = nil
			for _, p := range s.Pods(agentName) {
				if p.Labels[v1beta1.LifecycleStateLabel] == string(v1beta1.LifecyclePreparingDelete) {
					held = append(held, p.Name)
				}
			}
			return held
		}
		s.Eventually("one Pod is held by its hook", harness.Short, func() string {
			if n := len(preparing()); n != 1 {
				return fmt.Sprintf("%d Pods", n)
			}
			return ""
		})
		s.Throughout("one Pod is held, none is replaced", harness.Still, func() string {
			if n := len(preparing()); n != 1 || !slices.Equal(before, names(s.Pods(agentName))) {
				return fmt.Sprintf("%d Pods are held, Pods %v", n, names(s.Pods(agentName)))
			}
			return ""
		})

		released := held[0]
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+hook+`":null}}}`))
		p := &corev1.Pod{}
		p.Namespace, p.Name = s.Namespace, released
		require.NoError(s.T, s.Client.Patch(s.Ctx(), p, patch))
		s.Eventually("the Pod goes and one is updated", harness.Long, func() string {
			err := s.Client.Get(s.Ctx(), s.Key(released), &corev1.Pod{})
			if !apierrors.IsNotFound(err) {
				return fmt.Sprintf("it still exists (%v)", err)
			}
			updated := 0
			for _, p := range s.Pods(agentName) {
				if p.Labels["controller-revision-hash"] == s.set().Status.UpdateRevision {
					updated++
				}
			}
			if updated != 1 {
				return fmt.Sprintf("%d Pods are updated", updated)
			}
			return ""
		})
	})
}

// D7: a surge keeps the old Pod until the new one is available, on every node.
func TestASurgeKeepsTheOldPodUntilTheNewOneIsAvailable(t *testing.T) {
	inBothVersions(t, func(s suite) {
		const minReady = 10
		s.create(func(f fields) {
			f.Rolling.MaxSurge, f.Rolling.MaxUnavailable = new(intstr.FromString("100%")), new(intstr.FromInt32(0))
			*f.MinReady = minReady
			container(f).Command = []string{"sleep", "1000000"} // ignores the signal to end, and so takes its 3 s
		})
		s.waitComplete()
		nodes := s.nodes()
		old := map[types.UID]bool{}
		for _, p := range s.all() {
			old[p.UID] = true
		}
		s.change(func(f fields) { container(f).Image = harness.Nginx2 })

		doubled := map[string]bool{}
		s.Eventually("every node had two Pods", harness.Long, func() string {
			on := byNode(s.all())
			require.Len(s.T, on, len(nodes), "nodes with Pods")
			for node, pods := range on {
				if doubled[node] || len(pods) < 2 {
					continue
				}
				for _, p := range pods {
					if old[p.UID] {
						require.Nil(s.T, p.DeletionTimestamp, "Pod %s goes although the new one was only just made", p.Name)
					}
				}
				doubled[node] = true
			}
			if len(doubled) < len(nodes) {
				return fmt.Sprintf("so far %v", doubled)
			}
			return ""
		})
		s.Eventually("every node has one Pod", harness.Long, func() string {
			on := byNode(s.all())
			require.Len(s.T, on, len(nodes), "nodes with Pods")
			single := 0
			for node, pods := range on {
				if len(pods) > 1 {
					continue
				}
				single++
				p := pods[0]
				require.False(s.T, old[p.UID], "the new Pod is the one left on %s", node)
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodReady {
						require.Equal(s.T, corev1.ConditionTrue, c.Status, "the one Pod on %s is ready", node)
						require.GreaterOrEqual(s.T, time.Since(c.LastTransitionTime.Time), (minReady+1)*time.Second, "it was ready for this long when it was alone")
					}
				}
			}
			if single < len(nodes) {
				return fmt.Sprintf("%d nodes have one Pod", single)
			}
			return ""
		})
		s.waitComplete()
	})
}

// D9: resources and image change together, with one restart.
func TestResourcesAndImageChangeInPlace(t *testing.T) {
	t.Parallel()
	s := newSuite(t, alpha{})
	resources := func(cpu, memory, cpuLimit, memoryLimit string) corev1.ResourceRequirements {
		list := func(cpu, memory string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		}
		return corev1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(cpuLimit, memoryLimit)}
	}
	s.create(inPlace(1), func(f fields) { container(f).Resources = resources("20m", "32Mi", "100m", "128Mi") })
	s.waitComplete()
	before := harness.Identities(s.Pods(agentName))
	want := resources("10m", "24Mi", "80m", "160Mi")
	s.change(func(f fields) {
		container(f).Image = harness.Nginx2
		container(f).Resources = want
	})
	s.waitGeneration(2)
	st := s.waitComplete()
	require.EqualValues(t, len(before), st.UpdatedNumberScheduled-st.NumberUnavailable)
	s.RequireSamePods(agentName, before)
	for _, p := range s.Pods(agentName) {
		require.EqualValues(t, 1, harness.Restarts(p, "busybox"), "restarts of %s", p.Name)
		got := p.Status.ContainerStatuses[0].Resources
		require.NotNil(t, got, "resources that the kubelet reports")
		require.Zero(t, want.Limits.Memory().Cmp(*got.Limits.Memory()), "memory limit of %s", p.Name)
		require.Zero(t, want.Requests.Cpu().Cmp(*p.Spec.Containers[0].Resources.Requests.Cpu()), "cpu request of %s", p.Name)
	}
}

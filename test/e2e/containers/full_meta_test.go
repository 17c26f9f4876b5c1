//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The environment of a running process is what it was started with, whatever its Pod's
// annotations have become, and whoever looks: an agent that starts after a hand-made change
// must not take that for the process's own. So the template's change restarts every
// container, exactly once.
func TestWhatAProcessWasStartedWithSurvivesTheAgent(t *testing.T) {
	s := newSuite(t, v1beta1Version) // not parallel: it kills an agent
	replicas := int32(len(s.NodeNames()))
	s.Create(harness.WebSet("web", replicas, func(cs *v1beta1.CloneSet) {
		cs.Spec.Template.Annotations = map[string]string{"test-env": "foo"}
		cs.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{
			Name: "TEST_ENV", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['test-env']"}},
		}}
	}))
	s.WaitAvailable("web", replicas)
	before := s.Pods("web")
	edited := before[0]
	require.NoError(t, s.Client.Patch(s.Ctx(), edited.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"test-env":"bar"}}}`))))
	restarts := harness.AgentRestarts(s.Agent(edited.Spec.NodeName))
	s.CrashAgent(edited.Spec.NodeName)
	s.WaitAgent(edited.Spec.NodeName, restarts)
	s.Throughout("a Pod edited by hand restarts nothing", harness.Still, func() string {
		p := s.pod(edited.Name)
		if c := container(t, p, "app"); c.RestartCount != 0 || c.ContainerID != container(t, &edited, "app").ContainerID {
			return fmt.Sprintf("%d restarts", c.RestartCount)
		}
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == v1beta1.InPlaceUpdateReady && c.Status == corev1.ConditionFalse
		}) {
			return "it is being updated"
		}
		return ""
	})

	watch := s.Observe("web", harness.Limits{MinReady: int(replicas) - 1, MaxPods: int(replicas), KeepPods: true})
	s.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Annotations["test-env"] = "bar" })
	s.WaitAvailable("web", replicas)
	watch.Check(s.Env)
	s.RequireSamePods("web", harness.Identities(before))
	for i, p := range s.Pods("web") {
		require.EqualValues(t, 1, harness.Restarts(p, "app"), "restarts of app in %s", p.Name)
		require.Zero(t, harness.Restarts(p, "sidecar"), "restarts of sidecar in %s", p.Name)
		require.NotEqual(t, container(t, &before[i], "app").ContainerID, container(t, &p, "app").ContainerID)
	}
}

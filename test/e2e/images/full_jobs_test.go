//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// inBothVersions runs a scenario twice at once, as a client of each version.
func inBothVersions(t *testing.T, scenario func(s suite)) {
	t.Parallel()
	for name, api := range map[string]version{"v1beta1": beta{}, "v1alpha1": alpha{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(newSuite(t, api))
		})
	}
}

// Scenario 1 as a client of the old version.
func TestASecretOpensARegistryForAnOldClient(t *testing.T) {
	t.Parallel()
	secretScenario(newSuite(t, alpha{}))
}

// Scenario 2.
func TestACompletedJobKeepsItsTagAndDropsItsSecret(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakePrivateImage("app", 1, 1000)
		registry, user, password := registryUser()
		source := s.PullSecret("pull-secret", registry, user, password)
		nodes := s.NodeNames()
		s.pull("job", image.Ref, secrets("pull-secret"), parallel(1), attempts(60, 2))
		s.waitCopied("job", source.Data)
		s.waitCompleted("job", len(nodes), 0)
		s.waitNoCopy("pull-secret")
		s.Throughout("the tag stays", harness.Still, func() string {
			if tagOf(s.nodeImage(nodes[0]), image.Ref) == nil {
				return "it is gone"
			}
			return ""
		})
		require.Empty(s.T, s.job("job").GetFinalizers(), "a completed job is held by nobody")
		s.RequireDownloadedOnce(image, nodes...)
	})
}

// Scenario 3.
func TestANeverEndingJobFollowsItsSecret(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakePrivateImage("app", 1, 1000)
		registry, user, password := registryUser()
		source := s.PullSecret("pull-secret", registry, user, password)
		nodes := s.NodeNames()
		s.pull("job", image.Ref, secrets("pull-secret"), parallel(4), never)
		s.waitDesired(len(nodes))
		s.waitCopied("job", source.Data)
		source.Data[corev1.DockerConfigJsonKey] = harness.DockerConfig("other.registry.test", user, password)
		require.NoError(s.T, s.Client.Update(s.Ctx(), source))
		s.waitCopied("job", source.Data)
		source.Data[corev1.DockerConfigJsonKey] = harness.DockerConfig(registry, user, password)
		require.NoError(s.T, s.Client.Update(s.Ctx(), source))
		s.waitCopied("job", source.Data)
		s.waitSucceeded("job", len(nodes))

		j := s.job("job")
		require.Contains(s.T, j.GetFinalizers(), v1beta1.ImagePullJobFinalizer)
		require.NoError(s.T, s.Client.Delete(s.Ctx(), j.Object))
		s.waitGone("ImagePullJob", s.api.job().Object, "job")
		s.waitTagGone(image.Ref)
		s.waitNoCopy("pull-secret")
	})
}

// Scenario 4: a secret of the old type with the content of the new one.
func TestAMalformedSecretDoesNotStopAPull(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 1, 1000)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull-secret"}, Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{
			corev1.DockerConfigKey: harness.DockerConfig("https://index.docker.io/v1/", "ann", "secret"),
		}}
		s.Create(secret)
		nodes := s.NodeNames()
		s.pull("job", image.Ref, secrets("pull-secret"), parallel(4), attempts(60, 2), ttl(20))
		s.waitCompleted("job", len(nodes), 0)
		s.RequireDownloadedOnce(image, nodes...)
		s.waitGone("ImagePullJob", s.api.job().Object, "job")
		s.waitTagGone(image.Ref)
		s.waitNoCopy("pull-secret")
	})
}

// Scenario 5.
func TestAJobForOneNode(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 1, 1000)
		s.pull("job", image.Ref, on("node2"), parallel(10))
		s.waitDesired(1)
		s.waitCompleted("job", 1, 0)
		s.RequireDownloadedOnce(image, "node2")
		require.NoError(s.T, s.Client.Delete(s.Ctx(), s.job("job").Object))
		s.waitTagGone(image.Ref)
	})
}

// Scenario 7: the first job has the image, so the second one succeeds without a download.
func TestTwoJobsForOneImage(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 2, 1000)
		s.pull("first", image.Ref, on("node1"), never)
		s.waitSucceeded("first", 1)
		s.pull("second", image.Ref, on("node1"), never)
		s.waitSucceeded("second", 1)
		s.waitSucceeded("first", 1)
		tag := tagOf(s.nodeImage("node1"), image.Ref)
		require.Len(s.T, tag.OwnerReferences, 2)
		require.EqualValues(s.T, 1, tag.Version, "the second job asked again")
		s.RequireDownloadedOnce(image, "node1")

		require.NoError(s.T, s.Client.Delete(s.Ctx(), s.job("first").Object))
		s.Eventually("the first job is no owner any more", harness.Short, func() string {
			if tag := tagOf(s.nodeImage("node1"), image.Ref); tag == nil || len(tag.OwnerReferences) != 1 || tag.OwnerReferences[0].Name != "second" {
				return fmt.Sprintf("tag %+v", tag)
			}
			return ""
		})
		require.NoError(s.T, s.Client.Delete(s.Ctx(), s.job("second").Object))
		s.waitTagGone(image.Ref)
	})
}

// A pinned image is pulled, and recognised by the next job.
func TestAnImageByItsDigest(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 1, 1000)
		nodes := s.NodeNames()
		s.pull("first", image.AtDigest(), parallel(3))
		s.waitCompleted("first", len(nodes), 0)
		asked := len(s.Requests(image))
		s.RequireDownloadedOnce(image, nodes...)
		s.pull("second", image.AtDigest(), parallel(3), policy(v1beta1.PullIfNotPresent))
		s.waitCompleted("second", len(nodes), 0)
		require.Len(s.T, s.Requests(image), asked, "the registry was not asked again")
		s.pull("third", image.AtDigest(), parallel(3), policy(v1beta1.PullAlways))
		s.waitCompleted("third", len(nodes), 0)
		s.RequireDownloadedOnce(image, nodes...)
	})
}

// A job with an empty selector matches all nodes, and goes on after the first.
func TestAnEmptySelectorMatchesAllNodes(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 1, 1000)
		s.pull("job", image.Ref, parallel(1), func(j *v1beta1.ImagePullJobTemplate) { j.Selector = &v1beta1.ImagePullJobNodeSelector{} })
		s.Eventually("all real nodes have it", harness.Long, func() string {
			if st := s.job("job").status; int(st.Succeeded) < len(s.NodeNames()) {
				return fmt.Sprintf("status %+v", *st)
			}
			return ""
		})
		s.RequireDownloadedOnce(image, s.NodeNames()...)
	})
}

// A job for Pods goes where they are, and follows them.
func TestAJobForTheNodesOfPods(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 1, 1000)
		pod := func(name, node string) {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{Name: "app", Image: harness.Nginx1}}},
			}
			s.Create(p)
		}
		pod("one", "node1")
		s.pull("job", image.Ref, never, func(j *v1beta1.ImagePullJobTemplate) {
			j.Selector = nil
			j.PodSelector = &v1beta1.ImagePullJobPodSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
		})
		s.waitSucceeded("job", 1)
		pod("two", "node3")
		s.waitSucceeded("job", 2)
		s.RequireDownloadedOnce(image, "node1", "node3")
	})
}

// Parallelism is a promise: one node after the other.
func TestOneNodeAtATime(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 1, 60_000)
		s.Spoil(image, harness.Rule{Kind: "blob", BytesPerSecond: 20_000})
		s.pull("job", image.Ref, parallel(1))
		s.Eventually("the job completes", harness.Long, func() string {
			pulling := 0
			for _, n := range s.NodeNames() {
				if st := statusOf(s.nodeImage(n), image.Ref); st != nil && st.CompletionTime == nil {
					pulling++
				}
			}
			require.LessOrEqual(s.T, pulling, 1, "nodes that pull at once")
			if s.job("job").status.CompletionTime == nil {
				return "not yet"
			}
			return ""
		})
		s.waitCompleted("job", len(s.NodeNames()), 0)
	})
}

// Every node has a NodeImage with its labels; one that is deleted comes back.
func TestEveryNodeHasANodeImage(t *testing.T) {
	s := newSuite(t, beta{})
	check := func() string {
		all := &v1beta1.NodeImageList{}
		if err := s.Client.List(s.Ctx(), all); err != nil {
			return err.Error()
		}
		if len(all.Items) != len(s.NodeNames()) {
			return fmt.Sprintf("%d NodeImages", len(all.Items))
		}
		for _, n := range s.Nodes() {
			ni := &v1beta1.NodeImage{}
			if err := s.Client.Get(s.Ctx(), client.ObjectKey{Name: n.Name}, ni); err != nil {
				return err.Error()
			}
			if fmt.Sprint(ni.Labels) != fmt.Sprint(n.Labels) {
				return fmt.Sprintf("labels of NodeImage %s: %v", n.Name, ni.Labels)
			}
		}
		return ""
	}
	s.Eventually("a NodeImage for each node, and no other", harness.Long, check)
	require.NoError(t, s.Client.Delete(s.Ctx(), s.nodeImage("node3")))
	s.Eventually("a NodeImage for each node again", harness.Long, check)
	image := s.MakeImage("app", 1, 1000)
	s.pull("job", image.Ref, on("node3"))
	s.waitCompleted("job", 1, 0)
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// Scenario 12, beyond the job: the new image comes from a slow private registry, with the
// secret of the template, and no node downloads it twice: the kubelet finds what the job left.
func TestANewImageIsPulledAheadOfTheUpdate(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakePrivateImage("web", 2, 50_000)
		registry, user, password := registryUser()
		s.PullSecret("pull-secret", registry, user, password)
		s.Spoil(image, harness.Rule{Kind: "blob", BytesPerSecond: 25_000})
		set := harness.WebSet("web", 5, func(cs *v1beta1.CloneSet) {
			cs.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromInt32(2))}
			cs.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.FromInt32(1))
			cs.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull-secret"}}
		})
		if _, old := s.api.(alpha); old {
			s.createOldSet(set)
		} else {
			s.Create(set)
		}
		s.WaitAvailable("web", 5)
		before := harness.Identities(s.Pods("web"))
		watch := s.Observe("web", harness.Limits{MinReady: 4, MaxPods: 5, KeepPods: true})
		s.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = image.Ref })

		var found v1beta1.ImagePullJob
		s.Eventually("exactly one job of the CloneSet", harness.Short, func() string {
			all := &v1beta1.ImagePullJobList{}
			if err := s.Client.List(s.Ctx(), all, client.InNamespace(s.Namespace)); err != nil {
				return err.Error()
			}
			if len(all.Items) != 1 {
				return fmt.Sprintf("%d jobs", len(all.Items))
			}
			found = all.Items[0]
			return ""
		})
		ref := metav1.GetControllerOf(&found)
		require.NotNil(s.T, ref)
		require.Equal(s.T, []string{"CloneSet", "web"}, []string{ref.Kind, ref.Name})
		require.Equal(s.T, image.Ref, found.Spec.Image)
		require.Equal(s.T, 2, found.Spec.Parallelism.IntValue())
		require.Equal(s.T, []string{"pull-secret"}, found.Spec.PullSecrets)

		s.WaitUpdated("web", 5, 4)
		watch.Check(s.Env)
		s.RequireSamePods("web", before)
		s.RequireDownloadedOnce(image, s.pulledOn(image)...)
		s.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.UpdateStrategy.RollingUpdate.Partition = nil })
		s.WaitAvailable("web", 5)
		s.RequireSamePods("web", before)
	})
}

// createOldSet creates the set as a client of the old version.
func (s suite) createOldSet(set *v1beta1.CloneSet) {
	s.T.Helper()
	old := &v1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Name: set.Name, Annotations: map[string]string{v1beta1.ImagePreDownloadParallelismAnnotation: "2"}}}
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	old.Spec.Replicas, old.Spec.Selector, old.Spec.Template = set.Spec.Replicas, set.Spec.Selector, set.Spec.Template
	old.Spec.UpdateStrategy.Type = v1alpha1.CloneSetUpdateStrategyType(rolling.PodUpdatePolicy)
	old.Spec.UpdateStrategy.Partition, old.Spec.UpdateStrategy.MaxUnavailable = rolling.Partition, rolling.MaxUnavailable
	s.Create(old)
}

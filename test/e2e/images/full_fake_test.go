//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The tests of this file add a NodeImage without a node, which jobs for all nodes count. So
// they are not parallel: they run before the parallel ones start.

const fakeNode = "fake-nodeimage"

// withFakeNode adds the NodeImage and takes it away when the test ends.
func (s suite) withFakeNode() {
	s.T.Helper()
	fake := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: fakeNode, Labels: map[string]string{v1beta1.FakeNodeImageLabel: "true"}}}
	require.NoError(s.T, s.Client.Create(s.Ctx(), fake))
	s.T.Cleanup(func() {
		if err := s.Client.Delete(s.Background(), fake); err != nil {
			s.T.Errorf("deleting NodeImage %s: %v", fakeNode, err)
		}
	})
	all := &v1beta1.NodeImageList{}
	require.NoError(s.T, s.Client.List(s.Ctx(), all))
	require.Len(s.T, all.Items, len(s.NodeNames())+1, "a NodeImage for each node, and the fake one")
}

// failOnFakeNode says in the fake NodeImage that the image could not be pulled there.
func (s suite) failOnFakeNode(image string) {
	s.T.Helper()
	s.Eventually("the fake node fails", harness.Long, func() string {
		ni := s.nodeImage(fakeNode)
		tag := tagOf(ni, image)
		if tag == nil {
			return "it has not been given the image"
		}
		name := ""
		for n, spec := range ni.Spec.Images {
			if len(spec.Tags) > 0 && tagOf(&v1beta1.NodeImage{Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{n: spec}}}, image) != nil {
				name = n
			}
		}
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		if ni.Status.ImageStatuses == nil {
			ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{}
		}
		ni.Status.ImageStatuses[name] = v1beta1.ImageStatus{Tags: []v1beta1.ImageTagStatus{{
			Tag: tag.Tag, Version: tag.Version, Phase: v1beta1.ImagePhaseFailed, StartTime: &now, CompletionTime: &now, Message: "node has not responded for a long time",
		}}}
		return text(s.Client.Status().Update(s.Ctx(), ni))
	})
}

func inTurn(t *testing.T, scenario func(s suite)) {
	for name, api := range map[string]version{"v1beta1": beta{}, "v1alpha1": alpha{}} {
		t.Run(name, func(t *testing.T) { scenario(newSuite(t, api)) })
	}
}

func everywhere(j *v1beta1.ImagePullJobTemplate) { j.Selector = nil }

// Scenario 6.
func TestANeverEndingJobOnAllNodesAndOneThatDoesNotExist(t *testing.T) {
	inTurn(t, func(s suite) {
		s.withFakeNode()
		image := s.MakeImage("app", 1, 1000)
		nodes := s.NodeNames()
		s.pull("job", image.Ref, everywhere, never, parallel(4))
		s.waitDesired(len(nodes) + 1)
		s.waitSucceeded("job", len(nodes))
		require.EqualValues(s.T, 1, s.job("job").status.Active, "the fake node is still waited for")
		s.RequireDownloadedOnce(image, nodes...)
	})
}

// Scenarios 10 and 11.
func TestAListOnAllNodesOfWhichOneFails(t *testing.T) {
	for name, edit := range map[string][]func(*v1beta1.ImagePullJobTemplate){
		"Always": {everywhere, policy(v1beta1.PullAlways), parallel(4), attempts(50, 2)},
		"Never":  {everywhere, never, policy(v1beta1.PullIfNotPresent), parallel(4)},
	} {
		t.Run(name, func(t *testing.T) {
			inTurn(t, func(s suite) {
				s.withFakeNode()
				image := s.MakeImage("app", 1, 1000)
				s.pullList([]string{image.Ref}, edit...)
				s.waitChildren(image.Ref)
				s.failOnFakeNode(image.Ref)
				s.Eventually("every node has the image or gave up", harness.Long, func() string {
					st := s.list().status
					if st.Completed != 1 || (name == "Always") != (st.CompletionTime != nil) {
						return fmt.Sprintf("status %+v", *st)
					}
					return ""
				})
				st := s.list().status
				require.Len(s.T, st.FailedImageStatuses, 1)
				require.Equal(s.T, image.Ref, st.FailedImageStatuses[0].Name)
				require.Zero(s.T, st.Succeeded)
				child := &v1beta1.ImagePullJob{}
				require.NoError(s.T, s.Client.Get(s.Ctx(), client.ObjectKey{Namespace: s.Namespace, Name: st.FailedImageStatuses[0].ImagePullJob}, child))
				require.Equal(s.T, []string{fakeNode}, child.Status.FailedNodes)
				s.RequireDownloadedOnce(image, s.NodeNames()...)
			})
		})
	}
}

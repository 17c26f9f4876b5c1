//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// pullList creates an ImageListPullJob "list" that ends, on all real nodes unless edit says otherwise.
func (s suite) pullList(images []string, edit ...func(*v1beta1.ImagePullJobTemplate)) {
	s.T.Helper()
	l := s.api.list()
	l.SetName("list")
	l.spec.Images = images
	l.spec.CompletionPolicy.Type = v1beta1.Always
	onRealNodes(&l.spec.ImagePullJobTemplate)
	for _, f := range edit {
		f(&l.spec.ImagePullJobTemplate)
	}
	s.Create(l.Object)
}

func (s suite) list() list {
	s.T.Helper()
	l := s.api.list()
	s.Eventually("reading ImageListPullJob list", harness.Short, func() string { return text(s.Client.Get(s.Ctx(), s.Key("list"), l.Object)) })
	return l
}

// children are the jobs of the list.
func (s suite) children() []v1beta1.ImagePullJob {
	s.T.Helper()
	all := &v1beta1.ImagePullJobList{}
	s.Eventually("listing ImagePullJobs", harness.Short, func() string { return text(s.Client.List(s.Ctx(), all, client.InNamespace(s.Namespace))) })
	return slices.DeleteFunc(all.Items, func(j v1beta1.ImagePullJob) bool {
		ref := metav1.GetControllerOf(&j)
		return ref == nil || ref.Kind != "ImageListPullJob" || ref.Name != "list"
	})
}

func (s suite) waitChildren(images ...string) {
	s.T.Helper()
	slices.Sort(images)
	s.Eventually("one job for each image", harness.Short, func() string {
		var got []string
		for _, j := range s.children() {
			got = append(got, j.Spec.Image)
		}
		slices.Sort(got)
		if !slices.Equal(got, images) {
			return fmt.Sprintf("jobs for %q", got)
		}
		if l := s.list(); int(l.status.Desired) != len(images) {
			return fmt.Sprintf("status %+v", *l.status)
		}
		return ""
	})
}

func (s suite) waitListCompleted() v1beta1.ImageListPullJobStatus {
	s.T.Helper()
	var status v1beta1.ImageListPullJobStatus
	s.Eventually("the list completes", harness.Long, func() string {
		if status = *s.list().status; status.CompletionTime == nil {
			return fmt.Sprintf("status %+v", status)
		}
		return ""
	})
	return status
}

// Scenario 8.
func TestAListOfImagesOnAllNodes(t *testing.T) {
	inBothVersions(t, func(s suite) {
		one, two := s.MakeImage("one", 1, 1000), s.MakeImage("two", 2, 1000)
		s.pullList([]string{one.Ref, two.Ref}, parallel(4), attempts(60, 2), ttl(20), policy(v1beta1.PullAlways))
		s.waitChildren(one.Ref, two.Ref)
		require.EqualValues(s.T, 2, s.waitListCompleted().Succeeded)
		s.RequireDownloadedOnce(one, s.NodeNames()...)
		s.RequireDownloadedOnce(two, s.NodeNames()...)
		s.waitGone("ImageListPullJob", s.api.list().Object, "list")
		s.Eventually("no job is left", harness.Short, func() string {
			if n := len(s.children()); n > 0 {
				return fmt.Sprintf("%d left", n)
			}
			return ""
		})
	})
}

// Scenario 9.
func TestAListOfImagesOnOneNode(t *testing.T) {
	inBothVersions(t, func(s suite) {
		one, two := s.MakeImage("one", 1, 1000), s.MakeImage("two", 2, 1000)
		s.pullList([]string{one.Ref, two.Ref}, on("node1"), policy(v1beta1.PullIfNotPresent))
		s.waitChildren(one.Ref, two.Ref)
		require.EqualValues(s.T, 2, s.waitListCompleted().Succeeded)
		s.RequireDownloadedOnce(one, "node1")
		require.NoError(s.T, s.Client.Delete(s.Ctx(), s.list().Object))
		s.Eventually("no job is left", harness.Short, func() string {
			if n := len(s.children()); n > 0 {
				return fmt.Sprintf("%d left", n)
			}
			return ""
		})
		s.waitTagGone(one.Ref)
	})
}

// An image that does not exist is named, and the others are pulled.
func TestAListNamesTheImageThatFails(t *testing.T) {
	inBothVersions(t, func(s suite) {
		one := s.MakeImage("one", 1, 1000)
		missing := "e2e/" + s.Namespace + "/missing:1"
		s.pullList([]string{one.Ref, missing}, parallel(3), attempts(60, 0))
		s.waitChildren(one.Ref, missing)
		status := s.waitListCompleted()
		require.EqualValues(s.T, 1, status.Succeeded)
		require.Len(s.T, status.FailedImageStatuses, 1)
		require.Equal(s.T, missing, status.FailedImageStatuses[0].Name)
		require.Contains(s.T, status.FailedImageStatuses[0].Message, status.FailedImageStatuses[0].ImagePullJob)
	})
}

// Another image in the list and another template: jobs come and go with them.
func TestAListIsEdited(t *testing.T) {
	inBothVersions(t, func(s suite) {
		one, two, three := s.MakeImage("one", 1, 1000), s.MakeImage("two", 1, 1000), s.MakeImage("three", 1, 1000)
		s.pullList([]string{one.Ref, two.Ref}, on("node1"), never)
		s.waitChildren(one.Ref, two.Ref)
		edit := func(change func(*v1beta1.ImageListPullJobSpec)) {
			s.Eventually("editing the list", harness.Short, func() string {
				l := s.list()
				change(l.spec)
				return text(s.Client.Update(s.Ctx(), l.Object))
			})
		}
		edit(func(l *v1beta1.ImageListPullJobSpec) { l.Images = []string{two.Ref, three.Ref} })
		s.waitChildren(two.Ref, three.Ref)
		s.waitTagGone(one.Ref)
		before := s.children()
		edit(func(l *v1beta1.ImageListPullJobSpec) { on("node2")(&l.ImagePullJobTemplate) })
		s.Eventually("jobs of the new template", harness.Short, func() string {
			for _, j := range s.children() {
				if slices.ContainsFunc(before, func(b v1beta1.ImagePullJob) bool { return b.UID == j.UID }) || !slices.Equal(j.Spec.Selector.Names, []string{"node2"}) {
					return j.Name + " is of the old one"
				}
			}
			return ""
		})
		s.Eventually("the images are on the other node", harness.Long, func() string {
			if st := s.list().status; st.Completed != 2 || st.Succeeded != 2 {
				return fmt.Sprintf("status %+v", *st)
			}
			return ""
		})
		s.RequireDownloadedOnce(three, s.pulledOn(three)...)
	})
}

// pulledOn are the nodes that have downloaded the image, sorted.
func (s suite) pulledOn(image harness.TestImage) []string {
	s.T.Helper()
	var nodes []string
	for n := range s.Downloads(image) {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	return nodes
}

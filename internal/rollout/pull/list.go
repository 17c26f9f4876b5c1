// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// List is an ImageListPullJob with its images.
type List struct {
	Job     *v1beta1.ImageListPullJob
	Verdict Verdict
	// Message is one sentence.
	Message string
	// Images are in the order of the spec.
	Images []ListImage
}

// ListImage is one image of a list.
type ListImage struct {
	Image string
	// Status is that of its job; nil while there is none.
	Status *Status
	// Message is what the list says of its failure.
	Message string
}

// OfList joins a list with its jobs, which are those among jobs that it controls. The other
// fields of in hold for each of them.
func OfList(list *v1beta1.ImageListPullJob, jobs []v1beta1.ImagePullJob, in Input) List {
	l := List{Job: list}
	for _, image := range list.Spec.Images {
		li := ListImage{Image: image}
		for _, f := range list.Status.FailedImageStatuses {
			if f.Name == image {
				li.Message = f.Message
			}
		}
		for i := range jobs {
			ref := metav1.GetControllerOf(&jobs[i])
			if jobs[i].Spec.Image != image || ref == nil || ref.UID != list.UID || jobs[i].DeletionTimestamp != nil {
				continue
			}
			in.Job = &jobs[i]
			st := Of(in)
			li.Status = &st
		}
		l.Images = append(l.Images, li)
	}
	l.Verdict = l.verdict()
	s := list.Status
	l.Message = fmt.Sprintf("%d of %d images pulled on all nodes, %d failed on some, %d active", s.Succeeded, len(list.Spec.Images), len(s.FailedImageStatuses), s.Active)
	if s.StartTime == nil && s.CompletionTime == nil {
		l.Message = "its controller has not begun"
	}
	return l
}

func (l List) verdict() Verdict {
	s := l.Job.Status
	never := l.Job.Spec.CompletionPolicy.Type == v1beta1.Never
	finished := s.CompletionTime != nil || never && s.Desired > 0 && s.Completed >= s.Desired
	satisfied := !slices.ContainsFunc(l.Images, func(i ListImage) bool {
		return i.Status == nil || i.Status.Verdict != Enough && i.Status.Verdict != Succeeded
	})
	some := slices.ContainsFunc(l.Images, func(i ListImage) bool { return i.Status != nil && i.Status.Verdict == Enough })
	switch {
	case satisfied && some:
		return Enough
	case finished && (len(s.FailedImageStatuses) > 0 || s.Succeeded < s.Desired):
		return Failed
	case finished:
		return Succeeded
	}
	return Active
}

// Statuses are those of the jobs there are.
func (l List) Statuses() []Status {
	var list []Status
	for _, i := range l.Images {
		if i.Status != nil {
			list = append(list, *i.Status)
		}
	}
	return list
}

// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// jobBuilder builds an ImagePullJob; each method returns a changed copy.
type jobBuilder struct{ obj *v1beta1.ImagePullJob }

func newJob() jobBuilder {
	return jobBuilder{&v1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pull", UID: "job"},
		Spec: v1beta1.ImagePullJobSpec{Image: "nginx:1", ImagePullJobTemplate: v1beta1.ImagePullJobTemplate{
			CompletionPolicy: v1beta1.CompletionPolicy{Type: v1beta1.Always},
			ImagePullPolicy:  v1beta1.PullIfNotPresent,
		}},
		Status: v1beta1.ImagePullJobStatus{StartTime: &metav1.Time{Time: t0}},
	}}
}

func (b jobBuilder) with(change func(*v1beta1.ImagePullJob)) jobBuilder {
	obj := b.obj.DeepCopy()
	change(obj)
	return jobBuilder{obj}
}

func (b jobBuilder) parallelism(n int) jobBuilder {
	return b.with(func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromInt(n)) })
}

func (b jobBuilder) never() jobBuilder {
	return b.with(func(j *v1beta1.ImagePullJob) { j.Spec.CompletionPolicy.Type = v1beta1.Never })
}

func (b jobBuilder) deadline(seconds int64) jobBuilder {
	return b.with(func(j *v1beta1.ImagePullJob) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = &seconds })
}

func (b jobBuilder) notStarted() jobBuilder {
	return b.with(func(j *v1beta1.ImagePullJob) { j.Status.StartTime = nil })
}

// nodeBuilder builds a NodeImage; each method returns a changed copy.
type nodeBuilder struct{ obj *v1beta1.NodeImage }

func newNode(name string) nodeBuilder {
	return nodeBuilder{&v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: name}}}
}

func (b nodeBuilder) with(change func(*v1beta1.NodeImage)) nodeBuilder {
	obj := b.obj.DeepCopy()
	change(obj)
	return nodeBuilder{obj}
}

// task adds nginx:1 at a version, owned by jobs, with what newJob asks for.
func (b nodeBuilder) task(version int64, owners ...string) nodeBuilder {
	return b.with(func(n *v1beta1.NodeImage) {
		tag := v1beta1.ImageTagSpec{Tag: "1", Version: version, CreatedAt: &metav1.Time{Time: t0}, ImagePullPolicy: v1beta1.PullIfNotPresent}
		for _, owner := range owners {
			tag.OwnerReferences = append(tag.OwnerReferences, corev1.ObjectReference{Kind: "ImagePullJob", UID: types.UID(owner)})
		}
		n.Spec.Images = map[string]v1beta1.ImageSpec{"nginx": {Tags: []v1beta1.ImageTagSpec{tag}}}
	})
}

// limits gives the task the limits of a job.
func (b nodeBuilder) limits(job jobBuilder) nodeBuilder {
	return b.with(func(n *v1beta1.NodeImage) {
		n.Spec.Images["nginx"].Tags[0].PullPolicy = pullPolicy(job.obj, taskOptions{Jitter: func(int32) int32 { return 0 }})
	})
}

// secret adds a reference to the pull secret s.
func (b nodeBuilder) secret() nodeBuilder {
	return b.with(func(n *v1beta1.NodeImage) {
		image := n.Spec.Images["nginx"]
		image.PullSecrets = append(image.PullSecrets, v1beta1.ReferenceObject{Namespace: "config", Name: "s"})
		n.Spec.Images["nginx"] = image
	})
}

// reports adds what the node says of nginx:1 at a version.
func (b nodeBuilder) reports(phase v1beta1.ImagePullPhase, version int64) nodeBuilder {
	return b.with(func(n *v1beta1.NodeImage) {
		n.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"nginx": {Tags: []v1beta1.ImageTagStatus{{Tag: "1", Phase: phase, Version: version}}}}
	})
}

// says adds the message of what the node reports.
func (b nodeBuilder) says(message string) nodeBuilder {
	return b.with(func(n *v1beta1.NodeImage) { n.Status.ImageStatuses["nginx"].Tags[0].Message = message })
}

func snapshot(job jobBuilder, nodes ...nodeBuilder) Snapshot {
	s := Snapshot{Job: job.obj, Image: imageref.Ref{Name: "nginx", Tag: "1"}}
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, n.obj)
	}
	return s
}

// SPDX-License-Identifier: Apache-2.0

package imagelistpulljob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newList(images ...string) *v1beta1.ImageListPullJob {
	job := &v1beta1.ImageListPullJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "list", UID: "list-uid"},
		Spec: v1beta1.ImageListPullJobSpec{Images: images, ImagePullJobTemplate: v1beta1.ImagePullJobTemplate{
			CompletionPolicy: v1beta1.CompletionPolicy{ActiveDeadlineSeconds: new(int64(900))},
		}},
	}
	v1beta1.SetDefaultsImageListPullJob(job)
	return job
}

func never(job *v1beta1.ImageListPullJob) *v1beta1.ImageListPullJob {
	job.Spec.CompletionPolicy = v1beta1.CompletionPolicy{Type: v1beta1.Never}
	return job
}

// childBuilder builds a child as the list job would make it; each method returns a changed copy.
type childBuilder struct{ obj *v1beta1.ImagePullJob }

func childOf(job *v1beta1.ImageListPullJob, name, image string) childBuilder {
	c := newChild(job, image, templateHash(&job.Spec.ImagePullJobTemplate))
	c.Name, c.UID, c.CreationTimestamp = name, types.UID(name), metav1.Time{Time: t0}
	return childBuilder{c}
}

func (b childBuilder) with(change func(*v1beta1.ImagePullJob)) childBuilder {
	obj := b.obj.DeepCopy()
	change(obj)
	return childBuilder{obj}
}

func (b childBuilder) counts(desired, active, succeeded, failed int32) childBuilder {
	return b.with(func(c *v1beta1.ImagePullJob) {
		c.Status = v1beta1.ImagePullJobStatus{StartTime: &metav1.Time{Time: t0}, Desired: desired, Active: active, Succeeded: succeeded, Failed: failed}
	})
}

func (b childBuilder) hash(hash string) childBuilder {
	return b.with(func(c *v1beta1.ImagePullJob) {
		if c.Labels[hashLabel] = hash; hash == "" {
			c.Labels = nil
		}
	})
}

func (b childBuilder) parallel() childBuilder {
	return b.with(func(c *v1beta1.ImagePullJob) {
		c.Spec.SandboxConfig = &v1beta1.SandboxConfig{Labels: map[string]string{"other": "template"}}
	})
}

// outcome is a Plan in short: images of children to make, names of those to delete.
type outcome struct {
	Create, Delete, Refused               []string
	Desired, Active, Completed, Succeeded int32
	Failed                                []string // image: name of the child
	Ends                                  bool
}

func decide(job *v1beta1.ImageListPullJob, children ...childBuilder) outcome {
	s := Snapshot{Job: job}
	for _, c := range children {
		s.Children = append(s.Children, c.obj)
	}
	p := Decide(s, t0)
	o := outcome{
		Desired: p.Status.Desired, Active: p.Status.Active, Completed: p.Status.Completed, Succeeded: p.Status.Succeeded,
		Ends: p.Status.CompletionTime != nil,
	}
	for _, c := range p.Create {
		o.Create = append(o.Create, c.Spec.Image)
	}
	for _, c := range p.Delete {
		o.Delete = append(o.Delete, c.Name)
	}
	for _, r := range p.Refused {
		o.Refused = append(o.Refused, r.Name)
	}
	for _, f := range p.Status.FailedImageStatuses {
		o.Failed = append(o.Failed, f.Name+": "+f.ImagePullJob)
	}
	return o
}

func TestDecide(t *testing.T) {
	list := newList("nginx:1", "busybox:1")
	nginx, busybox := childOf(list, "a", "nginx:1"), childOf(list, "b", "busybox:1")
	strict := newList("nginx:1")
	strict.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(50))
	cases := map[string]struct {
		job      *v1beta1.ImageListPullJob
		children []childBuilder
		want     outcome
	}{
		"every image gets a child":                   {list, nil, outcome{Create: []string{"nginx:1", "busybox:1"}, Desired: 2}},
		"an image that has a child gets no other":    {list, []childBuilder{nginx}, outcome{Create: []string{"busybox:1"}, Desired: 2}},
		"children that have not started count not":   {list, []childBuilder{nginx, busybox}, outcome{Desired: 2}},
		"a child that pulls is active":               {list, []childBuilder{nginx.counts(3, 2, 1, 0), busybox.counts(3, 0, 0, 0)}, outcome{Desired: 2, Active: 1}},
		"a child that is through is completed":       {list, []childBuilder{nginx.counts(3, 0, 3, 0), busybox.counts(3, 1, 0, 0)}, outcome{Desired: 2, Active: 1, Completed: 1, Succeeded: 1}},
		"a child that nodes gave up is completed":    {list, []childBuilder{nginx.counts(3, 0, 2, 1), busybox}, outcome{Desired: 2, Completed: 1, Failed: []string{"nginx:1: a"}}},
		"a failure is told before the child is done": {list, []childBuilder{nginx.counts(3, 1, 0, 1), busybox}, outcome{Desired: 2, Active: 1, Failed: []string{"nginx:1: a"}}},
		"the list job ends with its last child": {
			list, []childBuilder{nginx.counts(3, 0, 3, 0), busybox.counts(3, 0, 0, 3)},
			outcome{Desired: 2, Completed: 2, Succeeded: 1, Failed: []string{"busybox:1: b"}, Ends: true},
		},
		"a Never job does not end": {
			never(newList("nginx:1")), []childBuilder{childOf(never(newList("nginx:1")), "a", "nginx:1").counts(3, 0, 3, 0)},
			outcome{Desired: 1, Completed: 1, Succeeded: 1},
		},
		"a child of a former template is replaced": {
			list, []childBuilder{nginx.hash("former").parallel().counts(3, 0, 3, 0), busybox},
			outcome{Create: []string{"nginx:1"}, Delete: []string{"a"}, Desired: 2},
		},
		"a child without label and with another template is replaced": {
			list, []childBuilder{nginx.hash("").parallel(), busybox}, outcome{Create: []string{"nginx:1"}, Delete: []string{"a"}, Desired: 2},
		},
		"a child without label and with the template stays": {list, []childBuilder{nginx.hash("").counts(1, 1, 0, 0), busybox}, outcome{Desired: 2, Active: 1}},
		"a child with the hash of another implementation and the template stays": {
			list, []childBuilder{nginx.hash("7f9c"), busybox}, outcome{Desired: 2},
		},
		"a child that somebody edited stays": {list, []childBuilder{nginx.parallel(), busybox}, outcome{Desired: 2}},
		"a child of an image that left the list goes": {
			list, []childBuilder{nginx, busybox, childOf(list, "c", "redis:7")}, outcome{Delete: []string{"c"}, Desired: 2},
		},
		"of two children for an image the younger goes": {
			list, []childBuilder{nginx.with(func(c *v1beta1.ImagePullJob) {
				c.Name, c.CreationTimestamp = "0", metav1.Time{Time: t0.Add(time.Second)}
			}), nginx, busybox},
			outcome{Delete: []string{"0"}, Desired: 2},
		},
		"a child that is being deleted is replaced and not deleted again": {
			list, []childBuilder{nginx.with(func(c *v1beta1.ImagePullJob) { c.DeletionTimestamp = &metav1.Time{Time: t0} }), busybox},
			outcome{Create: []string{"nginx:1"}, Desired: 2},
		},
		"a deadline before the first timeout is the list job's fault": {
			strict, nil, outcome{Refused: []string{"nginx:1"}, Desired: 1, Failed: []string{"nginx:1: "}},
		},
		"an image that is none is the list job's fault, the others are pulled": {
			newList("nginx:1", "no image"), nil, outcome{Create: []string{"nginx:1"}, Refused: []string{"no image"}, Desired: 2, Failed: []string{"no image: "}},
		},
		"an image that is twice in the list has one child": {
			newList("nginx:1", "nginx:1"), []childBuilder{nginx.counts(1, 0, 1, 0)}, outcome{Desired: 2, Completed: 2, Succeeded: 2, Ends: true},
		},
		"a list without images ends at once": {newList(), nil, outcome{Ends: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, decide(tc.job, tc.children...), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChildren(t *testing.T) {
	list := newList("nginx:1")
	list.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(20))
	child := Decide(Snapshot{Job: list}, t0).Create[0]
	require.Equal(t, "list-", child.GenerateName)
	require.Equal(t, "shop", child.Namespace)
	require.Equal(t, map[string]string{"controller-revision-hash": templateHash(&list.Spec.ImagePullJobTemplate)}, child.Labels)
	require.Equal(t, []metav1.OwnerReference{{
		APIVersion: "apps.kruise.io/v1beta1", Kind: "ImageListPullJob", Name: "list", UID: "list-uid", Controller: new(true), BlockOwnerDeletion: new(true),
	}}, child.OwnerReferences)
	want := list.Spec.ImagePullJobTemplate.DeepCopy()
	want.ImagePullPolicy = v1beta1.PullIfNotPresent
	require.Equal(t, *want, child.Spec.ImagePullJobTemplate)
}

func TestHashIsOfTheTemplate(t *testing.T) {
	hash := func(change func(*v1beta1.ImageListPullJob)) string {
		job := newList("nginx:1")
		change(job)
		return Decide(Snapshot{Job: job}, t0).Hash
	}
	base := hash(func(*v1beta1.ImageListPullJob) {})
	require.Equal(t, base, hash(func(j *v1beta1.ImageListPullJob) { j.Spec.Images = append(j.Spec.Images, "redis:7") }), "not of the images")
	require.NotEqual(t, base, hash(func(j *v1beta1.ImageListPullJob) { j.Spec.PullSecrets = []string{"s"} }))
	require.NotEqual(t, base, hash(func(j *v1beta1.ImageListPullJob) { j.Spec.PullPolicy.TimeoutSeconds = new(int32(7)) }))
}

func TestMessages(t *testing.T) {
	list := newList("nginx:1", "no image")
	failing := childOf(list, "a", "nginx:1").counts(3, 1, 0, 1).with(func(c *v1beta1.ImagePullJob) {
		c.Status.Message = "job is running, progress 33.3%; node1: denied"
	})
	got := Decide(Snapshot{Job: list, Children: []*v1beta1.ImagePullJob{failing.obj}}, t0).Status.FailedImageStatuses
	require.Equal(t, "1 of 3 nodes failed; kubectl get ImagePullJob a -n shop -o yaml lists them; node1: denied", got[0].Message)
	require.True(t, strings.HasPrefix(got[1].Message, `no ImagePullJob can be made: spec.image: Invalid value: "no image"`), got[1].Message)
}

// Progress on nodes that changes nothing in the list job must not wake it.
func TestMatters(t *testing.T) {
	base := childOf(newList("nginx:1"), "a", "nginx:1").counts(1000, 10, 100, 0)
	cases := map[string]struct {
		child childBuilder
		want  bool
	}{
		"more nodes have it":       {base.counts(1000, 10, 200, 0), false},
		"another number is active": {base.counts(1000, 7, 200, 0), false},
		"nothing is active":        {base.counts(1000, 0, 200, 0), true},
		"a node failed":            {base.counts(1000, 10, 100, 1), true},
		"all nodes have it":        {base.counts(1000, 0, 1000, 0), true},
		"a new spec":               {base.with(func(c *v1beta1.ImagePullJob) { c.Generation++ }), true},
		"its deletion":             {base.with(func(c *v1beta1.ImagePullJob) { c.DeletionTimestamp = &metav1.Time{Time: t0} }), true},
		"another label":            {base.hash("x"), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, matters(base.obj, tc.child.obj))
		})
	}
}

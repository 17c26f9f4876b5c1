// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

func testScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

func pod(name, node string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}, CreationTimestamp: metav1.Time{Time: t0}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestNodes(t *testing.T) {
	labelled := func(name, zone string) client.Object {
		return newNode(name).with(func(n *v1beta1.NodeImage) { n.Labels = map[string]string{"zone": zone} }).obj
	}
	objects := []client.Object{
		labelled("c", "east"), labelled("a", "west"), labelled("b", "east"),
		pod("web-0", "a", nil), pod("web-2", "b", nil), pod("web-1", "c", nil), pod("web-3", "c", nil),
		pod("web-4", "virtual", nil),
		pod("web-5", "", nil),
		pod("done", "a", func(p *corev1.Pod) { p.Status.Phase, p.Labels["only"] = corev1.PodSucceeded, "done" }),
		pod("young", "a", func(p *corev1.Pod) {
			p.Labels["set"], p.CreationTimestamp = "clone", metav1.Time{Time: t0.Add(time.Hour)}
		}),
		pod("old", "b", func(p *corev1.Pod) { p.Labels["set"], p.Labels["first"] = "clone", "yes" }),
		pod("sick", "c", func(p *corev1.Pod) { p.Labels["set"], p.Status.Conditions = "clone", nil }),
	}
	bySelector := func(s v1beta1.ImagePullJobNodeSelector) jobBuilder {
		return newJob().with(func(j *v1beta1.ImagePullJob) { j.Spec.Selector = &s })
	}
	byPods := func(key, value, owner string) jobBuilder {
		return newJob().with(func(j *v1beta1.ImagePullJob) {
			j.Spec.PodSelector = &v1beta1.ImagePullJobPodSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
			if owner != "" {
				j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: owner, Name: "set", Controller: new(true)}}
			}
		})
	}
	cases := map[string]struct {
		job  jobBuilder
		want []string
	}{
		"without selector all nodes, by name":           {newJob(), []string{"a", "b", "c"}},
		"an empty selector is all nodes":                {bySelector(v1beta1.ImagePullJobNodeSelector{}), []string{"a", "b", "c"}},
		"names that exist":                              {bySelector(v1beta1.ImagePullJobNodeSelector{Names: []string{"c", "x", "a"}}), []string{"a", "c"}},
		"an empty list of names is no node":             {bySelector(v1beta1.ImagePullJobNodeSelector{Names: []string{}}), nil},
		"labels":                                        {bySelector(v1beta1.ImagePullJobNodeSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"zone": "east"}}}), []string{"b", "c"}},
		"nodes of Pods, once each, by name":             {byPods("app", "web", ""), []string{"a", "b", "c"}},
		"Pods that are through do not count":            {byPods("only", "done", ""), nil},
		"a StatefulSet begins with the highest ordinal": {byPods("app", "web", "StatefulSet"), []string{"c", "b", "a"}},
		"a CloneSet begins with sick Pods, then young":  {byPods("set", "clone", "CloneSet"), []string{"c", "a", "b"}},
		"another owner has no order of its own":         {byPods("set", "clone", "DaemonSet"), []string{"a", "b", "c"}},
	}
	objects = append(objects, &v1beta1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "priority"},
		Spec: v1beta1.CloneSetSpec{UpdateStrategy: v1beta1.CloneSetUpdateStrategy{RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{
			PriorityStrategy: &v1beta1.UpdatePriorityStrategy{WeightPriority: []v1beta1.UpdatePriorityWeightTerm{{
				Weight: 1, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"first": "yes"}},
			}}},
		}}},
	})
	byPriority := cases["a CloneSet begins with sick Pods, then young"]
	byPriority.job = byPriority.job.with(func(j *v1beta1.ImagePullJob) { j.OwnerReferences[0].Name = "priority" })
	byPriority.want = []string{"b", "c", "a"}
	cases["a CloneSet's priority counts"] = byPriority
	r := &Reconciler{client: fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(objects...).Build()}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			nodes, err := r.nodes(t.Context(), tc.job.obj)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range nodes {
				got = append(got, n.Name)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("nodes() differs (-want +got):\n%s", diff)
			}
			// Events must find the nodes that reconciliation finds; of jobs that follow Pods, those and others.
			for _, obj := range objects[:3] {
				node := obj.(*v1beta1.NodeImage)
				if found := concerns(tc.job.obj, node); found != (slices.Contains(got, node.Name) || tc.job.obj.Spec.PodSelector != nil) {
					t.Errorf("concerns(%s) = %v", node.Name, found)
				}
			}
		})
	}
}

func TestChangedTasks(t *testing.T) {
	base := newNode("a").task(0, "job").reports(v1beta1.ImagePhasePulling, 0)
	one, all := imageref.Ref{Name: "nginx", Tag: "1"}, imageref.Ref{Name: "nginx"}
	cases := map[string]struct {
		after nodeBuilder
		want  []imageref.Ref
	}{
		"nothing":                           {base, nil},
		"a label is no change of a task":    {base.with(func(n *v1beta1.NodeImage) { n.Labels = map[string]string{"a": "b"} }), nil},
		"a report on a task":                {base.reports(v1beta1.ImagePhaseSucceeded, 0), []imageref.Ref{one}},
		"a new version of a task":           {base.task(1, "job"), []imageref.Ref{one}},
		"a secret concerns the whole image": {base.secret(), []imageref.Ref{all}},
		"an image that goes":                {base.with(func(n *v1beta1.NodeImage) { n.Spec.Images = nil }), []imageref.Ref{all, one}},
		"another image": {base.with(func(n *v1beta1.NodeImage) {
			n.Spec.Images["redis"] = v1beta1.ImageSpec{Tags: []v1beta1.ImageTagSpec{{Tag: "7"}}}
		}), []imageref.Ref{{Name: "redis", Tag: "7"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := map[imageref.Ref]bool{}
			for _, ref := range tc.want {
				want[ref] = true
			}
			if diff := cmp.Diff(want, changedTasks(base.obj, tc.after.obj)); diff != "" {
				t.Errorf("changedTasks() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

func kubelet(name string, images ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Images = []corev1.ContainerImage{{Names: images, SizeBytes: 7}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func TestWhere(t *testing.T) {
	agents := []v1beta1.NodeImage{
		node("a", "j", 1, 1, v1beta1.ImagePhaseSucceeded), node("b", "j", 1, 1, v1beta1.ImagePhasePulling),
		node("c", "j", 1, 1, v1beta1.ImagePhaseFailed), node("d", "", 0, 0, ""),
	}
	nodes := []corev1.Node{kubelet("c", "docker.io/library/web:2"), kubelet("e", "docker.io/library/web:3", "docker.io/library/web@sha256:"+strings.Repeat("a", 64)), kubelet("f", "docker.io/library/web:2")}
	cases := map[string]struct{ image, want string }{
		"by tag, from both":          {"web:2", "a Present, b Pulling, c PresentOnKubelet, d Unknown, e Unknown, f PresentOnKubelet"},
		"another tag is not the tag": {"docker.io/library/web:3", "a Unknown, b Unknown, c Unknown, d Unknown, e PresentOnKubelet, f Unknown"},
		"by digest":                  {"web@sha256:" + strings.Repeat("a", 64), "a Unknown, b Unknown, c Unknown, d Unknown, e PresentOnKubelet, f Unknown"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ref, err := imageref.Parse(tc.image)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			list := Where(ref, agents, nodes)
			for _, p := range list {
				got = append(got, p.Node+" "+p.State)
			}
			if strings.Join(got, ", ") != tc.want {
				t.Errorf("Where() = %s\nwant %s", strings.Join(got, ", "), tc.want)
			}
			if tc.image == "web:2" {
				if m := Missing(list, []string{"a", "b", "z"}); strings.Join(m, " ") != "b z" {
					t.Errorf("Missing() = %v", m)
				}
			}
		})
	}
}

func TestEligible(t *testing.T) {
	n := func(name string, change func(*corev1.Node)) corev1.Node {
		k := kubelet(name)
		k.Labels = map[string]string{"zone": "a"}
		change(&k)
		return k
	}
	nodes := []corev1.Node{
		n("good", func(*corev1.Node) {}), n("cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		n("down", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }),
		n("elsewhere", func(n *corev1.Node) { n.Labels["zone"] = "b" }),
		n("tainted", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}),
		n("virtual", func(n *corev1.Node) { n.Labels["type"] = "virtual-kubelet" }),
	}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}}
	if got := fmt.Sprint(Eligible(nodes, template, false)); got != "[good]" {
		t.Errorf("eligible are %s", got)
	}
	if got := fmt.Sprint(Eligible(nodes, template, true)); got != "[cordoned down good]" {
		t.Errorf("eligible for a DaemonSet are %s", got)
	}
	template.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	if got := fmt.Sprint(Eligible(nodes, template, false)); got != "[good tainted]" {
		t.Errorf("with a toleration: %s", got)
	}
}

func TestCover(t *testing.T) {
	agents := map[string]*v1beta1.NodeImage{}
	for name, phase := range map[string]v1beta1.ImagePullPhase{"a": v1beta1.ImagePhaseSucceeded, "b": v1beta1.ImagePhaseFailed, "c": v1beta1.ImagePhasePulling} {
		ni := node(name, "j", 1, 1, phase)
		agents[name] = &ni
	}
	got := Cover(job(v1beta1.ImagePullJobStatus{}), []string{"a", "b", "c", "d"}, agents, map[string]bool{"d": true})
	if got.String() != "image docker.io/library/web:2 on 2 of 4 nodes, 1 failed" {
		t.Errorf("Cover() = %s", got)
	}
}

func TestOfList(t *testing.T) {
	list := &v1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Name: "l", UID: "uid-l"}, Spec: v1beta1.ImageListPullJobSpec{Images: []string{"web:2", "log:1"}}}
	child := func(image, owner string, st v1beta1.ImagePullJobStatus) v1beta1.ImagePullJob {
		j := job(st)
		j.Spec.Image = image
		j.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("uid-" + owner), Controller: new(true)}}
		return *j
	}
	done := &metav1.Time{Time: now}
	good, bad := v1beta1.ImagePullJobStatus{Desired: 1, Succeeded: 1, CompletionTime: done}, v1beta1.ImagePullJobStatus{Desired: 2, Succeeded: 1, Failed: 1, CompletionTime: done}
	cases := map[string]struct {
		status v1beta1.ImageListPullJobStatus
		jobs   []v1beta1.ImagePullJob
		want   Verdict
		joined int
	}{
		"new":           {v1beta1.ImageListPullJobStatus{}, nil, Active, 0},
		"under way":     {v1beta1.ImageListPullJobStatus{StartTime: done, Desired: 2}, []v1beta1.ImagePullJob{child("web:2", "l", good)}, Active, 1},
		"done":          {v1beta1.ImageListPullJobStatus{StartTime: done, CompletionTime: done, Desired: 2, Succeeded: 2}, []v1beta1.ImagePullJob{child("web:2", "l", good), child("log:1", "l", good)}, Succeeded, 2},
		"one failed":    {v1beta1.ImageListPullJobStatus{StartTime: done, CompletionTime: done, Desired: 2, Succeeded: 1, FailedImageStatuses: []v1beta1.FailedImageStatus{{Name: "log:1"}}}, []v1beta1.ImagePullJob{child("web:2", "l", good), child("log:1", "l", bad)}, Failed, 2},
		"somebody else": {v1beta1.ImageListPullJobStatus{}, []v1beta1.ImagePullJob{child("web:2", "x", good)}, Active, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			list.Status = tc.status
			l := OfList(list, tc.jobs, Input{})
			if l.Verdict != tc.want || len(l.Statuses()) != tc.joined || len(l.Images) != 2 || l.Message == "" {
				t.Errorf("OfList() = %s with %d jobs, want %s with %d: %s", l.Verdict, len(l.Statuses()), tc.want, tc.joined, l.Message)
			}
		})
	}
}

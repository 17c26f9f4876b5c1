// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package daemonset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// D4 and D5: images change in place in three writes per Pod, and env needs new Pods.
func TestInPlaceUpdate(t *testing.T) {
	s := create(t, inPlace().MaxUnavailable("20"), "abc")
	s.at("a=app:1 b=app:1 c=app:1")
	before, from := s.uids(), len(writes.in(s.key.Namespace))
	s.image("app:2")
	s.at("a=app:2 b=app:2 c=app:2")
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
	perPod := s.podWrites(from)
	for pod, list := range perPod {
		if len(list) > 3 {
			t.Errorf("Pod %s took %d writes: %v", pod, len(list), list)
		}
	}
	if len(perPod) != 3 {
		t.Errorf("%d Pods were written", len(perPod))
	}
	s.event("SuccessfulUpdatePodInPlace", "in-place(revision agent-"+s.get().Status.UpdateRevision+")")

	s.change(func(d *v1beta1.DaemonSet) {
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	})
	s.status("everything updated", func(st v1beta1.DaemonSetStatus) bool {
		return st.UpdatedNumberScheduled == 3 && st.NumberAvailable == 3
	})
	for _, p := range s.pods() {
		if slices.Contains(before, string(p.UID)) {
			t.Errorf("Pod %s was kept", p.Name)
		}
		if !slices.Contains(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "InPlaceUpdateReady"}) {
			t.Errorf("Pod %s has no gate", p.Name)
		}
	}
	s.event("SuccessfulDelete", "Deleted pod: agent-")
}

// D6: a preDelete hook lets one Pod prepare and holds the others.
func TestPreDeleteHook(t *testing.T) {
	s := create(t, inPlace().TemplateLabel("my-pre-delete", "true").With(func(d *v1beta1.DaemonSet) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		d.Spec.Lifecycle = &v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"my-pre-delete": "true"}}}
	}), "abc")
	s.at("a=app:1 b=app:1 c=app:1")
	before := s.uids()
	s.change(func(d *v1beta1.DaemonSet) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("120m")
		c.Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	})
	preparing := func() (out []corev1.Pod) {
		return slices.DeleteFunc(s.pods(), func(p corev1.Pod) bool {
			return p.Labels["lifecycle.apps.kruise.io/state"] != "PreparingDelete"
		})
	}
	s.status("generation 2", func(st v1beta1.DaemonSetStatus) bool { return st.ObservedGeneration == 2 && len(preparing()) > 0 })
	if p := preparing(); len(p) != 1 || p[0].Annotations["lifecycle.apps.kruise.io/timestamp"] == "" {
		t.Fatalf("%d Pods prepare", len(p))
	}
	if got := s.uids(); !slices.Equal(before, got) {
		t.Fatalf("Pods were %v and are %v", before, got)
	}
	marked := preparing()[0]
	s.changePod(marked, func(p *corev1.Pod) { delete(p.Labels, "my-pre-delete") })
	eventually(t, func() error {
		updated := 0
		for _, p := range s.pods() {
			if p.UID == marked.UID {
				return errors.New("the marked Pod is still there")
			}
			if p.Labels["controller-revision-hash"] == s.get().Status.UpdateRevision {
				updated++
			}
		}
		if updated != 1 {
			return fmt.Errorf("%d Pods are updated", updated)
		}
		return nil
	})
	// Without the hook the rest follows by itself.
	s.change(func(d *v1beta1.DaemonSet) { d.Spec.Lifecycle = nil })
	s.status("everything updated", func(st v1beta1.DaemonSetStatus) bool {
		return st.UpdatedNumberScheduled == 3 && st.NumberAvailable == 3
	})
}

// D7: with surge no node is ever without a Pod, and a lone Pod has served long enough.
func TestSurgeKeepsEveryNodeServed(t *testing.T) {
	s := create(t, agent().MaxSurge("100%").MinReadySeconds(2), "abc")
	s.at("a=app:1 b=app:1 c=app:1")
	s.image("app:2")
	doubled := map[string]bool{}
	eventually(t, func() error {
		perNode := map[string][]corev1.Pod{}
		for _, p := range s.all() {
			perNode[plan.TargetNode(&p)] = append(perNode[plan.TargetNode(&p)], p)
		}
		if len(perNode) != 3 {
			t.Fatalf("%d nodes have Pods", len(perNode))
		}
		done := 0
		for node, pods := range perNode {
			switch {
			case len(pods) == 2:
				doubled[node] = true
			case len(pods) > 2:
				t.Fatalf("node %s has %d Pods", node, len(pods))
			case pods[0].Spec.Containers[0].Image == "app:2":
				done++
				if ok, _ := plan.Available(&pods[0], 2, time.Now()); !ok {
					t.Fatalf("node %s has only a Pod that does not serve yet: %+v", node, pods[0].Status.Conditions)
				}
			}
		}
		if done != 3 || len(doubled) != 3 {
			return fmt.Errorf("%d nodes are done, %d were seen with two Pods", done, len(doubled))
		}
		return nil
	})
	s.at("a=app:2 b=app:2 c=app:2")
}

// The examples of daemonset.md 7.5, with nodes a to e.
func TestPartitionAndSelector(t *testing.T) {
	s := create(t, inPlace().Partition("3"), "abcde")
	s.at("a=app:1 b=app:1 c=app:1 d=app:1 e=app:1")
	s.image("app:2")
	s.at("a=app:1 b=app:1 c=app:1 d=app:2 e=app:2")
	s.rolling(func(r *v1beta1.RollingUpdateDaemonSet) {
		r.Partition = new(intstr.FromString("50%")) // of five, rounded down: two
	})
	s.at("a=app:1 b=app:1 c=app:2 d=app:2 e=app:2")
	s.rolling(func(r *v1beta1.RollingUpdateDaemonSet) {
		r.Partition = new(intstr.FromInt32(0))
		r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "canary"}}
	})
	s.at("a=app:1 b=app:1 c=app:2 d=app:2 e=app:2")
	s.changeNode("a", func(n *corev1.Node) { n.Labels["zone"] = "canary" }) // a label alone wakes the set
	s.at("a=app:2 b=app:1 c=app:2 d=app:2 e=app:2")
	s.changeNode("a", func(n *corev1.Node) { delete(n.Labels, "zone") }) // and takes nothing back
	for _, p := range s.pods() {
		if strings.HasSuffix(p.Spec.NodeName, "-b") { // a Pod that is recreated comes back new
			if err := testClient.Delete(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.at("a=app:2 b=app:2 c=app:2 d=app:2 e=app:2")
}

func TestPausedAndOnDelete(t *testing.T) {
	s := create(t, agent().Paused(), "ab")
	s.at("a=app:1 b=app:1")
	s.image("app:2")
	s.status("nothing updated", func(st v1beta1.DaemonSetStatus) bool {
		return st.UpdatedNumberScheduled == 0 && st.NumberAvailable == 2
	})
	s.join("c") // creation goes on
	s.at("a=app:1 b=app:1 c=app:2")
	s.change(func(d *v1beta1.DaemonSet) { d.Spec.UpdateStrategy = v1beta1.DaemonSetUpdateStrategy{Type: "OnDelete"} })
	s.at("a=app:1 b=app:1 c=app:2")
	for _, p := range s.pods() {
		if strings.HasSuffix(p.Spec.NodeName, "-a") {
			if err := testClient.Delete(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.at("a=app:2 b=app:1 c=app:2")
	s.change(func(d *v1beta1.DaemonSet) {
		d.Spec.UpdateStrategy = v1beta1.DaemonSetUpdateStrategy{Type: "RollingUpdate"}
	})
	s.at("a=app:2 b=app:2 c=app:2")
}

// A broken image stops at maxUnavailable; the next image mends it.
func TestABrokenImageStopsTheRollout(t *testing.T) {
	s := create(t, inPlace(), "abc")
	s.at("a=app:1 b=app:1 c=app:1")
	s.image("bad:2")
	s.status("one broken Pod", func(st v1beta1.DaemonSetStatus) bool {
		return st.UpdatedNumberScheduled == 1 && st.NumberUnavailable == 1
	})
	if got := s.where(); got != "a=app:1 b=app:1 c=bad:2" {
		t.Errorf("Pods %s", got)
	}
	s.image("app:3")
	s.at("a=app:3 b=app:3 c=app:3")
}

func TestMinReadySecondsNeedNoEvent(t *testing.T) {
	s := create(t, agent().MinReadySeconds(1), "abc")
	s.at("a=app:1 b=app:1 c=app:1")
	s.image("app:2")
	s.at("a=app:2 b=app:2 c=app:2")
}

// Pods that hang on nodes which left the affinity take no part in the update, and are deleted.
func TestHangingPodsDoNotBlock(t *testing.T) {
	s := create(t, agent().TemplateLabel("hang", "true"), "abc")
	s.at("a=app:1 b=app:1 c=app:1")
	for _, p := range s.pods() {
		if !strings.HasSuffix(p.Spec.NodeName, "-c") {
			s.changePod(p, func(p *corev1.Pod) { delete(p.Labels, "hang") })
		}
	}
	s.change(func(d *v1beta1.DaemonSet) {
		delete(d.Spec.Template.Labels, "hang")
		d.Spec.Template.Spec.Containers[0].Image = "app:2"
		d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{s.node("c")}}},
			}}},
		}}
	})
	eventually(t, func() error {
		if got := s.where(); got != "a=app:2 b=app:2" {
			return errors.New(got)
		}
		return nil
	})
	if n := len(s.all()); n != 3 {
		t.Errorf("%d Pods, one of them hangs", n)
	}
	for _, p := range s.all() {
		if p.DeletionTimestamp != nil {
			if err := testClient.Delete(t.Context(), &p, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.at("a=app:2 b=app:2")
}

// Images are pulled beforehand, once per revision, and the jobs go when the update is over.
func TestPreDownload(t *testing.T) {
	s := create(t, inPlace().Annotation("apps.kruise.io/image-predownload-parallelism", "5"), "abc")
	s.at("a=app:1 b=app:1 c=app:1")
	s.rolling(func(r *v1beta1.RollingUpdateDaemonSet) { r.Partition = new(intstr.FromInt32(1)) })
	s.image("app:2")
	s.at("a=app:1 b=app:2 c=app:2")
	var jobs v1beta1.ImagePullJobList
	list := func() int {
		if err := testClient.List(t.Context(), &jobs, client.InNamespace(s.key.Namespace)); err != nil {
			t.Fatal(err)
		}
		return len(jobs.Items)
	}
	if list() != 1 {
		t.Fatalf("jobs %v", jobs.Items)
	}
	hash := s.get().Status.UpdateRevision
	job := jobs.Items[0]
	if job.Name != "agent-"+hash+"-app" || job.Spec.Image != "app:2" || job.Spec.Parallelism.IntVal != 5 {
		t.Errorf("job %+v", job)
	}
	if e := job.Spec.PodSelector.MatchExpressions; len(e) != 1 || !slices.Contains(e[0].Values, hash) {
		t.Errorf("the job pulls on updated nodes, too: %v", e)
	}
	s.event("CreatedImagePullJob", "for image: app:2")
	s.rolling(func(r *v1beta1.RollingUpdateDaemonSet) { r.Partition = nil })
	s.at("a=app:2 b=app:2 c=app:2")
	eventually(t, func() error {
		if n := list(); n > 0 {
			return fmt.Errorf("%d jobs are left", n)
		}
		return nil
	})
}

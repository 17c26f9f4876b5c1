// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package daemonset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

func TestEveryNodeHasAPodAndNothingIsWrittenAtRest(t *testing.T) {
	s := create(t, inPlace(), "abc")
	s.at("a=app:1 b=app:1 c=app:1")
	for _, p := range s.pods() {
		if !slices.Contains(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "InPlaceUpdateReady"}) {
			t.Errorf("Pod %s has gates %v", p.Name, p.Spec.ReadinessGates)
		}
		if p.GenerateName != "agent-" || p.Labels["controller-revision-hash"] != s.get().Status.UpdateRevision || len(p.Spec.Tolerations) < 6 {
			t.Errorf("Pod %+v", p)
		}
		if ref := metav1.GetControllerOf(&p); ref == nil || ref.APIVersion != "apps.kruise.io/v1beta1" || ref.Kind != "DaemonSet" {
			t.Errorf("owner %+v", ref)
		}
	}
	s.event("SuccessfulCreate", "Created pod: agent-")
	if revs := s.revisions(); len(revs) != 1 || revs[0].Name != "agent-"+s.get().Status.UpdateRevision {
		t.Errorf("revisions %v", revs)
	}
	// One write for the Pod, one for its first condition; one for the revision; a few for
	// the status, as Pods come up.
	before := writes.in(s.key.Namespace)
	for pod, list := range s.podWrites(0) {
		if len(list) > 1 {
			t.Errorf("Pod %s took %v", pod, list)
		}
	}
	s.changeNode("a", func(n *corev1.Node) { n.Annotations = map[string]string{"x": "y"} })
	s.change(func(d *v1beta1.DaemonSet) { metav1.SetMetaDataAnnotation(&d.ObjectMeta, "x", "y") })
	p := s.pods()[0]
	s.changePod(p, func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, "x", "y") })
	if err := testClient.Delete(t.Context(), &p); err != nil { // a fence: the passes before it are over when it shows
		t.Fatal(err)
	}
	s.at("a=app:1 b=app:1 c=app:1")
	for _, w := range writes.in(s.key.Namespace)[len(before):] {
		if strings.Contains(w, "/controllerrevisions") || strings.Contains(w, "DELETE") {
			t.Errorf("at rest %s was written", w)
		}
	}
}

// D2: nodes begin and cease to match.
func TestNodesAreFollowed(t *testing.T) {
	s := create(t, agent().NodeSelector("color", "blue"), "ab")
	s.status("no node", func(st v1beta1.DaemonSetStatus) bool { return st.DesiredNumberScheduled == 0 })
	color := func(value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels["color"] = value }
	}
	s.changeNode("a", color("blue"))
	s.at("a=app:1")
	s.changeNode("a", color("green"))
	s.at("")
	s.change(func(d *v1beta1.DaemonSet) { d.Spec.Template.Spec.NodeSelector["color"] = "green" })
	s.at("a=app:1")
	s.changeNode("a", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}
	})
	s.status("a Pod that may stay", func(st v1beta1.DaemonSetStatus) bool {
		return st.NumberMisscheduled == 1 && st.DesiredNumberScheduled == 0
	})
	s.changeNode("a", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoExecute}}
	})
	s.at("")
	s.changeNode("a", func(n *corev1.Node) { n.Spec.Taints = nil })
	s.at("a=app:1")
}

// D3: a failed Pod is replaced, again and again with longer waits.
func TestFailedPodsAreReplaced(t *testing.T) {
	s := create(t, agent(), "ab")
	s.at("a=app:1 b=app:1")
	for range 2 {
		p := s.pods()[0]
		eventually(t, func() error {
			if err := testClient.Get(t.Context(), client.ObjectKeyFromObject(&p), &p); err != nil {
				return err
			}
			p.Status.Phase = corev1.PodFailed
			return testClient.Status().Update(t.Context(), &p)
		})
		eventually(t, func() error {
			if slices.ContainsFunc(s.all(), func(o corev1.Pod) bool { return o.UID == p.UID }) {
				return errors.New("the failed Pod is still there")
			}
			return nil
		})
		s.at("a=app:1 b=app:1")
	}
	s.event("FailedDaemonPod", "Found failed daemon pod")
}

func TestNodesJoinAndLeave(t *testing.T) {
	s := create(t, agent(), "a")
	s.at("a=app:1")
	s.join("b")
	s.at("a=app:1 b=app:1")
	s.leave("b") // the Pod is left to the garbage collector, which does not run here
	s.status("one node", func(st v1beta1.DaemonSetStatus) bool {
		return st.DesiredNumberScheduled == 1 && st.NumberAvailable == 1
	})

	// A Pod that waits for its node is deleted when that is gone.
	s.change(func(d *v1beta1.DaemonSet) {
		d.Spec.Template.Spec.SchedulerName = "nobody"
		d.Spec.UpdateStrategy.RollingUpdate.Paused = true
	})
	s.join("c")
	eventually(t, func() error {
		if got := s.where(); got != "a=app:1 b=app:1 c=app:1" {
			return errors.New(got)
		}
		return nil
	})
	s.leave("c")
	eventually(t, func() error {
		if got := s.where(); got != "a=app:1 b=app:1" {
			return errors.New(got)
		}
		return nil
	})
}

// The examples of daemonset.md 7.4.
func TestPartitionedScaling(t *testing.T) {
	s := create(t, agent().PartitionedScaling().Partition("8"), "abcdefgh")
	s.status("nothing created", func(st v1beta1.DaemonSetStatus) bool {
		return st.DesiredNumberScheduled == 8 && st.CurrentNumberScheduled == 0
	})
	partition := func(v string) {
		s.rolling(func(r *v1beta1.RollingUpdateDaemonSet) { r.Partition = new(intstr.Parse(v)) })
	}
	partition("6")
	s.at("a=app:1 b=app:1")
	for _, n := range []string{"i", "j", "k"} {
		s.join(n)
	}
	s.at("a=app:1 b=app:1 c=app:1 d=app:1 e=app:1")
	partition("100%")
	s.at("a=app:1 b=app:1 c=app:1 d=app:1 e=app:1")
	s.change(func(d *v1beta1.DaemonSet) { d.Spec.ScaleStrategy = nil })
	s.status("all", func(st v1beta1.DaemonSetStatus) bool { return st.NumberAvailable == 11 })
}

func TestPercentageOfPartitionHoldsInTheFirstPass(t *testing.T) {
	s := create(t, agent().PartitionedScaling().Partition("50%"), "abcd")
	s.at("a=app:1 b=app:1")
	for _, w := range writes.in(s.key.Namespace) {
		if strings.HasPrefix(w, "DELETE") {
			t.Errorf("%s", w)
		}
	}
}

// One Pod in each pass, and still every node gets its own and its update.
func TestBurstReplicasOfOneServesEveryNode(t *testing.T) {
	s := create(t, inPlace().MaxUnavailable("100%").Burst("1"), "abcd")
	s.at("a=app:1 b=app:1 c=app:1 d=app:1")
	s.image("app:2")
	s.at("a=app:2 b=app:2 c=app:2 d=app:2")
}

func TestOrphansAreAdoptedAndStrangersReleased(t *testing.T) {
	t.Parallel()
	s := &set{t: t, key: client.ObjectKey{Namespace: namespace(t)}}
	s.join("a")
	orphan := fixture.PodOfDaemonSet(agent(), s.node("a")).With(func(p *corev1.Pod) {
		p.Namespace, p.OwnerReferences, p.UID, p.Name = s.key.Namespace, nil, "", "orphan"
		p.Spec.NodeName = ""
	}).Obj()
	if err := testClient.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	s.apply(agent().OnDelete())
	s.at("a=app:1")
	if p := s.pods()[0]; p.Name != "orphan" || metav1.GetControllerOf(&p) == nil {
		t.Errorf("Pod %s of %v", p.Name, p.OwnerReferences)
	}
	s.changePod(s.pods()[0], func(p *corev1.Pod) { p.Labels["app"] = "other" })
	eventually(t, func() error {
		pods := s.pods()
		if len(pods) != 2 {
			return fmt.Errorf("%d Pods", len(pods))
		}
		for _, p := range pods {
			if (p.Name == "orphan") == (metav1.GetControllerOf(&p) != nil) {
				return fmt.Errorf("Pod %s of %v", p.Name, p.OwnerReferences)
			}
		}
		return nil
	})
}

func TestASetThatIsDeletedLeavesItsPodsToTheCollector(t *testing.T) {
	s := create(t, agent().With(func(d *v1beta1.DaemonSet) { d.Finalizers = []string{"test.example.com/keep"} }), "a")
	s.at("a=app:1")
	if err := testClient.Delete(t.Context(), s.get()); err != nil {
		t.Fatal(err)
	}
	if err := testClient.Delete(t.Context(), &s.pods()[0]); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := len(s.all()); n != 0 {
			return fmt.Errorf("%d Pods", n)
		}
		return nil
	})
	s.change(func(d *v1beta1.DaemonSet) { d.Finalizers = nil })
	if n := len(s.all()); n != 0 {
		t.Errorf("%d Pods", n)
	}
}

func TestHistory(t *testing.T) {
	s := create(t, inPlace().With(func(d *v1beta1.DaemonSet) { d.Spec.RevisionHistoryLimit = new(int32(2)) }), "a")
	s.at("a=app:1")
	for i := 2; i <= 5; i++ {
		s.image(fmt.Sprintf("app:%d", i))
		s.at(fmt.Sprintf("a=app:%d", i))
	}
	eventually(t, func() error {
		if revs := s.revisions(); len(revs) != 3 {
			return fmt.Errorf("%d revisions", len(revs))
		}
		return nil
	})
	hash := func(r appsv1.ControllerRevision) string { return r.Labels["controller-revision-hash"] }
	old := s.revisions()[1]
	s.image("app:4") // back: the revision gets the highest number and keeps its hash
	s.at("a=app:4")
	revs := s.revisions()
	if last := revs[len(revs)-1]; last.Name != old.Name || last.Revision != 6 || hash(last) != s.get().Status.UpdateRevision {
		t.Errorf("the last revision is %s, number %d, of %v", last.Name, last.Revision, revs)
	}
}

// A name that belongs to another template is counted in the set's own status.
func TestHashCollision(t *testing.T) {
	t.Parallel()
	s := &set{t: t, key: client.ObjectKey{Namespace: namespace(t)}}
	s.join("a")
	b := agent().Namespace(s.key.Namespace).NodeSelector(nodeLabel, s.key.Namespace)
	name := "agent-" + hashOf(b.Obj())
	taken := fixture.DaemonSetRevision(agent().Image("other"), 1).DeepCopy()
	taken.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: s.key.Namespace}
	if err := testClient.Create(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	s.apply(agent())
	s.at("a=app:1")
	if c := s.get().Status.CollisionCount; c == nil || *c != 1 {
		t.Errorf("collision count %v", c)
	}
	if got := s.get().Status.UpdateRevision; name == "agent-"+got || s.pods()[0].Labels["controller-revision-hash"] != got {
		t.Errorf("update revision %s, Pod %v", got, s.pods()[0].Labels)
	}
}

// An earlier release may have stored a template twice: Pods move to the younger revision.
func TestDuplicateRevisionsAreMerged(t *testing.T) {
	s := create(t, inPlace(), "a")
	s.at("a=app:1")
	first := s.revisions()[0]
	second := first.DeepCopy()
	second.ObjectMeta = metav1.ObjectMeta{
		Name: "agent-younger", Namespace: s.key.Namespace, OwnerReferences: first.OwnerReferences,
		Labels: map[string]string{"app": "agent", "controller-revision-hash": "younger"},
	}
	second.Revision = 7
	if err := testClient.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	uids := s.uids()
	s.change(func(d *v1beta1.DaemonSet) { metav1.SetMetaDataAnnotation(&d.ObjectMeta, "wake", "up") })
	eventually(t, func() error {
		revs, pods := s.revisions(), s.pods()
		if len(revs) != 1 || revs[0].Name != "agent-younger" || pods[0].Labels["controller-revision-hash"] != "younger" || s.get().Status.UpdateRevision != "younger" {
			return fmt.Errorf("revisions %v, Pod %v", revs, pods[0].Labels)
		}
		return nil
	})
	if !slices.Equal(uids, s.uids()) {
		t.Error("a Pod was replaced")
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cloneset

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestInPlaceUpdateKeepsPodsAndCostsThreeWritesEach(t *testing.T) {
	const replicas = 5
	s := create(t, inPlace().Replicas(replicas))
	s.updatedAvailable(replicas)
	before, from := s.uids(), len(writes.in(s.key.Namespace))
	s.image("app:2")
	s.updatedAvailable(replicas)
	s.status("the new current revision", func(st v1beta1.CloneSetStatus) bool { return st.CurrentRevision == st.UpdateRevision })
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
	perPod := s.podWrites(from)
	for pod, list := range perPod {
		if len(list) > 3 {
			t.Errorf("Pod %s took %d writes: %v", pod, len(list), list)
		}
	}
	if len(perPod) != replicas {
		t.Errorf("%d Pods were written", len(perPod))
	}
	s.event("SuccessfulUpdatePodInPlace", "in-place(revision "+s.get().Status.UpdateRevision+")")
}

func TestPartitionPauseAndRollback(t *testing.T) {
	s := create(t, inPlace().Replicas(4).MaxUnavailable("2").Partition("3"))
	s.updatedAvailable(4)
	uids := s.uids()
	s.image("app:2")
	s.updatedAvailable(1)
	if got := s.get().Status; got.ExpectedUpdatedReplicas != 1 || got.CurrentRevision == got.UpdateRevision {
		t.Errorf("status %+v", got)
	}
	s.change(func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Paused = true })
	s.partition("1")
	s.updatedAvailable(1)
	s.change(func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Paused = false })
	s.updatedAvailable(3)
	s.partition("3")
	s.updatedAvailable(1) // with the gate a raised partition takes Pods back
	s.partition("1")
	s.updatedAvailable(3)
	old := s.get().Status.CurrentRevision
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Image = "app:1"
		c.Spec.UpdateStrategy.RollingUpdate.Partition = nil
	})
	s.updatedAvailable(4)
	if got := s.get().Status.UpdateRevision; got != old {
		t.Errorf("rolled back to revision %s and not to %s", got, old)
	}
	if got := s.uids(); !slices.Equal(uids, got) {
		t.Errorf("Pods were %v and are %v", uids, got)
	}
	if got := s.images(); slices.Contains(got, "app:2") {
		t.Errorf("images %v", got)
	}
}

func TestReCreateReplacesWithinLimits(t *testing.T) {
	s := create(t, web().Replicas(3).MaxUnavailable("1"))
	s.updatedAvailable(3)
	before := s.uids()
	s.image("app:2")
	for range 2000 { // while it goes on, at most one Pod is missing or not ready
		st := s.get().Status
		if st.Replicas < 2 {
			t.Fatalf("only %d Pods", st.Replicas)
		}
		if st.UpdatedAvailableReplicas == 3 && st.ObservedGeneration == 2 {
			break
		}
	}
	s.updatedAvailable(3)
	for _, uid := range s.uids() {
		if slices.Contains(before, uid) {
			t.Errorf("Pod %s was kept", uid)
		}
	}
	s.event("SuccessfulUpdatePodReCreate", "specified-delete for update(revision ")
}

func TestSurgeReplacesWithoutAnyUnavailability(t *testing.T) {
	s := create(t, web().Replicas(3).MaxUnavailable("0").MaxSurge("1"))
	s.updatedAvailable(3)
	s.image("app:2")
	s.updatedAvailable(3)
}

func TestInPlaceOnlyRefusesWithTheField(t *testing.T) {
	s := create(t, web().Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType).Replicas(2))
	s.updatedAvailable(2)
	before := s.uids()
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	})
	eventually(t, func() error {
		if m := s.condition(v1beta1.CloneSetConditionFailedUpdate).Message; strings.Contains(m, "spec.template.spec.containers[app].env") {
			return nil
		}
		return fmt.Errorf("conditions %+v", s.get().Status.Conditions)
	})
	s.event("FailedUpdatePodInPlace", "spec.template.spec.containers[app].env")
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Env = nil
		c.Spec.Template.Spec.Containers[0].Image = "app:2"
	})
	s.updatedAvailable(2)
	s.status("the condition to go", func(st v1beta1.CloneSetStatus) bool { return len(st.Conditions) == 0 })
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
}

func TestBadImageStopsAndItsFixRepairs(t *testing.T) {
	s := create(t, inPlace().Replicas(4).MaxUnavailable("1"))
	s.updatedAvailable(4)
	before := s.uids()
	s.image("bad:1")
	s.status("one broken Pod", func(st v1beta1.CloneSetStatus) bool { return st.UpdatedReplicas == 1 && st.ReadyReplicas == 3 })
	s.image("app:3")
	s.updatedAvailable(4)
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
}

func TestInPlaceUpdateHookWithMarkAndRollback(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}}
	s := create(t, inPlace().Replicas(1).TemplateLabel("hook", "true").Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook}))
	s.updatedAvailable(1)
	state := func(want string) {
		t.Helper()
		eventually(t, func() error {
			if got := s.pods()[0].Labels["lifecycle.apps.kruise.io/state"]; got != want {
				return fmt.Errorf("state %s, want %s", got, want)
			}
			return nil
		})
	}
	s.image("app:2")
	state("PreparingUpdate")
	s.image("app:1") // rolled back while the hook holds the Pod
	state("Normal")
	s.updatedAvailable(1)
	s.image("app:2")
	state("PreparingUpdate")
	pod := s.pods()[0]
	if err := testClient.Patch(t.Context(), &pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hook":null}}}`))); err != nil {
		t.Fatal(err)
	}
	state("Updated")
	if err := testClient.Patch(t.Context(), &pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hook":"true"}}}`))); err != nil {
		t.Fatal(err)
	}
	state("Normal")
	s.updatedAvailable(1)
}

// D1
func TestOnDeleteUpdatesOnlyWhatIsDeleted(t *testing.T) {
	s := create(t, web().Replicas(5).OnDelete().ProgressDeadlineSeconds(600))
	s.updatedAvailable(5)
	s.image("app:2")
	s.progressing()
	s.updatedAvailable(0)
	remove := func(pods ...corev1.Pod) {
		t.Helper()
		for _, p := range pods {
			if err := testClient.Delete(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove(s.pods()[:2]...)
	s.updatedAvailable(2)
	replicas := func(n int32) { t.Helper(); s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = &n }) }
	replicas(3) // old ones go first
	s.updatedAvailable(2)
	replicas(5)
	s.updatedAvailable(4)
	for _, p := range s.pods() {
		if p.Spec.Containers[0].Image == "app:1" {
			remove(p)
		}
	}
	s.updatedAvailable(5)
	s.available()
}

func TestImagesArePulledBeforehand(t *testing.T) {
	s := create(t, inPlace().Replicas(5).Partition("1").With(func(c *v1beta1.CloneSet) {
		c.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromInt32(2))}
	}))
	s.updatedAvailable(5)
	s.image("app:2")
	var jobs v1beta1.ImagePullJobList
	// Whoever sees the new generation observed sees the job.
	s.status("the new generation", func(v1beta1.CloneSetStatus) bool { return true })
	if err := testClient.List(t.Context(), &jobs, client.InNamespace(s.key.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != 1 || jobs.Items[0].Spec.Image != "app:2" || jobs.Items[0].OwnerReferences[0].Name != "web" || jobs.Items[0].Spec.Parallelism.IntValue() != 2 {
		t.Fatalf("jobs %+v", jobs.Items)
	}
	s.event("CreatedImagePullJob", "for image: app:2")
	s.updatedAvailable(4)
	s.partition("0")
	s.updatedAvailable(5)
	eventually(t, func() error {
		if err := testClient.List(t.Context(), &jobs, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		if len(jobs.Items) > 0 {
			return fmt.Errorf("%d jobs are left", len(jobs.Items))
		}
		return nil
	})
}

// The scenario of gate PreparingUpdateAsUpdate: what the first status of the new
// generation says is already so.
func TestPreparingUpdateCountsAsUpdated(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}}
	s := create(t, inPlace().Replicas(2).MaxUnavailable("50%").Partition("99%").TemplateLabel("hook", "true").Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook}))
	s.updatedAvailable(2)
	s.image("app:2")
	s.status("the new generation", func(v1beta1.CloneSetStatus) bool { return true })
	st := s.get().Status // the current revision moves in the end
	triple := func() [3]int {
		var n [3]int
		for _, p := range s.pods() {
			switch h := p.Labels["controller-revision-hash"]; {
			case strings.HasSuffix(st.CurrentRevision, h):
				n[0]++
			case strings.HasSuffix(st.UpdateRevision, h):
				n[1]++
			}
			if p.Labels["lifecycle.apps.kruise.io/state"] == "PreparingUpdate" {
				n[2]++
			}
		}
		return n
	}
	if got := triple(); got != [3]int{2, 0, 1} {
		t.Errorf("current, updated, preparing: %v", got)
	}
	for _, p := range s.pods() {
		if p.Labels["lifecycle.apps.kruise.io/state"] != "PreparingUpdate" {
			if err := testClient.Delete(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, func() error {
		if got := triple(); got != [3]int{2, 0, 1} {
			return fmt.Errorf("current, updated, preparing: %v", got)
		}
		return nil
	})
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(3)) })
	eventually(t, func() error {
		if got := triple(); got != [3]int{3, 0, 1} {
			return fmt.Errorf("current, updated, preparing: %v", got)
		}
		return nil
	})
	unhook := func() {
		t.Helper()
		for _, p := range s.pods() {
			if p.Labels["lifecycle.apps.kruise.io/state"] == "PreparingUpdate" {
				if err := testClient.Patch(t.Context(), &p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hook":null}}}`))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want := func(n [3]int) {
		t.Helper()
		eventually(t, func() error {
			if got := triple(); got != n {
				return fmt.Errorf("current, updated, preparing: %v, want %v", got, n)
			}
			return nil
		})
	}
	unhook()
	want([3]int{2, 1, 0})
	s.change(func(c *v1beta1.CloneSet) {
		r := c.Spec.UpdateStrategy.RollingUpdate
		r.Partition, r.MaxUnavailable = nil, new(intstr.FromString("100%"))
	})
	want([3]int{2, 1, 2})
	unhook()
	want([3]int{0, 3, 0})
}

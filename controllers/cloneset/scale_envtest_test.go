// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cloneset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestCreateAndScale(t *testing.T) {
	s := create(t, web().Replicas(3).ProgressDeadlineSeconds(600))
	s.updatedAvailable(3)
	if c := s.condition(v1beta1.CloneSetConditionProgressing); c.Reason != "CloneSetAvailable" {
		t.Errorf("condition Progressing is %+v", c)
	}
	for _, p := range s.pods() {
		id := p.Labels["apps.kruise.io/cloneset-instance-id"]
		if p.Name != "web-"+id || p.GenerateName != "web-" || p.Labels["lifecycle.apps.kruise.io/state"] != "Normal" || p.Labels["pod-template-hash"] == "" {
			t.Errorf("Pod %s: generateName %q, labels %v", p.Name, p.GenerateName, p.Labels)
		}
	}
	s.event("SuccessfulCreate", "succeed to create pod web-")
	kept := s.uids()
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(6)) })
	s.updatedAvailable(6)
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(2)) })
	s.updatedAvailable(2)
	if len(s.pods()) != 2 {
		t.Errorf("%d Pods are left", len(s.pods()))
	}
	for _, uid := range s.uids() {
		if !slices.Contains(kept, uid) {
			t.Logf("Pod %s of the second generation outlived the first", uid)
		}
	}
	for pod, list := range s.podWrites(0) {
		if len(list) > 3 { // made ready and Normal, and perhaps deleted; the creation is on the collection
			t.Errorf("Pod %s took %d writes: %v", pod, len(list), list)
		}
	}
	if st := s.get().Status; st.LabelSelector != "app=web" || st.CollisionCount == nil || st.CurrentRevision != st.UpdateRevision {
		t.Errorf("status %+v", st)
	}
}

func TestNothingIsWrittenOnceSettled(t *testing.T) {
	s := create(t, inPlace().Replicas(3).ProgressDeadlineSeconds(600))
	s.updatedAvailable(3)
	rv, n := s.get().ResourceVersion, len(writes.in(s.key.Namespace))
	// Any event makes the controller look again.
	pod := s.pods()[0]
	for i := range 5 {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"poke":"%d"}}}`, i))
		if err := testClient.Patch(t.Context(), &pod, patch); err != nil {
			t.Fatal(err)
		}
	}
	s.change(func(c *v1beta1.CloneSet) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, "poke", "1") })
	s.change(func(c *v1beta1.CloneSet) { c.Spec.MinReadySeconds = 1 })
	s.updatedAvailable(3)
	if got := writes.in(s.key.Namespace)[n:]; len(got) > 2 { // the generation, and availability that comes back
		t.Errorf("writes after %s: %v", rv, got)
	}
}

func TestSpecifiedDeleteWaitsForItsHook(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}}
	s := create(t, web().Replicas(3).TemplateLabel("hook", "true").Lifecycle(v1beta1.Lifecycle{PreDelete: hook}).ProgressDeadlineSeconds(600))
	s.updatedAvailable(3)
	first := s.pods()[0]
	label := func(patch string) {
		t.Helper()
		p := first.DeepCopy()
		if err := testClient.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	label(`{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"}}}`)
	eventually(t, func() error {
		if got := s.pods()[0].Labels["lifecycle.apps.kruise.io/state"]; got != "PreparingDelete" {
			return fmt.Errorf("state %s", got)
		}
		return nil
	})
	s.status("progressing again", func(st v1beta1.CloneSetStatus) bool {
		return st.Replicas == 3 && s.condition(v1beta1.CloneSetConditionProgressing).Reason == "CloneSetUpdated"
	})
	label(`{"metadata":{"labels":{"hook":null}}}`)
	eventually(t, func() error {
		if slices.Contains(s.uids(), string(first.UID)) {
			return errors.New("the Pod is still there")
		}
		return nil
	})
	s.updatedAvailable(3)
}

func TestPodsToDeleteAreDeletedAndForgotten(t *testing.T) {
	s := create(t, web().Replicas(3))
	s.updatedAvailable(3)
	victim := s.pods()[1]
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Replicas = new(int32(2))
		c.Spec.ScaleStrategy.PodsToDelete = []string{victim.Name, "web-never"}
	})
	s.updatedAvailable(2)
	eventually(t, func() error {
		if left := s.get().Spec.ScaleStrategy.PodsToDelete; len(left) > 0 {
			return fmt.Errorf("podsToDelete %v", left)
		}
		return nil
	})
	for _, p := range s.pods() {
		if p.Name == victim.Name {
			t.Errorf("Pod %s is still there", p.Name)
		}
	}
}

func TestClaimsAreReused(t *testing.T) {
	s := create(t, web().Replicas(2).Claim("data", "1Gi").With(func(c *v1beta1.CloneSet) { c.Spec.ScaleStrategy.EnablePVCReuse = true }))
	s.updatedAvailable(2)
	names := func() (out []string) {
		for _, p := range s.pods() {
			out = append(out, p.Name)
		}
		return out
	}
	before := names()
	for _, p := range s.pods() {
		if err := testClient.Delete(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
	s.status("the Pods to be missing", func(st v1beta1.CloneSetStatus) bool { return true })
	eventually(t, func() error {
		if got := names(); !slices.Equal(got, before) || s.get().Status.AvailableReplicas != 2 {
			return fmt.Errorf("Pods %v, want %v", got, before)
		}
		return nil
	})
	// Reuse off: the claims go with Pods that somebody deletes.
	s.change(func(c *v1beta1.CloneSet) { c.Spec.ScaleStrategy.EnablePVCReuse = false })
	for _, p := range s.pods() {
		if err := testClient.Delete(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		got := names()
		if len(got) != 2 || slices.Contains(got, before[0]) || slices.Contains(got, before[1]) {
			return fmt.Errorf("Pods %v, and they were %v", got, before)
		}
		return nil
	})
	var claims corev1.PersistentVolumeClaimList
	eventually(t, func() error {
		if err := testClient.List(t.Context(), &claims, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		for _, c := range claims.Items {
			if owner := metav1.GetControllerOf(&c); owner.Kind == "CloneSet" && (strings.HasSuffix(c.Name, before[0][4:]) || strings.HasSuffix(c.Name, before[1][4:])) && c.DeletionTimestamp == nil {
				return fmt.Errorf("claim %s of a Pod that is gone is still there", c.Name)
			}
		}
		return nil
	})
}

func TestReleaseOfPodsThatTheSelectorLeaves(t *testing.T) {
	s := create(t, web().Replicas(2))
	s.updatedAvailable(2)
	leaver := s.pods()[0]
	if err := testClient.Patch(t.Context(), leaver.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"debug"}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		p := &corev1.Pod{}
		if err := testClient.Get(t.Context(), client.ObjectKeyFromObject(&leaver), p); err != nil {
			return err
		}
		if len(p.OwnerReferences) > 0 || len(s.pods()) != 3 {
			return fmt.Errorf("%d Pods, owners of the leaver %v", len(s.pods()), p.OwnerReferences)
		}
		return nil
	})
	s.updatedAvailable(2)
}

func TestScaleMaxUnavailableCreatesOneAfterTheOther(t *testing.T) {
	s := create(t, web().Replicas(3).ScaleMaxUnavailable("1").MinReadySeconds(1))
	s.updatedAvailable(3)
	pods := s.pods()
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := 1; i < len(pods); i++ {
		for _, c := range pods[i-1].Status.Conditions {
			if c.Type == corev1.PodReady && pods[i].CreationTimestamp.Before(new(metav1.NewTime(c.LastTransitionTime.Add(1e9)))) {
				t.Errorf("Pod %s was created at %s, and %s became ready at %s", pods[i].Name, pods[i].CreationTimestamp, pods[i-1].Name, c.LastTransitionTime)
			}
		}
	}
	s.event("ScaleUpLimited", "limit: 1")
}

func TestUnschedulablePodIsReplacedByTheRepairedTemplate(t *testing.T) {
	s := create(t, web().ProgressDeadlineSeconds(2).With(func(c *v1beta1.CloneSet) {
		c.Spec.UpdateStrategy = v1beta1.CloneSetUpdateStrategy{}
		c.Spec.Template.Spec.SchedulerName = "nobody"
	}))
	s.status("one Pod", func(st v1beta1.CloneSetStatus) bool { return st.Replicas == 1 })
	s.status("the deadline to pass", func(v1beta1.CloneSetStatus) bool {
		return s.condition(v1beta1.CloneSetConditionProgressing).Reason == "ProgressDeadlineExceeded"
	})
	if p := s.pods()[0]; p.Labels["lifecycle.apps.kruise.io/state"] != "PreparingNormal" {
		t.Errorf("labels %v", p.Labels)
	}
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.SchedulerName = ""
		c.Spec.UpdateStrategy = web().Obj().Spec.UpdateStrategy
	})
	s.updatedAvailable(1)
	s.status("available", func(v1beta1.CloneSetStatus) bool {
		return s.condition(v1beta1.CloneSetConditionProgressing).Reason == "CloneSetAvailable"
	})
}

func TestChangedClaimTemplatesRecreate(t *testing.T) {
	s := create(t, inPlace().Replicas(2).Claim("data", "1Gi"))
	s.updatedAvailable(2)
	before := s.uids()
	size := func(size string) func(*v1beta1.CloneSet) {
		return func(c *v1beta1.CloneSet) {
			c.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		}
	}
	s.change(size("2Gi"))
	s.updatedAvailable(2)
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("a change of the claims alone replaced Pods: %v, %v", before, got)
	}
	s.image("app:2")
	s.updatedAvailable(2)
	for _, uid := range s.uids() {
		if slices.Contains(before, uid) {
			t.Errorf("Pod %s was kept", uid)
		}
	}
	var claims corev1.PersistentVolumeClaimList
	if err := testClient.List(t.Context(), &claims, client.InNamespace(s.key.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		if c.DeletionTimestamp == nil && c.Spec.Resources.Requests.Storage().String() != "2Gi" {
			t.Errorf("claim %s has %s", c.Name, c.Spec.Resources.Requests.Storage())
		}
	}
	before = s.uids()
	s.change(func(c *v1beta1.CloneSet) {
		size("3Gi")(c)
		c.Spec.Template.Spec.Containers[0].Image = "app:3"
		c.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType
	})
	s.updatedAvailable(2)
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("InPlaceOnly replaced Pods: %v, %v", before, got)
	}
}

func TestHistoryIsCut(t *testing.T) {
	s := create(t, inPlace().With(func(c *v1beta1.CloneSet) { c.Spec.RevisionHistoryLimit = new(int32(1)) }))
	s.updatedAvailable(1)
	for i := range 4 {
		s.image(fmt.Sprintf("app:%d", i+2))
		s.updatedAvailable(1)
	}
	eventually(t, func() error {
		var list appsv1.ControllerRevisionList
		if err := testClient.List(t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		if len(list.Items) != 2 {
			return fmt.Errorf("%d revisions", len(list.Items))
		}
		return nil
	})
}

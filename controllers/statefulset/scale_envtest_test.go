// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package statefulset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestIdentity(t *testing.T) {
	s := create(t, replicas(2), claim("data", ""), templateLabel("tier", "back"), func(o *v1beta1.StatefulSet) {
		o.Spec.VolumeClaimTemplates[0].Labels = map[string]string{"disk": "slow", "app": "other"}
		o.Spec.VolumeClaimTemplates[0].Annotations = map[string]string{"note": "n"}
	})
	st := s.settled(2)
	owner := s.get()
	for i, p := range s.pods() {
		name := fmt.Sprintf("db-%d", i)
		if p.Name != name || p.GenerateName != "db-" || p.Spec.Hostname != name || p.Spec.Subdomain != "dbs" {
			t.Errorf("Pod %s: generateName %q, hostname %q, subdomain %q", p.Name, p.GenerateName, p.Spec.Hostname, p.Spec.Subdomain)
		}
		for key, want := range map[string]string{
			"app": "db", "tier": "back", "statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": fmt.Sprint(i),
			"controller-revision-hash": st.UpdateRevision, "lifecycle.apps.kruise.io/state": "Normal",
		} {
			if p.Labels[key] != want {
				t.Errorf("Pod %s: label %s is %q, want %q", p.Name, key, p.Labels[key], want)
			}
		}
		ref := metav1.GetControllerOf(&p)
		if ref.APIVersion != "apps.kruise.io/v1beta1" || ref.Kind != "StatefulSet" || ref.UID != owner.UID || !*ref.BlockOwnerDeletion {
			t.Errorf("Pod %s: controller %+v", p.Name, ref)
		}
		if p.Annotations["lifecycle.apps.kruise.io/timestamp"] == "" {
			t.Errorf("Pod %s has annotations %v", p.Name, p.Annotations)
		}
		volumes := slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim == nil })
		if len(volumes) != 1 || volumes[0].Name != "data" || volumes[0].PersistentVolumeClaim.ClaimName != "data-"+name {
			t.Errorf("Pod %s: volumes %+v", p.Name, p.Spec.Volumes)
		}
		c := s.claims()["data-"+name]
		if c.Labels["app"] != "db" || c.Labels["disk"] != "slow" || c.Annotations["note"] != "n" || len(c.OwnerReferences) > 0 {
			t.Errorf("claim %s: labels %v, annotations %v, owners %v", c.Name, c.Labels, c.Annotations, c.OwnerReferences)
		}
	}
	s.event("SuccessfulCreate", "create Pod db-1 in StatefulSet db successful")
	s.event("SuccessfulCreate", "create Claim data-db-0 Pod db-0 in StatefulSet db success")
	if st.LabelSelector != "app=db" || st.CurrentRevision != st.UpdateRevision || len(s.revisions()) != 1 {
		t.Errorf("status %+v, %d revisions", st, len(s.revisions()))
	}
	if c := st.VolumeClaims; len(c) != 1 || c[0].VolumeClaimName != "data" || c[0].CompatibleReplicas != 2 {
		t.Errorf("volumeClaims %+v", c)
	}
}

// S2: ownership is taken, lost and taken again.
func TestAdoptionAndRelease(t *testing.T) {
	s := create(t)
	s.settled(1)
	uid := s.pod(0).UID
	owned := func(want bool) {
		t.Helper()
		eventually(t, func() error {
			p := s.pod(0)
			if ref := metav1.GetControllerOf(p); p.UID != uid || (ref != nil) != want || want && ref.UID != s.get().UID {
				return fmt.Errorf("Pod %s has owners %+v", p.UID, p.OwnerReferences)
			}
			return nil
		})
	}
	owned(true)
	s.patch(0, `{"metadata":{"ownerReferences":null}}`)
	owned(true)
	s.patch(0, `{"metadata":{"labels":null}}`)
	owned(false)
	labels := `{"metadata":{"labels":{"app":"db","controller-revision-hash":"` + s.get().Status.UpdateRevision + `"}}}`
	s.patch(0, labels)
	owned(true)
	s.settled(1)
	if got := s.pod(0).Labels["statefulset.kubernetes.io/pod-name"]; got != "db-0" {
		t.Errorf("label pod-name is %q", got)
	}
	s.event("SuccessfulUpdate", "update Pod db-0 in StatefulSet db successful")
}

// S3: creation waits for the Pod before, and a missing Pod is made again whatever others do.
func TestOrderedCreation(t *testing.T) {
	s := create(t, replicas(2), told(unreadyAnnotation))
	s.status("one Pod that is not ready", func(st v1beta1.StatefulSetStatus) bool { return st.Replicas == 1 && st.ReadyReplicas == 0 })
	s.wait("0", nil)
	ready := func(ordinal int) { s.patch(ordinal, `{"metadata":{"annotations":{"`+unreadyAnnotation+`":null}}}`) }
	ready(0)
	s.wait("0 1", nil)
	s.status("two Pods", func(st v1beta1.StatefulSetStatus) bool { return st.Replicas == 2 && st.ReadyReplicas == 1 })
	was := s.deletePod(0)
	eventually(t, func() error {
		if p := s.pod(0); p.UID == was {
			return errors.New("Pod 0 is still the old one")
		}
		return nil
	})
	ready(0)
	ready(1)
	s.settled(2)
}

// S11: with unready Pods an ordered set is scaled neither up nor down; then down in order.
func TestOrderedScaling(t *testing.T) {
	s := create(t, replicas(3))
	s.settled(3)
	for i := range 3 {
		s.patch(i, `{"metadata":{"annotations":{"`+unreadyAnnotation+`":"x"}}}`)
	}
	s.status("no Pod to be ready", func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == 0 })
	before := s.uids()
	s.change(replicas(0))
	s.status("the new generation", func(v1beta1.StatefulSetStatus) bool { return true })
	s.patch(0, `{"metadata":{"annotations":{"poke":"1"}}}`) // another pass
	s.patch(2, `{"metadata":{"annotations":{"poke":"1"}}}`)
	s.wait("0 1 2", nil)
	if got := s.uids(); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
	s.change(replicas(4))
	s.status("the new generation", func(v1beta1.StatefulSetStatus) bool { return true })
	s.wait("0 1 2", nil)
	s.change(replicas(0))
	seen := map[string]bool{}
	for i := range 3 {
		s.patch(i, `{"metadata":{"annotations":{"`+unreadyAnnotation+`":null}}}`)
	}
	eventually(t, func() error {
		got := s.names(nil)
		seen[got] = true
		if got != "" || s.get().Status.Replicas != 0 {
			return fmt.Errorf("Pods %s", got)
		}
		return nil
	})
	for got := range seen {
		if !slices.Contains([]string{"0 1 2", "0 1", "0", ""}, got) {
			t.Errorf("Pods %s were seen: the order of deletion is wrong", got)
		}
	}
	s.event("SuccessfulDelete", "delete Pod db-2 in StatefulSet db successful")
	s.change(replicas(1))
	s.settled(1)
}

// S12 and S14: a parallel set does not wait; the scale subresource works.
func TestParallelScalingThroughTheSubresource(t *testing.T) {
	s := create(t, parallel, told(unreadyAnnotation))
	s.status("one Pod", func(st v1beta1.StatefulSetStatus) bool { return st.Replicas == 1 })
	scale := &autoscalingv1.Scale{}
	if err := testClient.SubResource("scale").Get(t.Context(), s.get(), scale); err != nil {
		t.Fatal(err)
	}
	if scale.Spec.Replicas != 1 || scale.Status.Replicas != 1 || scale.Status.Selector != "app=db" {
		t.Errorf("scale %+v", scale)
	}
	scale.ResourceVersion = ""
	scale.Spec.Replicas = 3
	if err := testClient.SubResource("scale").Update(t.Context(), s.get(), client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	if scale.Spec.Replicas != 3 || *s.get().Spec.Replicas != 3 {
		t.Errorf("scale %+v", scale.Spec)
	}
	s.wait("0 1 2", nil)
	s.status("three Pods", func(st v1beta1.StatefulSetStatus) bool { return st.Replicas == 3 && st.ReadyReplicas == 0 })
	s.change(replicas(0))
	s.status("no Pods", func(st v1beta1.StatefulSetStatus) bool { return st.Replicas == 0 })
	s.wait("", nil)
}

// S13: a Pod that failed is deleted and made again.
func TestFailedPodIsReplaced(t *testing.T) {
	s := create(t, replicas(2))
	s.settled(2)
	was := s.pod(0).UID
	s.patch(0, `{"metadata":{"annotations":{"`+failedAnnotation+`":"x"}}}`)
	eventually(t, func() error {
		if p := s.pod(0); p.UID == was {
			return errors.New("Pod 0 is still the old one")
		}
		return nil
	})
	s.settled(2)
}

// S15, the steps of creation: with a scale limit no more Pods than that are unavailable.
func TestScaleStrategyLimitsCreation(t *testing.T) {
	s := create(t, parallel, replicas(5), told(unreadyAnnotation), func(o *v1beta1.StatefulSet) {
		o.Spec.ScaleStrategy = &v1beta1.StatefulSetScaleStrategy{MaxUnavailable: base().Spec.UpdateStrategy.RollingUpdate.MaxUnavailable}
		o.Spec.ScaleStrategy.MaxUnavailable.IntVal = 2
	})
	ready := func(ordinal int) { s.patch(ordinal, `{"metadata":{"annotations":{"`+unreadyAnnotation+`":null}}}`) }
	s.wait("0 1", nil)
	ready(0)
	s.wait("0 1 2", nil)
	ready(1)
	ready(2)
	s.wait("0 1 2 3 4", nil)
	ready(3)
	ready(4)
	s.settled(5)
}

func TestReservedOrdinals(t *testing.T) {
	s := create(t, parallel, replicas(4), reserve("1", "4-6"))
	s.settled(4)
	s.wait("0 2 3 7", nil)
	s.change(reserve("0"), replicas(3))
	s.settled(3)
	s.wait("1 2 3", nil)
	s.change(reserve("0-2000000000"), replicas(1))
	s.settled(1)
	s.wait("2000000001", nil)
}

// S21: the first ordinal moves up and down.
func TestStartOrdinal(t *testing.T) {
	start := func(n int32) edit {
		return func(o *v1beta1.StatefulSet) { o.Spec.Ordinals = &v1beta1.StatefulSetOrdinals{Start: n} }
	}
	s := create(t, replicas(2))
	s.settled(2)
	s.wait("0 1", nil)
	s.change(start(2), replicas(3))
	s.wait("2 3 4", nil)
	s.settled(3)
	s.change(start(4), replicas(2))
	s.wait("4 5", nil)
	s.settled(2)
	s.change(start(2), replicas(2))
	s.wait("2 3", nil)
	s.settled(2)
	s.change(func(o *v1beta1.StatefulSet) { o.Spec.Ordinals = nil })
	s.wait("0 1", nil)
	s.settled(2)
}

func TestNothingIsWrittenOnceSettled(t *testing.T) {
	s := create(t, inPlace, replicas(3), claim("data", ""), retention("Delete", "Delete"))
	s.settled(3)
	s.status("bound claims", func(st v1beta1.StatefulSetStatus) bool { return st.VolumeClaims[0].CompatibleReadyReplicas == 3 })
	s.waitClaims("data-db-0=StatefulSet/db data-db-1=StatefulSet/db data-db-2=StatefulSet/db", byOwners)
	n := len(writes.in(s.key.Namespace))
	for i := range 5 { // any event makes the controller look again
		s.patch(i%3, fmt.Sprintf(`{"metadata":{"annotations":{"poke":"%d"}}}`, i))
	}
	s.change(func(o *v1beta1.StatefulSet) { metav1.SetMetaDataAnnotation(&o.ObjectMeta, "poke", "1") })
	s.change(func(o *v1beta1.StatefulSet) { o.Spec.RevisionHistoryLimit = new(int32(9)) })
	s.settled(3)
	if got := writes.in(s.key.Namespace)[n:]; len(got) > 1 { // the generation
		t.Errorf("writes: %v", got)
	}
}

// The least that a new Pod costs is its creation, and one write of its readiness gate.
func TestCreationCostsFewWrites(t *testing.T) {
	s := create(t, parallel, inPlace, replicas(4), claim("data", ""))
	s.settled(4)
	for pod, list := range s.podWrites(0) {
		if len(list) > 1 {
			t.Errorf("Pod %s took %d writes: %v", pod, len(list), list)
		}
	}
	created := 0
	for _, w := range writes.in(s.key.Namespace) {
		if w == "POST /api/v1/namespaces/"+s.key.Namespace+"/pods" || w == "POST /api/v1/namespaces/"+s.key.Namespace+"/persistentvolumeclaims" {
			created++
		}
	}
	if created != 8 {
		t.Errorf("%d Pods and claims were created", created)
	}
}

// A Pod of the wanted name that belongs to nobody and does not fit: the set says so, and
// goes on at once when it is gone.
func TestNameThatIsTaken(t *testing.T) {
	squatter := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	s := create(t, func(o *v1beta1.StatefulSet) {
		squatter.Namespace = o.Namespace
		if err := testClient.Create(t.Context(), squatter); err != nil {
			t.Fatal(err)
		}
	})
	s.status("a condition", func(st v1beta1.StatefulSetStatus) bool {
		return len(st.Conditions) == 1 && st.Conditions[0].Type == v1beta1.StatefulSetConditionFailedCreatePod && st.Replicas == 0
	})
	if s.pod(0).UID != squatter.UID {
		t.Fatal("the Pod was replaced")
	}
	s.deletePod(0)
	s.settled(1)
	s.status("the condition to go", func(st v1beta1.StatefulSetStatus) bool { return len(st.Conditions) == 0 })
}

// A set that was deleted with its children left, and made again: it takes them all, and no
// Pod is restarted. So does one that takes the Pods of a set of another API.
func TestOrphansAreTakenWithoutARestart(t *testing.T) {
	s := create(t, inPlace, replicas(3), claim("data", ""))
	was := s.settled(3)
	before := s.uids()
	first := s.get()
	s.change(func(o *v1beta1.StatefulSet) { o.Finalizers = []string{"example.com/orphan"} })
	if err := testClient.Delete(t.Context(), s.get()); err != nil {
		t.Fatal(err)
	}
	orphan := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))
	for _, p := range s.pods() {
		if err := testClient.Patch(t.Context(), &p, orphan); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range s.revisions() {
		if err := testClient.Patch(t.Context(), &v, orphan); err != nil {
			t.Fatal(err)
		}
	}
	if err := testClient.Patch(t.Context(), s.get(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	again := &v1beta1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: first.Namespace, Name: first.Name}, Spec: first.Spec}
	if err := testClient.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	st := s.settled(3)
	if st.UpdateRevision != was.UpdateRevision || st.CurrentRevision != was.UpdateRevision || len(s.revisions()) != 1 {
		t.Errorf("status %+v, %d revisions", st, len(s.revisions()))
	}
	if !maps.Equal(before, s.uids()) {
		t.Errorf("Pods were %v and are %v", before, s.uids())
	}
	for _, p := range s.pods() {
		if ref := metav1.GetControllerOf(&p); ref == nil || ref.UID != again.UID || p.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("Pod %s: owner %+v, status %+v", p.Name, ref, p.Status.ContainerStatuses)
		}
	}
	for _, v := range s.revisions() {
		if ref := metav1.GetControllerOf(&v); ref == nil || ref.UID != again.UID {
			t.Errorf("ControllerRevision %s has owner %+v", v.Name, ref)
		}
	}
}

// minReadySeconds holds back creation, removal and availability, and time alone ends that.
func TestMinReadySeconds(t *testing.T) {
	s := create(t, replicas(2), func(o *v1beta1.StatefulSet) { o.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = new(int32(1)) })
	s.settled(2)
	since := func(p corev1.Pod) time.Time {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.LastTransitionTime.Time
			}
		}
		return time.Time{}
	}
	if pods := s.pods(); pods[1].CreationTimestamp.Time.Before(since(pods[0]).Add(time.Second)) {
		t.Errorf("Pod 1 was created at %s, and Pod 0 became ready at %s", pods[1].CreationTimestamp, since(pods[0]))
	}
	s.change(func(o *v1beta1.StatefulSet) { o.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = new(int32(300)) })
	s.status("no available Pod", func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == 2 && st.AvailableReplicas == 0 })
	s.change(replicas(0))
	s.status("the new generation", func(v1beta1.StatefulSetStatus) bool { return true })
	s.wait("0 1", nil)
	s.change(func(o *v1beta1.StatefulSet) { o.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = new(int32(1)) })
	s.status("no Pods", func(st v1beta1.StatefulSetStatus) bool { return st.Replicas == 0 })
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package statefulset

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

const onlyFirst = `data-db-0=StatefulSet/db`

// S16: claims belong to the set, and go with it.
func TestRetentionWhenDeleted(t *testing.T) {
	s := create(t, replicas(2), claim("data", ""), retention("Delete", "Retain"))
	s.settled(2)
	s.waitClaims("data-db-0=StatefulSet/db data-db-1=StatefulSet/db", byOwners)
	uid := s.get().UID
	for _, c := range s.claims() {
		if ref := c.OwnerReferences[0]; ref.UID != uid || ref.APIVersion != "apps.kruise.io/v1beta1" || ref.Controller != nil && *ref.Controller {
			t.Errorf("claim %s has owner %+v", c.Name, ref)
		}
	}
	s.change(retention("Retain", "Retain"))
	s.waitClaims("data-db-0= data-db-1=", byOwners)
	s.change(retention("Delete", "Retain"))
	s.waitClaims("data-db-0=StatefulSet/db data-db-1=StatefulSet/db", byOwners)
	if err := testClient.Delete(t.Context(), s.get()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		s.deletePod(i)
	}
	s.waitClaims("", nil)
}

// S17 and S19: a Pod that is scaled away takes its claim with it.
func TestRetentionWhenScaled(t *testing.T) {
	s := create(t, replicas(3), claim("data", ""), retention("", "Delete"))
	s.waitClaims("data-db-0= data-db-1= data-db-2=", byOwners)
	s.change(replicas(1))
	s.waitClaims("data-db-0=", byOwners)
	s.settled(1)
	s.change(retention("Delete", "Delete"))
	s.waitClaims(onlyFirst, byOwners)
}

// S18: reserved ordinals decide which Pod is one too many.
func TestRetentionWithReservedOrdinals(t *testing.T) {
	s := create(t, replicas(3), reserve("0", "2-5"), claim("data", ""), retention("", "Delete"))
	s.waitClaims("data-db-1 data-db-6 data-db-7", nil)
	s.change(replicas(1))
	s.waitClaims("data-db-1", nil)
	s.settled(1)
}

// A scale-down that is at once taken back must not use the claim that is doomed.
func TestStaleClaimIsNotUsedAgain(t *testing.T) {
	s := create(t, replicas(2), claim("data", ""), retention("", "Delete"))
	s.settled(2)
	was := s.claims()["data-db-1"].UID
	s.change(replicas(1))
	s.settled(1)
	s.change(replicas(2))
	s.settled(2)
	if now := s.claims()["data-db-1"]; now.UID == was || now.DeletionTimestamp != nil {
		t.Errorf("claim %s of before is used", was)
	}
}

// S20: a claim that is deleted under a Pod that no node takes is made again.
func TestClaimOfPendingPodIsMadeAgain(t *testing.T) {
	s := create(t, claim("data", ""), told(unboundAnnotation))
	s.status("a pending Pod", func(st v1beta1.StatefulSetStatus) bool { return st.CurrentReplicas == 1 && st.ReadyReplicas == 0 })
	pod := s.pod(0).UID
	was := s.claims()["data-db-0"]
	// The fake driver keeps a claim that a Pod mentions; Kubernetes lets go of it.
	if err := testClient.Delete(t.Context(), &was); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := testClient.Patch(t.Context(), &was, patch); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if now, ok := s.claims()["data-db-0"]; !ok || now.UID == was.UID {
			return errors.New("the claim was not made again")
		}
		return nil
	})
	s.patch(0, `{"metadata":{"annotations":{"`+unboundAnnotation+`":null}}}`)
	s.settled(1)
	if s.pod(0).UID != pod {
		t.Error("the Pod was replaced")
	}
}

// A claim template that is added waits for a rolling update; one that is removed hurts nobody.
func TestClaimTemplatesComeAndGo(t *testing.T) {
	s := create(t, inPlace, replicas(2), partition(2), claim("data", ""))
	s.settled(2)
	before := s.uids()
	s.change(claim("logs", ""), image("app:2"))
	s.status("the new generation", func(st v1beta1.StatefulSetStatus) bool { return st.UpdateRevision != st.CurrentRevision })
	if !maps.Equal(before, s.uids()) {
		t.Error("Pods that the partition keeps were replaced")
	}
	s.change(partition(0))
	s.settled(2)
	s.wait("0=2 1=2", func(p corev1.Pod) string {
		n := 0
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				n++
			}
		}
		return fmt.Sprint(n)
	})
	s.change(func(o *v1beta1.StatefulSet) { o.Spec.VolumeClaimTemplates = o.Spec.VolumeClaimTemplates[:1] }, image("app:3"))
	s.settled(2)
	s.waitClaims("data-db-0 data-db-1 logs-db-0 logs-db-1", nil)
}

func onRollingUpdate(o *v1beta1.StatefulSet) {
	o.Spec.VolumeClaimUpdateStrategy.Type = v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType
}

// size is that of the first claim template.
func size(size string) edit {
	return func(o *v1beta1.StatefulSet) {
		o.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
}

// compatible waits until the claims of every template are n compatible and ready ones.
func (s *set) compatible(n int32) {
	s.t.Helper()
	s.status(fmt.Sprintf("%d compatible claims", n), func(st v1beta1.StatefulSetStatus) bool {
		for _, c := range st.VolumeClaims {
			if c.CompatibleReplicas != n || c.CompatibleReadyReplicas != n {
				return false
			}
		}
		return st.ReadyReplicas == *s.get().Spec.Replicas
	})
}

// Expansion 1, 3 and 5: volumes grow without a restart, with the rolling update or alone.
func TestExpansion(t *testing.T) {
	for name, policy := range map[string]edit{"by recreation": func(*v1beta1.StatefulSet) {}, "in place": inPlace} {
		t.Run(name, func(t *testing.T) {
			s := create(t, policy, replicas(3), onRollingUpdate, claim("data", expandable), claim("logs", fixed))
			s.settled(3)
			s.compatible(3)
			before := s.uids()
			s.change(size("2Gi"))
			s.compatible(3)
			const grown = "data-db-0=2Gi/2Gi data-db-1=2Gi/2Gi data-db-2=2Gi/2Gi logs-db-0=1Gi/1Gi logs-db-1=1Gi/1Gi logs-db-2=1Gi/1Gi"
			s.waitClaims(grown, bySize)
			if !maps.Equal(before, s.uids()) {
				t.Error("Pods were restarted for sizes alone")
			}
			for _, c := range s.claims() {
				if want := map[bool]string{true: "db"}[c.Labels["app"] == "db" && c.Name[:4] == "data"]; c.Annotations[v1beta1.OwnedByStatefulSetAnnotation] != want {
					t.Errorf("claim %s has annotations %v", c.Name, c.Annotations)
				}
			}
			s.event("SuccessfulResize", "resize Claim data-db-2 Pod db-2 in StatefulSet db success")
			s.change(size("3Gi"), image("app:2"), func(o *v1beta1.StatefulSet) { // a limit is for new claims
				o.Spec.VolumeClaimTemplates[0].Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("9Gi")}
			})
			s.settled(3)
			s.compatible(3)
			s.wait("0=app:2 1=app:2 2=app:2", byImage)
		})
	}
}

// Expansion one at a time: the next volume waits for the one that is expanding.
func TestExpansionObeysMaxUnavailable(t *testing.T) {
	s := create(t, parallel, replicas(3), onRollingUpdate, claim("data", expandable))
	s.settled(3)
	s.compatible(3)
	hold := func(claim string, value string) {
		t.Helper()
		c := s.claims()[claim]
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+heldAnnotation+`":`+value+`}}}`))
		if err := testClient.Patch(t.Context(), &c, patch); err != nil {
			t.Fatal(err)
		}
	}
	hold("data-db-2", `"x"`)
	s.change(size("2Gi"))
	s.waitClaims("data-db-0=1Gi/1Gi data-db-1=1Gi/1Gi data-db-2=2Gi/1Gi", bySize)
	s.status("one that is not ready", func(st v1beta1.StatefulSetStatus) bool {
		return st.VolumeClaims[0].CompatibleReplicas == 1 && st.VolumeClaims[0].CompatibleReadyReplicas == 0
	})
	s.waitClaims("data-db-0=1Gi/1Gi data-db-1=1Gi/1Gi data-db-2=2Gi/1Gi", bySize)
	hold("data-db-2", "null")
	s.compatible(3)
}

// Expansion 9, 12 and what stops one: partition, rollback of the image, strategy OnDelete, a
// class that cannot expand.
func TestExpansionWithPartitionAndRollback(t *testing.T) {
	s := create(t, inPlace, replicas(3), onRollingUpdate, claim("data", expandable))
	s.settled(3)
	s.compatible(3)
	s.change(image("app:2"), size("2Gi"), partition(2))
	s.settled(1)
	s.status("one compatible claim", func(st v1beta1.StatefulSetStatus) bool {
		return st.VolumeClaims[0].CompatibleReplicas == 1 && st.VolumeClaims[0].CompatibleReadyReplicas == 1
	})
	s.wait("0=app:1 1=app:1 2=app:2", byImage)
	s.change(image("app:1"), func(o *v1beta1.StatefulSet) {
		o.Spec.VolumeClaimUpdateStrategy.Type = v1beta1.OnDeleteVolumeClaimUpdateStrategyType
	}, partition(0))
	s.settled(3)
	s.wait("0=app:1 1=app:1 2=app:1", byImage)
	s.waitClaims("data-db-0=1Gi/1Gi data-db-1=1Gi/1Gi data-db-2=2Gi/2Gi", bySize)
	s.change(onRollingUpdate)
	s.compatible(3)
	s.change(size("1Gi"), image("app:3")) // smaller than the claims: nothing shrinks
	s.settled(3)
	s.waitClaims("data-db-0=2Gi/2Gi data-db-1=2Gi/2Gi data-db-2=2Gi/2Gi", bySize)
}

// The class forbids expansion; then it is edited, and nobody has to touch the set.
func TestExpansionThatTheClassForbids(t *testing.T) {
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: "edited-"},
		Provisioner: "test.example.com/driver", AllowVolumeExpansion: new(false),
	}
	if err := testClient.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	s := create(t, replicas(1), onRollingUpdate, claim("data", class.Name))
	s.settled(1)
	s.compatible(1)
	s.change(size("2Gi"))
	s.status("a condition", func(st v1beta1.StatefulSetStatus) bool {
		return len(st.Conditions) == 1 && st.Conditions[0].Type == v1beta1.StatefulSetConditionFailedUpdatePod
	})
	s.event("FailedUpdatePVC", "storage class "+class.Name+" does not allow expansion")
	class.AllowVolumeExpansion = new(true)
	if err := testClient.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	s.compatible(1)
	s.waitClaims("data-db-0=2Gi/2Gi", bySize)
	s.status("the condition to go", func(st v1beta1.StatefulSetStatus) bool { return len(st.Conditions) == 0 })
}

// Expansion 8: specified deletion during a partitioned update with growing claims.
func TestExpansionWithSpecifiedDelete(t *testing.T) {
	s := create(t, inPlace, replicas(4), onRollingUpdate, claim("data", expandable))
	s.settled(4)
	s.compatible(4)
	replaced := func(ordinal int) {
		t.Helper()
		was := s.pod(ordinal).UID
		s.patch(ordinal, `{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"}}}`)
		eventually(t, func() error {
			if p := s.pod(ordinal); p.UID == was {
				return errors.New("it is still the old Pod")
			}
			return nil
		})
		s.status("all Pods to be ready", func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == 4 })
	}
	replaced(1)
	s.change(image("app:2"), size("2Gi"), func(o *v1beta1.StatefulSet) {
		r := o.Spec.UpdateStrategy.RollingUpdate
		o.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2)), PodUpdatePolicy: r.PodUpdatePolicy}
	})
	s.settled(2)
	replaced(2)
	replaced(1)
	s.settled(2)
	s.wait("0=app:1 1=app:1 2=app:2 3=app:2", byImage)
	s.status("two compatible claims", func(st v1beta1.StatefulSetStatus) bool {
		return st.VolumeClaims[0].CompatibleReplicas == 2 && st.VolumeClaims[0].CompatibleReadyReplicas == 2
	})
	s.waitClaims("data-db-0=1Gi/1Gi data-db-1=1Gi/1Gi data-db-2=2Gi/2Gi data-db-3=2Gi/2Gi", bySize)
}

// A driver that grows the file system only when the Pod starts anew.
func TestExpansionThatNeedsARestart(t *testing.T) {
	s := create(t, replicas(2), onRollingUpdate, claim("data", expandable))
	s.settled(2)
	s.compatible(2)
	before := s.uids()
	annotate := func(claim string, value string) {
		t.Helper()
		c := s.claims()[claim]
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+heldAnnotation+`":`+value+`}}}`))
		if err := testClient.Patch(t.Context(), &c, patch); err != nil {
			t.Fatal(err)
		}
	}
	annotate("data-db-0", `"`+restartGrows+`"`)
	annotate("data-db-1", `"`+restartGrows+`"`)
	s.change(size("2Gi"))
	s.compatible(2)
	for name, uid := range s.uids() {
		if before[name] == uid {
			t.Errorf("Pod %s was not started anew", name)
		}
	}
}

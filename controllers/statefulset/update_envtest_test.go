// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package statefulset

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// S4: highest ordinal first, one after the other, also when a Pod on the way is not ready.
func TestReCreateInOrderAndRollback(t *testing.T) {
	s := create(t, replicas(3))
	first := s.settled(3).UpdateRevision
	s.patch(1, `{"metadata":{"annotations":{"`+unreadyAnnotation+`":"x"}}}`)
	s.status("Pod 1 to be unready", func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == 2 })
	s.change(image("app:2"))
	st := s.status("the new revision", func(st v1beta1.StatefulSetStatus) bool { return st.UpdateRevision != first })
	if st.CurrentRevision != first || st.UpdatedReplicas != 0 || st.CurrentReplicas != 3 {
		t.Errorf("status %+v", st)
	}
	s.wait("0=app:1 1=app:1 2=app:1", byImage)
	s.patch(1, `{"metadata":{"annotations":{"`+unreadyAnnotation+`":null}}}`)
	seen := map[string]bool{}
	eventually(t, func() error {
		got := s.names(byImage)
		seen[strings.ReplaceAll(got, "=app", "")] = true
		if st := s.get().Status; st.CurrentRevision == first || st.ReadyReplicas != 3 {
			return fmt.Errorf("Pods %s, status %+v", got, st)
		}
		return nil
	})
	for got := range seen {
		switch got {
		case "0:1 1:1 2:1", "0:1 1:1", "0:1 1:1 2:2", "0:1 2:2", "0:1 1:2 2:2", "1:2 2:2", "0:2 1:2 2:2":
		default:
			t.Errorf("Pods %s were seen: the order is wrong", got)
		}
	}
	s.change(image("app:1"))
	st = s.status("the first revision again", func(st v1beta1.StatefulSetStatus) bool { return st.CurrentRevision == first && st.ReadyReplicas == 3 })
	if st.UpdateRevision != first || len(s.revisions()) != 2 {
		t.Errorf("status %+v, %d revisions", st, len(s.revisions()))
	}
}

// S6: the partition counts Pods that stay; deleted Pods come back at the revision of
// their place.
func TestPartition(t *testing.T) {
	only := func(n int32) edit {
		return func(o *v1beta1.StatefulSet) {
			o.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateStatefulSetStrategy{Partition: &n}
		}
	}
	s := create(t, replicas(3), partition(3))
	first := s.settled(3).UpdateRevision
	before := s.uids()
	s.change(image("app:2"))
	st := s.status("the new revision", func(st v1beta1.StatefulSetStatus) bool { return st.UpdateRevision != first })
	if st.CurrentRevision != first || !maps.Equal(before, s.uids()) {
		t.Errorf("status %+v", st)
	}
	s.change(only(2))
	s.wait("0=app:1 1=app:1 2=app:2", byImage)
	s.settled(1)
	zero, two := s.deletePod(0), s.deletePod(2)
	s.wait("0=app:1 1=app:1 2=app:2", byImage)
	s.settled(1)
	if now := s.uids(); now["db-0"] == zero || now["db-2"] == two {
		t.Errorf("Pods %v", now)
	}
	s.change(only(1))
	s.wait("0=app:1 1=app:2 2=app:2", byImage)
	s.settled(2)
	s.change(only(0))
	s.settled(3)
	s.status("the new current revision", func(st v1beta1.StatefulSetStatus) bool { return st.CurrentRevision == st.UpdateRevision })
}

// S7: under OnDelete Pods come back at the update revision, and the current one stays.
func TestOnDelete(t *testing.T) {
	s := create(t, onDelete, replicas(3))
	first := s.settled(3).UpdateRevision
	again := func(want string) {
		t.Helper()
		before := s.uids()
		for i := range 3 {
			s.deletePod(i)
		}
		s.wait("0="+want+" 1="+want+" 2="+want, byImage)
		s.settled(3)
		for name, uid := range s.uids() {
			if before[name] == uid {
				t.Errorf("Pod %s was kept", name)
			}
		}
	}
	again("app:1")
	s.change(image("app:2"))
	s.status("the new revision", func(st v1beta1.StatefulSetStatus) bool {
		return st.UpdateRevision != first && st.CurrentRevision == first
	})
	again("app:2")
	if st := s.get().Status; st.CurrentRevision != first || st.UpdatedReplicas != 3 {
		t.Errorf("status %+v", st)
	}
}

// S15 and the lesson "blocked by the tail": a parallel set that is broken is repaired.
func TestBrokenParallelSetIsRepaired(t *testing.T) {
	s := create(t, inPlace, parallel, replicas(4))
	s.settled(4)
	s.change(image("bad:1"))
	s.status("one broken Pod", func(st v1beta1.StatefulSetStatus) bool { return st.UpdatedReplicas == 1 && st.ReadyReplicas == 3 })
	s.change(image("app:3"))
	s.settled(4)
	// Every Pod unready on the old revision: the fix still gets to all of them.
	for i := range 4 {
		s.patch(i, `{"metadata":{"annotations":{"`+unreadyAnnotation+`":"x"}}}`)
	}
	s.status("no Pod to be ready", func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == 0 })
	s.change(image("app:4"), maxUnavailable("100%"))
	s.wait("0=app:4 1=app:4 2=app:4 3=app:4", byImage)
	for i := range 4 {
		s.patch(i, `{"metadata":{"annotations":{"`+unreadyAnnotation+`":null}}}`)
	}
	s.settled(4)
}

func TestPausedAndUnordered(t *testing.T) {
	s := create(t, inPlace, parallel, replicas(3), partition(2), func(o *v1beta1.StatefulSet) {
		o.Spec.UpdateStrategy.RollingUpdate.Paused = true
		o.Spec.UpdateStrategy.RollingUpdate.UnorderedUpdate = &v1beta1.UnorderedUpdateStrategy{
			PriorityStrategy: &v1beta1.UpdatePriorityStrategy{OrderPriority: []v1beta1.UpdatePriorityOrderTerm{{OrderedKey: "canary"}}},
		}
	})
	first := s.settled(3).UpdateRevision
	s.patch(1, `{"metadata":{"labels":{"canary":"1"}}}`)
	s.patch(0, `{"metadata":{"labels":{"canary":"2"}}}`)
	s.patch(2, `{"metadata":{"labels":{"canary":"0"}}}`)
	s.change(image("app:2"))
	s.status("the new revision", func(st v1beta1.StatefulSetStatus) bool { return st.UpdateRevision != first })
	s.wait("0=app:1 1=app:1 2=app:1", byImage)
	s.change(func(o *v1beta1.StatefulSet) { o.Spec.UpdateStrategy.RollingUpdate.Paused = false })
	s.wait("0=app:2 1=app:1 2=app:1", byImage)
	s.settled(1)
	s.change(partition(0))
	s.settled(3)
}

// S22: labelled Pods are replaced under their names, whatever the partition says.
func TestSpecifiedDelete(t *testing.T) {
	s := create(t, replicas(4))
	s.settled(4)
	replaced := func(ordinal int) {
		t.Helper()
		was := s.pod(ordinal).UID
		s.patch(ordinal, `{"metadata":{"labels":{"apps.kruise.io/specified-delete":""}}}`)
		eventually(t, func() error {
			if p := s.pod(ordinal); p.UID == was {
				return errors.New("it is still the old Pod")
			}
			return nil
		})
		s.status("all Pods to be ready", func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == 4 })
	}
	replaced(1)
	s.change(image("app:2"), partition(2))
	s.settled(2)
	replaced(2)
	replaced(1)
	s.wait("0=app:1 1=app:1 2=app:2 3=app:2", byImage)
	st := s.settled(2)
	for i, p := range s.pods() {
		want := st.CurrentRevision
		if i >= 2 {
			want = st.UpdateRevision
		}
		if p.Labels["controller-revision-hash"] != want {
			t.Errorf("Pod %s is at %s", p.Name, p.Labels["controller-revision-hash"])
		}
	}
}

func TestHistoryIsCut(t *testing.T) {
	s := create(t, inPlace, func(o *v1beta1.StatefulSet) { o.Spec.RevisionHistoryLimit = new(int32(1)) })
	s.settled(1)
	for i := range 4 {
		s.change(image(fmt.Sprintf("app:%d", i+2)))
		s.settled(1)
	}
	eventually(t, func() error {
		if got := s.revisions(); len(got) != 2 {
			return fmt.Errorf("%d revisions", len(got))
		}
		return nil
	})
}

func TestImagesArePulledBeforehand(t *testing.T) {
	s := create(t, inPlace, parallel, replicas(5), partition(1), func(o *v1beta1.StatefulSet) {
		o.Annotations = map[string]string{"apps.kruise.io/image-predownload-parallelism": "2"}
	})
	first := s.settled(5).UpdateRevision
	s.change(image("app:2"))
	s.status("the new revision", func(st v1beta1.StatefulSetStatus) bool { return st.UpdateRevision != first })
	var jobs v1beta1.ImagePullJobList
	// Whoever sees the new generation observed sees the job.
	if err := testClient.List(t.Context(), &jobs, client.InNamespace(s.key.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != 1 || jobs.Items[0].Spec.Image != "app:2" || jobs.Items[0].OwnerReferences[0].Kind != "StatefulSet" || jobs.Items[0].Spec.Parallelism.IntValue() != 2 {
		t.Fatalf("jobs %+v", jobs.Items)
	}
	s.event("CreatedImagePullJob", "for image: app:2")
	s.settled(4)
	s.change(partition(0))
	s.settled(5)
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

// A set without any defaults, as one that was restored while no webhook ran.
func TestSetThatSkippedTheWebhook(t *testing.T) {
	s := create(t, func(o *v1beta1.StatefulSet) {
		o.Spec = v1beta1.StatefulSetSpec{Selector: o.Spec.Selector, Template: o.Spec.Template}
	})
	st := s.status("one Pod", func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == 1 })
	s.change(image("app:2"))
	s.status("the new current revision", func(now v1beta1.StatefulSetStatus) bool {
		return now.CurrentRevision == now.UpdateRevision && now.CurrentRevision != st.CurrentRevision && now.AvailableReplicas == 1
	})
	if got := s.get().Spec; got.Replicas != nil || got.UpdateStrategy.RollingUpdate != nil {
		t.Errorf("the controller wrote the spec: %+v", got)
	}
}

func TestSetThatIsBeingDeletedIsLeftAlone(t *testing.T) {
	s := create(t, replicas(2), func(o *v1beta1.StatefulSet) { o.Finalizers = []string{"example.com/hold"} })
	s.settled(2)
	if err := testClient.Delete(t.Context(), s.get()); err != nil {
		t.Fatal(err)
	}
	s.status("the deletion", func(v1beta1.StatefulSetStatus) bool { return true }) // it made a generation
	s.deletePod(1)
	s.status("one Pod", func(st v1beta1.StatefulSetStatus) bool { return st.Replicas == 1 })
	s.wait("0", nil)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := testClient.Patch(t.Context(), s.get(), patch); err != nil {
		t.Fatal(err)
	}
}

// A Pod that is made anew costs two writes, and each of its steps at most one of the status.
func TestReCreateCostsFewWrites(t *testing.T) {
	s := create(t, parallel, replicas(3))
	s.settled(3)
	from := len(writes.in(s.key.Namespace))
	s.change(image("app:2"), maxUnavailable("100%"))
	s.settled(3)
	created, deleted, other := 0, 0, []string{}
	for _, w := range writes.in(s.key.Namespace)[from:] {
		switch {
		case strings.HasPrefix(w, "POST") && strings.HasSuffix(w, "/pods"):
			created++
		case strings.HasPrefix(w, "DELETE"):
			deleted++
		case strings.HasSuffix(w, "/statefulsets/db/status"), strings.Contains(w, "/controllerrevisions"): // its creation, and the decision about pre-download
		default:
			other = append(other, w)
		}
	}
	if created != 3 || deleted != 3 || len(other) > 0 {
		t.Errorf("%d Pods created, %d deleted, and %v", created, deleted, other)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package statefulset

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// hooked gives the template the label that a hook waits for.
func hooked(set func(*v1beta1.Lifecycle, *v1beta1.LifecycleHook)) edit {
	return func(o *v1beta1.StatefulSet) {
		templateLabel("hook", "true")(o)
		o.Spec.Lifecycle = &v1beta1.Lifecycle{}
		set(o.Spec.Lifecycle, &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}})
	}
}

func preDelete(l *v1beta1.Lifecycle, h *v1beta1.LifecycleHook) { l.PreDelete = h }
func preUpdate(l *v1beta1.Lifecycle, h *v1beta1.LifecycleHook) { l.InPlaceUpdate = h }

const (
	unhook = `{"metadata":{"labels":{"hook":null}}}`
	rehook = `{"metadata":{"labels":{"hook":"true"}}}`
)

// The hooks that deadlocked OrderedReady sets: an update by recreation.
func TestPreDeleteHookOfOrderedUpdate(t *testing.T) {
	s := create(t, replicas(2), hooked(preDelete))
	s.settled(2)
	s.change(image("app:2"))
	s.wait("0=Normal 1=PreparingDelete", byState)
	s.status("one available Pod", func(st v1beta1.StatefulSetStatus) bool { return st.AvailableReplicas == 1 && st.ReadyReplicas == 2 })
	s.patch(1, unhook)
	s.wait("0=PreparingDelete 1=Normal", byState)
	s.wait("0=app:1 1=app:2", byImage)
	s.patch(0, unhook)
	s.wait("0=app:2 1=app:2", byImage)
	s.settled(2)
}

// Specified deletion, and a scale-down by two: strictly one after the other.
func TestPreDeleteHookOfOrderedDeletion(t *testing.T) {
	s := create(t, replicas(3), hooked(preDelete))
	s.settled(3)
	was := s.pod(1).UID
	s.patch(1, `{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"}}}`)
	s.wait("0=Normal 1=PreparingDelete 2=Normal", byState)
	s.patch(1, unhook)
	eventually(t, func() error {
		if p := s.pod(1); p.UID == was {
			return errors.New("it is still the old Pod")
		}
		return nil
	})
	s.settled(3)
	s.change(replicas(1))
	s.wait("0=Normal 1=Normal 2=PreparingDelete", byState)
	s.patch(2, unhook)
	s.wait("0=Normal 1=PreparingDelete", byState)
	s.patch(1, unhook)
	s.wait("0=Normal", byState)
	s.settled(1)
}

// A scale-down that is taken back frees the Pod, and the Pod can be updated.
func TestPreparingDeleteIsTakenBack(t *testing.T) {
	s := create(t, inPlace, replicas(2), hooked(func(l *v1beta1.Lifecycle, h *v1beta1.LifecycleHook) {
		h.MarkPodNotReady = true
		l.PreDelete = h
	}))
	s.settled(2)
	before := s.uids()
	s.change(replicas(1))
	s.wait("0=Normal 1=PreparingDelete", byState)
	s.change(replicas(2))
	s.wait("0=Normal 1=Normal", byState)
	s.settled(2)
	s.change(image("app:2"))
	s.settled(2)
	if got := s.uids(); !maps.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
}

func TestInPlaceUpdateHookOfOrderedSet(t *testing.T) {
	s := create(t, inPlace, replicas(2), hooked(preUpdate))
	s.settled(2)
	before := s.uids()
	s.change(image("app:2"))
	s.wait("0=Normal 1=PreparingUpdate", byState)
	s.change(image("app:1")) // rolled back while the hook holds the Pod
	s.wait("0=Normal 1=Normal", byState)
	s.settled(2)
	s.change(image("app:2"))
	for _, i := range []int{1, 0} {
		state := func(want string) {
			t.Helper()
			eventually(t, func() error {
				if got := byState(*s.pod(i)); got != want {
					return fmt.Errorf("state %s of Pod %d, want %s; %s", got, i, want, s.names(byState))
				}
				return nil
			})
		}
		state("PreparingUpdate")
		s.patch(i, unhook)
		state("Updated")
		s.patch(i, rehook)
		state("Normal")
	}
	s.settled(2)
	if got := s.uids(); !maps.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
}

func TestPreNormalHook(t *testing.T) {
	s := create(t, replicas(2), func(o *v1beta1.StatefulSet) {
		o.Spec.Lifecycle = &v1beta1.Lifecycle{PreNormal: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}}}
	})
	s.wait("0=PreparingNormal", byState)
	s.status("one ready Pod that is not available", func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == 1 && st.AvailableReplicas == 0 })
	s.wait("0=PreparingNormal", byState)
	s.patch(0, rehook)
	s.wait("0=Normal 1=PreparingNormal", byState)
	s.patch(1, rehook)
	s.settled(2)
}

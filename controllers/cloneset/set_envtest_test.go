// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cloneset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// set is a CloneSet under test.
type set struct {
	t   *testing.T
	key client.ObjectKey
}

// create makes the CloneSet in a new namespace and waits until all its Pods are available.
func create(t *testing.T, b fixture.CloneSetBuilder) *set {
	t.Helper()
	t.Parallel()
	cs := b.Namespace(namespace(t)).With(func(c *v1beta1.CloneSet) { c.UID, c.Generation = "", 0 }).Obj()
	if err := testClient.Create(t.Context(), cs); err != nil {
		t.Fatal(err)
	}
	return &set{t, client.ObjectKeyFromObject(cs)}
}

func (s *set) get() *v1beta1.CloneSet {
	s.t.Helper()
	cs := &v1beta1.CloneSet{}
	if err := testClient.Get(s.t.Context(), s.key, cs); err != nil {
		s.t.Fatal(err)
	}
	return cs
}

// change edits the spec; conflicts with the controller are retried.
func (s *set) change(edit func(*v1beta1.CloneSet)) {
	s.t.Helper()
	eventually(s.t, func() error {
		cs := s.get()
		edit(cs)
		return testClient.Update(s.t.Context(), cs)
	})
}

func (s *set) image(image string) {
	s.t.Helper()
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Template.Spec.Containers[0].Image = image })
}

func (s *set) partition(value string) {
	s.t.Helper()
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.UpdateStrategy.RollingUpdate.Partition = fixture.CloneSet("x").Partition(value).Obj().Spec.UpdateStrategy.RollingUpdate.Partition
	})
}

// pods are those that do not terminate, by name.
func (s *set) pods() []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

func (s *set) uids() (out []string) {
	for _, p := range s.pods() {
		out = append(out, string(p.UID))
	}
	slices.Sort(out)
	return out
}

// status waits until the status of the present generation passes check.
func (s *set) status(what string, check func(v1beta1.CloneSetStatus) bool) {
	s.t.Helper()
	eventually(s.t, func() error {
		cs := s.get()
		if cs.Status.ObservedGeneration == cs.Generation && check(cs.Status) {
			return nil
		}
		return fmt.Errorf("waiting for %s: generation %d, status %+v", what, cs.Generation, cs.Status)
	})
}

func (s *set) updatedAvailable(n int32) {
	s.t.Helper()
	s.status(fmt.Sprintf("%d updated and available Pods", n), func(st v1beta1.CloneSetStatus) bool {
		return st.UpdatedAvailableReplicas == n && st.Replicas == int32(*s.get().Spec.Replicas) && st.AvailableReplicas == st.Replicas
	})
}

func (s *set) condition(t v1beta1.CloneSetConditionType) (c v1beta1.CloneSetCondition) {
	for _, c := range s.get().Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return c
}

// podWrites are the manager's writes by Pod, without the first ones.
func (s *set) podWrites(from int) map[string][]string {
	perPod := map[string][]string{}
	for _, w := range writes.in(s.key.Namespace)[from:] {
		if _, pod, found := strings.Cut(w, "/pods/"); found {
			pod, _, _ = strings.Cut(pod, "/")
			perPod[pod] = append(perPod[pod], w)
		}
	}
	return perPod
}

func (s *set) images() (out []string) {
	for _, p := range s.pods() {
		out = append(out, p.Spec.Containers[0].Image)
	}
	slices.Sort(out)
	return out
}

func (s *set) event(reason, fragment string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var list corev1.EventList
		if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, fragment) && e.Source.Component == "cloneset-controller" {
				return nil
			}
		}
		return fmt.Errorf("no event %s with %q", reason, fragment)
	})
}

func web() fixture.CloneSetBuilder { return fixture.CloneSet("web") }

func inPlace() fixture.CloneSetBuilder {
	return web().Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
}

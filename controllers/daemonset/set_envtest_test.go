// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// set is a DaemonSet under test. Its nodes are its own: they carry its namespace as a label
// that the template selects, and begin with it.
type set struct {
	t   *testing.T
	key client.ObjectKey
}

// nodeLabel keeps the tests from each other's nodes.
const nodeLabel = "test"

// create makes the nodes and the DaemonSet in a new namespace.
func create(t *testing.T, b fixture.DaemonSetBuilder, nodes string) *set {
	t.Helper()
	t.Parallel()
	s := &set{t: t, key: client.ObjectKey{Namespace: namespace(t)}}
	for _, n := range strings.Split(nodes, "") {
		s.join(n)
	}
	s.apply(b)
	return s
}

// apply makes the DaemonSet.
func (s *set) apply(b fixture.DaemonSetBuilder) {
	s.t.Helper()
	ds := b.Namespace(s.key.Namespace).NodeSelector(nodeLabel, s.key.Namespace).
		With(func(d *v1beta1.DaemonSet) { d.UID, d.Generation = "", 0 }).Obj()
	if err := testClient.Create(s.t.Context(), ds); err != nil {
		s.t.Fatal(err)
	}
	s.key.Name = ds.Name
}

func (s *set) node(name string) string { return s.key.Namespace + "-" + name }

// join makes a node that is ready.
func (s *set) join(name string) {
	s.t.Helper()
	s.newNode(name)
	s.changeNode(name, func(n *corev1.Node) { n.Spec.Taints = nil })
}

// newNode makes a node as it joins: the API server taints it as not ready.
func (s *set) newNode(name string) {
	s.t.Helper()
	node := fixture.Node(s.node(name)).Label(nodeLabel, s.key.Namespace).With(func(n *corev1.Node) { n.UID = "" }).Obj()
	if err := testClient.Create(s.t.Context(), node); err != nil {
		s.t.Fatal(err)
	}
}

func (s *set) leave(name string) {
	s.t.Helper()
	if err := testClient.Delete(s.t.Context(), fixture.Node(s.node(name)).Obj()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *set) changeNode(name string, edit func(*corev1.Node)) {
	s.t.Helper()
	eventually(s.t, func() error {
		n := &corev1.Node{}
		if err := testClient.Get(s.t.Context(), client.ObjectKey{Name: s.node(name)}, n); err != nil {
			return err
		}
		edit(n)
		return testClient.Update(s.t.Context(), n)
	})
}

func (s *set) get() *v1beta1.DaemonSet {
	s.t.Helper()
	ds := &v1beta1.DaemonSet{}
	if err := testClient.Get(s.t.Context(), s.key, ds); err != nil {
		s.t.Fatal(err)
	}
	return ds
}

// change edits the spec; conflicts with the controller are retried.
func (s *set) change(edit func(*v1beta1.DaemonSet)) {
	s.t.Helper()
	eventually(s.t, func() error {
		ds := s.get()
		edit(ds)
		return testClient.Update(s.t.Context(), ds)
	})
}

func (s *set) rolling(edit func(*v1beta1.RollingUpdateDaemonSet)) {
	s.t.Helper()
	s.change(func(d *v1beta1.DaemonSet) { edit(d.Spec.UpdateStrategy.RollingUpdate) })
}

func (s *set) image(image string) {
	s.t.Helper()
	s.change(func(d *v1beta1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = image })
}

// all are the Pods of the namespace, terminating ones too, by name.
func (s *set) all() []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items
}

func (s *set) pods() []corev1.Pod {
	s.t.Helper()
	return slices.DeleteFunc(s.all(), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (s *set) changePod(p corev1.Pod, edit func(*corev1.Pod)) {
	s.t.Helper()
	base := p.DeepCopy()
	edit(&p)
	if err := testClient.Patch(s.t.Context(), &p, client.MergeFrom(base)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *set) uids() (out []string) {
	for _, p := range s.pods() {
		out = append(out, string(p.UID))
	}
	slices.Sort(out)
	return out
}

// where is image by node, as "a=app:1 b=app:1".
func (s *set) where() string {
	var out []string
	for _, p := range s.pods() {
		node, _ := strings.CutPrefix(plan.TargetNode(&p), s.key.Namespace+"-")
		out = append(out, node+"="+p.Spec.Containers[0].Image)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// at waits until the Pods that do not terminate are where want says, and all available, and
// the status tells so.
func (s *set) at(want string) {
	s.t.Helper()
	eventually(s.t, func() error {
		ds := s.get()
		st := ds.Status
		if got := s.where(); got != want {
			return fmt.Errorf("waiting for Pods %q: they are at %q, status %+v", want, got, st)
		}
		n := int32(len(strings.Fields(want)))
		if st.CurrentNumberScheduled != n || st.NumberAvailable != n || st.ObservedGeneration != ds.Generation || st.NumberMisscheduled != 0 {
			return fmt.Errorf("waiting for the status: generation %d, %+v", ds.Generation, st)
		}
		return nil
	})
}

// status waits until the status of the present generation passes check.
func (s *set) status(what string, check func(v1beta1.DaemonSetStatus) bool) {
	s.t.Helper()
	eventually(s.t, func() error {
		ds := s.get()
		if ds.Status.ObservedGeneration == ds.Generation && check(ds.Status) {
			return nil
		}
		return fmt.Errorf("waiting for %s: generation %d, status %+v", what, ds.Generation, ds.Status)
	})
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

func (s *set) event(reason, fragment string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var list corev1.EventList
		if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, fragment) && e.Source.Component == "daemonset-controller" {
				return nil
			}
		}
		return fmt.Errorf("no event %s with %q", reason, fragment)
	})
}

func (s *set) revisions() []appsv1.ControllerRevision {
	s.t.Helper()
	var list appsv1.ControllerRevisionList
	if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	return list.Items
}

func agent() fixture.DaemonSetBuilder { return fixture.DaemonSet("agent") }

func inPlace() fixture.DaemonSetBuilder { return agent().InPlace() }

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// fields points at what a DaemonSet has in both versions. A scenario that only touches them
// runs as a client of either version.
type fields struct {
	Template  *corev1.PodTemplateSpec
	Rolling   *v1beta1.RollingUpdateDaemonSet
	MinReady  *int32
	Lifecycle **v1beta1.Lifecycle
}

// version is one served version of the API.
type version interface {
	empty() client.Object
	fields(client.Object) fields
}

type beta struct{}

func (beta) empty() client.Object { return &v1beta1.DaemonSet{} }

func (beta) fields(obj client.Object) fields {
	s := &obj.(*v1beta1.DaemonSet).Spec
	if s.Selector == nil {
		s.Selector = selector()
	}
	if s.UpdateStrategy.RollingUpdate == nil {
		s.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateDaemonSet{}
	}
	return fields{&s.Template, s.UpdateStrategy.RollingUpdate, &s.MinReadySeconds, &s.Lifecycle}
}

type alpha struct{}

func (alpha) empty() client.Object { return &v1alpha1.DaemonSet{} }

func (alpha) fields(obj client.Object) fields {
	s := &obj.(*v1alpha1.DaemonSet).Spec
	if s.Selector == nil {
		s.Selector = selector()
	}
	if s.UpdateStrategy.RollingUpdate == nil {
		s.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateDaemonSet{}
	}
	return fields{&s.Template, s.UpdateStrategy.RollingUpdate, &s.MinReadySeconds, &s.Lifecycle}
}

const agentName = "e2e-ds"

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"daemonset-name": agentName}}
}

// suite is one test's DaemonSet, which is always called e2e-ds, and the version through
// which the test writes it.
type suite struct {
	*harness.Env
	api version
}

func newSuite(t *testing.T, api version) suite {
	t.Helper()
	s := suite{harness.New(t), api}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), harness.Short)
		defer cancel()
		ds := &v1beta1.DaemonSet{}
		if err := s.Client.Get(ctx, s.Key(agentName), ds); err == nil {
			ds.ManagedFields = nil
			text, _ := yaml.Marshal(ds)
			t.Logf("DaemonSet %s:\n%s", agentName, text)
		}
	})
	return s
}

// inBothVersions runs a scenario twice, as a client of each version.
func inBothVersions(t *testing.T, scenario func(s suite)) {
	t.Parallel()
	for name, api := range map[string]version{"v1beta1": beta{}, "v1alpha1": alpha{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(newSuite(t, api))
		})
	}
}

// create makes a DaemonSet of one container "busybox" in the network of its node, which runs
// on every node whatever its taints.
func (s suite) create(edit ...func(fields)) {
	s.T.Helper()
	obj := s.api.empty()
	obj.SetName(agentName)
	f := s.api.fields(obj)
	f.Template.Labels = map[string]string{"daemonset-name": agentName}
	f.Template.Spec = corev1.PodSpec{
		HostNetwork:                   true,
		TerminationGracePeriodSeconds: new(int64(3)),
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "busybox", Image: harness.Nginx1, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"},
		}},
	}
	for _, e := range edit {
		e(f)
	}
	s.Create(obj)
}

// change reads the DaemonSet, edits and writes it, again on conflict.
func (s suite) change(edit func(fields)) {
	s.T.Helper()
	s.Eventually("changing DaemonSet "+agentName, harness.Short, func() string {
		obj := s.api.empty()
		err := s.Client.Get(s.Ctx(), s.Key(agentName), obj)
		if err == nil {
			edit(s.api.fields(obj))
			err = s.Client.Update(s.Ctx(), obj)
		}
		return text(err)
	})
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func (s suite) set() *v1beta1.DaemonSet {
	s.T.Helper()
	ds := &v1beta1.DaemonSet{}
	s.Eventually("reading DaemonSet "+agentName, harness.Short, func() string {
		return text(s.Client.Get(s.Ctx(), s.Key(agentName), ds))
	})
	return ds
}

func (s suite) waitStatus(what string, ok func(v1beta1.DaemonSetStatus) bool) v1beta1.DaemonSetStatus {
	s.T.Helper()
	var status v1beta1.DaemonSetStatus
	s.Eventually(what, harness.Long, func() string {
		ds := s.set()
		status = ds.Status
		switch {
		case status.ObservedGeneration < ds.Generation:
			return "the controller has not seen the last change"
		case !ok(status):
			return fmt.Sprintf("status %+v", status)
		}
		return ""
	})
	return status
}

// waitGeneration waits until the status speaks of the generation, which must be the only
// change since the DaemonSet was made.
func (s suite) waitGeneration(n int64) {
	s.T.Helper()
	s.waitStatus("the change is seen", func(v1beta1.DaemonSetStatus) bool { return true })
	require.Equal(s.T, n, s.set().Status.ObservedGeneration, "nothing but the test changes the spec")
}

// waitComplete waits until every desired node has an available Pod of the present template.
func (s suite) waitComplete() v1beta1.DaemonSetStatus {
	s.T.Helper()
	return s.waitStatus("every node has an updated Pod that is available", func(st v1beta1.DaemonSetStatus) bool {
		n := st.DesiredNumberScheduled
		return n > 0 && st.CurrentNumberScheduled == n && st.UpdatedNumberScheduled == n && st.NumberAvailable == n && st.NumberMisscheduled == 0
	})
}

// all lists the Pods of the DaemonSet, those being deleted too.
func (s suite) all() []corev1.Pod {
	s.T.Helper()
	list := &corev1.PodList{}
	s.Eventually("listing Pods", harness.Short, func() string {
		return text(s.Client.List(s.Ctx(), list, client.InNamespace(s.Namespace), client.MatchingLabels{"daemonset-name": agentName}))
	})
	return list.Items
}

// byNode groups Pods by the node that they run on or are meant for.
func byNode(pods []corev1.Pod) map[string][]corev1.Pod {
	nodes := map[string][]corev1.Pod{}
	for _, p := range pods {
		nodes[target(p)] = append(nodes[target(p)], p)
	}
	return nodes
}

func target(p corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil {
		return p.Spec.NodeName
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField {
				return f.Values[0]
			}
		}
	}
	return ""
}

// nodes are the names of all nodes of the cluster.
func (s suite) nodes() []string {
	s.T.Helper()
	list := &corev1.NodeList{}
	require.NoError(s.T, s.Client.List(s.Ctx(), list))
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

// waitOn waits until exactly the nodes have one ready Pod each that the DaemonSet controls and
// that is not being deleted, and the status agrees.
func (s suite) waitOn(nodes []string) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("one Pod on each of %v", nodes), harness.Long, func() string {
		running := byNode(s.Pods(agentName))
		if got := slices.Sorted(maps.Keys(running)); !slices.Equal(got, nodes) {
			return fmt.Sprintf("Pods on %v", got)
		}
		for node, pods := range running {
			if len(pods) != 1 || !harness.Ready(&pods[0]) {
				return fmt.Sprintf("%d Pods on %s, first %s", len(pods), node, pods[0].Status.Phase)
			}
		}
		return ""
	})
	s.waitStatus("the status agrees", func(st v1beta1.DaemonSetStatus) bool {
		n := int32(len(nodes))
		return st.DesiredNumberScheduled == n && st.CurrentNumberScheduled == n && st.NumberReady == n
	})
}

func names(pods []corev1.Pod) []string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// requireGate fails unless every Pod has readiness gate InPlaceUpdateReady, once.
func (s suite) requireGate(pods []corev1.Pod) {
	s.T.Helper()
	for _, p := range pods {
		n := 0
		for _, g := range p.Spec.ReadinessGates {
			if g.ConditionType == v1beta1.InPlaceUpdateReady {
				n++
			}
		}
		require.Equal(s.T, 1, n, "readiness gates InPlaceUpdateReady of %s", p.Name)
	}
}

func container(f fields) *corev1.Container { return &f.Template.Spec.Containers[0] }

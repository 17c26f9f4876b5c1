//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package probes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// What the scenarios of the specification write into Pods.
const (
	healthy = "game.kruise.io/healthy"
	check   = "game.kruise.io/check"
	cost    = "controller.kubernetes.io/pod-deletion-cost"
	mark    = "nginx"
)

// suite is one test, with StatefulSet stateful-test.
type suite struct {
	*harness.Env
}

const setName = "stateful-test"

func newSuite(t *testing.T) suite {
	t.Helper()
	s := suite{harness.New(t)}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), harness.Short)
		defer cancel()
		markers, nodes := &v1alpha1.PodProbeMarkerList{}, &v1alpha1.NodePodProbeList{}
		_ = s.Client.List(ctx, markers, client.InNamespace(s.Namespace))
		_ = s.Client.List(ctx, nodes)
		for _, m := range markers.Items {
			m.ManagedFields = nil
			text, _ := yaml.Marshal(m)
			t.Logf("PodProbeMarker %s:\n%s", m.Name, text)
		}
		for _, n := range nodes.Items {
			n.ManagedFields = nil
			text, _ := yaml.Marshal(n)
			t.Logf("NodePodProbe %s:\n%s", n.Name, text)
		}
	})
	nodes := &v1alpha1.NodePodProbeList{}
	require.NoError(t, s.Client.List(s.Ctx(), nodes))
	require.Len(t, nodes.Items, len(s.NodeNames()), "a NodePodProbe for each node")
	return s
}

// start creates the StatefulSet, with a Pod on each node, and waits until they run.
func (s suite) start(edit ...func(*corev1.PodSpec)) {
	s.T.Helper()
	labels := map[string]string{"app": "probe-" + s.Namespace}
	replicas := int32(len(s.NodeNames()))
	set := &v1beta1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: setName},
		Spec: v1beta1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "fake-service", PodManagementPolicy: "Parallel",
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)),
					Containers: []corev1.Container{
						{Name: "nginx", Image: "nginx:1.15.1", ImagePullPolicy: corev1.PullIfNotPresent},
						{Name: "main", Image: "centos:7", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "999d"}},
					},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
				},
			},
		},
	}
	for _, f := range edit {
		f(&set.Spec.Template.Spec)
	}
	s.Create(set)
	s.waitPods(int(replicas))
}

// waitPods waits until exactly so many Pods exist, all ready.
func (s suite) waitPods(want int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("%d Pods are ready", want), harness.Long, func() string {
		pods := s.Pods(setName)
		if len(pods) != want {
			return fmt.Sprintf("%d Pods", len(pods))
		}
		for i := range pods {
			if !harness.Ready(&pods[i]) {
				return pods[i].Name + " is not ready"
			}
		}
		return ""
	})
}

func (s suite) scale(n int) {
	s.T.Helper()
	s.Eventually("scaling", harness.Short, func() string {
		set := &v1beta1.StatefulSet{}
		err := s.Client.Get(s.Ctx(), s.Key(setName), set)
		if err == nil {
			set.Spec.Replicas = new(int32(n))
			err = s.Client.Update(s.Ctx(), set)
		}
		return text(err)
	})
	s.waitPods(n)
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// handler is one way to probe.
type handler = corev1.ProbeHandler

func shell(command ...string) handler { return handler{Exec: &corev1.ExecAction{Command: command}} }

func tcp(port int) handler {
	return handler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}
}

func get(path string, port int) handler {
	return handler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port), Scheme: corev1.URISchemeHTTP}}
}

// probe creates PodProbeMarker ppm-CONTAINER with one probe of that container.
func (s suite) probe(container, name, condition string, h handler, policies ...v1alpha1.ProbeMarkerPolicy) {
	s.T.Helper()
	m := &v1alpha1.PodProbeMarker{
		ObjectMeta: metav1.ObjectMeta{Name: "ppm-" + container},
		Spec: v1alpha1.PodProbeMarkerSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe-" + s.Namespace}},
			Probes: []v1alpha1.PodContainerProbe{{
				Name: name, ContainerName: container, PodConditionType: condition, MarkerPolicy: policies,
				Probe: v1alpha1.ContainerProbeSpec{Probe: corev1.Probe{ProbeHandler: h}},
			}},
		},
	}
	s.Create(m)
	s.waitProcessed(m.Name)
}

// whenHealthy marks Pods of which the probe succeeds.
func whenHealthy() v1alpha1.ProbeMarkerPolicy {
	return v1alpha1.ProbeMarkerPolicy{State: v1alpha1.ProbeSucceeded, Labels: map[string]string{mark: "healthy"}}
}

// costs makes Pods of which the probe fails go first.
func costs() []v1alpha1.ProbeMarkerPolicy {
	return []v1alpha1.ProbeMarkerPolicy{
		{State: v1alpha1.ProbeSucceeded, Annotations: map[string]string{cost: "10"}},
		{State: v1alpha1.ProbeFailed, Annotations: map[string]string{cost: "-10"}},
	}
}

func (s suite) waitProcessed(name string) {
	s.T.Helper()
	s.Eventually("PodProbeMarker "+name+" is processed", harness.Short, func() string {
		m := &v1alpha1.PodProbeMarker{}
		if err := s.Client.Get(s.Ctx(), s.Key(name), m); err != nil {
			return err.Error()
		}
		if m.Status.ObservedGeneration != m.Generation {
			return fmt.Sprintf("generation %d, observed %d", m.Generation, m.Status.ObservedGeneration)
		}
		if len(m.Finalizers) != 1 || m.Finalizers[0] != "kruise.io/node-pod-probe-cleanup" {
			return fmt.Sprintf("finalizers %q", m.Finalizers)
		}
		return ""
	})
}

// change gives the only probe of a marker another handler.
func (s suite) change(name string, h handler) {
	s.T.Helper()
	s.Eventually("changing PodProbeMarker "+name, harness.Short, func() string {
		m := &v1alpha1.PodProbeMarker{}
		err := s.Client.Get(s.Ctx(), s.Key(name), m)
		if err == nil {
			m.Spec.Probes[0].Probe.ProbeHandler = h
			err = s.Client.Update(s.Ctx(), m)
		}
		return text(err)
	})
	s.waitProcessed(name)
}

// look is what a Pod has to show: an empty text is something that must not be there.
type look struct {
	label, annotation string
	conditions        map[string]string // type to status
}

// waitPodsLook waits until each Pod looks like that.
func (s suite) waitPodsLook(want look) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("Pods look like %+v", want), harness.Short, func() string {
		for _, p := range s.Pods(setName) {
			if p.Labels[mark] != want.label || p.Annotations[cost] != want.annotation {
				return fmt.Sprintf("%s: label %q, annotation %q", p.Name, p.Labels[mark], p.Annotations[cost])
			}
			for kind, status := range want.conditions {
				if got := condition(p, kind); string(got.Status) != status {
					return fmt.Sprintf("%s: condition %s is %q", p.Name, kind, got.Status)
				}
			}
		}
		return ""
	})
}

func condition(p corev1.Pod, kind string) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if string(c.Type) == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// listed are the entries of the test's namespace in all NodePodProbes, as node/Pod/UID.
func (s suite) listed() map[string]bool {
	s.T.Helper()
	nodes := &v1alpha1.NodePodProbeList{}
	s.Eventually("listing NodePodProbes", harness.Short, func() string { return text(s.Client.List(s.Ctx(), nodes)) })
	found := map[string]bool{}
	for _, n := range nodes.Items {
		for _, p := range n.Spec.PodProbes {
			if p.Namespace == s.Namespace {
				found[strings.Join([]string{n.Name, p.Name, string(p.UID)}, "/")] = true
			}
		}
	}
	return found
}

// waitListed waits until the NodePodProbes have exactly the living Pods of the namespace.
func (s suite) waitListed() {
	s.T.Helper()
	s.Eventually("NodePodProbes list the living Pods and no other", harness.Short, func() string {
		want := map[string]bool{}
		for _, p := range s.Pods(setName) {
			want[strings.Join([]string{p.Spec.NodeName, p.Name, string(p.UID)}, "/")] = true
		}
		if got := s.listed(); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("they list %v, Pods are %v", got, want)
		}
		return ""
	})
}

// remove deletes a marker and waits until it is gone.
func (s suite) remove(name string) {
	s.T.Helper()
	m := &v1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace}}
	require.NoError(s.T, s.Client.Delete(s.Ctx(), m))
	s.Eventually("PodProbeMarker "+name+" is gone", harness.Short, func() string {
		if err := s.Client.Get(s.Ctx(), s.Key(name), m); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it exists, or: %v", err)
		}
		return ""
	})
}

// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

func affinity(terms ...corev1.NodeSelectorTerm) func(*v1beta1.DaemonSet) {
	return func(d *v1beta1.DaemonSet) {
		d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func expression(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

// The rules of daemonset.md 7.3.
func TestEligibility(t *testing.T) {
	set, node := agent(), fixture.Node("a")
	host := func(d *v1beta1.DaemonSet) { d.Spec.Template.Spec.HostNetwork = true }
	on := func(name string) func(*v1beta1.DaemonSet) {
		return func(d *v1beta1.DaemonSet) { d.Spec.Template.Spec.NodeName = name }
	}
	for name, c := range map[string]struct {
		set       fixture.DaemonSetBuilder
		node      fixture.NodeBuilder
		run, stay bool
	}{
		"any node":                          {set, node, true, true},
		"a cordoned node":                   {set, node.Cordoned(), true, true},
		"the node that the template names":  {set.With(on("a")), node, true, true},
		"another than the template names":   {set.With(on("b")), node, false, false},
		"the node selector matches":         {set.NodeSelector("c", "1"), node.Label("c", "1"), true, true},
		"the node selector does not match":  {set.NodeSelector("c", "1"), node.Label("c", "2"), false, false},
		"a required affinity matches":       {set.With(affinity(expression("c", corev1.NodeSelectorOpExists))), node.Label("c", ""), true, true},
		"one of two terms matches":          {set.With(affinity(expression("x", corev1.NodeSelectorOpExists), expression("c", corev1.NodeSelectorOpNotIn, "9"))), node, true, true},
		"a required affinity does not":      {set.With(affinity(expression("kubernetes.io/hostname", corev1.NodeSelectorOpNotIn, "a"))), node, false, false},
		"an affinity that cannot be read":   {set.With(affinity(expression("c", "Likes", "x"))), node, false, false},
		"a NoSchedule taint":                {set, node.Taint("t", corev1.TaintEffectNoSchedule), false, true},
		"a NoExecute taint":                 {set, node.Taint("t", corev1.TaintEffectNoExecute), false, false},
		"both taints, one tolerated":        {set.Tolerate(corev1.Toleration{Key: "t", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}), node.Taint("t", corev1.TaintEffectNoExecute).Taint("t", corev1.TaintEffectNoSchedule), false, true},
		"a PreferNoSchedule taint":          {set, node.Taint("t", corev1.TaintEffectPreferNoSchedule), true, true},
		"everything is tolerated":           {set.Tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}), node.Taint("t", corev1.TaintEffectNoExecute), true, true},
		"a toleration of another value":     {set.Tolerate(corev1.Toleration{Key: "t", Value: "x"}), node.Taint("t", corev1.TaintEffectNoSchedule), false, true},
		"a toleration of the empty value":   {set.Tolerate(corev1.Toleration{Key: "t"}), node.Taint("t", corev1.TaintEffectNoSchedule), true, true},
		"a node under pressure":             {set, node.Taint(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule), true, true},
		"an unreachable node":               {set, node.Taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), true, true},
		"a node without network":            {set, node.Taint(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule), false, true},
		"the same for a Pod of the host's":  {set.With(host), node.Taint(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule), true, true},
		"an operator of a newer Kubernetes": {set.Tolerate(corev1.Toleration{Key: "t", Operator: "Gt", Value: "1"}), node.Taint("t", corev1.TaintEffectNoSchedule), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			template := c.set.Obj().Spec.Template
			run, stay := EligibilityOf(&template).On(c.node.Obj())
			assert.Equal(t, [2]bool{c.run, c.stay}, [2]bool{run, stay})
		})
	}
}

func TestTolerations(t *testing.T) {
	template := agent().With(func(d *v1beta1.DaemonSet) { d.Spec.Template.Spec.HostNetwork = true }).
		Tolerate(corev1.Toleration{Key: "mine"}).
		Tolerate(corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))}).
		Obj().Spec.Template
	want := []corev1.Toleration{
		{Key: "mine"},
		{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"},
		{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute"},
		{Key: "node.kubernetes.io/disk-pressure", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/memory-pressure", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/pid-pressure", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/unschedulable", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/network-unavailable", Operator: "Exists", Effect: "NoSchedule"},
	}
	assert.Equal(t, want, Tolerations(&template))
	assert.Len(t, template.Spec.Tolerations, 2, "the template is only read")
	assert.NotNil(t, template.Spec.Tolerations[1].TolerationSeconds)
}

func TestTargetNode(t *testing.T) {
	pod := fixture.PodOfDaemonSet(agent(), "a")
	assert.Equal(t, "b", TargetNode(pod.Node("b").Obj()), "where the Pod runs goes before where it was to run")
	assert.Equal(t, "a", TargetNode(pod.Node("").Obj()))
	assert.Empty(t, TargetNode(fixture.Pod("p").Obj()))
}

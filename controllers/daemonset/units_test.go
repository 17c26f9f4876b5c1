// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/revision"
)

func hashOf(set *v1beta1.DaemonSet) string {
	return revision.DaemonSetHash(&set.Spec.Template, set.Status.CollisionCount)
}

func TestNewPod(t *testing.T) {
	base := fixture.DaemonSet("agent").With(func(d *v1beta1.DaemonSet) {
		d.Spec.Template.Annotations = map[string]string{"a": "b"}
		d.Spec.Template.Finalizers = []string{"f"}
	})
	required := func(d *v1beta1.DaemonSet) {
		d.Spec.Template.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}, {}}},
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}},
			},
			PodAntiAffinity: &corev1.PodAntiAffinity{},
		}
	}
	t.Run("labels, owner and tolerations", func(t *testing.T) {
		p := newPod(base.Obj(), "hash", "n", "abcde", false)
		assert.Equal(t, "agent-abcde", p.Name)
		assert.Equal(t, "agent-", p.GenerateName)
		assert.Equal(t, map[string]string{"app": "agent", "controller-revision-hash": "hash"}, p.Labels)
		assert.Equal(t, map[string]string{"a": "b"}, p.Annotations)
		assert.Equal(t, []string{"f"}, p.Finalizers)
		assert.Len(t, p.Spec.Tolerations, 6)
		assert.Empty(t, p.Spec.ReadinessGates, "only Pods that may be updated in place need the gate")
		ref := metav1.GetControllerOf(p)
		require.NotNil(t, ref)
		assert.Equal(t, "apps.kruise.io/v1beta1/DaemonSet", ref.APIVersion+"/"+ref.Kind)
	})
	t.Run("the scheduler gets one node to choose from", func(t *testing.T) {
		a := newPod(base.With(required).Obj(), "hash", "n", "abcde", false).Spec.Affinity
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		assert.Equal(t, []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n"}}}}}, terms)
		assert.Len(t, a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1)
		assert.NotNil(t, a.PodAntiAffinity)
	})
	t.Run("without the scheduler", func(t *testing.T) {
		p := newPod(base.With(required).Obj(), "hash", "n", "abcde", true)
		assert.Equal(t, "n", p.Spec.NodeName)
		assert.Equal(t, "kubernetes.io/daemonset-controller", p.Spec.SchedulerName)
		assert.Len(t, p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, 2)
	})
	t.Run("the readiness gate is there once", func(t *testing.T) {
		gate := []corev1.PodReadinessGate{{ConditionType: "InPlaceUpdateReady"}}
		assert.Equal(t, gate, newPod(base.InPlace().Obj(), "h", "n", "a", false).Spec.ReadinessGates)
		with := base.InPlace().With(func(d *v1beta1.DaemonSet) { d.Spec.Template.Spec.ReadinessGates = gate })
		assert.Equal(t, gate, newPod(with.Obj(), "h", "n", "a", false).Spec.ReadinessGates)
	})
	t.Run("a template generation is carried on", func(t *testing.T) {
		p := newPod(base.Annotation("deprecated.daemonset.template.generation", "7").Obj(), "h", "n", "a", false)
		assert.Equal(t, "7", p.Labels["pod-template-generation"])
	})
	t.Run("a long name is cut", func(t *testing.T) {
		p := newPod(fixture.DaemonSet(strings.Repeat("x", 200)).Obj(), "h", "n", "abcde", false)
		assert.Len(t, p.Name, 63)
	})
	t.Run("the set is only read", func(t *testing.T) {
		set := base.With(required).InPlace().Obj()
		was := set.DeepCopy()
		newPod(set, "h", "n", "a", false)
		assert.Equal(t, was, set)
	})
}

func TestNodeChangesThatCount(t *testing.T) {
	set := fixture.DaemonSet("agent").NodeSelector("color", "blue").OnNodes("zone", "canary").Obj()
	blue := fixture.Node("a").Label("color", "blue")
	assert.Equal(t, [3]bool{true, true, false}, counts(set, blue.Obj()))
	assert.Equal(t, [3]bool{true, true, true}, counts(set, blue.Label("zone", "canary").Obj()))
	assert.Equal(t, [3]bool{false, true, false}, counts(set, blue.Taint("t", corev1.TaintEffectNoSchedule).Obj()))
	assert.Equal(t, [3]bool{}, counts(set, fixture.Node("a").Obj()))
}

func TestBackoffsAreOfOneGeneration(t *testing.T) {
	var b backoffs
	key := types.NamespacedName{Namespace: "shop", Name: "agent"}
	set := fixture.DaemonSet("agent").Obj()
	assert.Empty(t, b.of(key, set))
	b.deleted(key, set, "a", fixture.Created)
	b.deleted(key, set, "a", fixture.Created.Add(time.Minute))
	assert.Equal(t, 2*time.Second, b.of(key, set)["a"].Delay)
	next := set.DeepCopy()
	next.Generation++
	assert.Empty(t, b.of(key, next), "a change of the spec may be what mends the failure")
	other := set.DeepCopy()
	other.UID = "another"
	assert.Empty(t, b.of(key, other))
	b.deleted(key, next, "a", fixture.Created)
	assert.Empty(t, b.of(key, set))
	b.forget(key)
	assert.Empty(t, b.of(key, next))
}

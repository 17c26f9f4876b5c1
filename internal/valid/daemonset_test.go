// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/poddefaults"
	"github.com/kruisectl/kruisectl/internal/valid"
)

type (
	agents     = v1beta1.DaemonSet
	agentsRoll = v1beta1.RollingUpdateDaemonSet
)

// agent returns a valid, defaulted DaemonSet.
func agent(change ...func(*agents)) *agents {
	ds := &agents{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "shop"},
		Spec: v1beta1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "agent:1"}}},
			},
			UpdateStrategy: v1beta1.DaemonSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &agentsRoll{
				RollingUpdateType: v1beta1.StandardRollingUpdateType, MaxUnavailable: new(intstr.FromInt32(1)), MaxSurge: new(intstr.FromInt32(0)),
			}},
			BurstReplicas: new(intstr.FromInt32(250)), RevisionHistoryLimit: new(int32(10)),
		},
	}
	poddefaults.Template(&ds.Spec.Template, poddefaults.Options{})
	for _, f := range change {
		f(ds)
	}
	return ds
}

func agentRolling(change func(*agentsRoll)) func(*agents) {
	return func(ds *agents) { change(ds.Spec.UpdateStrategy.RollingUpdate) }
}

// limits sets maxUnavailable and maxSurge; an empty text leaves one out.
func limits(maxUnavailable, maxSurge string) func(*agents) {
	return agentRolling(func(r *agentsRoll) { r.MaxUnavailable, r.MaxSurge = parse(maxUnavailable), parse(maxSurge) })
}

func parse(text string) *intstr.IntOrString {
	if text == "" {
		return nil
	}
	return new(intstr.Parse(text))
}

func burst(v intstr.IntOrString) func(*agents) {
	return func(ds *agents) { ds.Spec.BurstReplicas = &v }
}

func TestValidDaemonSets(t *testing.T) {
	for name, ds := range map[string]*agents{
		"the plain one":                agent(),
		"a name with dots":             agent(func(ds *agents) { ds.Name = "agent.shop" }),
		"a surge instead":              agent(limits("0", "100%")),
		"a surge alone":                agent(limits("", "1")),
		"maxUnavailable alone":         agent(limits("100%", "")),
		"a surge of none in place":     agent(limits("1", "0%"), agentRolling(func(r *agentsRoll) { r.RollingUpdateType = v1beta1.InplaceRollingUpdateType })),
		"more nodes than there may be": agent(limits("99999", "0")),
		"a partition of all nodes":     agent(agentRolling(func(r *agentsRoll) { r.Partition = parse("100%") })),
		"nodes by label": agent(agentRolling(func(r *agentsRoll) {
			r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "canary"}}
		})),
		"all nodes, by an empty selector": agent(agentRolling(func(r *agentsRoll) { r.Selector = &metav1.LabelSelector{} })),
		"a burst of one":                  agent(burst(intstr.FromInt32(1))),
		"a burst of a part":               agent(burst(intstr.FromString("10%"))),
		"a hook before deletion": agent(func(ds *agents) {
			ds.Spec.Lifecycle = &v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{}, PreNormal: &v1beta1.LifecycleHook{}}
		}),
		"OnDelete":                         agent(func(ds *agents) { ds.Spec.UpdateStrategy = v1beta1.DaemonSetUpdateStrategy{Type: "OnDelete"} }),
		"OnDelete with limits of no sense": agent(limits("5", "x"), func(ds *agents) { ds.Spec.UpdateStrategy.Type = "OnDelete" }),
	} {
		t.Run(name, func(t *testing.T) { require.Empty(t, valid.DaemonSet(ds, valid.Options{})) })
	}
}

func TestInvalidDaemonSets(t *testing.T) {
	const ru = "spec.updateStrategy.rollingUpdate"
	for name, c := range map[string]struct {
		change func(*agents)
		path   string
	}{
		"a name in upper case":      {func(ds *agents) { ds.Name = "Agent" }, "metadata.name"},
		"selector missing":          {func(ds *agents) { ds.Spec.Selector = nil }, "spec.selector"},
		"selector empty":            {func(ds *agents) { ds.Spec.Selector = &metav1.LabelSelector{} }, "spec.selector"},
		"labels not selected":       {func(ds *agents) { ds.Spec.Template.Labels = nil }, "spec.template.metadata.labels"},
		"a container without image": {func(ds *agents) { ds.Spec.Template.Spec.Containers[0].Image = "" }, "spec.template.spec.containers[0].image"},
		"Pods that end":             {func(ds *agents) { ds.Spec.Template.Spec.RestartPolicy = "Never" }, "spec.template.spec.restartPolicy"},
		"Pods with a deadline":      {func(ds *agents) { ds.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(9)) }, "spec.template.spec.activeDeadlineSeconds"},
		"an unknown type":           {func(ds *agents) { ds.Spec.UpdateStrategy.Type = "Recreate" }, "spec.updateStrategy.type"},
		"no limits":                 {func(ds *agents) { ds.Spec.UpdateStrategy.RollingUpdate = nil }, ru},
		"the type Surging":          {agentRolling(func(r *agentsRoll) { r.RollingUpdateType = "Surging" }), ru + ".rollingUpdateType"},
		"both limits":               {limits("1", "1"), ru + ".maxSurge"},
		"neither limit":             {limits("0", "0%"), ru + ".maxUnavailable"},
		"only a limit of none":      {limits("", "0"), ru + ".maxUnavailable"},
		"no limit":                  {limits("", ""), ru + ".maxUnavailable"},
		"a surge in place": {func(ds *agents) {
			limits("0", "1")(ds)
			ds.Spec.UpdateStrategy.RollingUpdate.RollingUpdateType = v1beta1.InplaceRollingUpdateType
		}, ru + ".maxSurge"},
		"maxUnavailable below zero":          {limits("-1", "0"), ru + ".maxUnavailable"},
		"maxUnavailable above all":           {limits("101%", "0"), ru + ".maxUnavailable"},
		"maxUnavailable in words beside one": {limits("some", "1"), ru + ".maxUnavailable"},
		"maxSurge above all":                 {limits("0", "200%"), ru + ".maxSurge"},
		"maxSurge in words":                  {limits("1", "none"), ru + ".maxSurge"},
		"a partition below zero":             {agentRolling(func(r *agentsRoll) { r.Partition = parse("-1") }), ru + ".partition"},
		"a partition above all":              {agentRolling(func(r *agentsRoll) { r.Partition = parse("101%") }), ru + ".partition"},
		"a partition in quotes":              {agentRolling(func(r *agentsRoll) { r.Partition = new(intstr.FromString("5")) }), ru + ".partition"},
		"nodes by a label that no node has":  {agentRolling(func(r *agentsRoll) { r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}} }), ru + ".selector.matchLabels"},
		"nodes by an operator that is unknown": {agentRolling(func(r *agentsRoll) {
			r.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Gt", Values: []string{"1"}}}}
		}), ru + ".selector.matchExpressions[0].operator"},
		"ready for less than no time":    {func(ds *agents) { ds.Spec.MinReadySeconds = -1 }, "spec.minReadySeconds"},
		"a burst below zero":             {burst(intstr.FromInt32(-1)), "spec.burstReplicas"},
		"a burst of none":                {burst(intstr.FromInt32(0)), "spec.burstReplicas"},
		"a burst of 0%":                  {burst(intstr.FromString("0%")), "spec.burstReplicas"},
		"a burst in words":               {burst(intstr.FromString("all")), "spec.burstReplicas"},
		"a negative history":             {func(ds *agents) { ds.Spec.RevisionHistoryLimit = new(int32(-1)) }, "spec.revisionHistoryLimit"},
		"a hook before updates in place": {func(ds *agents) { ds.Spec.Lifecycle = &v1beta1.Lifecycle{InPlaceUpdate: &v1beta1.LifecycleHook{}} }, "spec.lifecycle.inPlaceUpdate"},
		"a hook with a finalizer of no name": {func(ds *agents) {
			ds.Spec.Lifecycle = &v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{FinalizersHandler: []string{"a b"}}}
		}, "spec.lifecycle.preDelete.finalizersHandler"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.DaemonSet(agent(c.change), valid.Options{})
			require.Equal(t, []string{c.path}, paths(errs), "%v", errs)
		})
	}
}

func TestUpdateOfDaemonSet(t *testing.T) {
	broken := burst(intstr.FromInt32(-1))
	image := func(ds *agents) { ds.Spec.Template.Spec.Containers[0].Image = "agent:2" }
	for name, c := range map[string]struct {
		old, obj *agents
		path     string // empty: accepted
	}{
		"the selector": {agent(), agent(func(ds *agents) {
			ds.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Exists"}}}
		}), "spec.selector"},
		"everything else": {agent(), agent(image, limits("0", "1"), burst(intstr.FromInt32(5)), func(ds *agents) {
			ds.Spec.MinReadySeconds, ds.Spec.RevisionHistoryLimit = 3, new(int32(1))
			ds.Spec.Lifecycle, ds.Spec.ScaleStrategy = &v1beta1.Lifecycle{}, &v1beta1.DaemonSetScaleStrategy{PartitionedScaling: true}
		}), ""},
		"metadata of what is not valid":      {agent(broken), agent(broken, func(ds *agents) { ds.Labels = map[string]string{"a": "b"} }), ""},
		"another field of what is not valid": {agent(broken), agent(broken, image), ""},
		"a new fault beside an old one":      {agent(broken), agent(broken, limits("1", "1")), "spec.updateStrategy.rollingUpdate.maxSurge"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.DaemonSetUpdate(c.old, c.obj, valid.Options{})
			if c.path == "" {
				require.Empty(t, errs)
				return
			}
			require.Equal(t, []string{c.path}, paths(errs), "%v", errs)
		})
	}
}

// Of two limits that are well-formed exactly one is other than zero, or the object is refused.
func TestOneLimitOfDaemonSet(t *testing.T) {
	limit := rapid.OneOf(rapid.Just(""), rapid.Map(rapid.IntRange(0, 2), func(n int) string { return fmt.Sprint(n) }),
		rapid.Map(rapid.IntRange(0, 100), func(n int) string { return fmt.Sprintf("%d%%", n) }))
	rapid.Check(t, func(t *rapid.T) {
		u, s := limit.Draw(t, "maxUnavailable"), limit.Draw(t, "maxSurge")
		zero := func(text string) bool { return text == "" || text == "0" || text == "0%" }
		errs := valid.DaemonSet(agent(limits(u, s)), valid.Options{})
		if len(errs) == 0 != (zero(u) != zero(s)) {
			t.Fatalf("maxUnavailable %q and maxSurge %q: %v", u, s, errs)
		}
	})
}

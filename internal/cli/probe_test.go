// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// probed are three Pods with a marker: one with a result, one whose node has no
// NodePodProbe, one whose node has no agent.
func probed() []client.Object {
	m := &v1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ppm"}}
	m.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "p"}}
	m.Spec.Probes = []v1alpha1.PodContainerProbe{{Name: "healthy", ContainerName: "a", PodConditionType: "game.io/healthy"}}
	var objects []client.Object
	for i, name := range []string{"p1", "p2", "p3"} {
		node := "node-" + string(rune('1'+i))
		objects = append(objects, runningPod(func(p *corev1.Pod) {
			p.Name, p.UID, p.Spec.NodeName = name, types.UID("uid-"+name), node
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
				corev1.PodCondition{Type: "game.io/healthy", Status: corev1.ConditionTrue})
		}), fixture.Node(node).Obj())
	}
	npp := &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	uid := objects[0].GetUID()
	npp.Status.PodProbeStatuses = []v1alpha1.PodProbeStatus{{Name: "p1", Namespace: "shop", UID: uid, ProbeStates: []v1alpha1.ContainerProbeState{
		{Name: "ppm#healthy", State: v1alpha1.ProbeSucceeded, Message: "data is loaded\nand more", LastProbeTime: metav1.NewTime(t0.Add(-4 * time.Second)), LastTransitionTime: metav1.NewTime(t0.Add(-time.Hour))},
	}}}
	return append(objects, m, npp, &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "node-3"}}, agent("node-1"), agent("node-2"))
}

func TestProbeCommand(t *testing.T) {
	cases := map[string]struct {
		objects []client.Object
		args    string
	}{
		"probe":          {probed(), "probe"},
		"probe-wide":     {probed(), "probe p1 -o wide"},
		"probe-all":      {probed(), "probe -A -l app=p --no-headers"},
		"probe-marker":   {probed(), "probe --marker other"},
		"probe-json":     {probed(), "probe pod/p2 -o json"},
		"probe-unknown":  {probed(), "probe none"},
		"probe-type":     {probed(), "probe cloneset/web"},
		"probe-both":     {probed(), "probe p1 -l app=p"},
		"probe-selector": {probed(), "probe -l a=b=c"},
		"probe-watch":    {probed(), "probe -w -o json"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			golden(t, "commands/"+name, "$ kruisectl "+tc.args+"\n"+newWorld(t, tc.objects...).run(strings.Fields(tc.args)...).String())
		})
	}
	w := newWorld(t, probed()...)
	w.deny["NodePodProbe"], w.deny["Node"] = true, true
	wants(0, "results are hidden: cannot list nodepodprobes")(t, w.run("probe"))
}

func TestProbeWatchPrintsWhatChanges(t *testing.T) {
	fails := func(t *testing.T, c client.WithWatch) {
		npp := &v1alpha1.NodePodProbe{}
		if err := c.Get(context.Background(), client.ObjectKey{Name: "node-1"}, npp); err != nil {
			t.Error(err)
			return
		}
		npp.Status.PodProbeStatuses[0].ProbeStates[0].State = v1alpha1.ProbeFailed
		if err := c.Update(context.Background(), npp); err != nil {
			t.Error(err)
		}
	}
	worldStory(t, probed(), "probe -w --timeout 1m -o jsonl", func(t *testing.T, _ *world, r result) {
		wants(0, `"state":"Succeeded"`, `"state":"Failed"`)(t, r)
		if n := strings.Count(r.out, "\n"); n != 4 {
			t.Errorf("%d lines, want three and the one that changed:\n%s", n, r.out)
		}
	}, step{20 * time.Second, fails})
}

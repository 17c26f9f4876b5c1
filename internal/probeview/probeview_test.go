// SPDX-License-Identifier: Apache-2.0

package probeview

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

const condType = "game.io/healthy"

func world(change ...func(*Input)) Input {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "uid-p", Labels: map[string]string{"app": "p"}}}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: condType, Status: corev1.ConditionTrue}}
	m := v1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ppm"}}
	m.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "p"}}
	m.Spec.Probes = []v1alpha1.PodContainerProbe{{Name: "healthy", ContainerName: "main", PodConditionType: condType}}
	npp := v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	npp.Spec.PodProbes = []v1alpha1.PodProbe{{Name: "p", Namespace: "shop", UID: "uid-p", Probes: []v1alpha1.ContainerProbe{{Name: "ppm#healthy"}}}}
	npp.Status.PodProbeStatuses = []v1alpha1.PodProbeStatus{{Name: "p", Namespace: "shop", UID: "uid-p", ProbeStates: []v1alpha1.ContainerProbeState{
		{Name: "ppm#healthy", State: v1alpha1.ProbeSucceeded, Message: "ok", LastProbeTime: metav1.NewTime(time.Unix(60, 0))},
	}}}
	in := Input{Pods: []corev1.Pod{p}, Markers: []v1alpha1.PodProbeMarker{m}, Results: []v1alpha1.NodePodProbe{npp}, Agents: map[string]bool{"n1": true}, Virtual: map[string]bool{}}
	for _, c := range change {
		c(&in)
	}
	return in
}

func noStatus(in *Input) { in.Results[0].Status = v1alpha1.NodePodProbeStatus{} }

func virtual(in *Input) {
	in.Virtual["n1"] = true
	in.Results = nil
	in.Pods[0].Annotations = map[string]string{v1beta1.PodProbeAnnotation: "[]"}
}

func TestJoin(t *testing.T) {
	cases := map[string]struct {
		in                Input
		state, by, reason string
	}{
		"a result":                {world(), "Succeeded", ByAgent, ""},
		"the condition is behind": {world(func(in *Input) { in.Pods[0].Status.Conditions[1].Status = corev1.ConditionFalse }), "Succeeded", ByAgent, "does not show it yet"},
		"Unknown is shown as False": {world(func(in *Input) {
			in.Results[0].Status.PodProbeStatuses[0].ProbeStates[0].State = v1alpha1.ProbeUnknown
			in.Pods[0].Status.Conditions[1].Status = corev1.ConditionFalse
		}), "Unknown", ByAgent, ""},
		"a result of a node without agent": {world(func(in *Input) { in.Agents = map[string]bool{} }), "Succeeded", ByAgent, "no node agent any more"},
		"a result of an earlier Pod":       {world(func(in *Input) { in.Pods[0].UID = "later" }), "", ByAgent, "not on the node yet"},
		"no result yet":                    {world(noStatus), "", ByAgent, "has not reported"},
		"no agent":                         {world(noStatus, func(in *Input) { in.Agents = map[string]bool{} }), "", ByNobody, "node n1 has no node agent"},
		"agents are not known":             {world(noStatus, func(in *Input) { in.Agents = nil }), "", ByAgent, "has not reported"},
		"no NodePodProbe":                  {world(func(in *Input) { in.Results = nil }), "", ByAgent, "node n1 has no NodePodProbe"},
		"results are hidden":               {world(func(in *Input) { in.Results, in.ResultsHidden = nil, true }), "", ByAgent, "cannot list nodepodprobes"},
		"the marker was not seen":          {world(noStatus, func(in *Input) { in.Markers[0].Generation = 2 }), "", ByAgent, "has not seen the marker"},
		"the Pod is not initialized":       {world(noStatus, func(in *Input) { in.Pods[0].Status.Conditions = nil }), "", ByAgent, "not initialized"},
		"the Pod has no node":              {world(func(in *Input) { in.Pods[0].Spec.NodeName = "" }), "", ByNobody, "no node yet"},
		"the Pod has no such container":    {world(func(in *Input) { in.Markers[0].Spec.Probes[0].ContainerName = "side" }), "", ByNobody, `no container named "side"`},
		"a virtual node":                   {world(virtual), "Succeeded", ByProvider, ""},
		"a virtual node that is silent":    {world(virtual, func(in *Input) { in.Pods[0].Status.Conditions = nil }), "", ByProvider, "has not reported"},
		"a virtual node without the gate":  {world(virtual, func(in *Input) { in.Pods[0].Annotations = nil }), "", ByNobody, "EnablePodProbeMarkerOnServerless"},
		"a virtual node without condition": {world(virtual, func(in *Input) { in.Markers[0].Spec.Probes[0].PodConditionType = "" }), "", ByNobody, "podConditionType"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rows := Join(tc.in)
			if len(rows) != 1 {
				t.Fatalf("%d rows", len(rows))
			}
			r := rows[0]
			if r.State != tc.state || r.By != tc.by || (r.Reason == "") != (tc.reason == "") || !strings.Contains(r.Reason, tc.reason) {
				t.Errorf("row is %+v, want state %q by %s because %q", r, tc.state, tc.by, tc.reason)
			}
		})
	}
}

func TestWhoHasNoRow(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"a Pod that no marker selects":    func(in *Input) { in.Pods[0].Labels = nil },
		"a marker of another namespace":   func(in *Input) { in.Markers[0].Namespace = "else" },
		"a marker with an empty selector": func(in *Input) { in.Markers[0].Spec.Selector = &metav1.LabelSelector{} },
		"a marker that is being deleted":  func(in *Input) { in.Markers[0].DeletionTimestamp = &metav1.Time{} },
		"a Pod that has ended":            func(in *Input) { in.Pods[0].Status.Phase = corev1.PodSucceeded },
		"a Pod that is being deleted":     func(in *Input) { in.Pods[0].DeletionTimestamp = &metav1.Time{} },
	} {
		if rows := Join(world(change)); len(rows) != 0 {
			t.Errorf("%s: %+v", name, rows)
		}
	}
	if got := Executors(Join(world(virtual))); got != "probes are run on virtual nodes by their provider, never by the manager" {
		t.Error(got)
	}
	if got := Executors(nil); got != "" {
		t.Error(got)
	}
}

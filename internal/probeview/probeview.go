// SPDX-License-Identifier: Apache-2.0

// Package probeview joins PodProbeMarkers, NodePodProbes and Pods into one table: what each
// probe said of each Pod last, who runs it, and where there is no result, why (cli.md 13.8,
// podprobe.md). It is pure.
package probeview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/nodestate"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// Who runs a probe.
const (
	ByAgent    = "NodeAgent"
	ByProvider = "Provider" // of a virtual node
	ByNobody   = "Nobody"
)

// Row is one probe of one Pod.
type Row struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Marker    string `json:"marker"`
	Probe     string `json:"probe"`
	Container string `json:"container"`
	// State is Succeeded, Failed or Unknown; "" while there is no result.
	State   string `json:"state"`
	Message string `json:"message"`
	// Last is when it was run last, Since when the state began; zero when unknown.
	Last  time.Time `json:"last,omitzero"`
	Since time.Time `json:"since,omitzero"`
	Node  string    `json:"node"`
	// By is who runs it: NodeAgent, Provider or Nobody.
	By string `json:"executedBy"`
	// Condition is the Pod's condition as type=status, "" when the probe sets none.
	Condition string `json:"condition"`
	// Reason is why there is no result, or why the Pod does not show it yet.
	Reason string `json:"reason"`
}

// Input is what Join looks at.
type Input struct {
	Pods    []corev1.Pod
	Markers []v1alpha1.PodProbeMarker
	// Results are the NodePodProbes; Hidden says that they cannot be read.
	Results       []v1alpha1.NodePodProbe
	ResultsHidden bool
	// Virtual are the nodes that a provider serves.
	Virtual map[string]bool
	// Agents are the nodes with a node agent; nil when that is not known.
	Agents map[string]bool
}

// VirtualNodes are the virtual ones of nodes.
func VirtualNodes(nodes []corev1.Node) map[string]bool {
	m := map[string]bool{}
	for i := range nodes {
		if nodestate.IsVirtual(&nodes[i]) {
			m[nodes[i].Name] = true
		}
	}
	return m
}

// Join makes a row for each probe of each marker that selects a Pod, sorted by Pod, marker
// and probe. Pods that have ended have none.
func Join(in Input) []Row {
	byNode := map[string]*v1alpha1.NodePodProbe{}
	for i := range in.Results {
		byNode[in.Results[i].Name] = &in.Results[i]
	}
	rows := []Row{}
	for i := range in.Pods {
		p := &in.Pods[i]
		if !podprobe.Active(p) {
			continue
		}
		for j := range in.Markers {
			m := &in.Markers[j]
			if m.DeletionTimestamp != nil || !podprobe.Selects(m, p) {
				continue
			}
			for k := range m.Spec.Probes {
				rows = append(rows, one(in, byNode[p.Spec.NodeName], p, m, &m.Spec.Probes[k]))
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Marker, b.Marker), cmp.Compare(a.Probe, b.Probe))
	})
	return rows
}

func one(in Input, npp *v1alpha1.NodePodProbe, p *corev1.Pod, m *v1alpha1.PodProbeMarker, probe *v1alpha1.PodContainerProbe) Row {
	r := Row{Namespace: p.Namespace, Pod: p.Name, Marker: m.Name, Probe: probe.Name, Container: probe.ContainerName, Node: p.Spec.NodeName, By: ByAgent}
	cond := condition(p, probe.PodConditionType)
	if cond != nil {
		r.Condition = probe.PodConditionType + "=" + string(cond.Status)
	}
	switch {
	case p.Spec.NodeName == "":
		r.By, r.Reason = ByNobody, "the pod has no node yet"
	case in.Virtual[p.Spec.NodeName]:
		r.By = ByProvider
		onVirtual(&r, p, probe, cond)
	case !hasContainer(p, probe.ContainerName):
		r.By, r.Reason = ByNobody, fmt.Sprintf("the pod has no container named %q", probe.ContainerName)
	default:
		onNode(&r, in, npp, p, m, probe, cond)
	}
	return r
}

// onVirtual: the provider writes the condition itself.
func onVirtual(r *Row, p *corev1.Pod, probe *v1alpha1.PodContainerProbe, cond *corev1.PodCondition) {
	switch {
	case probe.PodConditionType == "":
		r.By, r.Reason = ByNobody, "on a virtual node only probes with a podConditionType are run"
	case p.Annotations[v1beta1.PodProbeAnnotation] == "":
		r.By, r.Reason = ByNobody, "the pod was created without the probe: the gate EnablePodProbeMarkerOnServerless was off, or the marker is younger"
	case cond == nil:
		r.Reason = "the provider of the virtual node has not reported"
	default:
		r.State = string(v1alpha1.ProbeUnknown)
		switch cond.Status {
		case corev1.ConditionTrue:
			r.State = string(v1alpha1.ProbeSucceeded)
		case corev1.ConditionFalse:
			r.State = string(v1alpha1.ProbeFailed)
		}
		r.Message, r.Last, r.Since = cond.Message, cond.LastProbeTime.Time, cond.LastTransitionTime.Time
	}
}

func onNode(r *Row, in Input, npp *v1alpha1.NodePodProbe, p *corev1.Pod, m *v1alpha1.PodProbeMarker, probe *v1alpha1.PodContainerProbe, cond *corev1.PodCondition) {
	key := podprobe.Key(m.Name, probe.Name)
	if s := result(npp, p, key); s != nil {
		r.State, r.Message, r.Last, r.Since = string(s.State), s.Message, s.LastProbeTime.Time, s.LastTransitionTime.Time
		r.Reason = behind(probe, s, cond)
		if agentless(in, p) {
			r.Reason = "old: node " + p.Spec.NodeName + " has no node agent any more"
		}
		return
	}
	switch {
	case in.ResultsHidden:
		r.Reason = "results are hidden: cannot list nodepodprobes"
	case npp == nil:
		r.Reason = "node " + p.Spec.NodeName + " has no NodePodProbe"
	case agentless(in, p):
		r.By, r.Reason = ByNobody, "node "+p.Spec.NodeName+" has no node agent"
	case m.Status.ObservedGeneration < m.Generation:
		r.Reason = "the controller has not seen the marker"
	case !initialized(p):
		r.Reason = "the pod is not initialized yet"
	case !listed(npp, p, key):
		r.Reason = "the probe is not on the node yet"
	default:
		r.Reason = "the node agent has not reported"
	}
}

func agentless(in Input, p *corev1.Pod) bool { return in.Agents != nil && !in.Agents[p.Spec.NodeName] }

// behind says that the Pod's condition does not show the result yet.
func behind(probe *v1alpha1.PodContainerProbe, s *v1alpha1.ContainerProbeState, cond *corev1.PodCondition) string {
	if probe.PodConditionType == "" || s.State == "" {
		return ""
	}
	want := corev1.ConditionFalse
	if s.State == v1alpha1.ProbeSucceeded {
		want = corev1.ConditionTrue
	}
	if cond == nil || cond.Status != want {
		return fmt.Sprintf("condition %s does not show it yet, or another probe sets it", probe.PodConditionType)
	}
	return ""
}

func result(npp *v1alpha1.NodePodProbe, p *corev1.Pod, key string) *v1alpha1.ContainerProbeState {
	if npp == nil {
		return nil
	}
	for i := range npp.Status.PodProbeStatuses {
		st := &npp.Status.PodProbeStatuses[i]
		if st.UID != p.UID {
			continue
		}
		for j := range st.ProbeStates {
			if st.ProbeStates[j].Name == key && st.ProbeStates[j].State != "" {
				return &st.ProbeStates[j]
			}
		}
	}
	return nil
}

func listed(npp *v1alpha1.NodePodProbe, p *corev1.Pod, key string) bool {
	for _, e := range npp.Spec.PodProbes {
		if e.UID != p.UID {
			continue
		}
		for _, probe := range e.Probes {
			if probe.Name == key {
				return true
			}
		}
	}
	return false
}

func condition(p *corev1.Pod, typ string) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if typ != "" && string(p.Status.Conditions[i].Type) == typ {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func initialized(p *corev1.Pod) bool {
	c := condition(p, string(corev1.PodInitialized))
	return c != nil && c.Status == corev1.ConditionTrue
}

func hasContainer(p *corev1.Pod, name string) bool {
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		if c.Name == name {
			return true
		}
	}
	return false
}

// Executors is one sentence on who runs the probes of rows; users ask (podprobe.md 5).
func Executors(rows []Row) string {
	agent, provider := false, false
	for _, r := range rows {
		agent, provider = agent || r.By == ByAgent, provider || r.By == ByProvider
	}
	var who []string
	if agent {
		who = append(who, "by the agent of each node")
	}
	if provider {
		who = append(who, "on virtual nodes by their provider")
	}
	if len(who) == 0 {
		return ""
	}
	return "probes are run " + strings.Join(who, ", ") + ", never by the manager"
}

// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/nodestate"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// selection evaluates the selectors of a job on NodeImages (images.md 6.4).
func selection(in Input) func(*v1beta1.NodeImage) bool {
	t := in.Job.Spec.ImagePullJobTemplate
	if t.PodSelector != nil {
		return func(ni *v1beta1.NodeImage) bool { return slices.Contains(in.PodNodes, ni.Name) }
	}
	return Selected(t)
}

// Selected evaluates the node selector of t; without one every node is selected. A Pod
// selector selects none: which nodes it means is with the Pods.
func Selected(t v1beta1.ImagePullJobTemplate) func(*v1beta1.NodeImage) bool {
	none := func(*v1beta1.NodeImage) bool { return false }
	switch {
	case t.PodSelector != nil:
		return none
	case t.Selector == nil:
		return func(*v1beta1.NodeImage) bool { return true }
	case t.Selector.Names != nil:
		return func(ni *v1beta1.NodeImage) bool { return slices.Contains(t.Selector.Names, ni.Name) }
	}
	s, err := metav1.LabelSelectorAsSelector(&t.Selector.LabelSelector)
	if err != nil {
		return none
	}
	return func(ni *v1beta1.NodeImage) bool { return s.Matches(labels.Set(ni.Labels)) }
}

// NodesOf are the nodes that Pods run on, sorted, each once; Pods that have ended or are
// being deleted do not count.
func NodesOf(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		p := &pods[i]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if p.Spec.NodeName != "" && !ended && p.DeletionTimestamp == nil {
			names = append(names, p.Spec.NodeName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Eligible are the nodes that may run Pods of template: its node selector, affinity and
// tolerations fit, and unless everywhere is set (a DaemonSet's Pods go there all the same)
// the node is ready and not cordoned. Virtual nodes pull nothing and are left out.
func Eligible(nodes []corev1.Node, template *corev1.PodTemplateSpec, everywhere bool) []string {
	e := daemonset.EligibilityOf(template)
	names := []string{}
	for i := range nodes {
		n := &nodes[i]
		if run, _ := e.On(n); !run || nodestate.IsVirtual(n) {
			continue
		}
		if !everywhere && (n.Spec.Unschedulable || !nodestate.Ready(n)) {
			continue
		}
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

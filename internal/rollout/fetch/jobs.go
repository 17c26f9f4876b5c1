// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// PullJob reads what `why` looks at about an image job. Only the job is indispensable; what
// is hidden is named.
func PullJob(ctx context.Context, c client.Client, o target.Object) (s diagnose.PullSnapshot, hidden []string, err error) {
	job, err := As[v1beta1.ImagePullJob](o.Live)
	if err != nil {
		return s, nil, err
	}
	s.Object, s.Where = o.Short(), job.Namespace+"/"+job.Name
	in := pull.Input{Job: job}
	images, err := List[v1beta1.NodeImage](ctx, c, target.NodeImage)
	if !hides(err, "nodeimages", &hidden) && err != nil {
		return s, nil, fmt.Errorf("listing nodeimages: %w", err)
	}
	if err == nil {
		in.NodeImages, s.Known = images, map[string]bool{}
		for i := range images {
			s.Known[images[i].Name] = true
		}
	}
	if sel := job.Spec.Selector; sel != nil {
		s.Wanted = sel.Names
	}
	if sel := job.Spec.PodSelector; sel != nil {
		in.PodNodes = podNodes(ctx, c, job.Namespace, &sel.LabelSelector)
		s.Wanted = in.PodNodes
	}
	s.Status = pull.Of(in)
	s.Nodes, s.Agents = around(ctx, c, &hidden)
	for _, name := range job.Spec.PullSecrets {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if err := c.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: name}, secret); apierrors.IsNotFound(err) {
			s.MissingSecrets = append(s.MissingSecrets, name)
		}
	}
	s.GateOff = gateOff(ctx, c, features.ImagePullJobGate)
	return s, hidden, nil
}

// Recreate reads what `why` looks at about a restart request.
func Recreate(ctx context.Context, c client.Client, o target.Object) (s diagnose.RecreateSnapshot, hidden []string, err error) {
	if s.Request, err = As[v1beta1.ContainerRecreateRequest](o.Live); err != nil {
		return s, nil, err
	}
	ns := s.Request.Namespace
	s.Object, s.Where = o.Short(), ns+"/"+s.Request.Name
	pod := &corev1.Pod{}
	err = c.Get(ctx, client.ObjectKey{Namespace: ns, Name: s.Request.Spec.PodName}, pod)
	switch uid := s.Request.Labels[v1beta1.RecreatePodUIDLabel]; {
	case err == nil && (uid == "" || uid == string(pod.UID)):
		s.Pod = pod
	case err != nil && !apierrors.IsNotFound(err) && !hides(err, "pods", &hidden):
		return s, nil, fmt.Errorf("reading pod %s: %w", s.Request.Spec.PodName, err)
	}
	if s.Others, err = List[v1beta1.ContainerRecreateRequest](ctx, c, target.ContainerRecreateRequest, client.InNamespace(ns)); err != nil {
		hides(err, "containerrecreaterequests", &hidden)
	}
	nodes, agents := around(ctx, c, &hidden)
	s.Agents = agents
	if s.Pod != nil {
		s.Node = nodes[s.Pod.Spec.NodeName]
	}
	return s, hidden, nil
}

// hides notes a missing permission.
func hides(err error, what string, hidden *[]string) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	*hidden = append(*hidden, "cannot list "+what)
	return true
}

// around reads nodes by name and which of them have a node agent; nil where hidden.
func around(ctx context.Context, c client.Client, hidden *[]string) (map[string]*corev1.Node, map[string]bool) {
	var nodes map[string]*corev1.Node
	all, err := List[corev1.Node](ctx, c, target.Node)
	if err == nil {
		nodes = map[string]*corev1.Node{}
		for i := range all {
			nodes[all[i].Name] = &all[i]
		}
	}
	hides(err, "nodes", hidden)
	pods, err := NodeAgents(ctx, c)
	hides(err, "pods in "+systemNamespace, hidden)
	if err != nil || len(pods) == 0 {
		return nodes, nil
	}
	agents := map[string]bool{}
	for i := range pods {
		agents[pods[i].Spec.NodeName] = true
	}
	return nodes, agents
}

func podNodes(ctx context.Context, c client.Client, ns string, sel *metav1.LabelSelector) []string {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return nil
	}
	pods, err := List[corev1.Pod](ctx, c, target.Pod, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: s})
	if err != nil {
		return nil
	}
	return pull.NodesOf(pods)
}

// gateOff reports that the running manager is known to have a gate off.
func gateOff(ctx context.Context, c client.Client, gate features.Gate) bool {
	d := &appsv1.Deployment{}
	if c.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: managerDeployment}, d) != nil {
		return false
	}
	set := gatesOf(d)
	return set != nil && !set.Enabled(gate)
}

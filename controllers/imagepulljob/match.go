// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/updatesort"
)

// matcher says which nodes a job is for (images.md 6.4). Events and reconciliation use the
// same one: a selector that selects everything in one and nothing in the other stalls jobs.
type matcher struct {
	names  map[string]bool // nil: any name
	labels labels.Selector // of NodeImages; never nil
	pods   labels.Selector // nil unless the job follows Pods
}

func newMatcher(job *v1beta1.ImagePullJob) (matcher, error) {
	m := matcher{labels: labels.Everything()}
	if s := job.Spec.PodSelector; s != nil {
		pods, err := metav1.LabelSelectorAsSelector(&s.LabelSelector)
		if err != nil {
			return m, fmt.Errorf("spec.podSelector: %w", err)
		}
		m.pods = pods
		return m, nil
	}
	s := job.Spec.Selector
	if s == nil {
		return m, nil
	}
	if s.Names != nil {
		m.names = map[string]bool{}
		for _, name := range s.Names {
			m.names[name] = true
		}
		return m, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.LabelSelector)
	if err != nil {
		return m, fmt.Errorf("spec.selector: %w", err)
	}
	m.labels = selector
	return m, nil
}

func (m matcher) name(name string) bool { return m.names == nil || m.names[name] }

// node reports whether the job is for node, as far as the node alone decides. Which nodes
// have matching Pods, the caller must find out when m.pods is not nil.
func (m matcher) node(node *v1beta1.NodeImage) bool {
	return m.name(node.Name) && m.labels.Matches(labels.Set(node.Labels))
}

// pod reports whether a Pod puts its node among the job's nodes.
func (m matcher) pod(pod *corev1.Pod) bool {
	return m.pods != nil && active(pod) && m.pods.Matches(labels.Set(pod.Labels))
}

func active(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// podNodes returns the names of the nodes that run matching active Pods, once each, in the
// order of the Pods, which order may change: nil is by name.
func podNodes(ctx context.Context, c client.Reader, namespace string, selector labels.Selector, order func([]*corev1.Pod) []*corev1.Pod) ([]string, error) {
	var list corev1.PodList
	err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing Pods of namespace %s: %w", namespace, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if active(&list.Items[i]) {
			pods = append(pods, &list.Items[i])
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if order != nil {
		pods = order(pods)
	}
	var names []string
	seen := map[string]bool{}
	for _, pod := range pods {
		if !seen[pod.Spec.NodeName] {
			seen[pod.Spec.NodeName] = true
			names = append(names, pod.Spec.NodeName)
		}
	}
	return names, nil
}

// updateOrder returns how the owner of a job updates its Pods, or nil when that is not
// known: images should be where they are needed first.
func updateOrder(ctx context.Context, c client.Reader, job *v1beta1.ImagePullJob) (func([]*corev1.Pod) []*corev1.Pod, error) {
	owner := metav1.GetControllerOf(job)
	if owner == nil || !strings.HasPrefix(owner.APIVersion, v1beta1.GroupVersion.Group+"/") {
		return nil, nil
	}
	switch owner.Kind {
	case "StatefulSet":
		return func(pods []*corev1.Pod) []*corev1.Pod {
			slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(ordinal(b.Name), ordinal(a.Name)) })
			return pods
		}, nil
	case "CloneSet":
		var set v1beta1.CloneSet
		key := client.ObjectKey{Namespace: job.Namespace, Name: owner.Name}
		if err := c.Get(ctx, key, &set, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading CloneSet %s: %w", key, err)
		}
		strategy := set.Spec.UpdateStrategy.RollingUpdate
		return func(pods []*corev1.Pod) []*corev1.Pod { return updatesort.ForUpdate(pods, pods, strategy) }, nil
	case "SidecarSet":
		return func(pods []*corev1.Pod) []*corev1.Pod { return updatesort.ForUpdate(pods, pods, nil) }, nil
	}
	return nil, nil
}

// ordinal is the number at the end of the name of a StatefulSet's Pod, or -1.
func ordinal(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

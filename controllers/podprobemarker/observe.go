// SPDX-License-Identifier: Apache-2.0

package podprobemarker

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/nodestate"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// MarkerIndex finds the NodePodProbes with probes of a marker by its namespace/name.
const MarkerIndex = "podProbeMarker"

// MarkersOf are the values of MarkerIndex for a NodePodProbe.
func MarkersOf(obj client.Object) []string {
	var keys []string
	for _, key := range podprobe.Markers(obj.(*v1alpha1.NodePodProbe).Spec) {
		keys = append(keys, key.String())
	}
	return keys
}

// observe reads what Decide needs. What it returns is from the cache and read-only.
func (r *Reconciler) observe(ctx context.Context, marker *v1alpha1.PodProbeMarker) (*Snapshot, error) {
	s := &Snapshot{Marker: marker, Nodes: map[string]*corev1.Node{}, Serverless: r.options.Serverless}
	pods := &corev1.PodList{}
	err := r.client.List(ctx, pods, client.InNamespace(marker.Namespace),
		client.MatchingLabelsSelector{Selector: podprobe.Selector(marker)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	for i := range pods.Items {
		pod, err := r.currentPod(ctx, &pods.Items[i])
		if err != nil {
			return nil, err
		}
		if pod != nil {
			s.Pods = append(s.Pods, pod)
		}
	}
	if s.Others, err = r.others(ctx, marker); err != nil {
		return nil, err
	}
	if s.NodeProbes, err = r.nodeProbesOf(ctx, marker); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, npp := range s.NodeProbes {
		known[npp.Name] = true
	}
	if err := r.observeLost(ctx, s); err != nil {
		return nil, err
	}
	for _, pod := range slices.Concat(s.Pods, s.Lost) {
		if err := r.observeNode(ctx, s, known, pod.Spec.NodeName); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// observeLost reads the Pods that are listed for the marker and that it does not select.
func (r *Reconciler) observeLost(ctx context.Context, s *Snapshot) error {
	for _, key := range listedPods(s) {
		pod := &corev1.Pod{}
		err := r.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading Pod %s: %w", key, err)
		}
		if pod, err = r.currentPod(ctx, pod); err != nil {
			return err
		}
		if pod != nil && !podprobe.Selects(s.Marker, pod) {
			s.Lost = append(s.Lost, pod)
		}
	}
	return nil
}

// listedPods are the names of the Pods in which the marker has probes, but for those of s.
func listedPods(s *Snapshot) []types.NamespacedName {
	selected := map[types.UID]bool{}
	for _, pod := range s.Pods {
		selected[pod.UID] = true
	}
	var keys []types.NamespacedName
	for _, npp := range s.NodeProbes {
		for i := range npp.Spec.PodProbes {
			entry := &npp.Spec.PodProbes[i]
			ours := func(p v1alpha1.ContainerProbe) bool { return podprobe.Owns(s.Marker.Name, p.Name) }
			if entry.Namespace == s.Marker.Namespace && !selected[entry.UID] && slices.ContainsFunc(entry.Probes, ours) {
				keys = append(keys, types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name})
			}
		}
	}
	return keys
}

// currentPod returns pod, or what the API server has if the cache is behind our own write.
func (r *Reconciler) currentPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if !r.options.Marked.Behind(pod, r.options.Clock.Now()) {
		return pod, nil
	}
	live := &corev1.Pod{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	return live, nil
}

// livePods asks the API server for the Pods that the marker selects.
func (r *Reconciler) livePods(ctx context.Context, marker *v1alpha1.PodProbeMarker) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.live.List(ctx, list, client.InNamespace(marker.Namespace), client.MatchingLabelsSelector{Selector: podprobe.Selector(marker)})
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}

func (r *Reconciler) observeNode(ctx context.Context, s *Snapshot, known map[string]bool, node string) error {
	if node == "" || s.Nodes[node] != nil {
		return nil
	}
	obj := &corev1.Node{}
	err := r.client.Get(ctx, types.NamespacedName{Name: node}, obj, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Node %s: %w", node, err)
	}
	s.Nodes[node] = obj
	if known[node] || nodestate.IsVirtual(obj) {
		return nil
	}
	npp, err := r.nodeProbe(ctx, node)
	if err != nil {
		return err
	}
	if npp != nil {
		s.NodeProbes = append(s.NodeProbes, npp)
	}
	return nil
}

// nodeProbesOf returns the NodePodProbes that have probes of the marker.
func (r *Reconciler) nodeProbesOf(ctx context.Context, marker *v1alpha1.PodProbeMarker) ([]*v1alpha1.NodePodProbe, error) {
	list := &v1alpha1.NodePodProbeList{}
	key := client.ObjectKeyFromObject(marker).String()
	if err := r.client.List(ctx, list, client.MatchingFields{MarkerIndex: key}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodePodProbes: %w", err)
	}
	var found []*v1alpha1.NodePodProbe
	for i := range list.Items {
		npp, err := r.current(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		if npp != nil {
			found = append(found, npp)
		}
	}
	return found, nil
}

// nodeProbe reads one NodePodProbe; nil when there is none.
func (r *Reconciler) nodeProbe(ctx context.Context, node string) (*v1alpha1.NodePodProbe, error) {
	npp := &v1alpha1.NodePodProbe{}
	err := r.client.Get(ctx, types.NamespacedName{Name: node}, npp, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		r.written.Forget(types.NamespacedName{Name: node})
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading NodePodProbe %s: %w", node, err)
	}
	return r.current(ctx, npp)
}

// liveNodeProbe is nodeProbe as the API server has it.
func (r *Reconciler) liveNodeProbe(ctx context.Context, node string) (*v1alpha1.NodePodProbe, error) {
	npp := &v1alpha1.NodePodProbe{}
	err := r.live.Get(ctx, types.NamespacedName{Name: node}, npp)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading NodePodProbe %s: %w", node, err)
	}
	return npp, nil
}

// current returns npp, or what the API server has if the cache is behind our own write.
func (r *Reconciler) current(ctx context.Context, npp *v1alpha1.NodePodProbe) (*v1alpha1.NodePodProbe, error) {
	if !r.written.Behind(npp, r.options.Clock.Now()) {
		return npp, nil
	}
	return r.liveNodeProbe(ctx, npp.Name)
}

// others are the markers of the namespace that are neither this one nor being deleted.
func (r *Reconciler) others(ctx context.Context, marker *v1alpha1.PodProbeMarker) ([]*v1alpha1.PodProbeMarker, error) {
	list := &v1alpha1.PodProbeMarkerList{}
	if err := r.client.List(ctx, list, client.InNamespace(marker.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing PodProbeMarkers: %w", err)
	}
	var others []*v1alpha1.PodProbeMarker
	for i := range list.Items {
		if m := &list.Items[i]; m.Name != marker.Name && m.DeletionTimestamp == nil {
			others = append(others, m)
		}
	}
	return others, nil
}

// SPDX-License-Identifier: Apache-2.0

package podprobemarker

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// markerIndex finds the NodePodProbes with probes of a marker by its namespace/name.
const markerIndex = "podProbeMarker"

func markersOf(obj client.Object) []string {
	var keys []string
	for _, key := range podprobe.Markers(obj.(*v1alpha1.NodePodProbe).Spec) {
		keys = append(keys, key.String())
	}
	return keys
}

// observe reads what Decide needs. What it returns is from the cache and read-only.
func (r *Reconciler) observe(ctx context.Context, marker *v1alpha1.PodProbeMarker) (*Snapshot, error) {
	s := &Snapshot{Marker: marker, Nodes: map[string]*corev1.Node{}, Serverless: r.Options.Serverless}
	pods := &corev1.PodList{}
	err := r.Client.List(ctx, pods, client.InNamespace(marker.Namespace),
		client.MatchingLabelsSelector{Selector: podprobe.Selector(marker)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	for i := range pods.Items {
		s.Pods = append(s.Pods, &pods.Items[i])
	}
	if s.NodeProbes, err = r.nodeProbesOf(ctx, marker); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, npp := range s.NodeProbes {
		known[npp.Name] = true
	}
	for _, pod := range s.Pods {
		if err := r.observeNode(ctx, s, known, pod.Spec.NodeName); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (r *Reconciler) observeNode(ctx context.Context, s *Snapshot, known map[string]bool, node string) error {
	if node == "" || s.Nodes[node] != nil {
		return nil
	}
	obj := &corev1.Node{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: node}, obj, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Node %s: %w", node, err)
	}
	s.Nodes[node] = obj
	if known[node] || podprobe.IsVirtual(obj) {
		return nil
	}
	npp, err := r.nodeProbe(ctx, r.Client, node)
	if err != nil {
		return fmt.Errorf("reading NodePodProbe %s: %w", node, err)
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
	if err := r.Client.List(ctx, list, client.MatchingFields{markerIndex: key}, client.UnsafeDisableDeepCopy); err != nil {
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
func (r *Reconciler) nodeProbe(ctx context.Context, reader client.Reader, node string) (*v1alpha1.NodePodProbe, error) {
	npp := &v1alpha1.NodePodProbe{}
	var opts []client.GetOption
	if reader == client.Reader(r.Client) {
		opts = append(opts, client.UnsafeDisableDeepCopy)
	}
	err := reader.Get(ctx, types.NamespacedName{Name: node}, npp, opts...)
	if apierrors.IsNotFound(err) {
		r.written.Forget(types.NamespacedName{Name: node})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if reader == client.Reader(r.Client) {
		return r.current(ctx, npp)
	}
	return npp, nil
}

// current returns npp, or what the API server has if the cache is behind our own write.
func (r *Reconciler) current(ctx context.Context, npp *v1alpha1.NodePodProbe) (*v1alpha1.NodePodProbe, error) {
	if !r.written.Behind(npp, r.Options.Clock.Now()) {
		return npp, nil
	}
	return r.nodeProbe(ctx, r.Live, npp.Name)
}

// others are the markers of the namespace that are neither this one nor being deleted.
func (r *Reconciler) others(ctx context.Context, marker *v1alpha1.PodProbeMarker) ([]*v1alpha1.PodProbeMarker, error) {
	list := &v1alpha1.PodProbeMarkerList{}
	if err := r.Client.List(ctx, list, client.InNamespace(marker.Namespace), client.UnsafeDisableDeepCopy); err != nil {
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

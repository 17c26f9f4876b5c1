// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

// Probes is what the node has to run for a marker in one Pod, in the order of the marker.
// Named ports become numbers; a probe whose port the Pod does not have is left out.
func Probes(m *v1alpha1.PodProbeMarker, pod *corev1.Pod) []v1alpha1.ContainerProbe {
	var probes []v1alpha1.ContainerProbe
	for i := range m.Spec.Probes {
		p := &m.Spec.Probes[i]
		probe, ok := resolve(p, pod)
		if !ok || p.Name == "" {
			continue
		}
		probes = put(probes, v1alpha1.ContainerProbe{Name: Key(m.Name, p.Name), ContainerName: p.ContainerName, Probe: probe})
	}
	return probes
}

// put replaces the probe of the same name, or appends.
func put(probes []v1alpha1.ContainerProbe, p v1alpha1.ContainerProbe) []v1alpha1.ContainerProbe {
	if i := slices.IndexFunc(probes, func(q v1alpha1.ContainerProbe) bool { return q.Name == p.Name }); i >= 0 {
		probes[i] = p
		return probes
	}
	return append(probes, p)
}

// resolve returns the probe with a number for its port; false when there is none.
func resolve(p *v1alpha1.PodContainerProbe, pod *corev1.Pod) (v1alpha1.ContainerProbeSpec, bool) {
	probe := *p.Probe.DeepCopy()
	var port *intstr.IntOrString
	switch {
	case probe.HTTPGet != nil:
		port = &probe.HTTPGet.Port
	case probe.TCPSocket != nil:
		port = &probe.TCPSocket.Port
	}
	if port == nil || port.Type == intstr.Int {
		return probe, true
	}
	number, err := strconv.ParseInt(port.StrVal, 10, 32)
	if err != nil {
		number = int64(namedPort(pod, p.ContainerName, port.StrVal))
	}
	*port = intstr.FromInt32(int32(number))
	return probe, 0 < number && number <= 65535
}

// namedPort looks a port of a container up, containers that start before others included;
// 0 when there is none.
func namedPort(pod *corev1.Pod, container, name string) int32 {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name != container {
				continue
			}
			for _, port := range list[i].Ports {
				if port.Name == name {
					return port.ContainerPort
				}
			}
		}
	}
	return 0
}

// Assign returns spec as it is to be when pods are all those of the marker on the node, and
// whether that differs. What belongs to other markers and namespaces stays; what this marker
// has in other Pods, and probes that it does not have any more, go. Without pods nothing of
// the marker remains. Neither argument is written to, and the result may share with them.
func Assign(spec v1alpha1.NodePodProbeSpec, m *v1alpha1.PodProbeMarker, pods []*corev1.Pod) (v1alpha1.NodePodProbeSpec, bool) {
	left := map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		left[pod.UID] = pod
	}
	out := v1alpha1.NodePodProbeSpec{PodProbes: make([]v1alpha1.PodProbe, 0, len(spec.PodProbes)+len(pods))}
	for _, entry := range spec.PodProbes {
		if entry.Namespace != m.Namespace {
			out.PodProbes = append(out.PodProbes, entry)
			continue
		}
		var wanted []v1alpha1.ContainerProbe
		if pod := left[entry.UID]; pod != nil && pod.Name == entry.Name {
			delete(left, entry.UID)
			wanted = Probes(m, pod)
			entry.IP = cmp.Or(pod.Status.PodIP, entry.IP)
		}
		if entry.Probes = merge(entry.Probes, m.Name, wanted); len(entry.Probes) > 0 {
			out.PodProbes = append(out.PodProbes, entry)
		}
	}
	for _, pod := range slices.SortedFunc(mapValues(left), byName) {
		if probes := Probes(m, pod); len(probes) > 0 {
			out.PodProbes = append(out.PodProbes, v1alpha1.PodProbe{
				Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, IP: pod.Status.PodIP, Probes: probes,
			})
		}
	}
	return out, !apiequality.Semantic.DeepEqual(spec, out)
}

func mapValues(m map[types.UID]*corev1.Pod) func(yield func(*corev1.Pod) bool) {
	return func(yield func(*corev1.Pod) bool) {
		for _, pod := range m {
			if !yield(pod) {
				return
			}
		}
	}
}

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// merge keeps the places of the marker's probes that stay, so that an unchanged marker
// means an unchanged list.
func merge(is []v1alpha1.ContainerProbe, marker string, wanted []v1alpha1.ContainerProbe) []v1alpha1.ContainerProbe {
	left := map[string]*v1alpha1.ContainerProbe{}
	for i := range wanted {
		left[wanted[i].Name] = &wanted[i]
	}
	out := make([]v1alpha1.ContainerProbe, 0, len(is)+len(wanted))
	for _, probe := range is {
		if !Owns(marker, probe.Name) {
			out = append(out, probe)
		} else if w := left[probe.Name]; w != nil {
			out = append(out, *w)
			delete(left, probe.Name)
		}
	}
	for _, w := range wanted {
		if left[w.Name] != nil {
			out = append(out, w)
		}
	}
	return out
}

// Prune returns spec without the Pods that keep rejects, and whether that differs.
func Prune(spec v1alpha1.NodePodProbeSpec, keep func(v1alpha1.PodProbe) bool) (v1alpha1.NodePodProbeSpec, bool) {
	out := v1alpha1.NodePodProbeSpec{}
	for _, entry := range spec.PodProbes {
		if keep(entry) && len(entry.Probes) > 0 {
			out.PodProbes = append(out.PodProbes, entry)
		}
	}
	return out, len(out.PodProbes) != len(spec.PodProbes)
}

// Markers lists the markers that have probes in spec, each once, sorted.
func Markers(spec v1alpha1.NodePodProbeSpec) []types.NamespacedName {
	seen := map[types.NamespacedName]bool{}
	var list []types.NamespacedName
	for i := range spec.PodProbes {
		for j := range spec.PodProbes[i].Probes {
			name, _, ok := SplitKey(spec.PodProbes[i].Probes[j].Name)
			key := types.NamespacedName{Namespace: spec.PodProbes[i].Namespace, Name: name}
			if ok && !seen[key] {
				seen[key] = true
				list = append(list, key)
			}
		}
	}
	slices.SortFunc(list, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

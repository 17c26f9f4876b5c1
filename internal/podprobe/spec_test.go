// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

// listed is the spec in short: namespace/name/uid@IP: keys.
func listed(spec v1alpha1.NodePodProbeSpec) []string {
	var out []string
	for _, e := range spec.PodProbes {
		line := fmt.Sprintf("%s/%s/%s@%s:", e.Namespace, e.Name, e.UID, e.IP)
		for _, p := range e.Probes {
			line += " " + p.Name
		}
		out = append(out, line)
	}
	return out
}

func entry(namespace, name, uid string, keys ...string) v1alpha1.PodProbe {
	e := v1alpha1.PodProbe{Namespace: namespace, Name: name, UID: types.UID(uid), IP: "10.0.0.1"}
	for _, key := range keys {
		_, probe, _ := SplitKey(key)
		e.Probes = append(e.Probes, v1alpha1.ContainerProbe{Name: key, ContainerName: "main", Probe: exec(probe).Probe})
	}
	return e
}

func TestAssign(t *testing.T) {
	moved := pod("web-0", "u0")
	moved.Status.PodIP = "10.0.0.9"
	noIP := pod("web-0", "u0")
	noIP.Status.PodIP = ""
	cases := map[string]struct {
		is     []v1alpha1.PodProbe
		marker *v1alpha1.PodProbeMarker
		pods   []*corev1.Pod
		want   []string
		same   bool
	}{
		"Pods are added by name": {
			marker: marker("way", exec("a"), exec("b")),
			pods:   []*corev1.Pod{pod("web-1", "u1"), pod("web-0", "u0")},
			want:   []string{"shop/web-0/u0@10.0.0.1: way#a way#b", "shop/web-1/u1@10.0.0.1: way#a way#b"},
		},
		"what is right is left alone": {
			is:     []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "gateway#a", "way#a")},
			marker: marker("way", exec("a")), pods: []*corev1.Pod{pod("web-0", "u0")},
			want: []string{"shop/web-0/u0@10.0.0.1: gateway#a way#a"}, same: true,
		},
		"a probe joins those of other markers": {
			is:     []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "gateway#a")},
			marker: marker("way", exec("a")), pods: []*corev1.Pod{pod("web-0", "u0")},
			want: []string{"shop/web-0/u0@10.0.0.1: gateway#a way#a"},
		},
		"a marker whose name ends like another takes only its own back": {
			is:     []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "gateway#a", "way#a", "way-2#a")},
			marker: marker("way", exec("a")),
			want:   []string{"shop/web-0/u0@10.0.0.1: gateway#a way-2#a"},
		},
		"a probe that the marker has no more goes": {
			is:     []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "way#gone", "way#a")},
			marker: marker("way", exec("a")), pods: []*corev1.Pod{pod("web-0", "u0")},
			want: []string{"shop/web-0/u0@10.0.0.1: way#a"},
		},
		"a Pod that is not matched any more goes, wherever it is listed": {
			is:     []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "way#a"), entry("shop", "web-1", "u1", "way#a", "b#a")},
			marker: marker("way", exec("a")),
			want:   []string{"shop/web-1/u1@10.0.0.1: b#a"},
		},
		"a Pod of the same name and another UID is another Pod": {
			is:     []v1alpha1.PodProbe{entry("shop", "web-0", "old", "way#a")},
			marker: marker("way", exec("a")), pods: []*corev1.Pod{pod("web-0", "u0")},
			want: []string{"shop/web-0/u0@10.0.0.1: way#a"},
		},
		"a new IP is taken over": {
			is:     []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "way#a")},
			marker: marker("way", exec("a")), pods: []*corev1.Pod{moved},
			want: []string{"shop/web-0/u0@10.0.0.9: way#a"},
		},
		"a missing IP is no news": {
			is:     []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "way#a")},
			marker: marker("way", exec("a")), pods: []*corev1.Pod{noIP},
			want: []string{"shop/web-0/u0@10.0.0.1: way#a"}, same: true,
		},
		"other namespaces have nothing to do with it": {
			is:     []v1alpha1.PodProbe{entry("bank", "web-0", "u9", "way#a")},
			marker: marker("way", exec("a")),
			want:   []string{"bank/web-0/u9@10.0.0.1: way#a"}, same: true,
		},
		"a Pod without a probe that can run is not listed": {
			marker: marker("way", tcp(intstr.FromString("nope"))), pods: []*corev1.Pod{pod("web-0", "u0")}, same: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.NodePodProbeSpec{PodProbes: tc.is}
			before := spec.DeepCopy()
			got, differs := Assign(spec, tc.marker, tc.pods)
			if diff := cmp.Diff(tc.want, listed(got), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Assign() differs (-want +got):\n%s", diff)
			}
			require.Equal(t, !tc.same, differs)
			require.Equal(t, *before, spec, "the argument is not written to")
			_, again := Assign(got, tc.marker, tc.pods)
			require.False(t, again, "twice is once")
		})
	}
}

func TestAChangedProbeKeepsItsPlace(t *testing.T) {
	is := v1alpha1.NodePodProbeSpec{PodProbes: []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "way#a", "gateway#a", "way#b")}}
	m := marker("way", exec("b"), exec("a"))
	m.Spec.Probes[1].Probe.PeriodSeconds = 7
	got, differs := Assign(is, m, []*corev1.Pod{pod("web-0", "u0")})
	require.True(t, differs)
	require.Equal(t, []string{"shop/web-0/u0@10.0.0.1: way#a gateway#a way#b"}, listed(got))
	require.EqualValues(t, 7, got.PodProbes[0].Probes[0].Probe.PeriodSeconds)
}

func TestPorts(t *testing.T) {
	cases := map[string]struct {
		container string
		port      intstr.IntOrString
		want      int // 0: the probe is left out
	}{
		"a number":                           {"main", intstr.FromInt32(8080), 8080},
		"a number of an unknown container":   {"nope", intstr.FromInt32(8080), 8080},
		"a name":                             {"main", intstr.FromString("http"), 80},
		"a name of a sidecar":                {"proxy", intstr.FromString("admin"), 15000},
		"a text that is a number":            {"main", intstr.FromString("8081"), 8081},
		"a text that is too large a number":  {"main", intstr.FromString("80810"), 0},
		"a name that the container lacks":    {"main", intstr.FromString("admin"), 0},
		"a name in a container there is not": {"nope", intstr.FromString("http"), 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			socket := tcp(tc.port)
			socket.ContainerName = tc.container
			get := v1alpha1.PodContainerProbe{Name: "h", ContainerName: tc.container}
			get.Probe.HTTPGet = &corev1.HTTPGetAction{Path: "/", Port: tc.port}
			m := marker("m", socket, get, exec("e"))
			probes := Probes(m, pod("web-0", "u0"))
			require.Equal(t, tc.port, m.Spec.Probes[0].Probe.TCPSocket.Port, "the marker is not written to")
			if tc.want == 0 {
				require.Len(t, probes, 1, "the others go on")
				return
			}
			require.Len(t, probes, 3)
			require.Equal(t, intstr.FromInt(tc.want), probes[0].Probe.TCPSocket.Port)
			require.Equal(t, intstr.FromInt(tc.want), probes[1].Probe.HTTPGet.Port)
		})
	}
}

func TestPrune(t *testing.T) {
	spec := v1alpha1.NodePodProbeSpec{PodProbes: []v1alpha1.PodProbe{entry("shop", "web-0", "u0", "m#a"), entry("shop", "web-1", "u1", "m#a"), entry("shop", "empty", "u2")}}
	got, differs := Prune(spec, func(p v1alpha1.PodProbe) bool { return p.UID != "u0" })
	require.True(t, differs)
	require.Equal(t, []string{"shop/web-1/u1@10.0.0.1: m#a"}, listed(got))
	_, differs = Prune(got, func(v1alpha1.PodProbe) bool { return true })
	require.False(t, differs)
	require.Equal(t, []types.NamespacedName{{Namespace: "shop", Name: "m"}}, Markers(spec))
}

// Markers in any order, with Pods in any order, make each other's lists neither longer nor
// shorter, and after the last of them is taken back nothing is left.
func TestMarkersDoNotDisturbEachOther(t *testing.T) {
	names := []string{"way", "gateway", "way-2", "w"}
	rapid.Check(t, func(t *rapid.T) {
		spec := v1alpha1.NodePodProbeSpec{}
		want := map[string]bool{} // uid + key
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "marker")
			var probes []v1alpha1.PodContainerProbe
			for _, p := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "way"}), 0, 3, rapid.ID).Draw(t, "probes") {
				probes = append(probes, exec(p))
			}
			var pods []*corev1.Pod
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 0, 4, rapid.ID).Draw(t, "pods") {
				pods = append(pods, pod(fmt.Sprintf("web-%d", i%2), fmt.Sprintf("u%d", i)))
			}
			spec, _ = Assign(spec, marker(name, probes...), pods)
			for key := range want {
				if Owns(name, key[2:]) {
					delete(want, key)
				}
			}
			for _, p := range pods {
				for _, probe := range probes {
					want[string(p.UID)+Key(name, probe.Name)] = true
				}
			}
			got := map[string]bool{}
			for _, e := range spec.PodProbes {
				if len(e.Probes) == 0 {
					t.Fatal("an entry without probes")
				}
				for _, p := range e.Probes {
					if got[string(e.UID)+p.Name] {
						t.Fatalf("%s is listed twice", p.Name)
					}
					got[string(e.UID)+p.Name] = true
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("the list differs (-want +got):\n%s", diff)
			}
		}
		for _, name := range slices.Backward(names) {
			spec, _ = Assign(spec, marker(name), nil)
		}
		if len(spec.PodProbes) > 0 {
			t.Fatalf("left over: %v", listed(spec))
		}
	})
}

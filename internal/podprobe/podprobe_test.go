// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

func TestKeys(t *testing.T) {
	require.Equal(t, "web#idle", Key("web", "idle"))
	for key, want := range map[string][2]string{"web#idle": {"web", "idle"}, "web#a#b": {"web", "a#b"}} {
		marker, probe, ok := SplitKey(key)
		require.True(t, ok, key)
		require.Equal(t, want, [2]string{marker, probe})
	}
	for _, key := range []string{"", "web", "#idle", "web#", "#"} {
		_, _, ok := SplitKey(key)
		require.False(t, ok, key)
	}
	require.True(t, Owns("way", "way#a"))
	for _, other := range []string{"gateway#a", "ways#a", "way", "a#way#", "way-2#a"} {
		require.False(t, Owns("way", other), other)
	}
}

// marker builds a PodProbeMarker that selects app=web.
func marker(name string, probes ...v1alpha1.PodContainerProbe) *v1alpha1.PodProbeMarker {
	return &v1alpha1.PodProbeMarker{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1alpha1.PodProbeMarkerSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Probes:   probes,
		},
	}
}

func exec(name string) v1alpha1.PodContainerProbe {
	p := v1alpha1.PodContainerProbe{Name: name, ContainerName: "main", PodConditionType: "example.com/" + name}
	p.Probe.Exec = &corev1.ExecAction{Command: []string{name}}
	return p
}

func tcp(port intstr.IntOrString) v1alpha1.PodContainerProbe {
	p := v1alpha1.PodContainerProbe{Name: "t", ContainerName: "main"}
	p.Probe.TCPSocket = &corev1.TCPSocketAction{Port: port}
	return p
}

// pod builds an initialized Pod of app=web with the named port http (80) in main.
func pod(name, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:       "n1",
			Containers:     []corev1.Container{{Name: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}},
			InitContainers: []corev1.Container{{Name: "proxy", Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 15000}}}},
		},
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}},
		},
	}
}

func TestWhichPodsAreProbed(t *testing.T) {
	cases := map[string]struct {
		change func(*corev1.Pod)
		active bool
		want   bool
	}{
		"a running Pod":                   {func(*corev1.Pod) {}, true, true},
		"a Pod that succeeded":            {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false, false},
		"a Pod that failed":               {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false, false},
		"a Pod that is being deleted":     {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, false, false},
		"a Pod without node":              {func(p *corev1.Pod) { p.Spec.NodeName = "" }, true, false},
		"a Pod that is being initialized": {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, true, false},
		"a Pod without status":            {func(p *corev1.Pod) { p.Status.Conditions = nil }, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := pod("web-0", "u0")
			tc.change(p)
			require.Equal(t, tc.active, Active(p))
			require.Equal(t, tc.want, Probeable(p))
		})
	}
}

func TestSelection(t *testing.T) {
	bare := pod("bare", "u")
	bare.Labels = nil
	cases := map[string]struct {
		selector *metav1.LabelSelector
		web      bool
		bare     bool
	}{
		"labels": {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, true, false},
		"an expression takes Pods without labels": {&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}, false, true},
		"none selects nothing":      {nil, false, false},
		"an empty one selects none": {&metav1.LabelSelector{}, false, false},
		"an invalid one selects none": {&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := marker("m", exec("a"))
			m.Spec.Selector = tc.selector
			require.Equal(t, tc.web, Selects(m, pod("web-0", "u0")))
			require.Equal(t, tc.bare, Selects(m, bare))
			m.Namespace = "other"
			require.False(t, Selects(m, pod("web-0", "u0")) || Selects(m, bare))
		})
	}
}

func TestPodsWithAListFollowItAlone(t *testing.T) {
	p := pod("web-0", "u0")
	require.True(t, Follows(marker("m"), p))
	p.Annotations = map[string]string{"kruise.io/podprobemarker-list": "a,b"}
	require.False(t, Follows(marker("m"), p))
	require.True(t, Follows(marker("b"), p))
	elsewhere := marker("b")
	elsewhere.Namespace = "other"
	require.False(t, Follows(elsewhere, p))
}

// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/internal/valid"
)

type (
	marker = v1alpha1.PodProbeMarker
	probed = v1alpha1.PodContainerProbe
	policy = v1alpha1.ProbeMarkerPolicy
)

func mark(change ...func(*marker)) *marker {
	ppm := &marker{Spec: v1alpha1.PodProbeMarkerSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Probes: []probed{{
			Name: "healthy", ContainerName: "nginx", PodConditionType: "game.kruise.io/healthy",
			Probe:        v1alpha1.ContainerProbeSpec{Probe: corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ls"}}}}},
			MarkerPolicy: []policy{{State: "Succeeded", Labels: map[string]string{"nginx": "healthy"}}},
		}},
	}}
	for _, f := range change {
		f(ppm)
	}
	return ppm
}

// first changes the first probe.
func first(change func(*probed)) func(*marker) {
	return func(m *marker) { change(&m.Spec.Probes[0]) }
}

func web80(change func(*corev1.HTTPGetAction)) func(*marker) {
	return first(func(p *probed) {
		get := &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80), Scheme: "HTTP"}
		change(get)
		p.Probe.ProbeHandler = corev1.ProbeHandler{HTTPGet: get}
	})
}

func tcp(socket *corev1.TCPSocketAction) func(*marker) {
	return first(func(p *probed) { p.Probe.ProbeHandler = corev1.ProbeHandler{TCPSocket: socket} })
}

// second adds a probe that is like the first but for the change.
func second(change func(*probed)) func(*marker) {
	return func(m *marker) {
		p := m.Spec.Probes[0].DeepCopy()
		p.Name, p.PodConditionType = "idle", "game.kruise.io/idle"
		change(p)
		m.Spec.Probes = append(m.Spec.Probes, *p)
	}
}

func policies(list ...policy) func(*marker) { return first(func(p *probed) { p.MarkerPolicy = list }) }

func TestPodProbeMarker(t *testing.T) {
	at := func(child string) []string { return []string{"spec.probes[0]." + child} }
	some := map[string]string{"a": "b"}
	for name, c := range map[string]struct {
		change func(*marker)
		path   []string
	}{
		"the plain one":     {func(*marker) {}, nil},
		"a condition alone": {first(func(p *probed) { p.MarkerPolicy = nil }), nil},
		"marks alone":       {first(func(p *probed) { p.PodConditionType = "" }), nil},
		"a selector by expression": {func(m *marker) {
			m.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "DoesNotExist"}}}
		}, nil},
		"two probes of a container": {second(func(*probed) {}), nil},
		"both policies":             {policies(policy{State: "Succeeded", Labels: some}, policy{State: "Failed", Annotations: some}), nil},
		"a page":                    {web80(func(*corev1.HTTPGetAction) {}), nil},
		"a page without scheme":     {web80(func(h *corev1.HTTPGetAction) { h.Scheme = "" }), nil},
		"a page with a query":       {web80(func(h *corev1.HTTPGetAction) { h.Path, h.Scheme = "/a?b=c", "HTTPS" }), nil},
		"a port by name":            {tcp(&corev1.TCPSocketAction{Port: intstr.FromString("http")}), nil},
		"grpc beside an action":     {first(func(p *probed) { p.Probe.GRPC = &corev1.GRPCAction{Port: 1} }), nil},
		"no selector":               {func(m *marker) { m.Spec.Selector = nil }, []string{"spec.selector"}},
		"a selector of everything":  {func(m *marker) { m.Spec.Selector = &metav1.LabelSelector{} }, []string{"spec.selector"}},
		"a selector that cannot be": {func(m *marker) { m.Spec.Selector.MatchLabels["a b"] = "c" }, []string{"spec.selector.matchLabels"}},
		"an operator that is none": {func(m *marker) {
			m.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
		}, []string{"spec.selector.matchExpressions[0].operator"}},
		"no probe":                         {func(m *marker) { m.Spec.Probes = nil }, []string{"spec.probes"}},
		"no name":                          {first(func(p *probed) { p.Name = "" }), at("name")},
		"a name with a hash":               {first(func(p *probed) { p.Name = "a#b" }), at("name")},
		"a name of a condition":            {first(func(p *probed) { p.Name = "InPlaceUpdateReady" }), at("name")},
		"a name twice":                     {second(func(p *probed) { p.Name = "healthy" }), []string{"spec.probes[1].name"}},
		"no container":                     {first(func(p *probed) { p.ContainerName = "" }), at("containerName")},
		"no action":                        {first(func(p *probed) { p.Probe.Exec = nil }), at("probe")},
		"grpc":                             {first(func(p *probed) { p.Probe.ProbeHandler = corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}} }), at("probe")},
		"two actions":                      {first(func(p *probed) { p.Probe.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(1)} }), at("probe")},
		"no command":                       {first(func(p *probed) { p.Probe.Exec.Command = nil }), at("probe.exec.command")},
		"another host":                     {web80(func(h *corev1.HTTPGetAction) { h.Host = "a" }), at("probe.httpGet.host")},
		"no path":                          {web80(func(h *corev1.HTTPGetAction) { h.Path = "" }), at("probe.httpGet.path")},
		"a path that cannot be":            {web80(func(h *corev1.HTTPGetAction) { h.Path = "/%zz" }), at("probe.httpGet.path")},
		"a scheme in lower case":           {web80(func(h *corev1.HTTPGetAction) { h.Scheme = "http" }), at("probe.httpGet.scheme")},
		"a port of a page beyond all":      {web80(func(h *corev1.HTTPGetAction) { h.Port = intstr.FromInt32(65536) }), at("probe.httpGet.port")},
		"a header that cannot be":          {web80(func(h *corev1.HTTPGetAction) { h.HTTPHeaders = []corev1.HTTPHeader{{Name: "A"}, {Name: "a b"}} }), at("probe.httpGet.httpHeaders[1].name")},
		"a socket elsewhere":               {tcp(&corev1.TCPSocketAction{Host: "a", Port: intstr.FromInt32(1)}), at("probe.tcpSocket.host")},
		"no port":                          {tcp(&corev1.TCPSocketAction{}), at("probe.tcpSocket.port")},
		"a number in quotes":               {tcp(&corev1.TCPSocketAction{Port: intstr.FromString("80")}), at("probe.tcpSocket.port")},
		"a negative delay":                 {first(func(p *probed) { p.Probe.InitialDelaySeconds = -1 }), at("probe.initialDelaySeconds")},
		"a negative timeout":               {first(func(p *probed) { p.Probe.TimeoutSeconds = -1 }), at("probe.timeoutSeconds")},
		"a negative period":                {first(func(p *probed) { p.Probe.PeriodSeconds = -1 }), at("probe.periodSeconds")},
		"a negative success":               {first(func(p *probed) { p.Probe.SuccessThreshold = -1 }), at("probe.successThreshold")},
		"a negative failure":               {first(func(p *probed) { p.Probe.FailureThreshold = -1 }), at("probe.failureThreshold")},
		"nothing that becomes of it":       {first(func(p *probed) { p.PodConditionType, p.MarkerPolicy = "", nil }), []string{"spec.probes[0]"}},
		"a condition of kubelet":           {first(func(p *probed) { p.PodConditionType = "Ready" }), at("podConditionType")},
		"a condition of ours":              {first(func(p *probed) { p.PodConditionType = "KruisePodReady" }), at("podConditionType")},
		"a condition of the control plane": {first(func(p *probed) { p.PodConditionType = "DisruptionTarget" }), at("podConditionType")},
		"a condition that cannot be":       {first(func(p *probed) { p.PodConditionType = "a/b/c" }), at("podConditionType")},
		"a condition twice":                {second(func(p *probed) { p.PodConditionType = "game.kruise.io/healthy" }), []string{"spec.probes[1].podConditionType"}},
		"a state twice":                    {policies(policy{State: "Failed", Labels: some}, policy{State: "Failed", Labels: some}), at("markerPolicy[1].state")},
		"a state that is no mark":          {policies(policy{State: "Unknown", Labels: some}), at("markerPolicy[0].state")},
		"no mark":                          {policies(policy{State: "Failed"}), at("markerPolicy[0]")},
		"a label that cannot be":           {policies(policy{State: "Failed", Labels: map[string]string{"a": "b c"}}), at("markerPolicy[0].labels")},
		"an annotation that cannot be":     {policies(policy{State: "Failed", Annotations: map[string]string{"a b": "c"}}), at("markerPolicy[0].annotations")},
		"all faults are reported at once": {func(m *marker) { *m = marker{Spec: v1alpha1.PodProbeMarkerSpec{Probes: []probed{{}}}} },
			[]string{"spec.selector", "spec.probes[0].name", "spec.probes[0].containerName", "spec.probes[0].probe", "spec.probes[0]"}},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.PodProbeMarker(mark(c.change))
			require.Equal(t, c.path, paths(errs), "%v", errs)
		})
	}
}

func TestUpdateOfPodProbeMarker(t *testing.T) {
	odd := first(func(p *probed) { p.PodConditionType = "Ready" })
	other := func(m *marker) { m.Spec.Selector.MatchLabels["app"] = "db" }
	slower := first(func(p *probed) { p.Probe.PeriodSeconds = 5 })
	require.Empty(t, valid.PodProbeMarkerUpdate(mark(), mark(slower)))
	require.Empty(t, valid.PodProbeMarkerUpdate(mark(odd), mark(odd, slower)), "what OpenKruise has stored stays writable")
	require.Equal(t, []string{"spec.probes[0].podConditionType"}, paths(valid.PodProbeMarkerUpdate(mark(), mark(odd))))
	errs := valid.PodProbeMarkerUpdate(mark(), mark(other))
	require.Len(t, errs, 1)
	require.EqualError(t, errs[0], "spec.selector: Forbidden: selector must be immutable; create another PodProbeMarker")
	require.Empty(t, valid.PodProbeMarkerUpdate(mark(), mark(func(m *marker) { m.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{} })))
}

func TestWarningsOfPodProbeMarker(t *testing.T) {
	require.Empty(t, valid.PodProbeMarkerWarnings(mark()))
	require.Equal(t, []string{
		"spec.probes[0].probe.grpc: has no effect beside the other action",
		"spec.probes[0].probe.terminationGracePeriodSeconds: has no effect, as a PodProbeMarker ends no container",
		"spec.probes[0].probe.timeoutSeconds: 5 is longer than periodSeconds (1): a probe that hangs delays the next one",
		"spec.probes[0].markerPolicy[0].labels[app]: spec.selector asks for this label, so the mark can take Pods out of the selection, or put them into it",
	}, valid.PodProbeMarkerWarnings(mark(first(func(p *probed) {
		p.Probe.GRPC, p.Probe.TerminationGracePeriodSeconds, p.Probe.TimeoutSeconds = &corev1.GRPCAction{Port: 1}, new(int64(1)), 5
		p.MarkerPolicy[0].Labels["app"] = "db"
	}))))
}

func TestConflictsOfPodProbeMarkers(t *testing.T) {
	other := func(name string, change ...func(*marker)) marker {
		m := mark(change...)
		m.Name = name
		return *m
	}
	elsewhere := func(m *marker) { m.Spec.Selector.MatchLabels["app"] = "db" }
	going := func(m *marker) { m.DeletionTimestamp = new(metav1.Now()) }
	unrelated := first(func(p *probed) { p.PodConditionType, p.MarkerPolicy = "game.kruise.io/other", nil })
	ppm := mark()
	ppm.Name = "mine"
	require.Empty(t, valid.PodProbeMarkerConflicts(ppm, []marker{other("mine"), other("a", elsewhere), other("b", going), other("c", unrelated)}))
	want := []string{
		"spec.probes[0].podConditionType: PodProbeMarker a writes game.kruise.io/healthy as well: of Pods that both match, only one of them has a say",
		"spec.probes[0].markerPolicy: PodProbeMarker a writes label nginx as well: in Pods that both match, the last result wins",
	}
	require.Equal(t, want, valid.PodProbeMarkerConflicts(ppm, []marker{other("b"), other("a")}))
	require.Equal(t, want, valid.PodProbeMarkerConflicts(ppm, []marker{other("a"), other("b")}))
}

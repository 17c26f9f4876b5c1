// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package probes

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

const (
	healthy = "game.kruise.io/healthy"
	check   = "game.kruise.io/check"
	cost    = "controller.kubernetes.io/pod-deletion-cost"
)

var matching = map[string]string{"app": "probe"}

// The scenarios of podprobe.md 10, and the tests that it asks for besides.
func TestScenarios(t *testing.T) {
	r := start(t)
	for _, s := range []struct {
		name string
		run  func(*testing.T, *rig)
	}{
		{"exec", scenarioExec},
		{"scripted", scenarioScripted},
		{"tcp", scenarioTCP},
		{"http", scenarioHTTP},
		{"two probes of one container", scenarioTwoProbes},
		{"names that end alike", scenarioSuffix},
		{"a probe leaves the marker", scenarioProbeRemoved},
		{"Pods without labels", scenarioNoLabels},
		{"an IP that changes", scenarioIP},
		{"the agent restarts", scenarioAgentRestart},
		{"an unknown container", scenarioUnknownContainer},
		{"a container restarts", scenarioContainerRestart},
		{"a Pod leaves the selection", scenarioRelabel},
		{"NodePodProbe after the marker", scenarioLateNode},
		{"writes of one result", scenarioWrites},
		{"nodes that go", scenarioNodeGone},
	} {
		t.Run(s.name, func(t *testing.T) {
			list := &v1alpha1.NodePodProbeList{}
			require.NoError(t, r.c.List(t.Context(), list))
			require.Len(t, list.Items, len(r.nodes), "as many NodePodProbes as nodes")
			s.run(t, r)
		})
	}
}

func scenarioExec(t *testing.T, r *rig) {
	ns := r.namespace(t, "exec")
	for i := range r.nodes {
		r.pod(t, ns, fmt.Sprintf("stateful-test-%d", i), i, matching)
	}
	r.answer("/bin/sh -c ls /", fakecri.ExecScript{Stdout: "bin etc"})
	r.answer("ps -ef", fakecri.ExecScript{Stdout: "1 root"})
	nginx := marker(ns, "ppm-nginx", command("healthy", "nginx", healthy, "/bin/sh", "-c", "ls /"))
	nginx.Spec.Probes[0].MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{{State: "Succeeded", Labels: map[string]string{"nginx": "healthy"}}}
	labelled := func(p *corev1.Pod) bool { return p.Labels["nginx"] == "healthy" }

	r.create(t, nginx)
	r.all(t, ns, "all are labelled", labelled)
	for _, p := range r.pods(t, ns) {
		require.True(t, is(healthy, corev1.ConditionTrue)(&p), "the condition comes with the label")
		require.True(t, is(check, "")(&p))
	}
	r.onlyLive(t, ns)
	require.EqualValues(t, len(r.nodes), nginx.Status.MatchedPods)

	main := marker(ns, "ppm-main", command("check", "main", check, "ps", "-ef"))
	main.Spec.Probes[0].MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{
		{State: "Succeeded", Annotations: map[string]string{cost: "10"}}, {State: "Failed", Annotations: map[string]string{cost: "-10"}},
	}
	r.create(t, main)
	r.all(t, ns, "all are annotated", func(p *corev1.Pod) bool { return p.Annotations[cost] == "10" })
	r.all(t, ns, "both conditions hold", func(p *corev1.Pod) bool {
		return is(check, corev1.ConditionTrue)(p) && is(healthy, corev1.ConditionTrue)(p)
	})

	r.change(t, nginx, func(s *v1alpha1.PodProbeMarkerSpec) {
		s.Probes[0].Probe.Exec.Command = []string{"/bin/sh", "-c", "failed /"}
	})
	r.change(t, main, func(s *v1alpha1.PodProbeMarkerSpec) { s.Probes[0].Probe.Exec.Command = []string{"failed", "-ef"} })
	r.all(t, ns, "failing commands take the label and turn the annotation", func(p *corev1.Pod) bool {
		return p.Labels["nginx"] == "" && p.Annotations[cost] == "-10" && is(healthy, corev1.ConditionFalse)(p) && is(check, corev1.ConditionFalse)(p)
	})

	r.change(t, nginx, func(s *v1alpha1.PodProbeMarkerSpec) {
		s.Probes[0].Probe.Exec.Command = []string{"/bin/sh", "-c", "ls /"}
	})
	for i := 1; i < len(r.nodes); i++ {
		r.deletePod(t, ns, fmt.Sprintf("stateful-test-%d", i))
	}
	r.all(t, ns, "the label is back, check still fails", func(p *corev1.Pod) bool {
		return labelled(p) && is(healthy, corev1.ConditionTrue)(p) && p.Annotations[cost] == "-10" && is(check, corev1.ConditionFalse)(p)
	})
	r.onlyLive(t, ns)

	for i := 1; i < len(r.nodes); i++ {
		r.pod(t, ns, fmt.Sprintf("stateful-test-%d", i), i, matching)
	}
	r.all(t, ns, "new Pods of old names are marked", func(p *corev1.Pod) bool {
		return labelled(p) && is(healthy, corev1.ConditionTrue)(p) && p.Annotations[cost] == "-10" && is(check, corev1.ConditionFalse)(p)
	})
	r.onlyLive(t, ns)

	r.remove(t, nginx)
	r.remove(t, main)
	require.Empty(t, r.entries(t, ns), "at once")
	for _, p := range r.pods(t, ns) {
		require.Equal(t, matching, p.Labels, "nothing is left behind")
		require.NotContains(t, p.Annotations, cost)
		require.True(t, is(healthy, "")(&p) && is(check, "")(&p))
	}
}

func scenarioScripted(t *testing.T, r *rig) {
	ns := r.namespace(t, "scripted")
	r.answer("bash ./probe.sh", fakecri.ExecScript{Code: 1, Stderr: "starting"})
	for i := range r.nodes {
		r.pod(t, ns, fmt.Sprintf("minecraft-%d", i), i, matching)
	}
	m := marker(ns, "ppm-minecraft", command("idle", "main", "game.io/idle", "bash", "./probe.sh"))
	r.create(t, m)
	says := func(status corev1.ConditionStatus, text string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			s, message := condition(p, "game.io/idle")
			return s == status && strings.Contains(message, text)
		}
	}
	r.all(t, ns, "False at first", says(corev1.ConditionFalse, "starting"))
	r.answer("bash ./probe.sh", fakecri.ExecScript{Stdout: "data is loaded"})
	r.all(t, ns, "then True with data", says(corev1.ConditionTrue, "data"))
	r.answer("bash ./probe.sh", fakecri.ExecScript{Stdout: "gate is open"})
	r.all(t, ns, "then True with gate: a message alone propagates", says(corev1.ConditionTrue, "gate"))
	events := &corev1.EventList{}
	r.eventually(t, "events tell of states", func() bool {
		require.NoError(t, r.c.List(t.Context(), events, client.InNamespace(ns)))
		reasons := map[string]bool{}
		for _, e := range events.Items {
			reasons[e.Reason+" "+e.Type+" "+e.Source.Component+" "+e.Message] = true
		}
		return reasons["KruiseProbeFailed Normal kruise-daemon-podprobe starting"] && reasons["KruiseProbeSucceeded Normal kruise-daemon-podprobe data is loaded"]
	})
	r.remove(t, m)
}

// listen serves HTTP on the address that all Pods of the rig have.
func listen(t *testing.T) (port int32) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/" {
			http.Error(w, "no such page", http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte("welcome"))
	}))
	t.Cleanup(server.Close)
	return int32(server.Listener.Addr().(*net.TCPAddr).Port)
}

// closed is a port on which nobody listens.
func closed(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func network(name, condition string, socket *corev1.TCPSocketAction, get *corev1.HTTPGetAction) v1alpha1.PodContainerProbe {
	p := v1alpha1.PodContainerProbe{
		Name: name, ContainerName: "nginx", PodConditionType: condition,
		MarkerPolicy: []v1alpha1.ProbeMarkerPolicy{{State: "Succeeded", Labels: map[string]string{"nginx": "healthy"}}},
	}
	p.Probe.TCPSocket, p.Probe.HTTPGet = socket, get
	return p
}

func scenarioTCP(t *testing.T, r *rig) {
	ns := r.namespace(t, "tcp")
	for i := range r.nodes {
		r.pod(t, ns, fmt.Sprintf("stateful-test-%d", i), i, matching)
	}
	open := intstr.FromInt32(listen(t))
	m := marker(ns, "ppm-tcp", network("tcp", healthy, &corev1.TCPSocketAction{Port: open}, nil))
	good := func(p *corev1.Pod) bool {
		return p.Labels["nginx"] == "healthy" && is(healthy, corev1.ConditionTrue)(p)
	}
	r.create(t, m)
	r.all(t, ns, "connected", good)
	r.onlyLive(t, ns)
	r.change(t, m, func(s *v1alpha1.PodProbeMarkerSpec) { s.Probes[0].Probe.TCPSocket.Port = intstr.FromInt32(closed(t)) })
	r.all(t, ns, "refused", func(p *corev1.Pod) bool { return p.Labels["nginx"] == "" && is(healthy, corev1.ConditionFalse)(p) })
	r.change(t, m, func(s *v1alpha1.PodProbeMarkerSpec) { s.Probes[0].Probe.TCPSocket.Port = open })
	r.deletePod(t, ns, "stateful-test-1")
	r.deletePod(t, ns, "stateful-test-2")
	r.all(t, ns, "connected again", good)
	r.onlyLive(t, ns)
	r.pod(t, ns, "stateful-test-1", 1, matching)
	r.pod(t, ns, "stateful-test-2", 2, matching)
	r.all(t, ns, "and the new ones", good)
	r.onlyLive(t, ns)
	r.remove(t, m)
	require.Empty(t, r.entries(t, ns))
}

func scenarioHTTP(t *testing.T, r *rig) {
	ns := r.namespace(t, "http")
	r.pod(t, ns, "stateful-test-0", 0, matching)
	port := intstr.FromInt32(listen(t))
	m := marker(ns, "ppm-http", network("http", healthy, nil, &corev1.HTTPGetAction{Path: "/", Scheme: corev1.URISchemeHTTP, Port: port}))
	r.create(t, m)
	r.all(t, ns, "answered", func(p *corev1.Pod) bool {
		status, message := condition(p, healthy)
		return p.Labels["nginx"] == "healthy" && status == corev1.ConditionTrue && message == "welcome"
	})
	r.change(t, m, func(s *v1alpha1.PodProbeMarkerSpec) {
		s.Probes[0].Probe.HTTPGet = &corev1.HTTPGetAction{Path: "/missing", Port: port}
	})
	r.all(t, ns, "no such page", func(p *corev1.Pod) bool {
		status, message := condition(p, healthy)
		return p.Labels["nginx"] == "" && status == corev1.ConditionFalse && strings.Contains(message, "no such page")
	})
	// Named ports: nginx has port http; main has none, so that probe is left out.
	r.change(t, m, func(s *v1alpha1.PodProbeMarkerSpec) {
		s.Probes[0].Probe.HTTPGet.Port = intstr.FromString("http")
		s.Probes = append(s.Probes, network("tcp", "example.com/tcp", &corev1.TCPSocketAction{Port: intstr.FromString("http")}, nil))
		s.Probes[1].ContainerName = "main"
	})
	r.eventually(t, "the named port is a number, and the other probe not there", func() bool {
		npp := &v1alpha1.NodePodProbe{}
		require.NoError(t, r.c.Get(t.Context(), client.ObjectKey{Name: "n0"}, npp))
		i := slices.IndexFunc(npp.Spec.PodProbes, func(p v1alpha1.PodProbe) bool { return p.Namespace == ns })
		return i >= 0 && len(npp.Spec.PodProbes[i].Probes) == 1 && npp.Spec.PodProbes[i].Probes[0].Probe.HTTPGet.Port == intstr.FromInt32(80)
	})
	r.remove(t, m)
}

func scenarioTwoProbes(t *testing.T, r *rig) {
	ns := r.namespace(t, "two-probes")
	r.answer("healthy.sh", fakecri.ExecScript{Stdout: "yes"})
	r.answer("idle.sh", fakecri.ExecScript{Code: 1, Stderr: "3 players"})
	r.pod(t, ns, "game-0", 0, matching)
	m := marker(ns, "game", command("healthy", "main", "game.io/healthy", "healthy.sh"))
	m.Spec.Probes = append(m.Spec.Probes, command("idle", "main", "game.io/idle", "idle.sh"))
	r.create(t, m)
	stable := func(p *corev1.Pod) bool {
		return is("game.io/healthy", corev1.ConditionTrue)(p) && is("game.io/idle", corev1.ConditionFalse)(p)
	}
	r.all(t, ns, "one holds, the other does not", stable)
	before := len(r.agents.so())
	time.Sleep(3 * time.Second) // flapping takes no longer than two periods
	require.True(t, stable(&r.pods(t, ns)[0]))
	require.LessOrEqual(t, len(r.agents.so())-before, 1, "they do not overwrite each other")
	r.remove(t, m)
}

func scenarioSuffix(t *testing.T, r *rig) {
	ns := r.namespace(t, "suffix")
	r.answer("ok", fakecri.ExecScript{})
	p := r.pod(t, ns, "web-0", 0, matching)
	way, gateway := marker(ns, "way", command("a", "main", "x.io/way", "ok")), marker(ns, "gateway", command("a", "main", "x.io/gateway", "ok"))
	r.create(t, way)
	r.create(t, gateway)
	r.all(t, ns, "both hold", func(p *corev1.Pod) bool {
		return is("x.io/way", corev1.ConditionTrue)(p) && is("x.io/gateway", corev1.ConditionTrue)(p)
	})
	r.remove(t, way)
	require.Equal(t, []string{"gateway#a"}, r.entries(t, ns)[p.UID])
	require.True(t, is("x.io/gateway", corev1.ConditionTrue)(&r.pods(t, ns)[0]))
	r.remove(t, gateway)
}

func scenarioProbeRemoved(t *testing.T, r *rig) {
	ns := r.namespace(t, "removed")
	r.answer("ok", fakecri.ExecScript{})
	p := r.pod(t, ns, "web-0", 0, matching)
	m := marker(ns, "m", command("a", "main", "x.io/a", "ok"))
	m.Spec.Probes = append(m.Spec.Probes, command("b", "main", "x.io/b", "ok"))
	m.Spec.Probes[1].MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{{State: "Succeeded", Labels: map[string]string{"b": "yes"}}}
	r.create(t, m)
	r.all(t, ns, "both hold", func(p *corev1.Pod) bool { return is("x.io/a", corev1.ConditionTrue)(p) && p.Labels["b"] == "yes" })
	r.change(t, m, func(s *v1alpha1.PodProbeMarkerSpec) { s.Probes = s.Probes[:1] })
	require.Equal(t, []string{"m#a"}, r.entries(t, ns)[p.UID])
	r.all(t, ns, "its marks go", func(p *corev1.Pod) bool {
		return is("x.io/b", "")(p) && p.Labels["b"] == "" && is("x.io/a", corev1.ConditionTrue)(p)
	})
	r.remove(t, m)
}

func scenarioNoLabels(t *testing.T, r *rig) {
	ns := r.namespace(t, "no-labels")
	r.answer("ok", fakecri.ExecScript{})
	r.pod(t, ns, "bare", 0, nil)
	m := marker(ns, "m", command("a", "main", "", "ok"))
	m.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	m.Spec.Probes[0].MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{{State: "Succeeded", Labels: map[string]string{"up": "yes"}}}
	r.create(t, m)
	r.all(t, ns, "it gets its first label", func(p *corev1.Pod) bool { return p.Labels["up"] == "yes" })
	r.remove(t, m)
	require.Empty(t, r.pods(t, ns)[0].Labels)
}

func scenarioIP(t *testing.T, r *rig) {
	ns := r.namespace(t, "ip")
	r.pod(t, ns, "web-0", 0, matching)
	m := marker(ns, "m", network("tcp", healthy, &corev1.TCPSocketAction{Port: intstr.FromInt32(listen(t))}, nil))
	r.create(t, m)
	r.all(t, ns, "connected", is(healthy, corev1.ConditionTrue))
	r.nodes[0].kubelet.SetPaused(true)
	defer r.nodes[0].kubelet.SetPaused(false)
	p := &r.pods(t, ns)[0]
	p.Status.PodIP, p.Status.PodIPs = "127.0.0.2", nil
	require.NoError(t, r.c.Status().Update(t.Context(), p))
	r.eventually(t, "the new IP is listed", func() bool {
		npp := &v1alpha1.NodePodProbe{}
		require.NoError(t, r.c.Get(t.Context(), client.ObjectKey{Name: "n0"}, npp))
		return slices.ContainsFunc(npp.Spec.PodProbes, func(e v1alpha1.PodProbe) bool { return e.Namespace == ns && e.IP == "127.0.0.2" })
	})
	r.remove(t, m)
}

func scenarioAgentRestart(t *testing.T, r *rig) {
	ns := r.namespace(t, "restart")
	r.answer("slow", fakecri.ExecScript{Stdout: "fine"})
	r.pod(t, ns, "web-0", 0, matching)
	m := marker(ns, "m", command("a", "main", healthy, "slow"))
	r.create(t, m)
	r.all(t, ns, "it holds", is(healthy, corev1.ConditionTrue))
	r.nodes[0].stop()
	// The first probe of the new agent cannot end before the test is over.
	r.answer("slow", fakecri.ExecScript{Err: fmt.Errorf("rpc error")})
	before := len(r.agents.so())
	r.nodes[0].startAgent(t)
	calls := r.nodes[0].runtime.CallsOf("ExecSync")
	r.eventually(t, "the new agent probes", func() bool { return r.nodes[0].runtime.CallsOf("ExecSync") > calls+2 })
	require.Len(t, r.agents.so(), before, "a restart writes nothing")
	require.True(t, is(healthy, corev1.ConditionTrue)(&r.pods(t, ns)[0]))
	r.remove(t, m)
}

func scenarioUnknownContainer(t *testing.T, r *rig) {
	ns := r.namespace(t, "unknown")
	r.answer("ok", fakecri.ExecScript{})
	r.pod(t, ns, "web-0", 0, matching)
	m := marker(ns, "m", command("a", "nope", "x.io/nope", "ok"))
	m.Spec.Probes = append(m.Spec.Probes, command("b", "main", "x.io/b", "ok"))
	r.create(t, m)
	r.all(t, ns, "the other probe works", is("x.io/b", corev1.ConditionTrue))
	require.True(t, is("x.io/nope", "")(&r.pods(t, ns)[0]))
	r.remove(t, m)
}

func scenarioContainerRestart(t *testing.T, r *rig) {
	ns := r.namespace(t, "container")
	r.answer("ok", fakecri.ExecScript{})
	p := r.pod(t, ns, "web-0", 0, matching)
	m := marker(ns, "m", command("a", "main", healthy, "ok"))
	m.Spec.Probes[0].MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{{State: "Succeeded", Labels: map[string]string{"up": "yes"}}}
	r.create(t, m)
	up := func(p *corev1.Pod) bool { return p.Labels["up"] == "yes" && is(healthy, corev1.ConditionTrue)(p) }
	r.all(t, ns, "up", up)
	r.mu.Lock()
	r.execs["ok"] = fakecri.ExecScript{Code: 1} // of the next container
	r.mu.Unlock()
	rt := r.nodes[0].runtime
	for _, c := range rt.OfPod(string(p.UID)) {
		if c.Name == "main" {
			rt.Exit(c.ID, 1)
		}
	}
	r.all(t, ns, "down", func(p *corev1.Pod) bool { return p.Labels["up"] == "" && is(healthy, corev1.ConditionFalse)(p) })
	r.answer("ok", fakecri.ExecScript{})
	r.all(t, ns, "up again", up)
	r.remove(t, m)
}

func scenarioRelabel(t *testing.T, r *rig) {
	ns := r.namespace(t, "relabel")
	r.answer("ok", fakecri.ExecScript{})
	r.pod(t, ns, "web-0", 0, matching)
	m := marker(ns, "m", command("a", "main", healthy, "ok"))
	m.Spec.Probes[0].MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{{State: "Succeeded", Labels: map[string]string{"up": "yes"}}}
	r.create(t, m)
	up := func(p *corev1.Pod) bool { return p.Labels["up"] == "yes" && is(healthy, corev1.ConditionTrue)(p) }
	relabel := func(to string) {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, to)
		require.NoError(t, r.c.Patch(t.Context(), &r.pods(t, ns)[0], client.RawPatch("application/merge-patch+json", []byte(patch))))
	}
	r.all(t, ns, "up", up)
	relabel("isolated")
	r.all(t, ns, "its marks go", func(p *corev1.Pod) bool { return p.Labels["up"] == "" && is(healthy, "")(p) })
	require.Empty(t, r.entries(t, ns))
	relabel("probe")
	r.all(t, ns, "up again", up)
	r.remove(t, m)
}

func scenarioLateNode(t *testing.T, r *rig) {
	ns := r.namespace(t, "late")
	r.answer("ok", fakecri.ExecScript{})
	m := marker(ns, "m", command("a", "main", healthy, "ok"))
	r.create(t, m)
	// Its Pod is there before the node is ready, and so before the NodePodProbe.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	require.NoError(t, r.c.Create(t.Context(), n))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-0", Labels: matching},
		Spec:       corev1.PodSpec{NodeName: "late", Containers: []corev1.Container{{Name: "main", Image: "x"}}},
	}
	require.NoError(t, r.c.Create(t.Context(), p))
	p.Status.PodIP = "127.0.0.1"
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
	require.NoError(t, r.c.Status().Update(t.Context(), p))
	r.eventually(t, "the Pod counts", func() bool {
		return r.c.Get(t.Context(), client.ObjectKeyFromObject(m), m) == nil && m.Status.MatchedPods == 1
	})
	require.Empty(t, r.entries(t, ns))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, r.c.Status().Update(t.Context(), n))
	r.eventually(t, "the Pod is listed", func() bool { return len(r.entries(t, ns)[p.UID]) == 1 })
	r.remove(t, m)
	require.NoError(t, r.c.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	require.NoError(t, r.c.Delete(t.Context(), n))
	r.eventually(t, "its NodePodProbe goes", func() bool {
		return r.c.Get(t.Context(), client.ObjectKey{Name: "late"}, &v1alpha1.NodePodProbe{}) != nil
	})
}

// One result costs one write of the agent and one of the manager.
func scenarioWrites(t *testing.T, r *rig) {
	ns := r.namespace(t, "writes")
	r.answer("ok", fakecri.ExecScript{})
	p := r.pod(t, ns, "web-0", 0, matching)
	m := marker(ns, "m", command("a", "main", healthy, "ok"))
	m.Spec.Probes[0].MarkerPolicy = []v1alpha1.ProbeMarkerPolicy{
		{State: "Succeeded", Labels: map[string]string{"up": "yes"}, Annotations: map[string]string{cost: "10"}},
		{State: "Failed", Labels: map[string]string{"down": "yes"}, Annotations: map[string]string{cost: "-10"}},
	}
	r.create(t, m)
	r.all(t, ns, "up", func(p *corev1.Pod) bool { return p.Labels["up"] == "yes" })
	quiet := func() (manager, agents int) {
		r.eventually(t, "nobody writes", func() bool {
			manager, agents = len(r.manager.so()), len(r.agents.so())
			time.Sleep(3 * time.Second)
			return manager == len(r.manager.so()) && agents == len(r.agents.so())
		})
		return manager, agents
	}
	manager, agents := quiet()
	r.answer("ok", fakecri.ExecScript{Code: 1, Stderr: "no"})
	r.all(t, ns, "down", func(p *corev1.Pod) bool {
		return p.Labels["up"] == "" && p.Labels["down"] == "yes" && p.Annotations[cost] == "-10" && is(healthy, corev1.ConditionFalse)(p)
	})
	quiet()
	require.Equal(t, []string{"PATCH /api/v1/namespaces/writes/pods/" + p.Name + "/status"}, r.manager.so()[manager:])
	require.Equal(t, []string{"PUT /apis/apps.kruise.io/v1alpha1/nodepodprobes/n0/status"}, r.agents.so()[agents:])
	r.remove(t, m)
}

func scenarioNodeGone(t *testing.T, r *rig) {
	require.NoError(t, r.c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}))
	r.eventually(t, "the NodePodProbe goes with its node", func() bool {
		return r.c.Get(t.Context(), client.ObjectKey{Name: "n2"}, &v1alpha1.NodePodProbe{}) != nil
	})
	require.NoError(t, r.c.Delete(t.Context(), &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
	r.eventually(t, "one that is deleted by hand comes back", func() bool {
		return r.c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &v1alpha1.NodePodProbe{}) == nil
	})
	r.ready(t, "virtual", map[string]string{"type": "virtual-kubelet"})
	r.ready(t, "after", nil)
	r.eventually(t, "a new node gets one", func() bool {
		return r.c.Get(t.Context(), client.ObjectKey{Name: "after"}, &v1alpha1.NodePodProbe{}) == nil
	})
	require.Error(t, r.c.Get(t.Context(), client.ObjectKey{Name: "virtual"}, &v1alpha1.NodePodProbe{}), "a virtual one does not")
}

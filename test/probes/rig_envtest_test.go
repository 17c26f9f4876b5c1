// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package probes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/controllers/nodepodprobe"
	"github.com/kruisectl/kruisectl/controllers/podprobemarker"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/daemon/kube"
	"github.com/kruisectl/kruisectl/daemon/probe"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/freshness"
)

const (
	soon = 2 * time.Minute // podprobe.md 10
	tick = 50 * time.Millisecond
)

// writes counts the requests of one program that change something, but for events.
type writes struct {
	mu   sync.Mutex
	list []string // method and the path below the group and version
}

func (w *writes) in(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
				w.mu.Lock()
				w.list = append(w.list, r.Method+" "+r.URL.Path)
				w.mu.Unlock()
			}
			return next.RoundTrip(r)
		})
	})
	return cfg
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *writes) so() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

// node is one node: a runtime behind a socket, a kubelet, and an agent that can be restarted.
type node struct {
	name    string
	runtime *fakecri.Runtime
	kubelet *fakecri.Kubelet
	cri     cri.Runtime // over the socket
	cfg     *rest.Config
	stop    func()
}

// startAgent wires the prober as cmd/kruise-daemon does.
func (n *node) startAgent(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := kube.New(n.cfg, kube.Core(), kube.Group{Version: v1alpha1.GroupVersion, Types: []runtime.Object{&v1alpha1.NodePodProbe{}, &v1alpha1.NodePodProbeList{}}})
	require.NoError(t, err)
	resource := kube.Resource(c, v1alpha1.GroupVersion, "nodepodprobes", "",
		func() *v1alpha1.NodePodProbe { return &v1alpha1.NodePodProbe{} }, func() *v1alpha1.NodePodProbeList { return &v1alpha1.NodePodProbeList{} })
	informer := kube.Informer(resource, kube.Select{Fields: "metadata.name=" + n.name}, nil, nil)
	events := kube.NewEvents(ctx, c)
	prober := probe.New(probe.Options{
		Store: store{n.name, resource, informer}, Runtimes: []cri.Runtime{n.cri}, Events: events.Recorder("kruise-daemon-podprobe", n.name),
		Synced: informer.HasSynced, Metrics: probe.NewMetrics(prometheus.NewRegistry()),
	})
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { prober.Wake() }, UpdateFunc: func(any, any) { prober.Wake() }, DeleteFunc: func(any) { prober.Wake() },
	})
	require.NoError(t, err)
	var group sync.WaitGroup
	group.Go(func() { informer.RunWithContext(ctx) })
	group.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			_ = prober.Run(ctx)
		}
	})
	n.stop = func() {
		cancel()
		group.Wait()
		events.Stop()
	}
}

type store struct {
	node     string
	client   *kube.Typed[*v1alpha1.NodePodProbe, *v1alpha1.NodePodProbeList]
	informer cache.SharedIndexInformer
}

func (s store) NodePodProbe(context.Context) (*v1alpha1.NodePodProbe, error) {
	obj, ok, err := s.informer.GetIndexer().GetByKey(s.node)
	if err != nil || !ok {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("nodepodprobes").GroupResource(), s.node)
	}
	return obj.(*v1alpha1.NodePodProbe), nil
}

func (s store) WriteProbeStatus(ctx context.Context, npp *v1alpha1.NodePodProbe) (*v1alpha1.NodePodProbe, error) {
	return s.client.UpdateStatus(ctx, npp, metav1.UpdateOptions{})
}

// rig is a cluster of three nodes.
type rig struct {
	t       *testing.T
	c       client.Client
	cfg     *rest.Config
	nodes   []*node
	manager writes
	agents  writes

	mu    sync.Mutex
	execs map[string]fakecri.ExecScript // of containers that start, by command
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, cfg: apitest.Start(t), execs: map[string]fakecri.ExecScript{}}
	r.c = apitest.NewClient(t, r.cfg)
	r.startManager(t, podprobemarker.Options{})
	for i := range 3 {
		r.addNode(t, fmt.Sprintf("n%d", i))
	}
	return r
}

func (r *rig) startManager(t *testing.T, o podprobemarker.Options) {
	t.Helper()
	mgr, err := ctrl.NewManager(r.manager.in(r.cfg), ctrl.Options{
		Scheme: apitest.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}, Logger: logr.Discard(),
	})
	require.NoError(t, err)
	o.Marked = &freshness.Writes{}
	require.NoError(t, podprobemarker.Add(mgr, o))
	require.NoError(t, nodepodprobe.Add(mgr, nodepodprobe.Options{Marked: o.Marked}))
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
}

func (r *rig) addNode(t *testing.T, name string) {
	t.Helper()
	n := &node{name: name, runtime: fakecri.New("containerd"), cfg: r.agents.in(r.cfg)}
	dir := t.TempDir()
	fakecri.Serve(t, n.runtime, dir, "containerd.sock")
	rt, closer, err := cri.Dial(t.Context(), dir+"/containerd.sock")
	require.NoError(t, err)
	t.Cleanup(func() { _ = closer() })
	n.cri = rt
	n.kubelet = (&fakecri.Kubelet{Client: r.c, Runtime: n.runtime, Node: name, Behave: func(*corev1.Pod, string) fakecri.Behaviour {
		r.mu.Lock()
		defer r.mu.Unlock()
		execs := map[string]fakecri.ExecScript{}
		for k, v := range r.execs {
			execs[k] = v
		}
		return fakecri.Behaviour{Exec: execs}
	}}).Start(t)
	n.startAgent(t)
	t.Cleanup(func() { n.stop() })
	r.nodes = append(r.nodes, n)
	r.ready(t, name, nil)
	r.eventually(t, "NodePodProbe of "+name, func() bool {
		return r.c.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.NodePodProbe{}) == nil
	})
}

func (r *rig) ready(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	require.NoError(t, r.c.Create(t.Context(), n))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, r.c.Status().Update(t.Context(), n))
}

// answer scripts a command on all containers, those to come included.
func (r *rig) answer(command string, script fakecri.ExecScript) {
	r.mu.Lock()
	r.execs[command] = script
	r.mu.Unlock()
	for _, n := range r.nodes {
		pods := &corev1.PodList{}
		require.NoError(r.t, r.c.List(r.t.Context(), pods))
		for i := range pods.Items {
			for _, c := range n.runtime.OfPod(string(pods.Items[i].UID)) {
				n.runtime.Change(c.ID, func(c *fakecri.Container) {
					execs := map[string]fakecri.ExecScript{command: script}
					for k, v := range c.Exec {
						if k != command {
							execs[k] = v
						}
					}
					c.Exec = execs
				})
			}
		}
	}
}

func (r *rig) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, soon, tick, what)
}

// namespace makes one for a scenario.
func (r *rig) namespace(t *testing.T, name string) string {
	t.Helper()
	require.NoError(t, r.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	return name
}

// pod creates a Pod on a node, with the containers nginx (port http, 80) and main, and
// waits until it runs.
func (r *rig) pod(t *testing.T, namespace, name string, on int, labels map[string]string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName:                      r.nodes[on].name,
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{
				{Name: "nginx", Image: "nginx:1.15.1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}},
				{Name: "main", Image: "centos:7"},
			},
		},
	}
	require.NoError(t, r.c.Create(t.Context(), p))
	r.eventually(t, name+" runs", func() bool {
		return r.c.Get(t.Context(), client.ObjectKeyFromObject(p), p) == nil && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != ""
	})
	return p
}

func (r *rig) pods(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	require.NoError(t, r.c.List(t.Context(), list, client.InNamespace(namespace)))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// all waits until ok holds for every Pod of the namespace that is not being deleted.
func (r *rig) all(t *testing.T, namespace, what string, ok func(*corev1.Pod) bool) {
	t.Helper()
	r.eventually(t, what, func() bool {
		for _, p := range r.pods(t, namespace) {
			if !ok(&p) {
				return false
			}
		}
		return true
	})
}

func (r *rig) deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	require.NoError(t, r.c.Delete(t.Context(), p))
	r.eventually(t, name+" is gone", func() bool { return apierrors.IsNotFound(r.c.Get(t.Context(), client.ObjectKeyFromObject(p), p)) })
}

// entries are the UIDs that NodePodProbes list for a namespace, with their keys.
func (r *rig) entries(t *testing.T, namespace string) map[types.UID][]string {
	t.Helper()
	list := &v1alpha1.NodePodProbeList{}
	require.NoError(t, r.c.List(t.Context(), list))
	out := map[types.UID][]string{}
	for _, npp := range list.Items {
		for _, e := range npp.Spec.PodProbes {
			if e.Namespace != namespace {
				continue
			}
			for _, p := range e.Probes {
				out[e.UID] = append(out[e.UID], p.Name)
			}
		}
	}
	return out
}

// onlyLive waits until exactly the live Pods of the namespace are listed.
func (r *rig) onlyLive(t *testing.T, namespace string) {
	t.Helper()
	r.eventually(t, "only live Pods are listed", func() bool {
		entries, pods := r.entries(t, namespace), r.pods(t, namespace)
		for _, p := range pods {
			if len(entries[p.UID]) == 0 {
				return false
			}
		}
		return len(entries) == len(pods)
	})
}

func condition(p *corev1.Pod, kind string) (corev1.ConditionStatus, string) {
	for _, c := range p.Status.Conditions {
		if string(c.Type) == kind {
			return c.Status, c.Message
		}
	}
	return "", ""
}

func is(kind string, status corev1.ConditionStatus) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		s, _ := condition(p, kind)
		return s == status
	}
}

// marker builds a PodProbeMarker with one probe; edit fills in its handler.
func marker(namespace, name string, probe v1alpha1.PodContainerProbe) *v1alpha1.PodProbeMarker {
	return &v1alpha1.PodProbeMarker{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.PodProbeMarkerSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe"}},
			Probes:   []v1alpha1.PodContainerProbe{probe},
		},
	}
}

func command(name, container, condition string, words ...string) v1alpha1.PodContainerProbe {
	p := v1alpha1.PodContainerProbe{Name: name, ContainerName: container, PodConditionType: condition}
	p.Probe.Exec = &corev1.ExecAction{Command: words}
	return p
}

// processed waits until the controller has seen the marker as it is.
func (r *rig) processed(t *testing.T, m *v1alpha1.PodProbeMarker) {
	t.Helper()
	r.eventually(t, m.Name+" is processed", func() bool {
		return r.c.Get(t.Context(), client.ObjectKeyFromObject(m), m) == nil && m.Status.ObservedGeneration == m.Generation
	})
}

func (r *rig) create(t *testing.T, m *v1alpha1.PodProbeMarker) {
	t.Helper()
	require.NoError(t, r.c.Create(t.Context(), m))
	r.processed(t, m)
	require.Equal(t, []string{"kruise.io/node-pod-probe-cleanup"}, m.Finalizers)
}

// change edits the spec of a marker and waits until that is processed.
func (r *rig) change(t *testing.T, m *v1alpha1.PodProbeMarker, edit func(*v1alpha1.PodProbeMarkerSpec)) {
	t.Helper()
	r.eventually(t, "changing "+m.Name, func() bool {
		require.NoError(t, r.c.Get(t.Context(), client.ObjectKeyFromObject(m), m))
		edit(&m.Spec)
		return r.c.Update(t.Context(), m) == nil
	})
	r.processed(t, m)
}

func (r *rig) remove(t *testing.T, m *v1alpha1.PodProbeMarker) {
	t.Helper()
	require.NoError(t, r.c.Delete(t.Context(), m))
	r.eventually(t, m.Name+" is gone", func() bool { return apierrors.IsNotFound(r.c.Get(t.Context(), client.ObjectKeyFromObject(m), m)) })
}

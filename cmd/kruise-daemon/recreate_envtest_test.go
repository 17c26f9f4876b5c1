// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/controllers/containerrecreaterequest"
	"github.com/kruisectl/kruisectl/controllers/podreadiness"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	hook "github.com/kruisectl/kruisectl/webhook/containerrecreaterequest"
)

// recreateRig is a cluster of one node: the real admission, controllers and agent, a runtime
// behind a socket and a kubelet that stands in.
type recreateRig struct {
	c          client.WithWatch
	runtime    *fakecri.Runtime
	kubeconfig string
	hostRun    string
	stopAgent  func()

	mu     sync.Mutex
	behave map[string]fakecri.Behaviour // by Pod and container
}

// liveReader is the API server that the webhook reads from, known only after the start.
type liveReader struct{ client.Reader }

func startRecreateRig(t *testing.T) *recreateRig {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	reader := &liveReader{}
	handlers := admit.Handlers{}
	hook.Register(handlers, hook.Options{Features: features.New(), Live: reader, Cached: reader})
	const path = "/mutate-apps-kruise-io-containerrecreaterequest"
	scheme, registry := apitest.Scheme(), conversion.NewRegistry()
	hub, spoke := hook.Converter()
	converter, err := conversion.NewHubSpokeConverter(hub, spoke)(scheme)
	require.NoError(t, err)
	require.NoError(t, registry.RegisterConverter(v1beta1.GroupVersion.WithKind("ContainerRecreateRequest").GroupKind(), converter))
	server := apitest.StartServer(t, apitest.WithHandler(path, handlers[path]), apitest.WithMutating(mutatingRequests(path)),
		apitest.WithConversion(conversion.NewWebhookHandler(scheme, registry)))
	c, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	reader.Reader = c
	require.NoError(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))

	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}, Logger: logr.Discard(),
	})
	require.NoError(t, err)
	require.NoError(t, containerrecreaterequest.Add(mgr, containerrecreaterequest.Options{}))
	require.NoError(t, podreadiness.Add(mgr, podreadiness.Options{}))
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); group.Wait() })

	r := &recreateRig{c: c, runtime: fakecri.New("containerd"), hostRun: t.TempDir(), behave: map[string]fakecri.Behaviour{}}
	fakecri.Serve(t, r.runtime, r.hostRun, "containerd/containerd.sock")
	r.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(r.kubeconfig, server.Kubeconfig, 0o600))
	kubelet := &fakecri.Kubelet{Client: c, Runtime: r.runtime, Node: "n1", Behave: func(pod *corev1.Pod, container string) fakecri.Behaviour {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.behave[pod.Name+"/"+container]
	}}
	kubelet.Start(t)
	r.startAgent(t)
	t.Cleanup(func() { r.stopAgent() })
	return r
}

// mutatingRequests is the webhook configuration of the requests.
func mutatingRequests(path string) *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise"}, Webhooks: []admissionv1.MutatingWebhook{{
		Name: "mcontainerrecreaterequest.kb.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone),
		FailurePolicy: new(admissionv1.Fail), ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "w", Namespace: "w", Path: &path}},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{"CREATE", "UPDATE"},
			Rule:       admissionv1.Rule{APIGroups: []string{"apps.kruise.io"}, APIVersions: []string{"v1alpha1", "v1beta1"}, Resources: []string{"containerrecreaterequests"}},
		}},
	}}}
}

// startAgent runs the whole agent, in another life each time.
func (r *recreateRig) startAgent(t *testing.T) {
	t.Helper()
	addr := freeAddr(t)
	o, err := parse([]string{"--addr=" + addr, "--enable-pprof=false", "--host-run-dir=" + r.hostRun, "--kubeconfig=" + r.kubeconfig, "--rest-config-qps=200", "--rest-config-burst=400"},
		env(map[string]string{"NODE_NAME": "n1"}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	require.Eventually(t, func() bool { return body("http://"+addr+"/healthz") == "200 ok" }, soon, tick)
	r.stopAgent = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("agent: %v", err)
		}
	}
}

// pod creates a Pod of the node and waits until it is ready. Hooks are by container; behaviour
// as well.
func (r *recreateRig) pod(t *testing.T, name string, change func(*corev1.Pod), behave map[string]fakecri.Behaviour) *corev1.Pod {
	t.Helper()
	r.mu.Lock()
	for container, b := range behave {
		r.behave[name+"/"+container] = b
	}
	r.mu.Unlock()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
		NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "httpd:2"}, {Name: "sidecar", Image: "agnhost:2"}},
		ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1beta1.KruisePodReady}},
	}}
	if change != nil {
		change(pod)
	}
	require.NoError(t, r.c.Create(t.Context(), pod))
	r.untilPod(t, pod, "it is ready", func() bool { return podIs(pod, corev1.PodReady) })
	return pod
}

func podIs(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

func (r *recreateRig) untilPod(t *testing.T, pod *corev1.Pod, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		return r.c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && is()
	}, soon, tick, what)
}

// request creates a request for a Pod.
func (r *recreateRig) request(t *testing.T, pod *corev1.Pod, name string, spec v1beta1.ContainerRecreateRequestSpec, containers ...string) *v1beta1.ContainerRecreateRequest {
	t.Helper()
	crr := &v1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name}, Spec: spec}
	crr.Spec.PodName = pod.Name
	for _, c := range containers {
		crr.Spec.Containers = append(crr.Spec.Containers, v1beta1.RecreateContainer{Name: c})
	}
	require.NoError(t, r.c.Create(t.Context(), crr))
	return crr
}

func (r *recreateRig) until(t *testing.T, crr *v1beta1.ContainerRecreateRequest, what string, is func() bool) {
	t.Helper()
	ok := false
	defer func() {
		if !ok {
			t.Logf("%s: %+v", crr.Name, crr.Status)
		}
	}()
	require.Eventually(t, func() bool {
		return r.c.Get(t.Context(), client.ObjectKeyFromObject(crr), crr) == nil && is()
	}, soon, tick, what)
	ok = true
}

// completed waits for the end of a request, and until it is not active any more.
func (r *recreateRig) completed(t *testing.T, crr *v1beta1.ContainerRecreateRequest) {
	t.Helper()
	r.until(t, crr, "it completes", func() bool { return crr.Status.Phase == v1beta1.RecreateCompleted })
	require.NotNil(t, crr.Status.CompletionTime)
	status := crr.Status
	r.until(t, crr, "it is not active", func() bool { return crr.Labels["crr.apps.kruise.io/active"] == "" })
	crr.Status = status
}

// versions counts the writes to a request, its creation left out, until stop is called.
func (r *recreateRig) versions(t *testing.T, pod string) (stop func() []string) {
	t.Helper()
	w, err := r.c.Watch(t.Context(), &v1beta1.ContainerRecreateRequestList{}, client.InNamespace("default"))
	require.NoError(t, err)
	return func() []string {
		var seen []string
		for {
			select {
			case e := <-w.ResultChan():
				crr, ok := e.Object.(*v1beta1.ContainerRecreateRequest)
				if !ok || crr.Spec.PodName != pod || e.Type != watch.Modified {
					continue
				}
				seen = append(seen, describe(crr))
				if crr.Labels["crr.apps.kruise.io/active"] == "" {
					w.Stop()
					return seen
				}
			case <-time.After(soon):
				t.Fatalf("the request never becomes inactive; seen %q", seen)
			}
		}
	}
}

// describe is a version of a request in a line.
func describe(crr *v1beta1.ContainerRecreateRequest) string {
	parts := []string{string(crr.Status.Phase)}
	for _, s := range crr.Status.ContainerRecreateStates {
		parts = append(parts, fmt.Sprintf("%s=%s,%v", s.Name, s.Phase, s.IsKilled))
	}
	for _, s := range crr.Status.ContainerStatusSnapshot {
		parts = append(parts, fmt.Sprintf("%s ready=%v", s.Name, s.Ready))
	}
	return strings.Join(parts, " ")
}

func containerOf(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if s.Name == name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

func recreated(names ...string) []v1beta1.RecreateState {
	var states []v1beta1.RecreateState
	for _, n := range names {
		states = append(states, v1beta1.RecreateState{Name: n, Phase: "Succeeded", IsKilled: true})
	}
	return states
}

// callsFor lists the calls of the runtime that speak of a container of the Pod, but for the
// looks of the agent.
func (r *recreateRig) callsFor(pod, container string) []string {
	var calls []string
	for _, call := range r.runtime.Calls() {
		if strings.Contains(call, " "+pod+"-"+container+"-") && !strings.HasPrefix(call, "ContainerStatus") {
			verb, _, _ := strings.Cut(call, " ")
			calls = append(calls, verb)
		}
	}
	return calls
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/manifests"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["system:serviceaccount:kruise-system:kruise-daemon"]
- level: None
`

// The role and the policy of the manifests are enough for the agent: it runs with the token of
// a Pod, does all that it can do, and the API server forbids none of it.
func TestTheRoleIsEnough(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "audit.yaml"), []byte(auditPolicy), 0o600))
	server := apitest.StartServer(t, apitest.WithAPIServerArg("audit-policy-file", filepath.Join(dir, "audit.yaml")),
		apitest.WithAPIServerArg("audit-log-path", log))
	c := apitest.NewClient(t, server.Config)
	require.NoError(t, c.Create(t.Context(), fixture.Node("n1").With(func(n *corev1.Node) { n.UID = "" }).Obj()))
	for _, ns := range []string{"kruise-system", "kruise-daemon-config"} {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	}
	for _, file := range []string{"base/rbac/daemon.yaml", "base/daemon/serviceaccount.yaml", "base/daemon/node-policy.yaml"} {
		applyManifest(t, c, file)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	token := tokenOf(t, c)
	require.NoError(t, clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"x": {Server: server.Config.Host, CertificateAuthorityData: server.Config.CAData}},
		AuthInfos:      map[string]*api.AuthInfo{"x": {Token: token}},
		Contexts:       map[string]*api.Context{"x": {Cluster: "x", AuthInfo: "x"}},
		CurrentContext: "x",
	}, kubeconfig))
	policyHolds(t, server.Config, token)

	hostRun := t.TempDir()
	runtime := fakecri.New("containerd")
	fakecri.Serve(t, runtime, hostRun, "containerd/containerd.sock")
	addr := freeAddr(t)
	o, err := parse([]string{"--addr=" + addr, "--pprof-addr=" + freeAddr(t), "--host-run-dir=" + hostRun, "--kubeconfig=" + kubeconfig},
		env(map[string]string{"NODE_NAME": "n1"}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	require.Eventually(t, func() bool { return body("http://"+addr+"/healthz") == "200 ok" }, soon, tick)
	(&fakecri.Kubelet{Client: c, Runtime: runtime, Node: "n1", Behave: func(*corev1.Pod, string) fakecri.Behaviour {
		return fakecri.Behaviour{Exec: map[string]fakecri.ExecScript{"true": {}}}
	}}).Start(t)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{v1beta1.SidecarSetHashAnnotation: "{}"}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "nginx:1.25"}}},
	}
	require.NoError(t, c.Create(t.Context(), pod))
	running := func() *corev1.ContainerStatus {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		if s := pod.Status.ContainerStatuses; len(s) == 1 && s[0].Ready {
			return &s[0]
		}
		return nil
	}
	require.Eventually(t, func() bool { return running() != nil }, soon, tick)

	t.Run("images", func(t *testing.T) { pullsWithSecret(t, c, runtime) })
	t.Run("probes", func(t *testing.T) { probes(t, c, pod) })
	t.Run("containers", func(t *testing.T) { recreates(t, c, pod, running) })
	t.Run("what runs", func(t *testing.T) {
		require.Eventually(t, func() bool {
			return running() != nil && strings.Contains(pod.Annotations[v1beta1.RuntimeContainersMetaAnnotation], running().ContainerID)
		}, soon, tick)
	})
	want := []string{
		"create events", "get secrets", "patch pods/status", "update nodeimages/status", "update nodepodprobes/status", "patch containerrecreaterequests/status",
	}
	require.Eventually(t, func() bool {
		asked, forbidden := audited(t, log)
		require.Empty(t, forbidden)
		return !slices.ContainsFunc(want, func(w string) bool {
			return !slices.Contains(asked, w) && !slices.Contains(asked, strings.Replace(w, "update", "patch", 1))
		})
	}, soon, tick, "of %v", want)
	cancel()
	require.NoError(t, <-ended)
}

func applyManifest(t *testing.T, c client.Client, path string) {
	t.Helper()
	text, err := manifests.Files.ReadFile(path)
	require.NoError(t, err)
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		obj := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(doc), &obj.Object), path)
		require.NoError(t, c.Create(t.Context(), obj), path)
	}
}

// tokenOf returns a token as the kubelet of n1 gets it for the agent's Pod.
func tokenOf(t *testing.T, c client.Client) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-daemon-x"},
		Spec:       corev1.PodSpec{NodeName: "n1", ServiceAccountName: "kruise-daemon", Containers: []corev1.Container{{Name: "daemon", Image: "x"}}},
	}
	require.NoError(t, c.Create(t.Context(), pod))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-daemon"}}
	require.NoError(t, c.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

// policyHolds waits until the policy is compiled. Its requests have another user agent.
func policyHolds(t *testing.T, config *rest.Config, token string) {
	t.Helper()
	config = rest.AnonymousClientConfig(config)
	config.BearerToken, config.UserAgent = token, "test"
	c := apitest.NewClient(t, config)
	require.Eventually(t, func() bool {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "x-"}, Source: corev1.EventSource{Host: "another"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
		return apierrors.IsForbidden(c.Create(t.Context(), event))
	}, soon, tick)
}

// audited lists what the agent did, and what of that was forbidden.
func audited(t *testing.T, log string) (asked, forbidden []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Verb, UserAgent, RequestURI string
			ObjectRef                   struct{ Resource, Subresource string }
			ResponseStatus              struct{ Code int }
		}
		if json.Unmarshal([]byte(line), &e) != nil || !strings.Contains(e.UserAgent, "kruise-daemon") {
			continue
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		seen[what] = true
		if e.ResponseStatus.Code == 401 || e.ResponseStatus.Code == 403 {
			forbidden = append(forbidden, e.Verb+" "+e.RequestURI)
		}
	}
	return slices.Sorted(maps.Keys(seen)), forbidden
}

func pullsWithSecret(t *testing.T, c client.Client, runtime *fakecri.Runtime) {
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-daemon-config", Name: "s"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"quay.io":{"username":"ann","password":"pw"}}}`)},
	}))
	runtime.Script("quay.io/app:1", fakecri.PullScript{Auth: &cri.Auth{Username: "ann", Password: "pw"}})
	image := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{
		"quay.io/app": {PullSecrets: []v1beta1.ReferenceObject{{Namespace: "kruise-daemon-config", Name: "s"}}, Tags: []v1beta1.ImageTagSpec{{
			Tag: "1", CreatedAt: new(metav1.Now()),
			OwnerReferences: []corev1.ObjectReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "ImagePullJob", Namespace: "default", Name: "job", UID: "1"}},
		}}},
	}}}
	require.NoError(t, c.Create(t.Context(), image))
	require.Eventually(t, func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(image), image) == nil && image.Status.Succeeded == 1
	}, soon, tick)
}

func probes(t *testing.T, c client.Client, pod *corev1.Pod) {
	npp := &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1alpha1.NodePodProbeSpec{PodProbes: []v1alpha1.PodProbe{{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, IP: "127.0.0.1",
		Probes: []v1alpha1.ContainerProbe{{Name: "ppm#up", ContainerName: "app", Probe: fixture.ContainerProbe(fixture.Exec("true"))}},
	}}}}
	require.NoError(t, c.Create(t.Context(), npp))
	require.Eventually(t, func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(npp), npp))
		s := npp.Status.PodProbeStatuses
		return len(s) == 1 && len(s[0].ProbeStates) == 1 && s[0].ProbeStates[0].State == v1alpha1.ProbeSucceeded
	}, soon, tick)
}

func recreates(t *testing.T, c client.Client, pod *corev1.Pod, running func() *corev1.ContainerStatus) {
	before := running().ContainerID
	crr := fixture.ContainerRecreateRequest("again", pod, "app").With(func(r *v1beta1.ContainerRecreateRequest) { r.UID = "" }).Obj()
	require.NoError(t, c.Create(t.Context(), crr))
	require.Eventually(t, func() bool {
		now := running()
		return now != nil && now.ContainerID != before
	}, soon, tick)
	// What the manager sees in the Pod is what the agent waits for.
	require.Eventually(t, func() bool {
		now := running()
		if now == nil || c.Get(t.Context(), client.ObjectKeyFromObject(crr), crr) != nil {
			return false
		}
		if crr.Status.Phase == v1beta1.RecreateCompleted {
			return true
		}
		crr.Status.ContainerStatusSnapshot = []v1beta1.ContainerSnapshot{{Name: "app", Ready: true, RestartCount: now.RestartCount, ContainerID: now.ContainerID}}
		return c.Status().Update(t.Context(), crr) == nil && false
	}, soon, 10*tick)
	require.Equal(t, v1beta1.RecreateSucceeded, crr.Status.ContainerRecreateStates[0].Phase)
}

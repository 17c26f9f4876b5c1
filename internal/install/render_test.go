// SPDX-License-Identifier: Apache-2.0

package install

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var update = flag.Bool("update", false, "write the golden files anew")

// defaults returns the values of a profile with the given --set expressions.
func defaults(t testing.TB, profile Profile, sets ...string) Values {
	t.Helper()
	v, err := Defaults(profile, "generic")
	require.NoError(t, err)
	for _, s := range sets {
		tree, err := ParseSet(s)
		require.NoError(t, err)
		_, err = v.Merge(tree)
		require.NoError(t, err)
	}
	return v
}

func render(t testing.TB, v Values) *Manifests {
	t.Helper()
	m, err := Render(v)
	require.NoError(t, err)
	return m
}

func stream(t testing.TB, objs []*unstructured.Unstructured) string {
	t.Helper()
	data, err := Stream(objs)
	require.NoError(t, err)
	return string(data)
}

// Every overlay, built by plain kustomize from the files on disk, is what the same values
// render to.
func TestRenderEqualsOverlay(t *testing.T) {
	platform := func(name string) Values {
		v, err := Defaults(ProfileDefault, name)
		require.NoError(t, err)
		return v
	}
	cases := map[string]Values{
		"default":         defaults(t, ProfileDefault),
		"ha":              defaults(t, ProfileHA),
		"single":          defaults(t, ProfileSingle),
		"minimal":         defaults(t, ProfileMinimal),
		"e2e":             defaults(t, ProfileE2E),
		"no-daemon":       defaults(t, ProfileDefault, "featureGates=KruiseDaemon=false"),
		"no-webhook-pods": defaults(t, ProfileDefault, `featureGates=ImagePullJobGate=true\,PodWebhook=false`),
		"external-certs": defaults(t, ProfileDefault,
			`featureGates=ImagePullJobGate=true\,EnableExternalCerts=true`, "externalCerts.mode=cert-manager"),
		"k3s":            platform("k3s"),
		"eks-custom-cni": platform("eks"),
		"aks":            platform("aks"),
	}
	dirs, err := os.ReadDir("../../manifests/overlays")
	require.NoError(t, err)
	require.Len(t, dirs, len(cases), "a case for each overlay")
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			plain, err := kustomize(filesys.MakeFsOnDisk(), "../../manifests/overlays/"+name)
			require.NoError(t, err)
			Sort(plain)
			if diff := cmp.Diff(stream(t, plain), stream(t, render(t, v).Objects)); diff != "" {
				t.Errorf("rendering differs from the overlay (-kustomize +render):\n%s", diff)
			}
		})
	}
}

func TestRenderGolden(t *testing.T) {
	for _, p := range Profiles() {
		t.Run(p, func(t *testing.T) {
			got := stream(t, render(t, defaults(t, Profile(p), "crds.managed=false")).Objects)
			file := filepath.Join("testdata", "render-"+p+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s differs (-want +got):\n%s", file, diff)
			}
		})
	}
}

// drawValues draws settings that are valid together.
func drawValues(t *rapid.T) Values {
	v, err := Defaults(Profile(rapid.SampledFrom(Profiles()).Draw(t, "profile")), rapid.SampledFrom(Platforms()).Draw(t, "platform"))
	if err != nil {
		t.Fatal(err)
	}
	v.Installation.Namespace = rapid.SampledFrom([]string{"kruise-system", "kruise", "kruise-system-2"}).Draw(t, "namespace")
	v.CRDs.Managed = rapid.Bool().Draw(t, "crds")
	v.Manager.Metrics.Service = rapid.Bool().Draw(t, "metrics")
	v.Manager.Replicas = rapid.Int32Range(1, 5).Draw(t, "replicas")
	gates := []string{"PodWebhook=false", "KruiseDaemon=false", "KruisePodReadinessGate=true", "CloneSetShortHash=true"}
	v.FeatureGates = strings.Join(rapid.SliceOfDistinct(rapid.SampledFrom(gates), rapid.ID).Draw(t, "gates"), ",")
	return v
}

func TestRenderIsDeterministicAndClean(t *testing.T) {
	gen := rapid.Custom(drawValues)
	for seed := range 12 { // a rendering takes a tenth of a second, too slow for rapid.Check
		v := gen.Example(seed)
		first := render(t, v)
		a, b := stream(t, first.Objects), stream(t, render(t, first.Values).Objects)
		if a != b {
			t.Fatalf("two renderings differ:\n%s", cmp.Diff(a, b))
		}
		for _, forbidden := range []string{"caBundle:", "creationTimestamp:", "\r"} {
			if strings.Contains(a, forbidden) {
				t.Fatalf("the rendering contains %q", forbidden)
			}
		}
		for _, o := range first.Objects {
			labels := o.GetLabels()
			if labels["app.kubernetes.io/part-of"] != "kruise" || labels["app.kubernetes.io/managed-by"] != "kruisectl" ||
				labels["app.kubernetes.io/version"] != ManifestsVersion() || Component(o) == "" {
				t.Fatalf("%s lacks labels of the product: %v", Name(o), labels)
			}
			if v.Installation.Namespace == "kruise" && mentions(o, DefaultNamespace) {
				t.Fatalf("%s still names %s", Name(o), DefaultNamespace)
			}
		}
	}
}

// mentions reports that a text of o outside of descriptions contains word.
func mentions(o *unstructured.Unstructured, word string) bool {
	if o.GetKind() == "CustomResourceDefinition" {
		unstructured.RemoveNestedField(o.Object, "spec", "versions")
	}
	return strings.Contains(fmt.Sprint(o.Object), word)
}

// leaves flattens an object to path → value, with list members under their name.
func leaves(prefix string, node any, into map[string]string) {
	switch n := node.(type) {
	case map[string]any:
		if len(n) == 0 {
			into[prefix] = "{}"
		}
		for k, v := range n {
			leaves(prefix+"."+k, v, into)
		}
	case []any:
		for i, v := range n {
			key := fmt.Sprint(i)
			if m, ok := v.(map[string]any); ok && m["name"] != nil {
				key = fmt.Sprint(m["name"])
			}
			leaves(prefix+"["+key+"]", v, into)
		}
	default:
		into[prefix] = fmt.Sprint(n)
	}
}

// changes lists what differs between two renderings, sorted, as "- path: value" and
// "+ path: value".
func changes(a, b []*unstructured.Unstructured) []string {
	flat := func(objs []*unstructured.Unstructured) map[string]string {
		m := map[string]string{}
		for _, o := range objs {
			body := o.DeepCopy().Object
			for _, k := range []string{"apiVersion", "kind"} {
				delete(body, k)
			}
			leaves(Name(o), body, m)
		}
		return m
	}
	before, after := flat(a), flat(b)
	var out []string
	for k, v := range before {
		if w, ok := after[k]; !ok || v != w {
			out = append(out, "- "+k+": "+v)
		}
	}
	for k, v := range after {
		if w, ok := before[k]; !ok || v != w {
			out = append(out, "+ "+k+": "+v)
		}
	}
	slices.Sort(out)
	return out
}

// What each value changes, and nothing besides.
func TestValuesChangeOnlyTheirFields(t *testing.T) {
	const (
		manager = "Deployment/kruise-system/kruise-controller-manager.spec"
		mpod    = manager + ".template.spec"
		mc      = mpod + ".containers[manager]"
		daemon  = "DaemonSet/kruise-system/kruise-daemon.spec"
		dpod    = daemon + ".template.spec"
		dc      = dpod + ".containers[daemon]"
		hooks   = "MutatingWebhookConfiguration/kruise-mutating-webhook-configuration.webhooks"
	)
	cases := map[string]struct {
		set  string
		want []string
	}{
		"replicas": {"manager.replicas=5", []string{"+ " + manager + ".replicas: 5", "- " + manager + ".replicas: 2"}},
		"the image is that of both programs": {"manager.image.repository=mirror.local/kruise,manager.image.tag=v9", []string{
			"+ " + dc + ".image: mirror.local/kruise:v9", "+ " + mc + ".image: mirror.local/kruise:v9",
			"- " + dc + ".image: docker.io/kruisectl/kruise-manager:v0.1.0", "- " + mc + ".image: docker.io/kruisectl/kruise-manager:v0.1.0"}},
		"a digest wins over the tag": {"manager.image.digest=sha256:" + strings.Repeat("a", 64), []string{
			"+ " + dc + ".image: docker.io/kruisectl/kruise-manager@sha256:" + strings.Repeat("a", 64),
			"+ " + mc + ".image: docker.io/kruisectl/kruise-manager@sha256:" + strings.Repeat("a", 64),
			"- " + dc + ".image: docker.io/kruisectl/kruise-manager:v0.1.0", "- " + mc + ".image: docker.io/kruisectl/kruise-manager:v0.1.0"}},
		"gates go to both programs, sorted": {`featureGates=ImagePullJobGate=true\,CloneSetShortHash=true`, []string{
			"+ " + dc + ".args[3]: --feature-gates=CloneSetShortHash=true,ImagePullJobGate=true",
			"+ " + mc + ".args[6]: --feature-gates=CloneSetShortHash=true,ImagePullJobGate=true",
			"- " + dc + ".args[3]: --feature-gates=ImagePullJobGate=true", "- " + mc + ".args[6]: --feature-gates=ImagePullJobGate=true"}},
		"logs of the manager": {"manager.log.level=2,manager.loggingFormat=json", []string{
			"+ " + mc + ".args[5]: --v=2", "+ " + mc + ".args[9]: --logging-format=json", "- " + mc + ".args[5]: --v=4"}},
		"log level of the daemon": {"daemon.log.level=6", []string{"+ " + dc + ".args[1]: --v=6", "- " + dc + ".args[1]: --v=4"}},
		"webhook port": {"manager.webhook.port=9443", []string{
			"+ Service/kruise-system/kruise-webhook-service.spec.ports[0].targetPort: 9443",
			"+ " + mc + ".env[WEBHOOK_PORT].value: 9443", "+ " + mc + ".ports[webhook-server].containerPort: 9443",
			"- Service/kruise-system/kruise-webhook-service.spec.ports[0].targetPort: 9876",
			"- " + mc + ".env[WEBHOOK_PORT].value: 9876", "- " + mc + ".ports[webhook-server].containerPort: 9876"}},
		"health port": {"manager.healthProbe.port=8001", []string{
			"+ " + mc + ".args[2]: --health-probe-addr=:8001", "+ " + mc + ".ports[health].containerPort: 8001", "+ " + mc + ".readinessProbe.httpGet.port: 8001",
			"- " + mc + ".args[2]: --health-probe-addr=:8000", "- " + mc + ".ports[health].containerPort: 8000", "- " + mc + ".readinessProbe.httpGet.port: 8000"}},
		"host network": {"manager.hostNetwork=true", []string{
			"+ " + mpod + ".dnsPolicy: ClusterFirstWithHostNet", "+ " + mpod + ".hostNetwork: true"}},
		"placement": {"manager.nodeSelector={pool: infra},manager.priorityClassName=high", []string{
			"+ " + mpod + ".nodeSelector.pool: infra", "+ " + mpod + ".priorityClassName: high"}},
		"tolerations": {"manager.tolerations=[{operator: Exists}]", []string{"+ " + mpod + ".tolerations[0].operator: Exists"}},
		"node affinity stays beside the spreading": {"manager.nodeAffinity={preferredDuringSchedulingIgnoredDuringExecution: []}", []string{
			"+ " + mpod + ".affinity.nodeAffinity: {}"}},
		"resources": {"daemon.resources={limits: {memory: 1Gi}}", []string{
			"+ " + dc + ".resources.limits.memory: 1Gi",
			"- " + dc + ".resources.limits.cpu: 500m", "- " + dc + ".resources.limits.memory: 128Mi",
			"- " + dc + ".resources.requests.cpu: 0", "- " + dc + ".resources.requests.memory: 0"}},
		"socket": {"daemon.socketLocation=/run/k3s,daemon.socketFile=containerd.sock", []string{
			"+ " + dc + ".args[4]: --socket-file=containerd.sock", "+ " + dpod + ".volumes[runtime-socket].hostPath.path: /run/k3s",
			"- " + dc + ".args[4]: --socket-file=", "- " + dpod + ".volumes[runtime-socket].hostPath.path: /var/run"}},
		"no pprof of the daemon": {"daemon.enablePprof=false", []string{
			"+ " + dc + ".args[5]: --enable-pprof=false", "- " + dc + ".args[5]: --enable-pprof=true", "- " + dc + ".args[6]: --pprof-addr=localhost:10222"}},
		"environment of the daemon": {"daemon.extraEnvs=[{name: HTTPS_PROXY, value: http://proxy}]", []string{
			"+ " + dc + ".env[HTTPS_PROXY].name: HTTPS_PROXY", "+ " + dc + ".env[HTTPS_PROXY].value: http://proxy"}},
		"mutation detector": {"enableKubeCacheMutationDetector=true", []string{
			"+ " + dc + ".env[KUBE_CACHE_MUTATION_DETECTOR].name: KUBE_CACHE_MUTATION_DETECTOR", "+ " + dc + ".env[KUBE_CACHE_MUTATION_DETECTOR].value: true",
			"+ " + mc + ".env[KUBE_CACHE_MUTATION_DETECTOR].name: KUBE_CACHE_MUTATION_DETECTOR", "+ " + mc + ".env[KUBE_CACHE_MUTATION_DETECTOR].value: true"}},
		"more arguments": {"manager.extraArgs={--cloneset-workers=10,--v=7}", []string{
			"+ " + mc + ".args[5]: --v=7", "+ " + mc + ".args[9]: --cloneset-workers=10", "- " + mc + ".args[5]: --v=4"}},
		"pull secrets": {"imagePullSecrets=[{name: regcred}]", []string{
			"+ " + dpod + ".imagePullSecrets[regcred].name: regcred", "+ " + mpod + ".imagePullSecrets[regcred].name: regcred"}},
		"failure policy of Pods": {"webhookConfiguration.failurePolicy.pods=Ignore", []string{
			"+ " + hooks + "[mpod.kb.io].failurePolicy: Ignore", "- " + hooks + "[mpod.kb.io].failurePolicy: Fail"}},
		"excluded namespaces": {"webhookConfiguration.excludeNamespaces={ci}", []string{
			"+ " + hooks + "[mpod.kb.io].namespaceSelector.matchExpressions[1].values[2]: ci"}},
		"annotations of accounts": {"serviceAccount.annotations={a/b: c}", []string{
			"+ ServiceAccount/kruise-system/kruise-daemon.metadata.annotations.a/b: c", "+ ServiceAccount/kruise-system/kruise-manager.metadata.annotations.a/b: c"}},
		"no namespace": {"installation.createNamespace=false", []string{
			"- Namespace/kruise-system.metadata.labels.app.kubernetes.io/managed-by: kruisectl", "- Namespace/kruise-system.metadata.labels.app.kubernetes.io/name: kruise",
			"- Namespace/kruise-system.metadata.labels.app.kubernetes.io/part-of: kruise", "- Namespace/kruise-system.metadata.labels.app.kubernetes.io/version: v0.1.0",
			"- Namespace/kruise-system.metadata.labels.cli.kruise.io/component: namespaces", "- Namespace/kruise-system.metadata.labels.control-plane: openkruise",
			"- Namespace/kruise-system.metadata.name: kruise-system"}},
	}
	base := render(t, defaults(t, ProfileDefault)).Objects
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := changes(base, render(t, defaults(t, ProfileDefault, tc.set)).Objects)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("changes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsOfOthersFailOpen(t *testing.T) {
	for _, gate := range []string{"KruisePodReadinessGate", "EnablePodProbeMarkerOnServerless"} {
		t.Run(gate, func(t *testing.T) { podsOfOthersFailOpen(t, gate) })
	}
}

func podsOfOthersFailOpen(t *testing.T, gate string) {
	t.Helper()
	m := render(t, defaults(t, ProfileDefault, "featureGates="+gate+"=true", "webhookConfiguration.excludeNamespaces={ci}"))
	hooks := map[string]map[string]any{}
	list, _, _ := unstructured.NestedSlice(find(m, named(gvkMutating, mutatingName)).Object, "webhooks")
	for _, h := range list {
		hooks[h.(map[string]any)["name"].(string)] = h.(map[string]any)
	}
	own, others := hooks[podWebhook], hooks[otherPodWebhook]
	require.Equal(t, "Fail", own["failurePolicy"])
	require.Equal(t, "Ignore", others["failurePolicy"])
	for _, same := range []string{"namespaceSelector", "rules", "timeoutSeconds", "clientConfig"} {
		require.Equal(t, own[same], others[same], same)
	}
	expression := func(h map[string]any) string {
		return h["matchConditions"].([]any)[0].(map[string]any)["expression"].(string)
	}
	require.Equal(t, "!("+expression(own)+")", expression(others), "together they match every Pod, each Pod once")
	require.Contains(t, fmt.Sprint(others["namespaceSelector"]), "ci")
}

func find(m *Manifests, ref *unstructured.Unstructured) *unstructured.Unstructured {
	for _, o := range m.Objects {
		if Name(o) == Name(ref) {
			return o
		}
	}
	return nil
}

func TestRenderParts(t *testing.T) {
	kinds := func(m *Manifests) []string {
		var kinds []string
		for _, o := range m.Objects {
			kinds = append(kinds, o.GetKind())
		}
		return slices.Compact(kinds)
	}
	t.Run("only CRDs", func(t *testing.T) {
		m := render(t, defaults(t, ProfileDefault, "crds.only=true"))
		require.Equal(t, []string{"CustomResourceDefinition"}, kinds(m))
		require.Len(t, m.Objects, 9)
	})
	t.Run("no CRDs", func(t *testing.T) {
		require.NotContains(t, kinds(render(t, defaults(t, ProfileDefault, "crds.managed=false"))), "CustomResourceDefinition")
	})
	t.Run("the order is that of an apply", func(t *testing.T) {
		require.Equal(t, []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding",
			"Role", "RoleBinding", "Secret", "Service", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
			"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Deployment", "DaemonSet"},
			kinds(render(t, defaults(t, ProfileHA, "manager.networkPolicy=true,manager.metrics.service=true,manager.metrics.serviceMonitor=true"))))
	})
	t.Run("a CRD fits into the annotation of kubectl apply", func(t *testing.T) {
		for _, o := range render(t, defaults(t, ProfileDefault)).Objects {
			data, err := o.MarshalJSON()
			require.NoError(t, err)
			require.Less(t, len(data), 256<<10, Name(o))
		}
	})
	t.Run("the manager may write its CA to every CRD that it converts", func(t *testing.T) {
		m := render(t, defaults(t, ProfileDefault))
		var converted []string
		for _, o := range m.Objects {
			if strategy, _, _ := unstructured.NestedString(o.Object, "spec", "conversion", "strategy"); strategy == "Webhook" {
				converted = append(converted, o.GetName())
			}
		}
		rules, _, _ := unstructured.NestedSlice(find(m, named(gvkClusterRole, "kruise-certs-role")).Object, "rules")
		allowed, _, _ := unstructured.NestedStringSlice(rules[2].(map[string]any), "resourceNames")
		require.Equal(t, converted, allowed)
	})
	t.Run("only one image", func(t *testing.T) {
		require.Equal(t, []string{DefaultRepository + ":" + ManifestsVersion()}, Images(render(t, defaults(t, ProfileDefault)).Objects))
	})
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package controlplane_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/apitest"
)

// env is one API server and the tool against it.
type env struct {
	*testing.T
	client.Client
	cfg        *rest.Config
	kubeconfig string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	cfg := apitest.Start(t, apitest.WithoutCRDs())
	c, err := client.New(cfg, client.Options{Scheme: apitest.Scheme()})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{"test": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*api.AuthInfo{"test": {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData,
			Token: cfg.BearerToken}},
		Contexts:       map[string]*api.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, file))
	e := &env{T: t, Client: c, cfg: cfg, kubeconfig: file}
	require.NoError(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: meta("node-a")}))
	return e
}

func (e *env) run(args ...string) result {
	e.Helper()
	r := run(e.T, append([]string{"--kubeconfig", e.kubeconfig}, args...)...)
	e.Logf("$ kruisectl %s\n%s%s(exit %d)", strings.Join(args, " "), r.out, r.err, r.code)
	return r
}

// ok runs a command that must succeed.
func (e *env) ok(args ...string) result {
	e.Helper()
	r := e.run(args...)
	require.Zero(e, r.code, "%s%s", r.out, r.err)
	return r
}

func (e *env) get(gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	e.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	require.NoError(e, e.Get(e.Context(), client.ObjectKey{Namespace: namespace, Name: name}, u))
	return u
}

func (e *env) patch(u *unstructured.Unstructured, owner, body string) {
	e.Helper()
	require.NoError(e, e.Patch(e.Context(), u, client.RawPatch("application/merge-patch+json", []byte(body)), client.FieldOwner(owner)))
}

// requireEmpty fails when anything of the product is in the cluster.
func (e *env) requireEmpty() {
	e.Helper()
	var namespaces corev1.NamespaceList
	require.NoError(e, e.List(e.Context(), &namespaces))
	for _, ns := range namespaces.Items {
		require.False(e, strings.HasPrefix(ns.Name, "kruise"), ns.Name)
	}
	for _, gvk := range []schema.GroupVersionKind{crd, mutating} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		require.NoError(e, e.List(e.Context(), list))
		require.Empty(e, list.Items)
	}
}

var (
	deployment = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	daemonSet  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	crd        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	mutating   = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"}
	configMap  = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
)

const (
	system  = "kruise-system"
	manager = "kruise-controller-manager"
	daemon  = "kruise-daemon"
)

func managerArgs(u *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	return fmt.Sprint(containers[0].(map[string]any)["args"])
}

func TestBeforeInstalling(t *testing.T) {
	e := newEnv(t)
	t.Run("status says that it is not installed", func(t *testing.T) {
		r := e.run("status")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "not installed")
		require.Contains(t, r.err, "kruisectl install")
	})
	t.Run("uninstall finds nothing to do", func(t *testing.T) {
		require.Equal(t, "not installed, nothing to remove\n", e.ok("uninstall", "--yes").out)
	})
	t.Run("upgrade has nothing to upgrade", func(t *testing.T) {
		require.Equal(t, 1, e.run("upgrade").code)
	})
	t.Run("a server dry run names what it cannot check", func(t *testing.T) {
		r := e.ok("install", "--dry-run=server")
		require.Contains(t, r.err, "its namespace does not exist yet")
		require.Contains(t, r.out, "would be installed (server dry run)")
	})
	t.Run("a client dry run prints the manifests", func(t *testing.T) {
		require.Equal(t, run(t, "manifest", "render").out, e.ok("install", "--dry-run").out)
	})
	t.Run("doctor has nothing to look at", func(t *testing.T) { require.Equal(t, 1, e.run("doctor").code) })
	t.Run("gates show defaults", func(t *testing.T) {
		require.Contains(t, e.ok("feature-gates", "list").err, "not installed, so only defaults are shown")
	})
	t.Run("version knows the server", func(t *testing.T) { require.Contains(t, e.ok("version").out, "kubernetes:") })
	e.requireEmpty()
}

func TestInstallUpgradeUninstall(t *testing.T) {
	e := newEnv(t)
	rendered := "\n" + run(t, "manifest", "render").out
	objects, crds := strings.Count(rendered, "\napiVersion: "), strings.Count(rendered, "\nkind: CustomResourceDefinition\n")
	require.Contains(t, e.ok("install", "--wait=false").out, fmt.Sprintf("installed in namespace kruise-system: %d objects created", objects))
	before := e.get(deployment, system, manager).GetResourceVersion()
	require.Contains(t, e.ok("install", "--wait=false").out, "is installed already, nothing changed")
	require.Equal(t, before, e.get(deployment, system, manager).GetResourceVersion())

	t.Run("the difference is empty, then what was edited", func(t *testing.T) {
		require.Empty(t, e.ok("manifest", "diff").out)
		e.patch(e.get(deployment, system, manager), "somebody", `{"spec":{"replicas":5}}`)
		r := e.run("manifest", "diff")
		require.Equal(t, 1, r.code)
		require.Equal(t, "Deployment/kruise-system/kruise-controller-manager\n  spec.replicas: 5 → 2\n", r.out)
		require.Zero(t, e.run("manifest", "diff", "--exit-code=false").code)
		require.Zero(t, e.run("manifest", "diff", "--ignore", "spec.replicas").code)
	})
	t.Run("install does not take a field from somebody", func(t *testing.T) {
		r := e.run("install", "--wait=false", "--yes")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "spec.replicas → somebody")
		e.ok("install", "--wait=false", "--yes", "--force-conflicts")
	})
	t.Run("install with other values points to upgrade", func(t *testing.T) {
		r := e.run("install", "--wait=false", "--replicas", "3")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "manager.replicas: 2 → 3")
		require.Contains(t, r.err, "kruisectl upgrade")
	})
	t.Run("status counts what is missing", func(t *testing.T) {
		r := e.run("status", "-o", "json")
		require.Equal(t, 3, r.code)
		var doc struct {
			Kind       string
			Healthy    bool
			Components []struct{ ID, State, Ready string }
		}
		require.NoError(t, json.Unmarshal([]byte(r.out), &doc))
		require.Equal(t, "InstallStatus", doc.Kind)
		require.False(t, doc.Healthy)
		require.Equal(t, "0/2", doc.Components[0].Ready)
	})
	t.Run("doctor finds the missing CA", func(t *testing.T) {
		r := e.run("doctor", "--section", "webhooks")
		require.Equal(t, 3, r.code)
		require.Contains(t, r.out, "(webhook-cabundle)")
		junit := e.run("doctor", "-o", "junit", "--skip", "webhook-probe")
		var suite struct {
			Cases []struct{} `xml:"testcase"`
			Tests int        `xml:"tests,attr"`
		}
		require.NoError(t, xml.Unmarshal([]byte(junit.out), &suite))
		require.Len(t, suite.Cases, suite.Tests)
	})
	t.Run("an upgrade needs a confirmation", func(t *testing.T) {
		r := e.run("upgrade", "--replicas", "3", "--wait=false")
		require.Equal(t, 9, r.code)
		require.Contains(t, r.err, "value manager.replicas: 2 → 3")
		require.Contains(t, r.err, "spec.replicas: 2 → 3")
	})
	t.Run("an upgrade keeps values and prunes", func(t *testing.T) {
		e.ok("upgrade", "--replicas", "3", "--pdb", "--wait=false", "--yes")
		r := e.ok("upgrade", "--pdb=false", "--wait=false", "--yes")
		require.Contains(t, r.err, "delete: PodDisruptionBudget/kruise-system/kruise-controller-manager")
		require.Contains(t, r.out, "1 deleted")
		n, _, _ := unstructured.NestedInt64(e.get(deployment, system, manager).Object, "spec", "replicas")
		require.EqualValues(t, 3, n)
		require.Contains(t, e.ok("upgrade", "--wait=false").out, "is up to date, nothing changed")
		require.Contains(t, e.ok("manifest", "values", "--live").out, "replicas: 3")
	})
	t.Run("a newer installation is not downgraded", func(t *testing.T) {
		e.patch(e.get(configMap, system, "kruisectl-inventory"), "kruisectl", `{"data":{"version":"v99.0.0"}}`)
		r := e.run("upgrade", "--wait=false", "--yes")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "older")
		e.ok("upgrade", "--wait=false", "--yes", "--force")
	})
	t.Run("prune deletes what the inventory has too much", func(t *testing.T) {
		e.ok("upgrade", "--pdb", "--wait=false", "--yes")
		r := e.ok("manifest", "prune", "--pdb=false", "--dry-run")
		require.Equal(t, "PodDisruptionBudget/kruise-system/kruise-controller-manager (dry run)\n", r.out)
		require.Contains(t, e.ok("manifest", "prune", "--pdb=false", "--yes").out, "1 object deleted")
		require.Equal(t, "nothing to prune\n", e.ok("manifest", "prune", "--pdb=false").out)
	})
	t.Run("uninstall needs a confirmation and prints its plan", func(t *testing.T) {
		r := e.run("uninstall")
		require.Equal(t, 9, r.code)
		require.Contains(t, r.err, "MutatingWebhookConfiguration/kruise-mutating-webhook-configuration")
		e.get(mutating, "", "kruise-mutating-webhook-configuration")
	})
	t.Run("uninstall", func(t *testing.T) {
		require.Contains(t, e.ok("uninstall", "--yes", "--keep-namespace").out, "removed from namespace kruise-system")
		require.Equal(t, 1, e.run("status").code)
		e.get(crd, "", "clonesets.apps.kruise.io")
		require.Contains(t, e.ok("uninstall", "--yes", "--keep-namespace").out, fmt.Sprintf("nothing to remove; %d CRDs left", crds))
	})
	t.Run("install again over what was left", func(t *testing.T) { e.ok("install", "--wait=false", "--yes") })
}

func TestInstallTimesOut(t *testing.T) {
	e := newEnv(t)
	r := e.run("install", "--timeout", "1s")
	require.Equal(t, 4, r.code)
	require.Contains(t, r.err, "manager 0/2")
	t.Run("an interrupted install can be repeated", func(t *testing.T) {
		e.ok("install", "--wait=false", "--yes")
	})
}

func TestInstallRefusesWhatOthersOwn(t *testing.T) {
	e := newEnv(t)
	e.ok("install", "--wait=false")
	e.ok("uninstall", "--yes", "--keep-namespace")
	// Manifests that something else applied.
	for _, doc := range strings.Split(run(t, "manifest", "render").out, "---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yamlTo(doc, &u.Object))
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["meta.helm.sh/release-name"], annotations["meta.helm.sh/release-namespace"] = "kruise", "default"
		u.SetAnnotations(annotations)
		labels := u.GetLabels()
		labels["app.kubernetes.io/managed-by"] = "Helm"
		u.SetLabels(labels)
		if err := e.Create(e.Context(), u, client.FieldOwner("helm")); err != nil {
			require.ErrorContains(t, err, "already exists")
		}
	}
	t.Run("Helm", func(t *testing.T) {
		r := e.run("install", "--wait=false")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "Helm release default/kruise manages the installation")
		require.Contains(t, r.err, "install --adopt")
		require.Equal(t, 1, e.run("uninstall", "--yes").code)
	})
	t.Run("Helm, adopted with its values", func(t *testing.T) {
		e.patch(e.get(deployment, system, manager), "helm", `{"spec":{"replicas":4}}`)
		r := e.ok("install", "--wait=false", "--adopt", "--yes", "--set", "manager.log.level=2")
		require.Contains(t, r.err, "kept from the installation: manager.replicas is 4")
		n, _, _ := unstructured.NestedInt64(e.get(deployment, system, manager).Object, "spec", "replicas")
		require.EqualValues(t, 4, n)
		require.Contains(t, managerArgs(e.get(deployment, system, manager)), "--v=2")
		require.NotContains(t, e.get(deployment, system, manager).GetAnnotations(), "meta.helm.sh/release-name")
		require.Contains(t, e.ok("upgrade", "--wait=false").out, "up to date")
	})
	t.Run("Argo CD", func(t *testing.T) {
		e.patch(e.get(deployment, system, manager), "argocd", `{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"kruise:apps/Deployment:x/y"}}}`)
		require.NoError(t, e.Delete(e.Context(), e.get(configMap, system, "kruisectl-inventory")))
		r := e.run("install", "--wait=false", "--adopt")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "Argo CD application kruise manages the installation")
	})
}

func TestPreflightFindsLeftovers(t *testing.T) {
	e := newEnv(t)
	e.ok("install", "--wait=false")
	for _, o := range []struct {
		gvk  schema.GroupVersionKind
		name string
	}{{deployment, manager}, {daemonSet, daemon}, {schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "kruise-webhook-service"}} {
		require.NoError(t, e.Delete(e.Context(), e.get(o.gvk, system, o.name)))
	}
	r := e.run("preflight")
	require.Equal(t, 3, r.code)
	require.Contains(t, r.out, "(leftover-webhooks)")
	require.Contains(t, r.out, "kubectl delete mutatingwebhookconfiguration/kruise-mutating-webhook-configuration")
	require.Equal(t, 3, e.run("install", "--wait=false").code+2, "install stops at the same error")
	require.Zero(t, e.run("preflight", "--skip", "leftover-webhooks").code)
}

func TestWithoutPermission(t *testing.T) {
	e := newEnv(t)
	r := e.run("--as", "nobody", "install", "--wait=false")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "forbidden")
	pre := e.run("--as", "nobody", "preflight")
	require.NotZero(t, pre.code)
	require.Contains(t, pre.out+pre.err, "forbidden")
}

func TestFeatureGates(t *testing.T) {
	e := newEnv(t)
	e.ok("install", "--wait=false")
	t.Run("enabling one shows what it implies", func(t *testing.T) {
		e.ok("upgrade", "--feature-gates", "", "--wait=false", "--yes")
		r := e.ok("feature-gates", "enable", "PreDownloadImageForInPlaceUpdate", "--yes", "--wait=false")
		require.Contains(t, r.err, "ImagePullJobGate: false")
		for _, u := range []*unstructured.Unstructured{e.get(deployment, system, manager), e.get(daemonSet, system, daemon)} {
			require.Contains(t, managerArgs(u), "--feature-gates=PreDownloadImageForInPlaceUpdate=true")
		}
	})
	t.Run("again changes nothing", func(t *testing.T) {
		require.Contains(t, e.ok("feature-gates", "enable", "PreDownloadImageForInPlaceUpdate").out, "unchanged")
	})
	t.Run("a dry run writes nothing", func(t *testing.T) {
		before := e.get(deployment, system, manager)
		r := e.ok("feature-gates", "disable", "WorkloadSpread", "--dry-run")
		require.Contains(t, r.err, "WorkloadSpread: true")
		require.Equal(t, before, e.get(deployment, system, manager))
	})
	t.Run("a contradiction is named", func(t *testing.T) {
		e.ok("upgrade", "--feature-gates", "KruiseDaemon=false", "--wait=false", "--yes")
		r := e.run("feature-gates", "enable", "ImagePullJobGate")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "forced by KruiseDaemon=false")
	})
	t.Run("the list knows sources", func(t *testing.T) {
		e.ok("upgrade", "--feature-gates", "PodWebhook=false", "--wait=false", "--yes")
		var doc struct {
			Items []struct {
				Name, Source string
				Current      *bool
			}
		}
		require.NoError(t, json.Unmarshal([]byte(e.ok("feature-gates", "list", "-o", "json").out), &doc))
		require.Len(t, doc.Items, 36)
		for _, i := range doc.Items {
			if i.Name == "WorkloadSpread" {
				require.False(t, *i.Current)
				require.Equal(t, "forced off by PodWebhook=false", i.Source)
			}
		}
	})
	t.Run("AllAlpha is a source, with warnings", func(t *testing.T) {
		e.ok("upgrade", "--feature-gates", "AllAlpha=true", "--wait=false", "--yes")
		r := e.ok("feature-gates", "list", "--changed")
		require.Contains(t, r.out, "AllAlpha")
		require.Contains(t, r.err, "EnableExternalCerts")
		require.Contains(t, r.err, "TemplateNoDefaults")
	})
	t.Run("an installation without inventory is patched", func(t *testing.T) {
		require.NoError(t, e.Delete(e.Context(), e.get(configMap, system, "kruisectl-inventory")))
		e.ok("feature-gates", "disable", "TemplateNoDefaults", "--yes", "--wait=false")
		require.Contains(t, managerArgs(e.get(deployment, system, manager)), "--feature-gates=AllAlpha=true,TemplateNoDefaults=false")
	})
}

func TestUninstallWithObjects(t *testing.T) {
	e := newEnv(t)
	e.ok("install", "--wait=false", "--crds", "only")
	labels := map[string]any{"app": "web"}
	for _, name := range []string{"web", "api"} {
		cs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet",
			"metadata": map[string]any{"name": name, "namespace": "default"},
			"spec": map[string]any{"selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "x"}}}}}}}
		require.NoError(t, e.Create(e.Context(), cs))
	}
	r := e.run("uninstall", "--purge-crds", "--yes", "--no-input")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "2 CloneSet")
	require.Contains(t, r.err, "--orphan-workloads")
	e.get(crd, "", "clonesets.apps.kruise.io")
	e.ok("uninstall", "--purge-crds", "--force", "--yes", "--keep-namespace")
}

func TestDiffOfFiles(t *testing.T) {
	e := newEnv(t)
	e.ok("install", "--wait=false")
	dir := filepath.Join(t.TempDir(), "out")
	require.Zero(t, run(t, "manifest", "render", "--dir", dir).code)
	require.Empty(t, e.ok("manifest", "diff", "-f", dir).out)
	file := filepath.Join(dir, "19-deployment-kruise-controller-manager.yaml")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(data), "replicas: 2", "replicas: 7", 1)), 0o600))
	r := e.run("manifest", "diff", "-f", dir)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "spec.replicas: 2 → 7")
}

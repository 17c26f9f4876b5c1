// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package install

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/apitest"
)

// newCluster starts an API server without the product.
func newCluster(t *testing.T) (*Cluster, *rest.Config) {
	t.Helper()
	cfg := apitest.Start(t, apitest.WithoutCRDs())
	return clusterOf(t, cfg), cfg
}

func clusterOf(t *testing.T, cfg *rest.Config) *Cluster {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: apitest.Scheme()})
	require.NoError(t, err)
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	require.NoError(t, err)
	return &Cluster{Client: c, Version: d, Clock: clock.RealClock{}, Poll: 50 * time.Millisecond}
}

func mustRun(t *testing.T, c *Cluster, m *Manifests, previous *Inventory, o RunOptions) Result {
	t.Helper()
	if o.DryRun == "" {
		o.DryRun = DryRunNone
	}
	res, err := c.Run(t.Context(), m, previous, o, Progress{Note: func(s string) { t.Log(s) }})
	require.NoError(t, err)
	return res
}

func mustGet(ctx context.Context, t *testing.T, c *Cluster, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	live, err := c.live(ctx, o)
	require.NoError(t, err)
	require.NotNil(t, live, Name(o))
	return live
}

// resourceVersions maps every object of a rendering to its live resourceVersion.
func resourceVersions(t *testing.T, c *Cluster, m *Manifests) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, o := range m.Objects {
		versions[Name(o)] = mustGet(t.Context(), t, c, o).GetResourceVersion()
	}
	return versions
}

func kubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{"x": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*api.AuthInfo{"x": {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData,
			Token: cfg.BearerToken}},
		Contexts:       map[string]*api.Context{"x": {Cluster: "x", AuthInfo: "x"}},
		CurrentContext: "x",
	}, file))
	return file
}

// comparable drops what differs between two clusters by nature.
func comparable(o *unstructured.Unstructured) map[string]any {
	c := o.DeepCopy()
	for _, f := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
		unstructured.RemoveNestedField(c.Object, "metadata", f)
	}
	annotations := c.GetAnnotations()
	if delete(annotations, "kubectl.kubernetes.io/last-applied-configuration"); len(annotations) == 0 {
		annotations = nil
	}
	c.SetAnnotations(annotations)
	for _, f := range []string{"status"} {
		delete(c.Object, f)
	}
	for _, f := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(c.Object, "spec", f)
	}
	return c.Object
}

func kubectl(t *testing.T, cfg *rest.Config, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"),
		append([]string{"--kubeconfig", kubeconfig(t, cfg)}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// The three ways to install give the same objects: kruisectl install, manifest render into
// kubectl apply, and kubectl apply of the kustomize tree.
func TestThreeWaysGiveTheSameObjects(t *testing.T) {
	m := render(t, defaults(t, ProfileDefault))
	installed, _ := newCluster(t)
	mustRun(t, installed, m, nil, RunOptions{})
	rendered, renderedCfg := newCluster(t)
	kubectl(t, renderedCfg, stream(t, m.Objects), "apply", "-f", "-")
	built, builtCfg := newCluster(t)
	kubectl(t, builtCfg, "", "apply", "-k", "../../manifests/overlays/default")

	for _, o := range m.Objects {
		want := comparable(mustGet(t.Context(), t, installed, o))
		if diff := cmp.Diff(want, comparable(mustGet(t.Context(), t, rendered, o))); diff != "" {
			t.Errorf("%s of manifest render differs (-install +apply):\n%s", Name(o), diff)
		}
		if diff := cmp.Diff(want, comparable(mustGet(t.Context(), t, built, o))); diff != "" {
			t.Errorf("%s of kubectl apply -k differs (-install +apply):\n%s", Name(o), diff)
		}
	}
	t.Run("and install over the others changes nothing", func(t *testing.T) {
		existing, err := rendered.Detect(t.Context(), DefaultNamespace)
		require.NoError(t, err)
		require.Equal(t, OwnerRendered, existing.Owner)
		for _, c := range append(mustRun(t, rendered, m, nil, RunOptions{}).Changes, mustRun(t, built, m, nil, RunOptions{}).Changes...) {
			require.Equal(t, Unchanged, c.Action, "%s: %v", Name(c.Object), c.Diffs)
		}
	})
}

// The acceptance harness applies the profile e2e over a Namespace that exists already.
func TestProfileE2EOverAnExistingNamespace(t *testing.T) {
	c, cfg := newCluster(t)
	require.NoError(t, c.Client.Create(t.Context(), named(gvkNamespace, DefaultNamespace)))
	m := render(t, defaults(t, ProfileE2E))
	kubectl(t, cfg, stream(t, m.Objects), "apply", "-f", "-")
	for _, ch := range mustRun(t, c, m, nil, RunOptions{}).Changes {
		require.Equal(t, Unchanged, ch.Action, "%s: %v", Name(ch.Object), ch.Diffs)
	}
}

func TestUnmanagedKindsStopATakeOver(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileDefault))
	sidecars := find(m, named(gvkCRD, "imagepulljobs.apps.kruise.io")).DeepCopy()
	sidecars.SetName("sidecarsets.apps.kruise.io")
	unstructured.RemoveNestedField(sidecars.Object, "spec", "conversion")
	for field, value := range map[string]string{"kind": "SidecarSet", "listKind": "SidecarSetList", "plural": "sidecarsets", "singular": "sidecarset"} {
		require.NoError(t, unstructured.SetNestedField(sidecars.Object, value, "spec", "names", field))
	}
	require.NoError(t, c.Client.Create(ctx, sidecars))
	require.NoError(t, c.waitFor(ctx, []Condition{c.crdsEstablished([]string{sidecars.GetName()})}, time.Minute, Progress{}))
	p := &preflight{Cluster: c, m: m}
	require.Equal(t, CheckWarning, p.unmanagedKinds(ctx).state)

	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet",
		"metadata": map[string]any{"name": "s", "namespace": "default"},
		"spec":     map[string]any{"image": "x", "completionPolicy": map[string]any{"type": "Always"}}}}
	require.Eventually(t, func() bool { return c.Client.Create(ctx, set) == nil }, 2*time.Minute, 100*time.Millisecond)
	f := p.unmanagedKinds(ctx)
	require.Equal(t, CheckError, f.state)
	require.Equal(t, "version v0.1.0 has no controller for: 1 SidecarSet", f.message)
}

func TestRunTwiceWritesNothing(t *testing.T) {
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileHA))
	first := mustRun(t, c, m, nil, RunOptions{})
	require.Equal(t, len(m.Objects), first.Count(Created))
	before := resourceVersions(t, c, m)

	existing, err := c.Detect(t.Context(), DefaultNamespace)
	require.NoError(t, err)
	require.Equal(t, OwnerSelf, existing.Owner)
	require.Equal(t, ManifestsVersion(), existing.Version)
	require.True(t, existing.Inventory.Complete)
	require.Empty(t, CompareValues(m.Values, existing.Inventory.Values))

	second := mustRun(t, c, m, existing.Inventory, RunOptions{Prune: true})
	require.Equal(t, len(m.Objects), second.Count(Unchanged))
	require.Empty(t, cmp.Diff(before, resourceVersions(t, c, m)))
}

func TestRunKeepsWhatTheManagerFills(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileDefault))
	mustRun(t, c, m, nil, RunOptions{})

	bundle := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIBdzCCAR2gAwIBAgIBADAKBggqhkjOPQQDAjAAMB4XDTI2MDEwMTAwMDAwMFoX\n-----END CERTIFICATE-----\n"))
	cfg := mustGet(t.Context(), t, c, named(gvkMutating, mutatingName))
	hooks, _, _ := unstructured.NestedSlice(cfg.Object, "webhooks")
	for _, h := range hooks {
		require.NoError(t, unstructured.SetNestedField(h.(map[string]any), bundle, "clientConfig", "caBundle"))
	}
	require.NoError(t, unstructured.SetNestedSlice(cfg.Object, hooks, "webhooks"))
	cfg.SetAnnotations(map[string]string{annotationTemplate: "[the manager's copy]"})
	require.NoError(t, c.Client.Update(ctx, cfg, client.FieldOwner("kruise-manager")))
	secret := mustGet(t.Context(), t, c, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": webhookSecret, "namespace": DefaultNamespace}}})
	require.NoError(t, unstructured.SetNestedField(secret.Object, "eA==", "data", "ca-key.pem"))
	require.NoError(t, c.Client.Update(ctx, secret, client.FieldOwner("kruise-manager")))

	inv, err := c.ReadInventory(ctx, DefaultNamespace)
	require.NoError(t, err)
	t.Run("a repeated apply leaves the configuration alone", func(t *testing.T) {
		before := mustGet(t.Context(), t, c, cfg)
		require.Empty(t, diffText(Drift(before, find(m, cfg))))
		mustRun(t, c, m, inv, RunOptions{})
		require.Empty(t, cmp.Diff(before.Object, mustGet(t.Context(), t, c, cfg).Object))
	})
	t.Run("a change keeps the bundle and empties the template", func(t *testing.T) {
		changed := render(t, defaults(t, ProfileDefault, "webhookConfiguration.timeoutSeconds=7"))
		mustRun(t, c, changed, inv, RunOptions{})
		live := mustGet(t.Context(), t, c, cfg)
		require.Equal(t, "", live.GetAnnotations()[annotationTemplate])
		hooks, _, _ := unstructured.NestedSlice(live.Object, "webhooks")
		for _, h := range hooks {
			got, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "caBundle")
			require.Equal(t, bundle, got)
			require.EqualValues(t, 7, h.(map[string]any)["timeoutSeconds"])
		}
	})
	t.Run("Secret data stays", func(t *testing.T) {
		data, _, _ := unstructured.NestedStringMap(mustGet(t.Context(), t, c, secret).Object, "data")
		require.Equal(t, map[string]string{"ca-key.pem": "eA=="}, data)
	})
}

func TestRunPrunes(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	mustRun(t, c, render(t, defaults(t, ProfileHA)), nil, RunOptions{})
	inv, err := c.ReadInventory(ctx, DefaultNamespace)
	require.NoError(t, err)

	res := mustRun(t, c, render(t, defaults(t, ProfileMinimal)), inv, RunOptions{Prune: true})
	var pruned []string
	for _, e := range res.Pruned {
		pruned = append(pruned, e.String())
	}
	slices.Sort(pruned)
	require.Equal(t, []string{
		"ClusterRole/kruise-daemon-role", "ClusterRole/kruise-manager-secret-role",
		"ClusterRoleBinding/kruise-daemon-rolebinding", "ClusterRoleBinding/kruise-manager-secret-rolebinding",
		"DaemonSet/kruise-system/kruise-daemon", "PodDisruptionBudget/kruise-system/kruise-controller-manager",
		"Role/kruise-daemon-config/kruise-daemon-secret-role", "Role/kruise-daemon-config/kruise-manager-secret-role",
		"RoleBinding/kruise-daemon-config/kruise-daemon-secret-rolebinding", "RoleBinding/kruise-daemon-config/kruise-manager-secret-rolebinding",
		"ServiceAccount/kruise-system/kruise-daemon", "ValidatingAdmissionPolicy/kruise-daemon-own-node", "ValidatingAdmissionPolicyBinding/kruise-daemon-own-node",
	}, pruned)
	for _, e := range res.Pruned {
		live, err := c.live(ctx, e.object())
		require.NoError(t, err)
		require.True(t, live == nil || live.GetDeletionTimestamp() != nil, e.String())
	}
}

func TestRunSaysWhoOwnsAField(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileDefault))
	mustRun(t, c, m, nil, RunOptions{})
	manager := mustGet(t.Context(), t, c, managerRef())
	require.NoError(t, c.Client.Patch(ctx, manager, mergePatch(`{"spec":{"replicas":5}}`), client.FieldOwner("somebody")))

	_, err := c.Run(ctx, m, nil, RunOptions{ApplyOptions: ApplyOptions{DryRun: DryRunNone}}, Progress{})
	var conflict *ConflictError
	require.True(t, errors.As(err, &conflict), "%v", err)
	require.Equal(t, []FieldConflict{{"spec.replicas", "somebody"}}, conflict.Fields)

	live := mustGet(t.Context(), t, c, managerRef())
	require.Equal(t, []string{"spec.replicas: 5 → 2"}, diffText(Drift(live, find(m, managerRef()))))
	mustRun(t, c, m, nil, RunOptions{ApplyOptions: ApplyOptions{ForceConflicts: true}})
	require.Empty(t, Drift(mustGet(t.Context(), t, c, managerRef()), find(m, managerRef())))
}

func diffText(diffs []FieldDiff) []string {
	var out []string
	for _, d := range diffs {
		out = append(out, d.String())
	}
	return out
}

func managerRef() *unstructured.Unstructured {
	u := named(gvkDeployment, managerName)
	u.SetNamespace(DefaultNamespace)
	return u
}

func TestPlanOnAnEmptyClusterWritesNothing(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileDefault))
	for _, mode := range []DryRun{DryRunClient, DryRunServer} {
		changes, err := c.Plan(ctx, m, ApplyOptions{}, mode)
		require.NoError(t, err)
		require.Len(t, changes, len(m.Objects))
		for _, ch := range changes {
			switch {
			case mode == DryRunServer && ch.Object.GetNamespace() != "":
				require.Equal(t, Uncheckable, ch.Action, Name(ch.Object))
			default:
				require.Equal(t, Created, ch.Action, Name(ch.Object))
			}
			live, err := c.live(ctx, ch.Object)
			require.NoError(t, err)
			require.Nil(t, live)
		}
	}
}

func TestRunTimesOutWithWhatIsMissing(t *testing.T) {
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileDefault))
	_, err := c.Run(t.Context(), m, nil, RunOptions{Wait: true, WebhooksLast: true, Timeout: 300 * time.Millisecond,
		ApplyOptions: ApplyOptions{DryRun: DryRunNone}}, Progress{})
	var timeout *TimeoutError
	require.True(t, errors.As(err, &timeout), "%v", err)
	require.Equal(t, "manager 0/2 (no Pod exists)", timeout.Missing[0])
	hooks, _, _ := unstructured.NestedSlice(mustGet(t.Context(), t, c, named(gvkMutating, mutatingName)).Object, "webhooks")
	require.Equal(t, "Ignore", hooks[0].(map[string]any)["failurePolicy"], "webhooks fail open while no manager is ready")
}

func TestTerminatingNamespaceIsExplained(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	ns := named(gvkNamespace, DefaultNamespace)
	require.NoError(t, c.Client.Create(ctx, ns.DeepCopy()))
	require.NoError(t, c.Client.Delete(ctx, ns.DeepCopy()))
	_, err := c.Run(ctx, render(t, defaults(t, ProfileDefault)), nil,
		RunOptions{NamespaceWait: 100 * time.Millisecond, ApplyOptions: ApplyOptions{DryRun: DryRunNone}}, Progress{})
	var terminating *TerminatingError
	require.True(t, errors.As(err, &terminating), "%v", err)
	require.ErrorContains(t, err, "finalizers kubernetes")
}

func TestLostVersionIsRefused(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileDefault))
	mustRun(t, c, m, nil, RunOptions{})
	crd := mustGet(t.Context(), t, c, named(gvkCRD, "clonesets.apps.kruise.io"))
	require.NoError(t, unstructured.SetNestedStringSlice(crd.Object, []string{"v1alpha0", "v1beta1"}, "status", "storedVersions"))
	require.NoError(t, c.Client.Status().Update(ctx, crd))
	changed := render(t, defaults(t, ProfileDefault))
	find(changed, crd).SetLabels(map[string]string{"changed": "true"})
	_, err := c.Run(ctx, changed, nil, RunOptions{ApplyOptions: ApplyOptions{DryRun: DryRunNone}}, Progress{})
	require.EqualError(t, err,
		"CustomResourceDefinition clonesets.apps.kruise.io would lose version v1alpha0, in which objects are stored: store them in the new version first (migrate storage-version)")
}

func TestAdoptTakesObjectsFromHelm(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileDefault))
	mustRun(t, c, m, nil, RunOptions{})
	// As a chart would have left it.
	for _, o := range m.Objects {
		patch := mergePatch(`{"metadata":{"annotations":{"meta.helm.sh/release-name":"kruise","meta.helm.sh/release-namespace":"default"},"labels":{"app.kubernetes.io/managed-by":"Helm"},"managedFields":[{}]}}`)
		require.NoError(t, c.Client.Patch(ctx, mustGet(t.Context(), t, c, o), patch, client.FieldOwner("helm")))
	}
	for _, name := range []string{InventoryName} {
		cm := named(gvkConfigMap, name)
		cm.SetNamespace(DefaultNamespace)
		require.NoError(t, c.Client.Delete(ctx, cm))
	}
	existing, err := c.Detect(ctx, DefaultNamespace)
	require.NoError(t, err)
	require.Equal(t, OwnerHelm, existing.Owner)
	require.Equal(t, "default/kruise", existing.Release)

	mustRun(t, c, m, nil, RunOptions{ApplyOptions: ApplyOptions{Adopt: true}})
	for _, o := range m.Objects {
		live := mustGet(t.Context(), t, c, o)
		require.NotContains(t, live.GetAnnotations(), annotationHelmRelease, Name(o))
		require.Equal(t, FieldManager, live.GetLabels()[labelManagedBy], Name(o))
	}
}

func TestUninstall(t *testing.T) {
	ctx := t.Context()
	c, _ := newCluster(t)
	m := render(t, defaults(t, ProfileDefault))
	mustRun(t, c, m, nil, RunOptions{})
	// No manager runs here: let the API server convert and admit alone.
	u := &removing{Cluster: c, r: &Removal{CRDs: []string{"clonesets.apps.kruise.io", "imagepulljobs.apps.kruise.io", "nodeimages.apps.kruise.io"}}}
	require.NoError(t, u.resetConversion(ctx))
	failOpenLive(t, c)

	web := cloneSet("web")
	require.NoError(t, c.Client.Create(ctx, web))
	job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
		"metadata": map[string]any{"name": "pull", "namespace": "default", "finalizers": []any{"apps.kruise.io/fake-finalizer", "example.com/mine"}},
		"spec":     map[string]any{"image": "nginx", "completionPolicy": map[string]any{"type": "Always"}}}}
	require.NoError(t, c.Client.Create(ctx, job))
	image := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": map[string]any{"name": "node-a"}}}
	require.NoError(t, c.Client.Create(ctx, image), "one of the objects that a manager makes again at once")
	existing, err := c.Detect(ctx, DefaultNamespace)
	require.NoError(t, err)

	t.Run("purging is refused while users' objects exist", func(t *testing.T) {
		r, err := c.PlanUninstall(ctx, existing, UninstallOptions{PurgeCRDs: true})
		var left *RemainingError
		require.True(t, errors.As(err, &left), "%v", err)
		require.EqualError(t, err, "deleting the CRDs would delete 1 CloneSet, 1 ImagePullJob and the Pods that they own")
		require.Len(t, r.Remaining, 2)
	})
	t.Run("a foreign object keeps the namespace", func(t *testing.T) {
		cm := named(gvkConfigMap, "mine")
		cm.SetNamespace(DefaultNamespace)
		require.NoError(t, c.Client.Create(ctx, cm))
		r, err := c.PlanUninstall(ctx, existing, UninstallOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]string{DefaultNamespace: "it holds ConfigMap mine"}, r.KeptNamespaces)
		require.Equal(t, []string{"kruise-daemon-config"}, r.Namespaces)
	})
	t.Run("without purging CRDs and their objects stay", func(t *testing.T) {
		o := UninstallOptions{KeepNamespace: true, StepTimeout: time.Second}
		r, err := c.PlanUninstall(ctx, existing, o)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(r.Objects[0].Kind, "WebhookConfiguration"))
		require.NoError(t, c.Uninstall(ctx, r, o, Progress{}))
		for _, obj := range m.Objects {
			live, err := c.live(ctx, obj)
			require.NoError(t, err)
			switch obj.GetKind() {
			case "CustomResourceDefinition", "Namespace":
				require.NotNil(t, live, Name(obj))
				strategy, _, _ := unstructured.NestedString(live.Object, "spec", "conversion", "strategy")
				require.NotEqual(t, "Webhook", strategy)
			default:
				require.True(t, live == nil || live.GetDeletionTimestamp() != nil, Name(obj))
			}
		}
		mustGet(t.Context(), t, c, web)
		require.Equal(t, []string{"example.com/mine"}, mustGet(t.Context(), t, c, job).GetFinalizers(), "only the product's finalizers go")
	})
	t.Run("a second run finds nothing", func(t *testing.T) {
		existing, err := c.Detect(ctx, DefaultNamespace)
		require.NoError(t, err)
		require.Equal(t, OwnerNone, existing.Owner)
		_, err = c.PlanUninstall(ctx, existing, UninstallOptions{KeepNamespace: true})
		require.ErrorIs(t, err, ErrNotInstalled)
	})
	t.Run("forced purging names what holds an object", func(t *testing.T) {
		o := UninstallOptions{PurgeCRDs: true, Force: true, KeepNamespace: true, StepTimeout: 200 * time.Millisecond}
		r, err := c.PlanUninstall(ctx, Existing{Namespace: DefaultNamespace}, o)
		require.NoError(t, err)
		require.ErrorContains(t, c.Uninstall(ctx, r, o, Progress{}), "ImagePullJob/default/pull (finalizers example.com/mine)")
		live := mustGet(t.Context(), t, c, job)
		live.SetFinalizers(nil)
		require.NoError(t, c.Client.Update(ctx, live))
		o.StepTimeout = time.Minute
		require.NoError(t, c.Uninstall(ctx, r, o, Progress{}))
		crds, err := c.kruiseCRDs(ctx)
		require.NoError(t, err)
		require.Empty(t, crds)
	})
}

func failOpenLive(t *testing.T, c *Cluster) {
	t.Helper()
	for _, ref := range []*unstructured.Unstructured{named(gvkMutating, mutatingName), named(gvkValidating, validatingName)} {
		require.NoError(t, c.Client.Update(context.WithoutCancel(t.Context()), failOpen(mustGet(t.Context(), t, c, ref))))
	}
}

func cloneSet(name string) *unstructured.Unstructured {
	labels := map[string]any{"app": name}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{"replicas": int64(1), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": fmt.Sprintf("repo/%s:1", name)}}}}}}}
}

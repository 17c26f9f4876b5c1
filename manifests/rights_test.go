// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kruisectl/kruisectl/manifests"
)

// use is why an account has a right: the package that makes use of it, with a text of its code
// that is there as long as it does. A right of several packages has the row of one of them.
type use struct {
	verbs, resources string // separated by spaces; resources as group/resource or group/resource/subresource
	pkg, text        string
}

const (
	reads  = "get list watch"
	writes = "patch update"
	own    = "apps.kruise.io/"
)

// uses lists the rights of each role. A new rule needs a row here, and a row needs its code.
var uses = map[string][]use{
	"ClusterRole kruise-manager-role": {
		{reads, "/pods", "internal/owned", "corev1.Pod"},
		{"create delete", "/pods /persistentvolumeclaims", "controllers/cloneset", "r.writer.Create(ctx, o.snap.key, claim)"},
		{"patch", "/pods", "internal/podupdate", "u.Client.Patch(ctx, next, patchFrom(cur))"},
		{reads, "/persistentvolumeclaims", "controllers/statefulset", "corev1.PersistentVolumeClaim"},
		{"patch", "/persistentvolumeclaims", "controllers/statefulset", "r.client.Patch(ctx, next"},
		{"patch", "/pods/resize", "internal/podupdate", `SubResource("resize")`},
		{writes, "/pods/status", "internal/podupdate", "u.Client.Status().Patch("},
		{"create delete update " + reads, "apps/controllerrevisions", "controllers/daemonset", "appsv1.ControllerRevision"},
		{"patch", "apps/controllerrevisions", "internal/predownload", "a.Client.Patch(ctx, next, client.MergeFrom(update))"},
		{"create patch", "/events", "internal/events", "typedcorev1.EventSinkImpl"},
		{reads, own + "clonesets", "controllers/cloneset", "v1beta1.CloneSet"},
		{"patch", own + "clonesets", "controllers/cloneset", "removing names from podsToDelete"},
		{reads, own + "daemonsets", "controllers/daemonset", "v1beta1.DaemonSet"},
		{reads, own + "statefulsets", "controllers/statefulset", "v1beta1.StatefulSet"},
		{reads + " delete " + writes, own + "containerrecreaterequests", "controllers/containerrecreaterequest", "v1beta1.ContainerRecreateRequest"},
		{reads + " delete " + writes, own + "imagelistpulljobs", "controllers/imagelistpulljob", "v1beta1.ImageListPullJob"},
		{reads + " " + writes, own + "podprobemarkers", "controllers/podprobemarker", "v1alpha1.PodProbeMarker"},
		{"create delete", own + "imagepulljobs", "controllers/imagelistpulljob", "v1beta1.ImagePullJob"},
		{reads + " " + writes, own + "imagepulljobs", "controllers/imagepulljob", "v1beta1.ImagePullJob"},
		{"create delete " + reads + " " + writes, own + "nodeimages", "controllers/nodeimage", "v1beta1.NodeImage"},
		{"create delete " + reads + " " + writes, own + "nodepodprobes", "controllers/nodepodprobe", "v1alpha1.NodePodProbe"},
		{writes, own + "clonesets/status", "controllers/cloneset", ".Status().Update("},
		{writes, own + "containerrecreaterequests/status", "controllers/containerrecreaterequest", ".Status().Patch("},
		{writes, own + "daemonsets/status", "controllers/daemonset", ".Status().Update("},
		{writes, own + "imagelistpulljobs/status", "controllers/imagelistpulljob", ".Status().Update("},
		{writes, own + "imagepulljobs/status", "controllers/imagepulljob", ".Status().Update("},
		{writes, own + "nodeimages/status", "controllers/nodeimage", ".Status().Update("},
		{writes, own + "podprobemarkers/status", "controllers/podprobemarker", ".Status().Patch("},
		{writes, own + "statefulsets/status", "controllers/statefulset", ".Status().Update("},
		{"update", own + "clonesets/finalizers", "controllers/cloneset", "metav1.NewControllerRef("},
		{"update", own + "daemonsets/finalizers", "controllers/daemonset", "metav1.NewControllerRef("},
		{"update", own + "imagelistpulljobs/finalizers", "controllers/imagelistpulljob", "metav1.NewControllerRef("},
		{"update", own + "statefulsets/finalizers", "controllers/statefulset", "metav1.NewControllerRef("},
		{"update", "/pods/finalizers", "controllers/cloneset", `corev1.SchemeGroupVersion.WithKind("Pod")`}, // of claims
		{reads, "/nodes", "controllers/nodeimage", "corev1.Node{}"},
		{reads, "storage.k8s.io/storageclasses", "controllers/statefulset", "storagev1.StorageClass"},
		{reads, "admissionregistration.k8s.io/mutatingwebhookconfigurations=kruise-mutating-webhook-configuration", "webhook/server", "MutatingConfiguration"},
		{reads, "admissionregistration.k8s.io/validatingwebhookconfigurations=kruise-validating-webhook-configuration", "webhook/server", "ValidatingConfiguration"},
		{reads, "apiextensions.k8s.io/customresourcedefinitions", "webhook/server", `"customresourcedefinitions"`},
	},
	"ClusterRole kruise-manager-secret-role": {
		{reads, "/secrets", "internal/pullsecret", "s.Live.Get(ctx, key, &secret)"},
	},
	"Role kruise-daemon-config/kruise-manager-secret-role": {
		{"create delete update", "/secrets", "internal/pullsecret", "s.Client.Delete(ctx, secret"},
	},
	"ClusterRole kruise-certs-role": {
		{"update", "admissionregistration.k8s.io/mutatingwebhookconfigurations=kruise-mutating-webhook-configuration", "webhook/server", "c.client.Update(ctx, obj)"},
		{"update", "admissionregistration.k8s.io/validatingwebhookconfigurations=kruise-validating-webhook-configuration", "webhook/server", "c.client.Update(ctx, obj)"},
		{"update", "apiextensions.k8s.io/customresourcedefinitions=" + strings.Join([]string{
			"clonesets.apps.kruise.io", "containerrecreaterequests.apps.kruise.io", "daemonsets.apps.kruise.io", "imagelistpulljobs.apps.kruise.io",
			"imagepulljobs.apps.kruise.io", "nodeimages.apps.kruise.io", "statefulsets.apps.kruise.io",
		}, ","), "webhook/server", "eachConvertible"},
	},
	"Role kruise-system/kruise-webhook-role": {
		{"create", "/secrets", "webhook/server", "p.client.Create(ctx, secret)"},
		{"update " + reads, "/secrets=kruise-webhook-certs", "webhook/server", "p.client.Update(ctx, secret)"},
	},
	"Role kruise-system/kruise-leader-election-role": {
		{"create get update", "coordination.k8s.io/leases", "cmd/kruise-manager", "LeaderElectionID:"},
		{"create patch", "/events", "cmd/kruise-manager", "LeaderElectionID:"}, // who became the leader
	},
	"ClusterRole kruise-daemon-role": {
		{reads, own + "nodeimages", "cmd/kruise-daemon", `"nodeimages"`},
		{reads, own + "containerrecreaterequests", "cmd/kruise-daemon", `"containerrecreaterequests"`},
		{reads, own + "nodepodprobes", "daemon/probe", "v1alpha1.NodePodProbe"},
		{writes, own + "nodeimages/status", "cmd/kruise-daemon", "UpdateStatus("},
		{writes, own + "containerrecreaterequests/status", "cmd/kruise-daemon", "recreateRequests("},
		{writes, own + "nodepodprobes/status", "daemon/probe", "v1alpha1.NodePodProbe"},
		{reads, "/pods", "daemon/kube", "corev1.Pod{}"},
		{"patch", "/pods/status", "daemon/containermeta", "PatchStatus("},
		{"create patch", "/events", "daemon/kube", `Resource("events")`},
	},
	"Role kruise-daemon-config/kruise-daemon-secret-role": {
		{"get", "/secrets", "daemon/images", "corev1.Secret"},
	},
}

// users are roles that no account of the product has.
var users = []string{"ClusterRole aggregate-kruise-edit", "ClusterRole aggregate-kruise-view"}

// rights lists what a set of rules allows, one line a verb, resource and names.
func rights(t *testing.T, rules []rbacv1.PolicyRule) []string {
	t.Helper()
	var out []string
	for _, r := range rules {
		require.Empty(t, r.NonResourceURLs)
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					line := verb + " " + group + "/" + resource
					if len(r.ResourceNames) > 0 {
						line += "=" + strings.Join(r.ResourceNames, ",")
					}
					require.NotContains(t, line, "*", "no wildcards")
					require.NotContains(t, []string{"bind", "escalate", "impersonate"}, verb)
					out = append(out, line)
				}
			}
		}
	}
	slices.Sort(out)
	require.Equal(t, slices.Compact(slices.Clone(out)), out, "a right twice")
	return out
}

// roles reads the base: rules by role, and the subjects of each.
func roles(t *testing.T) (rules map[string][]rbacv1.PolicyRule, subjects map[string][]rbacv1.Subject) {
	t.Helper()
	rules, subjects = map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.Subject{}
	files, err := manifests.Files.ReadDir("base/rbac")
	require.NoError(t, err)
	for _, f := range files {
		text, err := manifests.Files.ReadFile("base/rbac/" + f.Name())
		require.NoError(t, err)
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			var role rbacv1.Role // and whatever else has these fields
			require.NoError(t, yaml.Unmarshal(doc, &role))
			switch role.Kind {
			case "Role", "ClusterRole":
				rules[id(role.Kind, role.Namespace, role.Name)] = role.Rules
			case "RoleBinding", "ClusterRoleBinding":
				var binding rbacv1.RoleBinding
				require.NoError(t, yaml.Unmarshal(doc, &binding))
				key := id(binding.RoleRef.Kind, binding.Namespace, binding.RoleRef.Name)
				subjects[key] = append(subjects[key], binding.Subjects...)
			}
		}
	}
	return rules, subjects
}

func id(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

func TestEveryRightIsUsed(t *testing.T) {
	rules, subjects := roles(t)
	for _, role := range users {
		require.Contains(t, rules, role)
		require.NotContains(t, subjects, role)
		delete(rules, role)
	}
	for role := range uses {
		require.Contains(t, rules, role, "a role that is gone")
	}
	for role, have := range rules {
		t.Run(role, func(t *testing.T) {
			var want []string
			for _, u := range uses[role] {
				for verb := range strings.FieldsSeq(u.verbs) {
					for resource := range strings.FieldsSeq(u.resources) {
						want = append(want, verb+" "+resource)
					}
				}
				require.True(t, contains(t, u.pkg, u.text), "%s of %s: %s does not contain %q any more; who needs the right?", u.verbs, u.resources, u.pkg, u.text)
			}
			slices.Sort(want)
			require.Equal(t, want, rights(t, have), "explain every right, and no other, in this test")

			account := "kruise-manager"
			if strings.Contains(role, "daemon-role") || strings.Contains(role, "daemon-secret-role") {
				account = "kruise-daemon"
			}
			require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kruise-system", Name: account}}, subjects[role])
		})
	}
}

// contains looks for text in the code of a package, without its tests.
func contains(t *testing.T, pkg, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, pkg)
	return slices.ContainsFunc(files, func(file string) bool {
		if strings.HasSuffix(file, "_test.go") {
			return false
		}
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		return strings.Contains(string(code), text)
	})
}

// A test of the test: wildcards and rules of two lines are seen.
func TestRights(t *testing.T) {
	require.Equal(t, []string{"get /pods=a,b", "get /secrets=a,b", "list /pods=a,b", "list /secrets=a,b"}, rights(t, []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets", "pods"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"list", "get"},
	}}))
	require.Equal(t, "Role a/b", id("Role", "a", "b"))
	require.Equal(t, "ClusterRole b", id("ClusterRole", "", "b"))
}

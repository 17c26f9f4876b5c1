// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
)

// permissions are what a command needs: in the namespace of its object, and in the
// whole cluster.
type permissions struct {
	namespaced, cluster []rbacv1.PolicyRule
}

// imageJobs are the resources behind the commands of images.
const imageJobs = "imagepulljobs imagelistpulljobs"

// workloads are the resources that rollout commands work on.
const workloads = "clonesets statefulsets daemonsets"

func rule(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
}

var (
	readSet  = rule("apps.kruise.io", workloads, "get list watch")
	patchSet = rule("apps.kruise.io", workloads, "get list watch patch")
	// details may be missing: the answer then has less in it.
	details = []rbacv1.PolicyRule{
		rule("", "pods", "list watch"), rule("apps", "controllerrevisions", "list"), rule("", "events persistentvolumeclaims", "list"),
		rule("apps.kruise.io", "imagepulljobs", "list"),
	}
)

func with(main rbacv1.PolicyRule, more ...rbacv1.PolicyRule) permissions {
	return permissions{
		namespaced: append(append([]rbacv1.PolicyRule{main}, details...), more...),
		cluster:    []rbacv1.PolicyRule{rule("", "nodes", "list"), rule("storage.k8s.io", "storageclasses", "list"), rule("apps.kruise.io", "nodeimages", "list")},
	}
}

// needs is the table of what commands need, by their words.
var needs = map[string]permissions{
	"rollout status":    with(readSet),
	"rollout watch":     with(readSet),
	"rollout history":   with(readSet),
	"rollout preview":   with(patchSet), // a server dry run is a patch
	"inplace preview":   with(patchSet),
	"rollout undo":      with(patchSet),
	"rollout pause":     with(patchSet),
	"rollout resume":    with(patchSet),
	"rollout partition": with(patchSet),
	"rollout restart":   with(patchSet, rule("", "pods", "patch")),
	"rollout wait":      with(readSet),
	"rollout canary":    with(patchSet),
	"rollout promote":   with(patchSet),
	"rollout abort":     with(patchSet),
	"rollout retry":     with(patchSet),
	"set image":         with(patchSet),
	"set env":           with(patchSet, rule("", "configmaps secrets", "get")), // only --from and --resolve
	"set resources":     with(patchSet),
	"scale": with(rule("apps.kruise.io", "clonesets statefulsets", "get list"), rule("apps.kruise.io", "clonesets/scale statefulsets/scale", "patch"),
		rule("apps", "deployments statefulsets replicasets", "get list"), rule("apps", "deployments/scale statefulsets/scale replicasets/scale", "patch"),
		rule("autoscaling", "horizontalpodautoscalers", "list")),
	"scaledown":                       with(rule("apps.kruise.io", "clonesets statefulsets", "get list patch"), rule("autoscaling", "horizontalpodautoscalers", "list")),
	"why":                             around(with(readSet, rule("", "pods", "get"))),
	"inplace status":                  around(with(readSet, rule("", "pods", "get"))),
	"container restart":               requests("get list watch create"),
	"create containerrecreaterequest": requests("get list watch create"),
	"probe": {
		namespaced: []rbacv1.PolicyRule{rule("", "pods", "list watch"), rule("apps.kruise.io", "podprobemarkers", "list watch")},
		cluster:    []rbacv1.PolicyRule{rule("apps.kruise.io", "nodepodprobes", "list watch"), rule("", "nodes", "list")},
	},
	"container list":   requests("list"),
	"container wait":   requests("get list watch"),
	"container cancel": requests("get delete"),
	"image pull":       jobs("get list watch create delete"),
	"image status":     jobs("get list watch create delete"), // the last two for the actions of its screen
	"image wait":       jobs("get list watch"),
	"image list":       {namespaced: []rbacv1.PolicyRule{rule("apps.kruise.io", imageJobs, "list")}},
	"image nodes":      {cluster: []rbacv1.PolicyRule{rule("apps.kruise.io", "nodeimages", "list"), rule("", "nodes", "list")}},
	"image retry":      jobs("get list watch create"),
	"image cancel":     jobs("get list delete"),
	"image predownload": {
		namespaced: append(jobs("get list watch create delete").namespaced, rule("apps.kruise.io", workloads, "get")),
		cluster:    append(jobs("").cluster, rule("", "nodes", "list")),
	},
}

// around adds what `why` looks at besides the workload.
func around(p permissions) permissions {
	p.namespaced = append(p.namespaced, rule("apps.kruise.io", "imagepulljobs containerrecreaterequests", "get list"))
	p.cluster = append(p.cluster, rule("", "nodes", "get"), rule("apps.kruise.io", "nodeimages", "get list"))
	return p
}

// requests are what restarts of containers need; the workload may be one of Kubernetes.
func requests(verbs string) permissions {
	return permissions{namespaced: []rbacv1.PolicyRule{
		rule("apps.kruise.io", "containerrecreaterequests", verbs), rule("", "pods", "get list watch"),
		rule("apps.kruise.io", workloads, "get"), rule("apps", "deployments statefulsets daemonsets", "get"), rule("apps", "replicasets", "get list"),
	}}
}

func jobs(verbs string) permissions {
	return permissions{
		namespaced: []rbacv1.PolicyRule{rule("apps.kruise.io", imageJobs, verbs), rule("", "pods", "list")},
		cluster:    []rbacv1.PolicyRule{rule("apps.kruise.io", "nodeimages", "list watch")},
	}
}

// explainRBAC gives every command of the table the flag --explain-rbac, which prints the
// roles it needs instead of running it.
func explainRBAC(f *factory.Factory, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		explainRBAC(f, c)
	}
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().DisplayName()+" ")
	p, ok := needs[path]
	if !ok || cmd.RunE == nil {
		return
	}
	explain := cmd.Flags().Bool("explain-rbac", false, "print the roles this command needs, and stop")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*explain {
			return run(cmd, args)
		}
		ns, err := f.Namespace()
		if err != nil {
			return err
		}
		return p.print(f.Out, "kruisectl-"+strings.ReplaceAll(path, " ", "-"), ns)
	}
}

func (p permissions) print(w io.Writer, name, namespace string) error {
	docs := []any{&rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Rules: p.namespaced,
	}}
	if len(p.cluster) > 0 {
		docs = append(docs, &rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: p.cluster,
		})
	}
	for i, d := range docs {
		text, err := yaml.Marshal(d)
		if err != nil {
			return fmt.Errorf("printing the roles: %w", err)
		}
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

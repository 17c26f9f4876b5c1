// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Ownership is who else writes to an object (cli.md 1.14).
type Ownership struct {
	// Notes are for people: somebody may revert the change.
	Notes []string
	// Refusal is set when somebody certainly will: the change needs --force.
	Refusal string
	// Instead is the object to change, as TYPE/NAME; may be empty.
	Instead string
}

// evidence of tools that keep objects at what a repository says. The first key found
// names the tool; the value is the name of its application.
var evidence = []struct{ key, tool string }{
	{"argocd.argoproj.io/tracking-id", "Argo CD app"},
	{"argocd.argoproj.io/instance", "Argo CD app"},
	{"helm.toolkit.fluxcd.io/name", "Flux HelmRelease"},
	{"kustomize.toolkit.fluxcd.io/name", "Flux Kustomization"},
	{"kapp.k14s.io/app", "kapp app"},
	{"config.k8s.io/owning-inventory", "inventory"},
	{"meta.helm.sh/release-name", "Helm release"},
}

// InProgressAnnotation holds the Kruise Rollout object that drives a workload.
const InProgressAnnotation = "rollouts.kruise.io/in-progressing"

// Owners looks for whoever would revert a change of u. template says that the Pod
// template is about to change.
func Owners(u *unstructured.Unstructured, template bool) Ownership {
	var o Ownership
	if ref := metav1.GetControllerOf(u); ref != nil {
		o.Instead = strings.ToLower(ref.Kind) + "/" + ref.Name
		o.Refusal = fmt.Sprintf("%s %s controls it and would revert the change", ref.Kind, ref.Name)
		return o
	}
	if v, ok := u.GetAnnotations()[InProgressAnnotation]; ok {
		o.Refusal = "a Kruise Rollout is in progress on it" + inParentheses(v)
		o.Instead = "rollout"
		return o
	}
	for _, e := range evidence {
		name, ok := u.GetAnnotations()[e.key]
		if !ok {
			name, ok = u.GetLabels()[e.key]
		}
		if !ok {
			continue
		}
		if app, _, tracked := strings.Cut(name, ":"); tracked {
			name = app
		}
		o.Notes = append(o.Notes, fmt.Sprintf("%s %s manages this object; the change will be reported as drift or be reverted", e.tool, name))
		break
	}
	if _, ok := u.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]; ok && template && len(o.Notes) == 0 {
		o.Notes = append(o.Notes, "last-applied still holds the old template; the next `kubectl apply` restores it")
	}
	return o
}

func inParentheses(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	annotationHelmRelease   = "meta.helm.sh/release-name"
	annotationHelmNamespace = "meta.helm.sh/release-namespace"
	labelManagedBy          = "app.kubernetes.io/managed-by"
	labelPartOf             = "app.kubernetes.io/part-of"
)

// Owner says who installed what is there.
type Owner string

// The owners.
const (
	// OwnerNone: nothing is installed.
	OwnerNone Owner = ""
	// OwnerSelf: this tool, with an inventory.
	OwnerSelf Owner = "kruisectl"
	// OwnerRendered: manifests of this tool were applied by something else, or an install
	// was interrupted before its inventory was written.
	OwnerRendered Owner = "rendered"
	// OwnerHelm: a Helm release.
	OwnerHelm Owner = "Helm"
	// OwnerGitOps: Argo CD, Flux or kapp keep the objects as they are.
	OwnerGitOps Owner = "GitOps"
	// OwnerBare: objects of another installer.
	OwnerBare Owner = "bare"
)

// Existing is what Detect found.
type Existing struct {
	Owner Owner
	// Namespace holds the installation.
	Namespace string
	// Release is namespace/name of the Helm release, or the application of a GitOps tool.
	Release string
	// Image is that of the manager, Version its tag when there is no inventory.
	Image, Version string
	// Inventory is set for OwnerSelf.
	Inventory *Inventory
	// Manager is the live Deployment, nil when it is missing.
	Manager *unstructured.Unstructured
	// Daemon is the live DaemonSet, nil when it is missing.
	Daemon *unstructured.Unstructured
}

// Detect looks for an installation: in namespace, and wherever the webhook configurations
// point to.
func (c *Cluster) Detect(ctx context.Context, namespace string) (Existing, error) {
	e := Existing{Namespace: namespace}
	var found []*unstructured.Unstructured
	for _, cfg := range []*unstructured.Unstructured{named(gvkMutating, mutatingName), named(gvkValidating, validatingName)} {
		live, err := c.live(ctx, cfg)
		if err != nil {
			return Existing{}, err
		}
		if live == nil {
			continue
		}
		found = append(found, live)
		if ns := serviceNamespace(live); ns != "" {
			e.Namespace = ns
		}
	}
	var err error
	if e.Inventory, err = c.ReadInventory(ctx, e.Namespace); err != nil {
		return Existing{}, err
	}
	if e.Manager, err = c.get(ctx, gvkDeployment, e.Namespace, managerName); err != nil {
		return Existing{}, err
	}
	if e.Daemon, err = c.get(ctx, gvkDaemonSet, e.Namespace, daemonName); err != nil {
		return Existing{}, err
	}
	if e.Manager != nil {
		found = append(found, e.Manager)
		e.Image = containerImage(e.Manager)
		e.Version = tagOf(e.Image)
	}
	crd, err := c.get(ctx, gvkCRD, "", "clonesets.apps.kruise.io")
	if err != nil {
		return Existing{}, err
	}
	// A CRD alone is what an uninstall leaves behind, not an installation. It still says
	// who will fight over it.
	e.Owner, e.Release = ownerOf(found)
	if crd != nil && len(found) == 0 {
		if owner, release := ownerOf([]*unstructured.Unstructured{crd}); owner == OwnerHelm || owner == OwnerGitOps {
			e.Owner, e.Release = owner, release
		}
	}
	if e.Inventory != nil {
		e.Owner, e.Version = OwnerSelf, e.Inventory.Version
	}
	return e, nil
}

func ownerOf(objs []*unstructured.Unstructured) (Owner, string) {
	owner, release := OwnerNone, ""
	for _, o := range objs {
		if app := GitOpsOwner(o); app != "" {
			return OwnerGitOps, app
		}
		if name := o.GetAnnotations()[annotationHelmRelease]; name != "" {
			owner, release = OwnerHelm, o.GetAnnotations()[annotationHelmNamespace]+"/"+name
			continue
		}
		if owner == OwnerHelm {
			continue
		}
		if o.GetLabels()[labelManagedBy] == FieldManager {
			if owner == OwnerNone {
				owner = OwnerRendered
			}
			continue
		}
		owner = OwnerBare
	}
	return owner, release
}

// GitOpsOwner names the tool and application that keep an object as it is in a
// repository, empty when there is none (cli.md 1.14).
func GitOpsOwner(o *unstructured.Unstructured) string {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	first := func(keys ...string) string {
		for _, k := range keys {
			if v := annotations[k]; v != "" {
				return v
			}
			if v := labels[k]; v != "" {
				return v
			}
		}
		return ""
	}
	if v := first("argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"); v != "" {
		app, _, _ := strings.Cut(v, ":")
		return "Argo CD application " + app
	}
	if v := first("kustomize.toolkit.fluxcd.io/name"); v != "" {
		return "Flux Kustomization " + first("kustomize.toolkit.fluxcd.io/namespace") + "/" + v
	}
	if v := first("helm.toolkit.fluxcd.io/name"); v != "" {
		return "Flux HelmRelease " + first("helm.toolkit.fluxcd.io/namespace") + "/" + v
	}
	if v := first("kapp.k14s.io/app"); v != "" {
		return "kapp application " + v
	}
	return ""
}

func serviceNamespace(cfg *unstructured.Unstructured) string {
	hooks, _, _ := unstructured.NestedSlice(cfg.Object, "webhooks")
	for _, h := range hooks {
		if m, ok := h.(map[string]any); ok {
			if ns, _, _ := unstructured.NestedString(m, "clientConfig", "service", "namespace"); ns != "" {
				return ns
			}
		}
	}
	return ""
}

func containerImage(workload *unstructured.Unstructured) string {
	for _, image := range Images([]*unstructured.Unstructured{workload}) {
		return image
	}
	return ""
}

// versionOf names what an image reference runs: its tag, else the start of its digest.
func versionOf(image string) string {
	if tag := tagOf(image); tag != "" {
		return tag
	}
	if _, digest, ok := strings.Cut(image, "@"); ok {
		return digest[:min(len(digest), len("sha256:")+12)]
	}
	return ""
}

// tagOf returns the tag of an image reference, empty when it has none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	i := strings.LastIndex(image, ":")
	if i < strings.LastIndex(image, "/") || i < 0 {
		return ""
	}
	return image[i+1:]
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UninstallOptions say what a removal takes along.
type UninstallOptions struct {
	// PurgeCRDs removes the CRDs too. It is refused while users' objects exist, unless
	// Force deletes them or OrphanWorkloads deletes them without their Pods.
	PurgeCRDs       bool
	Force           bool
	OrphanWorkloads bool
	// KeepNamespace leaves the Namespaces.
	KeepNamespace bool
	// StepTimeout limits each wait; 0 is 60 s.
	StepTimeout time.Duration
}

// Removal is what an uninstall will do, or did.
type Removal struct {
	Namespace string
	// Objects are removed in this order.
	Objects []Entry
	// Remaining are the users' objects by kind.
	Remaining []KindCount
	// CRDs are those of the product, whoever made them.
	CRDs []string
	// Namespaces are removed at the end, KeptNamespaces stay for the reason given.
	Namespaces     []string
	KeptNamespaces map[string]string
	// Protected are objects that carry the label that protects from deletion.
	Protected []string
}

// KindCount is the number of objects of a kind in a namespace.
type KindCount struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace"`
	Names     []string `json:"names"`
	// Pods is how many Pods the objects own.
	Pods int `json:"pods"`
}

// ErrNotInstalled says that there is nothing of the product.
var ErrNotInstalled = errors.New("not installed")

// A RemainingError refuses to delete CRDs, and with them what users made.
type RemainingError struct{ Remaining []KindCount }

// Error implements error.
func (e *RemainingError) Error() string {
	counts := map[string]int{}
	for _, r := range e.Remaining {
		counts[r.Kind] += len(r.Names)
	}
	var list []string
	for _, k := range sortedKeys(counts) {
		list = append(list, fmt.Sprintf("%d %s", counts[k], k))
	}
	return "deleting the CRDs would delete " + strings.Join(list, ", ") + " and the Pods that they own"
}

// systemKinds are custom resources that the product makes for itself.
var systemKinds = []string{"NodeImage", "NodePodProbe"}

// PlanUninstall finds what there is to remove. It returns ErrNotInstalled when there is
// nothing, and a RemainingError when o would delete users' objects without being told to.
func (c *Cluster) PlanUninstall(ctx context.Context, existing Existing, o UninstallOptions) (*Removal, error) {
	r := &Removal{Namespace: existing.Namespace, KeptNamespaces: map[string]string{}}
	known, err := candidates(existing)
	if err != nil {
		return nil, err
	}
	for _, e := range known {
		if e.Kind == "CustomResourceDefinition" || e.Kind == "Namespace" {
			continue
		}
		live, err := c.get(ctx, e.gvk(), e.Namespace, e.Name)
		if err != nil {
			return nil, err
		}
		if live == nil || !removable(e, live) {
			continue
		}
		r.Objects = append(r.Objects, e)
	}
	crds, err := c.kruiseCRDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		r.CRDs = append(r.CRDs, crd.GetName())
		if err := c.countObjects(ctx, &crd, r); err != nil {
			return nil, err
		}
	}
	slices.Sort(r.CRDs)
	if err := c.planNamespaces(ctx, known, o, r); err != nil {
		return nil, err
	}
	if len(r.Objects) == 0 && len(r.Namespaces) == 0 && (len(r.CRDs) == 0 || !o.PurgeCRDs) {
		return r, ErrNotInstalled
	}
	if o.PurgeCRDs && len(r.Remaining) > 0 && !o.Force && !o.OrphanWorkloads {
		return r, &RemainingError{Remaining: r.Remaining}
	}
	return r, nil
}

// candidates are the objects of the inventory and all that this version could have
// rendered, in the order of removal: webhooks first, then workloads, then the rest.
func candidates(existing Existing) ([]Entry, error) {
	v, err := Defaults(ProfileDefault, "generic")
	if err != nil {
		return nil, err
	}
	v.Installation.Namespace = existing.Namespace
	v.Manager.Metrics.Service, v.Manager.Metrics.ServiceMonitor = true, true
	v.Manager.PodDisruptionBudget, v.Manager.NetworkPolicy = true, true
	if v.Installation.Namespace == "" {
		v.Installation.Namespace = DefaultNamespace
	}
	m, err := Render(v)
	if err != nil {
		return nil, err
	}
	var list []Entry
	if existing.Inventory != nil {
		list = slices.Clone(existing.Inventory.Objects)
	}
	for _, o := range m.Objects {
		e := entryOf(o, "")
		if !slices.ContainsFunc(list, e.same) {
			list = append(list, e)
		}
	}
	for _, e := range []Entry{
		{Version: "v1", Kind: "Secret", Namespace: v.Installation.Namespace, Name: PreviousName},
		{Version: "v1", Kind: "ConfigMap", Namespace: v.Installation.Namespace, Name: InventoryName},
	} {
		if !slices.ContainsFunc(list, e.same) {
			list = append(list, e)
		}
	}
	rank := func(e Entry) int {
		switch {
		case strings.HasSuffix(e.Kind, "WebhookConfiguration"):
			return 0
		case e.Kind == "Deployment" || e.Kind == "DaemonSet":
			return 1
		case e.Name == InventoryName:
			return 1000 // last: until then a second run knows everything
		}
		return 2 + len(applyOrder) - orderOf(e.Kind)
	}
	slices.SortStableFunc(list, func(a, b Entry) int { return rank(a) - rank(b) })
	return list, nil
}

// removable reports that a live object is the one that was installed: it has our label,
// or the inventory has its UID.
func removable(e Entry, live *unstructured.Unstructured) bool {
	return live.GetLabels()[labelPartOf] == "kruise" || (e.UID != "" && e.UID == string(live.GetUID()))
}

// labelProtect protects an object from deletion.
const labelProtect = "policy.kruise.io/delete-protection"

// countObjects adds the objects of one CRD to r, read in the version they are stored in,
// so that a conversion webhook that is gone does no harm.
func (c *Cluster) countObjects(ctx context.Context, crd *unstructured.Unstructured, r *Removal) error {
	gvk := storageVersion(crd)
	if gvk.Version == "" || slices.Contains(systemKinds, gvk.Kind) {
		return nil
	}
	items, err := c.list(ctx, gvk)
	if err != nil {
		return err
	}
	index := map[string]int{}
	for _, item := range items {
		ns := item.GetNamespace()
		i, ok := index[ns]
		if !ok {
			i = len(r.Remaining)
			index[ns] = i
			r.Remaining = append(r.Remaining, KindCount{Kind: gvk.Kind, Namespace: ns})
		}
		r.Remaining[i].Names = append(r.Remaining[i].Names, item.GetName())
		if n, ok, _ := unstructured.NestedInt64(item.Object, "status", "replicas"); ok {
			r.Remaining[i].Pods += int(n)
		}
		if item.GetLabels()[labelProtect] != "" {
			r.Protected = append(r.Protected, Name(&item))
		}
	}
	return nil
}

// planNamespaces decides which Namespaces go: those that were installed and hold nothing
// of anybody else.
func (c *Cluster) planNamespaces(ctx context.Context, known []Entry, o UninstallOptions, r *Removal) error {
	for _, e := range known {
		if e.Kind != "Namespace" {
			continue
		}
		live, err := c.get(ctx, gvkNamespace, "", e.Name)
		if err != nil {
			return err
		}
		switch {
		case live == nil:
		case o.KeepNamespace:
			r.KeptNamespaces[e.Name] = "asked to keep it"
		case !removable(e, live):
			r.KeptNamespaces[e.Name] = "it was not made by an install"
		default:
			foreign, err := c.foreignObjects(ctx, e.Name, known)
			if err != nil {
				return err
			}
			if len(foreign) > 0 {
				r.KeptNamespaces[e.Name] = "it holds " + strings.Join(foreign, ", ")
			} else {
				r.Namespaces = append(r.Namespaces, e.Name)
			}
		}
	}
	slices.Sort(r.Namespaces)
	return nil
}

// annotationSourceKey marks copies of pull secrets that the manager makes.
const annotationSourceKey = "imagepulljobs.kruise.io/source-key"

// foreignObjects lists what a Namespace of the product holds that neither the product nor
// Kubernetes put there.
func (c *Cluster) foreignObjects(ctx context.Context, ns string, known []Entry) ([]string, error) {
	var foreign []string
	for _, kind := range []schemaKind{
		{"", "v1", "ConfigMap"}, {"", "v1", "Secret"}, {"", "v1", "Service"}, {"", "v1", "ServiceAccount"},
		{"", "v1", "PersistentVolumeClaim"}, {"", "v1", "Pod"},
		{"apps", "v1", "Deployment"}, {"apps", "v1", "StatefulSet"}, {"apps", "v1", "DaemonSet"}, {"batch", "v1", "Job"},
	} {
		items, err := c.list(ctx, kind.gvk(), client.InNamespace(ns))
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			e := Entry{Group: kind.group, Kind: kind.kind, Namespace: ns, Name: item.GetName()}
			switch {
			case slices.ContainsFunc(known, e.same):
			case metav1.GetControllerOf(&item) != nil: // goes with its owner
			case kind.kind == "ConfigMap" && item.GetName() == "kube-root-ca.crt":
			case kind.kind == "ServiceAccount" && item.GetName() == "default":
			case item.GetAnnotations()[annotationSourceKey] != "":
			case item.GetAnnotations()["kubernetes.io/service-account.name"] != "":
			default:
				foreign = append(foreign, kind.kind+" "+item.GetName())
			}
		}
	}
	return foreign, nil
}

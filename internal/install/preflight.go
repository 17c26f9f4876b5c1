// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
)

// The versions of Kubernetes that the manifests are for. Below MinKubernetes there are no
// ValidatingAdmissionPolicies and no match conditions, and tokens do not name their node.
const (
	MinKubernetes    = "1.30"
	NewestKubernetes = "1.37"
)

// Preflight checks whether m can be installed: it reads, and asks what the user may do,
// but changes nothing.
func (c *Cluster) Preflight(ctx context.Context, m *Manifests, e Existing, o CheckOptions) []Check {
	p := &preflight{Cluster: c, m: m, e: e, program: o.program()}
	p.nodes, p.nodesErr = c.list(ctx, gvkNode)
	return runChecks(ctx, o, p.checks())
}

type preflight struct {
	*Cluster
	m        *Manifests
	e        Existing
	program  string
	nodes    []unstructured.Unstructured
	nodesErr error
}

func (p *preflight) checks() []checker {
	return []checker{
		{"k8s-version", "cluster", p.kubernetesVersion},
		{"admission", "cluster", p.admission},
		{"apiservices", "cluster", p.apiServices},
		{"rbac-install", "permissions", p.permissions},
		{"nodes-cri", "nodes", p.onNodes(runtimes)},
		{"nodes-socket", "nodes", p.onNodes(p.sockets)},
		{"nodes-name", "nodes", p.onNodes(nodeNames)},
		{"existing", "conflicts", p.existing},
		{"leftover-webhooks", "conflicts", p.leftoverWebhooks},
		{"crds-terminating", "conflicts", p.terminatingCRDs},
		{"crds-newer", "conflicts", p.newerCRDs},
		{"namespace-terminating", "conflicts", p.terminatingNamespace},
		{"kinds-unmanaged", "conflicts", p.unmanagedKinds},
		{"platform", "network", p.onNodes(p.platform)},
		{"certificates", "certs", p.certificates},
	}
}

func (p *preflight) kubernetesVersion(context.Context) finding {
	info, err := p.Version.ServerVersion()
	if err != nil {
		return bad("kubectl cluster-info", "the server does not answer: %v", err)
	}
	return judgeVersion(info.GitVersion)
}

// judgeVersion compares the server's version with the supported range; suffixes of
// vendors do not matter.
func judgeVersion(git string) finding {
	v, err := version.ParseGeneric(git)
	if err != nil {
		return warn("", "the version of the server, %q, cannot be read; supported are %s to %s", git, MinKubernetes, NewestKubernetes)
	}
	minor := fmt.Sprintf("%d.%d", v.Major(), v.Minor())
	switch {
	case v.LessThan(version.MustParseGeneric(MinKubernetes)):
		return bad("upgrade the cluster", "Kubernetes %s is too old: %s or newer is needed", git, MinKubernetes)
	case version.MustParseGeneric(minor).GreaterThan(version.MustParseGeneric(NewestKubernetes)):
		return warn("", "Kubernetes %s is newer than the newest one tested, %s", git, NewestKubernetes)
	}
	return okay("Kubernetes %s", git)
}

func (p *preflight) admission(context.Context) finding {
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy"} {
		gk := schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: kind}
		if _, err := p.Client.RESTMapper().RESTMapping(gk, "v1"); err != nil {
			if meta.IsNoMatchError(err) {
				return bad("enable admissionregistration.k8s.io/v1 in the API server", "the server does not serve %s", kind)
			}
			return unreadable(err)
		}
	}
	return okay("admission webhooks and policies are served")
}

func (p *preflight) apiServices(ctx context.Context) finding {
	list, err := p.list(ctx, schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	if err != nil {
		return unreadable(err)
	}
	var broken []string
	for _, s := range list {
		if !conditionTrue(&s, "Available") {
			broken = append(broken, s.GetName())
		}
	}
	if len(broken) > 0 {
		return warn("kubectl get apiservices", "aggregated APIs do not answer: %s; deleting namespaces will hang", strings.Join(broken, ", "))
	}
	return okay("aggregated APIs answer")
}

// permissions asks whether the user may do what applying needs.
func (p *preflight) permissions(ctx context.Context) finding {
	type ask struct{ group, resource, namespace string }
	seen := map[ask]bool{}
	var denied []string
	for _, o := range append(slices.Clone(p.m.Objects), inventoryObject(p.m.Values.Installation.Namespace)) {
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		a := ask{resource.Group, resource.Resource, o.GetNamespace()}
		if seen[a] {
			continue
		}
		seen[a] = true
		for _, verb := range []string{"get", "create", "patch"} {
			allowed, err := p.mayI(ctx, verb, resource.GroupResource(), o.GetNamespace())
			if err != nil {
				return unreadable(err)
			}
			if !allowed {
				where := ""
				if a.namespace != "" {
					where = " in namespace " + a.namespace
				}
				denied = append(denied, fmt.Sprintf("%s %s%s", verb, resource.GroupResource(), where))
			}
		}
	}
	if len(denied) > 0 {
		return bad("use a user with the role cluster-admin", "this user may not: %s", strings.Join(denied, ", "))
	}
	return okay("this user may create everything")
}

func inventoryObject(namespace string) *unstructured.Unstructured {
	u := named(gvkConfigMap, InventoryName)
	u.SetNamespace(namespace)
	return u
}

// mayI asks the server with a SelfSubjectAccessReview, which stores nothing.
func (c *Cluster) mayI(ctx context.Context, verb string, r schema.GroupResource, namespace string) (bool, error) {
	review := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"resourceAttributes": map[string]any{
		"verb": verb, "group": r.Group, "resource": r.Resource, "namespace": namespace,
	}}}}
	review.SetGroupVersionKind(schema.GroupVersionKind{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectAccessReview"})
	if err := c.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking what this user may do: %w", err)
	}
	allowed, _, err := unstructured.NestedBool(review.Object, "status", "allowed")
	return allowed, err
}

// onNodes skips a check of nodes that cannot be read.
func (p *preflight) onNodes(check func([]unstructured.Unstructured) finding) func(context.Context) finding {
	return func(context.Context) finding {
		if p.nodesErr != nil {
			return unreadable(p.nodesErr)
		}
		if len(p.nodes) == 0 {
			return warn("add a node", "the cluster has no node")
		}
		return check(p.nodes)
	}
}

// runtimes checks that each node speaks CRI v1 and is of a platform that there is an
// image for.
func runtimes(nodes []unstructured.Unstructured) finding {
	var old, foreign []string
	for _, n := range nodes {
		info := func(field string) string {
			s, _, _ := unstructured.NestedString(n.Object, "status", "nodeInfo", field)
			return s
		}
		name, v, _ := strings.Cut(info("containerRuntimeVersion"), "://")
		if parsed, err := version.ParseGeneric(v); name == "containerd" && err == nil && parsed.LessThan(version.MustParseGeneric("1.6")) {
			old = append(old, fmt.Sprintf("%s (%s)", n.GetName(), v))
		}
		if os, arch := info("operatingSystem"), info("architecture"); os != "" && (os != "linux" || (arch != "amd64" && arch != "arm64")) {
			foreign = append(foreign, fmt.Sprintf("%s (%s/%s)", n.GetName(), os, arch))
		}
	}
	switch {
	case len(old) > 0:
		return bad("upgrade containerd to 1.6 or newer", "containerd without CRI v1 on %s", strings.Join(old, ", "))
	case len(foreign) > 0:
		return warn("keep the daemon away with daemon.nodeSelector", "there is no image for %s", strings.Join(foreign, ", "))
	}
	return okay("CRI v1 on %s", plural(len(nodes), "node"))
}

func (p *preflight) sockets(nodes []unstructured.Unstructured) finding {
	location := p.m.Values.Daemon.SocketLocation
	if platform := platformOf(nodes); (platform == "k3s" || platform == "rke2") && !strings.HasSuffix(location, "/k3s") {
		return bad("--platform "+platform, "the runtime's socket of %s is not below %s", platform, location)
	}
	return okay("the runtime's socket is expected below %s", location)
}

func nodeNames(nodes []unstructured.Unstructured) finding {
	var long []string
	for _, n := range nodes {
		if len(n.GetName()) > 63 {
			long = append(long, n.GetName())
		}
	}
	if len(long) > 0 {
		return warn("", "names of nodes are longer than 63 characters, so labels cannot hold them: %s", strings.Join(long, ", "))
	}
	return okay("names of nodes fit into labels")
}

func (p *preflight) existing(context.Context) finding {
	switch e := p.e; e.Owner {
	case OwnerHelm:
		return warn(p.program+" install --adopt", "Helm release %s manages an installation in namespace %s", e.Release, e.Namespace)
	case OwnerGitOps:
		return bad(p.program+" manifest render", "%s manages an installation in namespace %s", e.Release, e.Namespace)
	case OwnerBare:
		return warn(p.program+" install --adopt", "another installation exists in namespace %s", e.Namespace)
	case OwnerSelf, OwnerRendered:
		return okay("version %s is installed in namespace %s", e.Version, e.Namespace)
	}
	return okay("nothing is installed")
}

// leftoverWebhooks finds configurations whose Service is gone: they stop what they match.
func (p *preflight) leftoverWebhooks(ctx context.Context) finding {
	var left []string
	for _, ref := range []*unstructured.Unstructured{named(gvkMutating, mutatingName), named(gvkValidating, validatingName)} {
		cfg, err := p.live(ctx, ref)
		if err != nil {
			return unreadable(err)
		}
		if cfg == nil || serviceNamespace(cfg) == "" {
			continue
		}
		svc, err := p.get(ctx, gvkService, serviceNamespace(cfg), webhookService)
		if err != nil {
			return unreadable(err)
		}
		if svc == nil {
			left = append(left, strings.ToLower(cfg.GetKind())+"/"+cfg.GetName())
		}
	}
	if len(left) > 0 {
		return bad("kubectl delete "+strings.Join(left, " "), "webhooks without a Service block what they match: %s", strings.Join(left, ", "))
	}
	return okay("no webhooks without a Service")
}

func (p *preflight) terminatingCRDs(ctx context.Context) finding {
	crds, err := p.kruiseCRDs(ctx)
	if err != nil {
		return unreadable(err)
	}
	for _, crd := range crds {
		if crd.GetDeletionTimestamp() != nil {
			return bad("kubectl get "+crd.GetName()+" -A   # remove the finalizers of what is left",
				"CustomResourceDefinition %s is being deleted: %s", crd.GetName(), strings.Join(remaining(&crd), "; "))
		}
	}
	return okay("no CRD is being deleted")
}

func (p *preflight) newerCRDs(ctx context.Context) finding {
	crds, err := p.kruiseCRDs(ctx)
	if err != nil {
		return unreadable(err)
	}
	for _, crd := range crds {
		live := crd.GetLabels()["app.kubernetes.io/version"]
		if newer(live, p.m.Version) {
			return bad("use kruisectl "+live, "CustomResourceDefinition %s is of version %s, newer than %s", crd.GetName(), live, p.m.Version)
		}
	}
	return okay("no CRD is newer than version %s", p.m.Version)
}

// unmanagedKinds finds objects of kinds that another version of the product has
// controllers for and this one has not: after a take-over nobody would act on them.
func (p *preflight) unmanagedKinds(ctx context.Context) finding {
	crds, err := p.kruiseCRDs(ctx)
	if err != nil {
		return unreadable(err)
	}
	var used, unused []string
	for _, crd := range crds {
		gvk := storageVersion(&crd)
		ours := slices.ContainsFunc(p.m.Objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "CustomResourceDefinition" && o.GetName() == crd.GetName()
		})
		if ours || !p.m.Values.CRDs.Managed || slices.Contains(systemKinds, gvk.Kind) {
			continue
		}
		items, err := p.list(ctx, gvk)
		if err != nil {
			return unreadable(err)
		}
		if len(items) > 0 {
			used = append(used, fmt.Sprintf("%d %s", len(items), gvk.Kind))
		} else {
			unused = append(unused, gvk.Kind)
		}
	}
	slices.Sort(used)
	slices.Sort(unused)
	switch {
	case len(used) > 0:
		return bad("keep the present installation, or delete these objects first", "version %s has no controller for: %s", p.m.Version, strings.Join(used, ", "))
	case len(unused) > 0:
		return warn("", "version %s has no controller for these kinds, of which no object exists: %s", p.m.Version, strings.Join(unused, ", "))
	}
	return okay("every kind has its controller")
}

// newer reports that version a comes after b; what cannot be read never does.
func newer(a, b string) bool {
	x, errX := version.ParseGeneric(a)
	y, errY := version.ParseGeneric(b)
	return errX == nil && errY == nil && x.GreaterThan(y)
}

func (p *preflight) terminatingNamespace(ctx context.Context) finding {
	for _, name := range []string{p.m.Values.Installation.Namespace, "kruise-daemon-config"} {
		ns, err := p.get(ctx, gvkNamespace, "", name)
		if err != nil {
			return unreadable(err)
		}
		if ns != nil && ns.GetDeletionTimestamp() != nil {
			return bad("kubectl get namespace "+name+" -o yaml", "namespace %s is being deleted: %s", name, strings.Join(remaining(ns), "; "))
		}
		if ns == nil && name == p.m.Values.Installation.Namespace && !p.m.Values.Installation.CreateNamespace {
			return bad("kubectl create namespace "+name, "namespace %s does not exist, and is not to be created", name)
		}
	}
	return okay("no namespace is being deleted")
}

func (p *preflight) platform(nodes []unstructured.Unstructured) finding {
	v := p.m.Values
	port := v.Manager.Webhook.Port
	switch platform := platformOf(nodes); {
	case onEKS(nodes) && !v.Manager.HostNetwork:
		return warn("--host-network, if the network of Pods is not the VPC CNI", "on EKS with another network the control plane cannot reach Pods")
	case platform == "gke" && !v.Manager.HostNetwork:
		return warn(fmt.Sprintf("allow TCP %d from the control plane to the nodes", port), "the firewall of a private GKE cluster blocks webhooks")
	case platform == "aks" && !v.Webhooks.AKSIntegration:
		return warn("--platform aks", "AKS changes the selectors of webhooks again and again")
	}
	return okay("the control plane is expected to reach port %d of the manager", port)
}

func (p *preflight) certificates(ctx context.Context) finding {
	switch p.m.Values.ExternalCerts.Mode {
	case "cert-manager":
		gk := schema.GroupKind{Group: "cert-manager.io", Kind: "Certificate"}
		if _, err := p.Client.RESTMapper().RESTMapping(gk, "v1"); meta.IsNoMatchError(err) {
			return bad("install cert-manager first", "cert-manager is asked for, but its CRDs are not installed")
		} else if err != nil {
			return unreadable(err)
		}
		return okay("cert-manager is installed")
	case "manual":
		ns := p.m.Values.Installation.Namespace
		secret, err := p.get(ctx, gvkSecret, ns, webhookSecret)
		if err != nil {
			return unreadable(err)
		}
		if secret == nil {
			return bad("create it first", "Secret %s/%s with ca.crt, tls.crt and tls.key does not exist", ns, webhookSecret)
		}
		data, _, _ := unstructured.NestedMap(secret.Object, "data")
		for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
			if data[key] == nil {
				return bad("add it", "Secret %s/%s lacks %s", ns, webhookSecret, key)
			}
		}
		return okay("Secret %s holds certificates", webhookSecret)
	}
	return okay("the manager makes its own certificates")
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Doctor looks for problems of an installation.
func (c *Cluster) Doctor(ctx context.Context, m *Manifests, e Existing, o CheckOptions) []Check {
	d := &doctor{Cluster: c, m: m, e: e, program: o.program()}
	list := []checker{
		{"k8s-version", "cluster", (&preflight{Cluster: c, m: m}).kubernetesVersion},
		{"apiservices", "cluster", (&preflight{Cluster: c, m: m}).apiServices},
		{"manager-replicas", "manager", d.managerReplicas},
		{"manager-leader", "manager", d.managerLeader},
		{"manager-restarts", "manager", d.restarts("control-plane=controller-manager")},
		{"manager-gates", "manager", d.managerGates},
		{"manager-image", "manager", d.images("control-plane=controller-manager")},
		{"webhook-config", "webhooks", d.webhookEntries},
		{"webhook-endpoints", "webhooks", d.webhookEndpoints},
		{"webhook-cabundle", "webhooks", d.webhookBundle},
		{"webhook-ca-expiry", "webhooks", d.caExpiry},
		{"webhook-probe", "webhooks", d.webhookProbe},
		{"crd-schema", "crds", d.crdSchema},
		{"crd-established", "crds", d.crdEstablished},
		{"crd-conversion", "crds", d.crdConversion},
		{"crd-stored-versions", "crds", d.storedVersions},
		{"daemon-pods", "daemon", d.daemonPods},
		{"daemon-restarts", "daemon", d.restarts("control-plane=daemon")},
		{"daemon-gates", "daemon", d.daemonGates},
		{"daemon-nodeimages", "daemon", d.nodeImages},
		{"objects-lifecycle", "objects", d.stuckLifecycles},
		{"objects-readiness", "objects", d.stuckReadiness},
		{"objects-imagepulljobs", "objects", d.stuckImageJobs},
		{"client-version", "client", d.clientVersion},
	}
	return runChecks(ctx, o, list)
}

type doctor struct {
	*Cluster
	m       *Manifests // as this version renders the installation's values
	e       Existing
	program string
}

func (d *doctor) rendered(kind, name string) *unstructured.Unstructured {
	for _, o := range d.m.Objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	return nil
}

func (d *doctor) managerReplicas(ctx context.Context) finding {
	if d.e.Manager == nil {
		return bad(d.program+" install", "Deployment %s is missing in namespace %s", managerName, d.e.Namespace)
	}
	ready, want, done := deploymentState(d.e.Manager)
	if done && want > 0 {
		return okay("%d of %d managers are available", ready, want)
	}
	hint := "kubectl -n " + d.e.Namespace + " describe pod -l control-plane=controller-manager"
	if want == 0 {
		return bad("kubectl -n "+d.e.Namespace+" scale deployment/"+managerName+" --replicas 2", "the manager is scaled to 0")
	}
	text := fmt.Sprintf("%d of %d managers are ready", ready, want)
	if why := d.podTrouble(ctx, d.e.Namespace, "control-plane=controller-manager"); why != "" {
		text += ": " + why
	}
	if ready > 0 {
		return warn(hint, "%s", text)
	}
	return bad(hint, "%s", text)
}

func (d *doctor) managerLeader(ctx context.Context) finding {
	l, err := d.Leader(ctx, d.e.Namespace)
	switch {
	case err != nil:
		return unreadable(err)
	case l.Alive:
		return okay("%s leads, renewed %s ago", l.Pod, l.Age.Round(time.Second))
	case l.Pod == "":
		return bad("kubectl -n "+d.e.Namespace+" logs -l control-plane=controller-manager", "no manager leads, so no controller runs")
	}
	return bad("wait 15 s for another manager to take over", "the leader %s is gone or has not renewed its Lease for %s", l.Pod, l.Age.Round(time.Second))
}

// restarts looks for containers that were restarted, and why.
func (d *doctor) restarts(selector string) func(context.Context) finding {
	return func(ctx context.Context) finding {
		key, value, _ := strings.Cut(selector, "=")
		pods, err := d.list(ctx, gvkPod, client.InNamespace(d.e.Namespace), client.MatchingLabels{key: value})
		if err != nil {
			return unreadable(err)
		}
		var list []string
		for _, pod := range pods {
			statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
			for _, s := range statuses {
				m, _ := s.(map[string]any)
				if n, _, _ := unstructured.NestedInt64(m, "restartCount"); n > 0 {
					reason, _, _ := unstructured.NestedString(m, "lastState", "terminated", "reason")
					list = append(list, fmt.Sprintf("%s %d times (%s)", pod.GetName(), n, orAbsent(reason)))
				}
			}
		}
		if len(list) == 0 {
			return okay("%s, no restarts", plural(len(pods), "Pod"))
		}
		hint := "kubectl -n " + d.e.Namespace + " logs --previous POD"
		if strings.Contains(strings.Join(list, ""), "OOMKilled") {
			hint = "raise the memory limit: " + d.program + " upgrade --set manager.resources=…"
		}
		return warn(hint, "restarted: %s", strings.Join(list, ", "))
	}
}

func (d *doctor) managerGates(context.Context) finding {
	_, warnings, err := Gates(d.e.Flags())
	if err != nil {
		return bad(d.program+" feature-gates list", "%v", err)
	}
	if len(warnings) > 0 {
		return warn(d.program+" feature-gates list --changed", "%s", strings.Join(warnings, "; "))
	}
	return okay("feature gates are known and do not contradict each other")
}

func (d *doctor) daemonGates(context.Context) finding {
	states, _, err := Gates(d.e.Flags())
	if err != nil {
		return bad(d.program+" feature-gates list", "%v", err)
	}
	var differ []string
	for _, g := range states {
		if g.Disagree() {
			differ = append(differ, fmt.Sprintf("%s (manager=%t daemon=%t)", g.Name, *g.Manager, *g.Daemon))
		}
	}
	if len(differ) > 0 {
		return bad(d.program+" feature-gates enable|disable NAME", "manager and daemon run with different gates: %s", strings.Join(differ, ", "))
	}
	return okay("manager and daemon agree on feature gates")
}

// images checks that all Pods of a program run the same image.
func (d *doctor) images(selector string) func(context.Context) finding {
	return func(ctx context.Context) finding {
		key, value, _ := strings.Cut(selector, "=")
		pods, err := d.list(ctx, gvkPod, client.InNamespace(d.e.Namespace), client.MatchingLabels{key: value})
		if err != nil {
			return unreadable(err)
		}
		seen := map[string]bool{}
		for _, pod := range pods {
			containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
			if len(containers) > 0 {
				m, _ := containers[0].(map[string]any)
				seen[fmt.Sprint(m["image"])] = true
			}
		}
		if len(seen) > 1 {
			return warn("kubectl -n "+d.e.Namespace+" rollout status deployment/"+managerName, "managers run different images: %s", strings.Join(sortedKeys(seen), ", "))
		}
		return okay("all managers run %s", orAbsent(strings.Join(sortedKeys(seen), "")))
	}
}

// webhookEntries compares the live entries with those that the gates ask for.
func (d *doctor) webhookEntries(ctx context.Context) finding {
	var wrong []string
	for _, ref := range []*unstructured.Unstructured{named(gvkMutating, mutatingName), named(gvkValidating, validatingName)} {
		live, err := d.live(ctx, ref)
		if err != nil {
			return unreadable(err)
		}
		if live == nil {
			return bad(d.program+" upgrade", "%s is missing: nothing is defaulted or validated", Name(ref))
		}
		if want := d.rendered(ref.GetKind(), ref.GetName()); want != nil {
			for _, f := range Drift(live, want) {
				if strings.HasPrefix(f.Path, "webhooks") {
					wrong = append(wrong, f.String())
				}
			}
		}
	}
	if len(wrong) > 0 {
		return warn(d.program+" upgrade", "webhooks are not as installed: %s", strings.Join(wrong, "; "))
	}
	return okay("webhooks are as installed")
}

func (d *doctor) webhookEndpoints(ctx context.Context) finding {
	n, err := d.endpoints(ctx, d.e.Namespace)
	if err != nil {
		return unreadable(err)
	}
	if n == 0 {
		return bad("kubectl -n "+d.e.Namespace+" get pods", "Service %s has no ready endpoint: creating Kruise objects fails", webhookService)
	}
	return okay("Service %s has %s that are ready", webhookService, plural(n, "endpoint"))
}

func (d *doctor) webhookBundle(ctx context.Context) finding {
	ca, err := d.servingCA(ctx, d.e.Namespace)
	if err != nil {
		return unreadable(err)
	}
	if len(ca) == 0 {
		return bad("kubectl -n "+d.e.Namespace+" logs -l control-plane=controller-manager", "Secret %s has no CA", webhookSecret)
	}
	wrong, total, err := d.otherBundles(ctx, ca)
	if err != nil {
		return unreadable(err)
	}
	if len(wrong) > 0 {
		return bad("kubectl -n "+d.e.Namespace+" annotate --overwrite secret "+webhookSecret+" kruisectl/touched=now   # the manager then writes them again",
			"the caBundle is not the CA of the manager on %s", strings.Join(wrong, ", "))
	}
	return okay("the caBundle is the CA of the manager on %d webhooks and CRDs", total)
}

func (d *doctor) caExpiry(ctx context.Context) finding {
	ca, err := d.servingCA(ctx, d.e.Namespace)
	if err != nil {
		return unreadable(err)
	}
	text, at := expiryOf(ca)
	switch left := at.Sub(d.Clock.Now()); {
	case text == "unknown":
		return skipped("there is no readable CA certificate")
	case left < 0:
		return bad("kubectl -n "+d.e.Namespace+" delete secret "+webhookSecret, "the CA has expired on %s", text)
	case left < 30*24*time.Hour:
		return warn("kubectl -n "+d.e.Namespace+" delete secret "+webhookSecret, "the CA expires on %s", text)
	}
	return okay("the CA is valid until %s", text)
}

func (d *doctor) webhookProbe(ctx context.Context) finding {
	if _, _, err := d.probe("default").Check(ctx); err != nil {
		return bad(d.program+" status", "%v", err)
	}
	return okay("a CloneSet could be created")
}

func (d *doctor) crdSchema(ctx context.Context) finding {
	var differ []string
	for _, want := range d.m.Objects {
		if want.GetKind() != "CustomResourceDefinition" {
			continue
		}
		live, err := d.live(ctx, want)
		if err != nil {
			return unreadable(err)
		}
		switch {
		case live == nil:
			differ = append(differ, want.GetName()+" is missing")
		case len(Drift(live, want)) > 0:
			differ = append(differ, want.GetName()+" differs")
		}
	}
	if len(differ) > 0 {
		return warn(d.program+" upgrade", "CRDs are not those of version %s: %s", d.m.Version, strings.Join(differ, ", "))
	}
	return okay("CRDs are those of version %s", d.m.Version)
}

func (d *doctor) crdEstablished(ctx context.Context) finding {
	crds, err := d.kruiseCRDs(ctx)
	if err != nil {
		return unreadable(err)
	}
	for _, crd := range crds {
		if !conditionTrue(&crd, "Established") || crd.GetDeletionTimestamp() != nil {
			return bad("kubectl describe crd "+crd.GetName(), "CustomResourceDefinition %s is not established or is being deleted", crd.GetName())
		}
	}
	return okay("%s established", plural(len(crds), "CRD"))
}

func (d *doctor) crdConversion(ctx context.Context) finding {
	if _, _, err := d.conversionWorks().Check(ctx); err != nil {
		return bad(d.program+" status", "%v", err)
	}
	return okay("every served version can be read")
}

func (d *doctor) storedVersions(ctx context.Context) finding {
	crds, err := d.kruiseCRDs(ctx)
	if err != nil {
		return unreadable(err)
	}
	var old []string
	for _, crd := range crds {
		if stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions"); len(stored) > 1 {
			old = append(old, fmt.Sprintf("%s (%s)", crd.GetName(), strings.Join(stored, ", ")))
		}
	}
	if len(old) > 0 {
		return warn("write their objects once more, then set status.storedVersions", "objects may be stored in old versions: %s", strings.Join(old, ", "))
	}
	return okay("objects are stored in one version per kind")
}

func (d *doctor) clientVersion(context.Context) finding {
	switch {
	case newer(d.e.Version, d.m.Version):
		return warn("use kruisectl "+d.e.Version, "version %s is installed, this tool is for %s", d.e.Version, d.m.Version)
	case d.e.Version != d.m.Version:
		return warn(d.program+" upgrade", "version %s is installed, this tool is for %s", orAbsent(d.e.Version), d.m.Version)
	}
	return okay("this tool is of the installed version, %s", d.m.Version)
}

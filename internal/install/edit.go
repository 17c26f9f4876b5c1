// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"
)

// op is one operation of a JSON patch.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// editor collects the patch of one object.
type editor struct {
	obj *unstructured.Unstructured // already with the namespace of the installation
	ops []op
	// envChanged: the environment of the container in obj is not in ops yet.
	envChanged bool
}

func (e *editor) set(value any, keys ...string) {
	e.ops = append(e.ops, op{Op: "add", Path: pointer(keys...), Value: plain(value)})
}

func (e *editor) remove(keys ...string) {
	e.ops = append(e.ops, op{Op: "remove", Path: pointer(keys...)})
}

func pointer(keys ...string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, k := range keys {
		b.WriteString("/" + escape.Replace(k))
	}
	return b.String()
}

// plain turns typed values into what JSON decodes to. It never fails for the types in use.
func plain(value any) any {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var p any
	if err := json.Unmarshal(data, &p); err != nil {
		panic(err)
	}
	return p
}

// edit returns the patches that turn objs, which show the values base, into what v says.
// Values that are the same in both touch nothing.
func edit(objs []*unstructured.Unstructured, v, base Values) []types.Patch {
	var patches []types.Patch
	for _, obj := range objs {
		e := &editor{obj: obj.DeepCopy()}
		deleted := false
		if v.Installation.Namespace != base.Installation.Namespace {
			e.rename(base.Installation.Namespace, v.Installation.Namespace)
		}
		switch obj.GetKind() {
		case "Namespace":
			deleted = obj.GetName() == base.Installation.Namespace && !v.Installation.CreateNamespace
		case "CustomResourceDefinition":
			deleted = !v.CRDs.Managed
			if _, ok, _ := unstructured.NestedMap(obj.Object, "spec", "conversion", "webhook"); ok {
				e.annotate(v.ExternalCerts.Annotations)
			}
		case "Deployment":
			e.manager(v, base)
		case "DaemonSet":
			e.daemon(v, base)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			e.annotate(v.ExternalCerts.Annotations)
			e.webhooks(v, base)
		case "ServiceAccount":
			e.annotate(v.ServiceAccount.Annotations)
		case "Service":
			e.service(v, base)
		case "NetworkPolicy":
			e.networkPolicy(v, base)
		}
		if p, ok := e.patch(obj, deleted); ok {
			patches = append(patches, p)
		}
	}
	return patches
}

func (e *editor) patch(original *unstructured.Unstructured, deleted bool) (types.Patch, bool) {
	if deleted {
		body := map[string]any{"$patch": "delete", "apiVersion": original.GetAPIVersion(), "kind": original.GetKind()}
		meta := map[string]any{"name": original.GetName()}
		if ns := original.GetNamespace(); ns != "" {
			meta["namespace"] = ns
		}
		body["metadata"] = meta
		return types.Patch{Patch: mustYAML(body)}, true
	}
	if len(e.ops) == 0 {
		return types.Patch{}, false
	}
	gvk := original.GroupVersionKind()
	return types.Patch{
		Patch: mustYAML(e.ops),
		Target: &types.Selector{ResId: resid.ResId{
			Gvk:  resid.Gvk{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
			Name: regexp.QuoteMeta(original.GetName()),
		}},
	}, true
}

func mustYAML(v any) string {
	data, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // plain data
	}
	return string(data)
}

// rename puts the system namespace into every text of the object that names it. The
// editor's copy is changed too, so that later edits start from it.
func (e *editor) rename(from, to string) {
	word := regexp.MustCompile(`(^|[^a-z0-9-])` + regexp.QuoteMeta(from) + `($|[^a-z0-9-])`)
	var walk func(keys []string, node any) any
	walk = func(keys []string, node any) any {
		switch n := node.(type) {
		case map[string]any:
			for _, k := range sortedKeys(n) {
				n[k] = walk(append(keys[:len(keys):len(keys)], k), n[k])
			}
		case []any:
			for i := range n {
				n[i] = walk(append(keys[:len(keys):len(keys)], fmt.Sprint(i)), n[i])
			}
		case string:
			if s := word.ReplaceAllString(n, "${1}"+to+"${2}"); s != n {
				e.ops = append(e.ops, op{Op: "replace", Path: pointer(keys...), Value: s})
				return s
			}
		}
		return node
	}
	for _, k := range sortedKeys(e.obj.Object) {
		// Descriptions of fields in CRDs are prose.
		if k == "spec" && e.obj.GetKind() == "CustomResourceDefinition" {
			conversion, _, _ := unstructured.NestedFieldNoCopy(e.obj.Object, "spec", "conversion")
			walk([]string{"spec", "conversion"}, conversion)
			continue
		}
		e.obj.Object[k] = walk([]string{k}, e.obj.Object[k])
	}
}

func (e *editor) annotate(annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	if e.obj.GetAnnotations() == nil {
		e.set(map[string]string{}, "metadata", "annotations")
	}
	for _, k := range sortedKeys(annotations) {
		e.set(annotations[k], "metadata", "annotations", k)
	}
}

func (e *editor) webhooks(v, base Values) {
	hooks, _, _ := unstructured.NestedSlice(e.obj.Object, "webhooks")
	for i, h := range hooks {
		hook, _ := h.(map[string]any)
		at := func(keys ...string) []string { return append([]string{"webhooks", fmt.Sprint(i)}, keys...) }
		if v.Webhooks.TimeoutSeconds != base.Webhooks.TimeoutSeconds {
			e.set(v.Webhooks.TimeoutSeconds, at("timeoutSeconds")...)
		}
		name, _, _ := unstructured.NestedString(hook, "name")
		if name != podWebhook && name != otherPodWebhook {
			continue
		}
		if name == podWebhook && v.Webhooks.FailurePolicy.Pods != base.Webhooks.FailurePolicy.Pods {
			e.set(v.Webhooks.FailurePolicy.Pods, at("failurePolicy")...)
		}
		exprs, _, _ := unstructured.NestedSlice(hook, "namespaceSelector", "matchExpressions")
		for j, x := range exprs {
			expr, _ := x.(map[string]any)
			if expr["key"] == "kubernetes.io/metadata.name" && len(v.Webhooks.ExcludeNamespaces) > 0 {
				names, _, _ := unstructured.NestedStringSlice(expr, "values")
				e.set(append(names, v.Webhooks.ExcludeNamespaces...),
					at("namespaceSelector", "matchExpressions", fmt.Sprint(j), "values")...)
			}
		}
	}
}

// The webhooks that see Pods: those of Kruise workloads, and, with the gate
// KruisePodReadinessGate, all others, which always fail open.
const (
	podWebhook      = "mpod.kb.io"
	otherPodWebhook = "mpod-others.kb.io"
)

func (e *editor) service(v, base Values) {
	switch e.obj.GetName() {
	case webhookService:
		if v.Manager.Webhook.Port != base.Manager.Webhook.Port {
			e.set(v.Manager.Webhook.Port, "spec", "ports", "0", "targetPort")
		}
	case managerName:
		if v.Manager.Metrics.Port != base.Manager.Metrics.Port {
			e.set(v.Manager.Metrics.Port, "spec", "ports", "0", "port")
			e.set(v.Manager.Metrics.Port, "spec", "ports", "0", "targetPort")
		}
	}
}

func (e *editor) networkPolicy(v, base Values) {
	for i, p := range [][2]int32{
		{v.Manager.Webhook.Port, base.Manager.Webhook.Port},
		{v.Manager.Metrics.Port, base.Manager.Metrics.Port},
		{v.Manager.HealthProbe.Port, base.Manager.HealthProbe.Port},
	} {
		if p[0] != p[1] {
			e.set(p[0], "spec", "ingress", "0", "ports", fmt.Sprint(i), "port")
		}
	}
}

// differ compares two values as their JSON, so that 1 and "1" of quantities do not differ.
func differ(a, b any) bool { return !reflect.DeepEqual(plain(a), plain(b)) }

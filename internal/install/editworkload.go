// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Names that are contract (install.md 2).
const (
	managerName    = "kruise-controller-manager"
	daemonName     = "kruise-daemon"
	webhookService = "kruise-webhook-service"
	webhookSecret  = "kruise-webhook-certs"
	mutatingName   = "kruise-mutating-webhook-configuration"
	validatingName = "kruise-validating-webhook-configuration"
	leaseName      = "kruise-manager"
)

var (
	podSpec   = []string{"spec", "template", "spec"}
	container = []string{"spec", "template", "spec", "containers", "0"}
)

func at(base []string, keys ...string) []string { return append(slices.Clone(base), keys...) }

// args are the arguments of a container, as text.
type args []string

// set replaces the flag's argument, or adds it at the end.
func (a *args) set(flag, value string) {
	text := "--" + flag + "=" + value
	for i, have := range *a {
		if name, _, _ := strings.Cut(strings.TrimLeft(have, "-"), "="); name == flag {
			(*a)[i] = text
			return
		}
	}
	*a = append(*a, text)
}

// get returns the value of a flag.
func (a args) get(flag string) (string, bool) {
	for _, have := range a {
		name, value, hasValue := strings.Cut(strings.TrimLeft(have, "-"), "=")
		if name == flag {
			if !hasValue {
				value = "true"
			}
			return value, true
		}
	}
	return "", false
}

func (a *args) drop(flag string) {
	*a = slices.DeleteFunc(*a, func(have string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(have, "-"), "=")
		return name == flag
	})
}

// containerArgs returns the arguments of the only container of a workload.
func containerArgs(obj *unstructured.Unstructured) args {
	containers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return nil
	}
	c, _ := containers[0].(map[string]any)
	list, _, _ := unstructured.NestedStringSlice(c, "args")
	return list
}

// setArgs writes the arguments when change changes them.
func (e *editor) setArgs(change func(a *args)) {
	before := containerArgs(e.obj)
	after := slices.Clone(before)
	change(&after)
	if !slices.Equal(before, after) {
		e.set([]string(after), at(container, "args")...)
	}
}

func (e *editor) manager(v, base Values) {
	m, was := v.Manager, base.Manager
	if m.Replicas != was.Replicas {
		e.set(m.Replicas, "spec", "replicas")
	}
	e.setArgs(func(a *args) {
		flag := func(name, value, old string) {
			switch value {
			case old:
			case "":
				a.drop(name)
			default:
				a.set(name, value)
			}
		}
		flag("metrics-addr", fmt.Sprintf(":%d", m.Metrics.Port), fmt.Sprintf(":%d", was.Metrics.Port))
		flag("health-probe-addr", fmt.Sprintf(":%d", m.HealthProbe.Port), fmt.Sprintf(":%d", was.HealthProbe.Port))
		flag("v", m.Log.Level, was.Log.Level)
		flag("feature-gates", v.FeatureGates, base.FeatureGates)
		flag("sync-period", m.ResyncPeriod, was.ResyncPeriod)
		flag("logging-format", m.LoggingFormat, was.LoggingFormat)
		flag("pprof-addr", m.PprofAddr, was.PprofAddr)
		if ns := v.Installation.Namespace; ns != base.Installation.Namespace {
			a.set("leader-election-namespace", ns)
		}
		a.extra(m.ExtraArgs)
	})
	e.image(m.Image, was.Image)
	if m.Webhook != was.Webhook {
		e.setEnv(corev1.EnvVar{Name: "WEBHOOK_PORT", Value: fmt.Sprint(m.Webhook.Port)})
	}
	e.mutationDetector(v, base)
	for i, p := range [][2]int32{
		{m.Webhook.Port, was.Webhook.Port}, {m.Metrics.Port, was.Metrics.Port}, {m.HealthProbe.Port, was.HealthProbe.Port},
	} {
		if p[0] != p[1] {
			e.set(p[0], at(container, "ports", fmt.Sprint(i), "containerPort")...)
		}
	}
	if m.HealthProbe != was.HealthProbe {
		e.probePort(m.HealthProbe.Port)
	}
	if differ(m.Resources, was.Resources) {
		e.set(m.Resources, at(container, "resources")...)
	}
	if m.NodeAffinity != nil {
		if _, ok, _ := unstructured.NestedMap(e.obj.Object, at(podSpec, "affinity")...); !ok {
			e.set(map[string]any{}, at(podSpec, "affinity")...)
		}
		e.set(m.NodeAffinity, at(podSpec, "affinity", "nodeAffinity")...)
	}
	if len(m.Tolerations) > 0 {
		e.set(m.Tolerations, at(podSpec, "tolerations")...)
	}
	e.placement(m.NodeSelector, m.PriorityClassName, v.ImagePullSecrets)
	e.flushEnv()
}

// extra adds arguments of the user; one whose flag is there already replaces it.
func (a *args) extra(list []string) {
	for _, x := range list {
		if name, value, ok := strings.Cut(strings.TrimLeft(x, "-"), "="); ok {
			a.set(name, value)
		} else if !slices.Contains(*a, x) {
			*a = append(*a, x)
		}
	}
}

func (e *editor) daemon(v, base Values) {
	d, was := v.Daemon, base.Daemon
	e.setArgs(func(a *args) {
		if d.Log != was.Log {
			a.set("v", d.Log.Level)
		}
		if d.Port != was.Port {
			a.set("addr", fmt.Sprintf(":%d", d.Port))
		}
		if v.FeatureGates != base.FeatureGates {
			a.set("feature-gates", v.FeatureGates)
		}
		if d.SocketFile != was.SocketFile {
			a.set("socket-file", d.SocketFile)
		}
		if d.EnablePprof != was.EnablePprof {
			a.set("enable-pprof", fmt.Sprint(d.EnablePprof))
			a.drop("pprof-addr")
		} else if d.PprofAddr != was.PprofAddr {
			a.set("pprof-addr", d.PprofAddr)
		}
		if d.CredentialProvider.Enable {
			a.set("plugin-config-file", "/credential-provider-config/CredentialProviderPlugin.yaml")
			a.set("plugin-bin-dir", "/credential-provider-plugin")
		}
		a.extra(d.ExtraArgs)
	})
	e.image(v.Manager.Image, base.Manager.Image)
	e.mutationDetector(v, base)
	for _, x := range d.ExtraEnvs {
		e.setEnv(x)
	}
	if d.Port != was.Port {
		e.probePort(d.Port)
	}
	if d.SocketLocation != was.SocketLocation {
		e.set(d.SocketLocation, at(podSpec, "volumes", "0", "hostPath", "path")...)
	}
	if d.CredentialProvider.Enable {
		e.credentialProvider(d.CredentialProvider)
	}
	if differ(d.Resources, was.Resources) {
		e.set(d.Resources, at(container, "resources")...)
	}
	if differ(d.Affinity, was.Affinity) {
		if d.Affinity == nil {
			e.remove(at(podSpec, "affinity")...)
		} else {
			e.set(d.Affinity, at(podSpec, "affinity")...)
		}
	}
	e.placement(d.NodeSelector, d.PriorityClassName, v.ImagePullSecrets)
	e.flushEnv()
}

func (e *editor) credentialProvider(p CredentialProviderValues) {
	mount := func(name, dir string, source map[string]any) {
		e.set(map[string]any{"name": name, "mountPath": dir, "readOnly": true}, at(container, "volumeMounts", "-")...)
		volume := map[string]any{"name": name}
		maps.Copy(volume, source)
		e.set(volume, at(podSpec, "volumes", "-")...)
	}
	hostPath := func(dir string) map[string]any {
		return map[string]any{"hostPath": map[string]any{"path": dir, "type": ""}}
	}
	mount("credential-provider-plugin-config", "/credential-provider-config",
		map[string]any{"configMap": map[string]any{"name": p.ConfigMap}})
	mount("credential-provider-plugin", "/credential-provider-plugin", hostPath(p.HostPath))
	if p.AWSCredentialsDir != "" {
		mount("aws-credentials-dir", "/root/.aws", hostPath(p.AWSCredentialsDir))
	}
}

func (e *editor) image(now, was ImageValues) {
	if now.Repository != was.Repository || now.Tag != was.Tag || now.Digest != was.Digest {
		e.set(now.String(), at(container, "image")...)
	}
	if now.PullPolicy != was.PullPolicy {
		e.set(now.PullPolicy, at(container, "imagePullPolicy")...)
	}
}

// String is the image reference.
func (i ImageValues) String() string {
	if i.Digest != "" {
		return i.Repository + "@" + i.Digest
	}
	return i.Repository + ":" + i.Tag
}

func (e *editor) mutationDetector(v, base Values) {
	switch now, was := v.EnableKubeCacheMutationDetector, base.EnableKubeCacheMutationDetector; {
	case now && !was:
		e.setEnv(corev1.EnvVar{Name: "KUBE_CACHE_MUTATION_DETECTOR", Value: "true"})
	case was && !now:
		e.setEnv(corev1.EnvVar{Name: "KUBE_CACHE_MUTATION_DETECTOR", Value: "false"})
	}
}

// setEnv changes the environment in the editor's copy; flushEnv writes it.
func (e *editor) setEnv(x corev1.EnvVar) {
	env := e.env()
	entry, _ := plain(x).(map[string]any)
	i := slices.IndexFunc(env, func(have any) bool { m, _ := have.(map[string]any); return m["name"] == x.Name })
	if i < 0 {
		env = append(env, entry)
	} else {
		env[i] = entry
	}
	containers, _, _ := unstructured.NestedSlice(e.obj.Object, at(podSpec, "containers")...)
	c, _ := containers[0].(map[string]any)
	c["env"] = env
	_ = unstructured.SetNestedSlice(e.obj.Object, containers, at(podSpec, "containers")...)
	e.envChanged = true
}

func (e *editor) env() []any {
	containers, _, _ := unstructured.NestedSlice(e.obj.Object, at(podSpec, "containers")...)
	c, _ := containers[0].(map[string]any)
	env, _ := c["env"].([]any)
	return env
}

func (e *editor) flushEnv() {
	if e.envChanged {
		e.set(e.env(), at(container, "env")...)
	}
}

func (e *editor) probePort(port int32) {
	containers, _, _ := unstructured.NestedSlice(e.obj.Object, at(podSpec, "containers")...)
	c, _ := containers[0].(map[string]any)
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		if _, ok := c[probe]; ok {
			e.set(port, at(container, probe, "httpGet", "port")...)
		}
	}
}

func (e *editor) placement(nodeSelector map[string]string, priorityClass string, pullSecrets []corev1.LocalObjectReference) {
	if len(nodeSelector) > 0 {
		e.set(nodeSelector, at(podSpec, "nodeSelector")...)
	}
	if priorityClass != "" {
		e.set(priorityClass, at(podSpec, "priorityClassName")...)
	}
	if len(pullSecrets) > 0 {
		e.set(pullSecrets, at(podSpec, "imagePullSecrets")...)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

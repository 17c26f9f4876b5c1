// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kruisectl/kruisectl/internal/features"
)

// LiveValues reads back the values of an installation that has no inventory, from its
// manager and daemon. The image is not taken over when it is another project's: an upgrade
// is about replacing it.
func LiveValues(e Existing) (Values, error) {
	v, err := Defaults(ProfileDefault, "generic")
	if err != nil {
		return Values{}, err
	}
	v.Installation.Namespace = e.Namespace
	if e.Manager != nil {
		if err := liveManager(&v, e.Manager); err != nil {
			return Values{}, fmt.Errorf("reading values of %s: %w", Name(e.Manager), err)
		}
	}
	if e.Daemon != nil {
		if err := liveDaemon(&v, e.Daemon); err != nil {
			return Values{}, fmt.Errorf("reading values of %s: %w", Name(e.Daemon), err)
		}
	} else if e.Manager != nil {
		v.FeatureGates = WithGate(v.FeatureGates, features.KruiseDaemon, false)
	}
	return v, nil
}

// WithGate returns the value of --feature-gates with gate on or off; a value that already
// has that effect, or that cannot be parsed, is returned as it is.
func WithGate(value string, gate features.Gate, on bool) string {
	set, err := features.Parse(value)
	if err != nil || set.Enabled(gate) == on {
		return value
	}
	entry := fmt.Sprintf("%s=%t", gate, on)
	if set.Set(entry) != nil {
		return value
	}
	return minimal(set)
}

// podTemplate decodes the Pod of a workload.
func podTemplate(o *unstructured.Unstructured) (corev1.PodSpec, error) {
	var pod corev1.PodSpec
	spec, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		return pod, err
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return pod, err
	}
	if err := json.Unmarshal(data, &pod); err != nil {
		return pod, err
	}
	if len(pod.Containers) == 0 {
		return pod, fmt.Errorf("it has no container")
	}
	return pod, nil
}

func liveManager(v *Values, o *unstructured.Unstructured) error {
	pod, err := podTemplate(o)
	if err != nil {
		return err
	}
	c := pod.Containers[0]
	a := args(c.Args)
	m := &v.Manager
	if n, ok, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); ok {
		m.Replicas = int32(n)
	}
	liveImage(&m.Image, c)
	v.FeatureGates, _ = a.get("feature-gates")
	text := func(field *string, flag string) {
		if value, ok := a.get(flag); ok {
			*field = value
		}
	}
	text(&m.Log.Level, "v")
	text(&m.LoggingFormat, "logging-format")
	text(&m.ResyncPeriod, "sync-period")
	port := func(field *int32, flag string) {
		if value, ok := a.get(flag); ok {
			if n, err := strconv.ParseInt(value[strings.LastIndex(value, ":")+1:], 10, 32); err == nil {
				*field = int32(n)
			}
		}
	}
	port(&m.Metrics.Port, "metrics-addr")
	port(&m.HealthProbe.Port, "health-probe-addr")
	for _, e := range c.Env {
		switch e.Name {
		case "WEBHOOK_PORT":
			if n, err := strconv.ParseInt(e.Value, 10, 32); err == nil {
				m.Webhook.Port = int32(n)
			}
		case "KUBE_CACHE_MUTATION_DETECTOR":
			v.EnableKubeCacheMutationDetector = e.Value == "true"
		}
	}
	m.Resources = c.Resources
	m.HostNetwork = pod.HostNetwork
	m.NodeSelector = pod.NodeSelector
	m.Tolerations = pod.Tolerations
	m.PriorityClassName = pod.PriorityClassName
	if pod.Affinity != nil {
		m.NodeAffinity = pod.Affinity.NodeAffinity
	}
	v.ImagePullSecrets = pod.ImagePullSecrets
	return nil
}

func liveDaemon(v *Values, o *unstructured.Unstructured) error {
	pod, err := podTemplate(o)
	if err != nil {
		return err
	}
	c := pod.Containers[0]
	a := args(c.Args)
	d := &v.Daemon
	if value, ok := a.get("v"); ok {
		d.Log.Level = value
	}
	if value, ok := a.get("addr"); ok {
		if n, err := strconv.ParseInt(value[strings.LastIndex(value, ":")+1:], 10, 32); err == nil {
			d.Port = int32(n)
		}
	}
	d.SocketFile, _ = a.get("socket-file")
	if value, ok := a.get("enable-pprof"); ok {
		d.EnablePprof = value == "true"
	}
	for _, vol := range pod.Volumes {
		if vol.Name == "runtime-socket" && vol.HostPath != nil {
			d.SocketLocation = vol.HostPath.Path
		}
	}
	for _, e := range c.Env {
		if e.Name != "NODE_NAME" && e.Name != "KUBE_CACHE_MUTATION_DETECTOR" {
			d.ExtraEnvs = append(d.ExtraEnvs, e)
		}
	}
	d.Resources = c.Resources
	d.NodeSelector = pod.NodeSelector
	d.Affinity = pod.Affinity
	d.PriorityClassName = pod.PriorityClassName
	return nil
}

// liveImage takes over repository and tag when the image is a mirror of ours.
func liveImage(i *ImageValues, c corev1.Container) {
	i.PullPolicy = c.ImagePullPolicy
	if i.PullPolicy == "" {
		i.PullPolicy = corev1.PullIfNotPresent
	}
	name, _, _ := strings.Cut(c.Image, "@")
	repository := strings.TrimSuffix(name, ":"+tagOf(name))
	if strings.HasSuffix(repository, "kruisectl/kruise-manager") {
		i.Repository = repository
	}
}

// ValueDiff is one value that differs between two sets.
type ValueDiff struct {
	Key        string `json:"key"`
	Before     string `json:"before"`
	After      string `json:"after"`
	gateChange bool
}

// String is one line.
func (d ValueDiff) String() string { return fmt.Sprintf("%s: %s → %s", d.Key, d.Before, d.After) }

// CompareValues lists keys whose values differ, sorted.
func CompareValues(a, b Values) []ValueDiff {
	before, after := map[string]string{}, map[string]string{}
	flatten("", plain(a), before)
	flatten("", plain(b), after)
	var diffs []ValueDiff
	for _, k := range Keys() {
		if before[k] != after[k] {
			diffs = append(diffs, ValueDiff{Key: k, Before: orAbsent(before[k]), After: orAbsent(after[k]), gateChange: k == "featureGates"})
		}
	}
	return diffs
}

func orAbsent(s string) string {
	if s == "" || s == "null" {
		return "(none)"
	}
	return s
}

// flatten writes the JSON text of every key of Keys.
func flatten(prefix string, node any, into map[string]string) {
	keys := map[string]bool{}
	for _, k := range Keys() {
		keys[k] = true
	}
	var walk func(prefix string, node any)
	walk = func(prefix string, node any) {
		m, isMap := node.(map[string]any)
		if !isMap || keys[strings.TrimSuffix(prefix, ".")] {
			data, _ := json.Marshal(node)
			text := string(data)
			if s, ok := node.(string); ok {
				text = s
			}
			into[strings.TrimSuffix(prefix, ".")] = text
			return
		}
		for k, v := range m {
			walk(prefix+k+".", v)
		}
	}
	walk(prefix, node)
}

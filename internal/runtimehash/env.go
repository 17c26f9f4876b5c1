// SPDX-License-Identifier: Apache-2.0

package runtimehash

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetadataKind says which map of an object's metadata an environment variable reads.
type MetadataKind string

// The two maps whose entries an environment variable can read by key.
const (
	Labels      MetadataKind = "labels"
	Annotations MetadataKind = "annotations"
)

// MetadataKey is one label or annotation, by name.
type MetadataKey struct {
	Kind MetadataKind
	Key  string
}

// MetadataEnv is an environment variable whose value is a label or an annotation.
type MetadataEnv struct {
	Name string // of the variable
	MetadataKey
}

// EnvVar is one variable as it goes into the hash.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// excluded are variables that SidecarSet writes; a change of them restarts nothing.
var excluded = []string{"SIDECARSET_VERSION", "SIDECARSET_VERSION_ALT"}

// MetadataEnvs lists the variables of c that come from labels or annotations, in the
// order of the spec: empty value and a fieldRef of the form metadata.labels['key'].
func MetadataEnvs(c *corev1.Container) []MetadataEnv {
	var envs []MetadataEnv
	for i := range c.Env {
		e := &c.Env[i]
		if e.Value != "" || e.ValueFrom == nil || e.ValueFrom.FieldRef == nil || slices.Contains(excluded, e.Name) {
			continue
		}
		if key, ok := parseFieldPath(e.ValueFrom.FieldRef.FieldPath); ok {
			envs = append(envs, MetadataEnv{Name: e.Name, MetadataKey: key})
		}
	}
	return envs
}

// parseFieldPath reads metadata.labels['key'] and metadata.annotations['key'].
func parseFieldPath(path string) (MetadataKey, bool) {
	for _, kind := range []MetadataKind{Labels, Annotations} {
		rest, ok := strings.CutPrefix(path, "metadata."+string(kind)+"['")
		if !ok {
			continue
		}
		if key, ok := strings.CutSuffix(rest, "']"); ok && key != "" {
			return MetadataKey{Kind: kind, Key: key}, true
		}
	}
	return MetadataKey{}, false
}

// Env is the hash of variables read inside a running container. The order of envs does
// not matter; envs is not changed. Without any variable it is the hash of JSON null,
// which is not 0.
func Env(envs []EnvVar) uint64 {
	if len(envs) == 0 {
		return ofJSON([]EnvVar(nil))
	}
	sorted := slices.Clone(envs)
	slices.SortStableFunc(sorted, func(a, b EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	return ofJSON(sorted)
}

// ExpectedEnv is the hash that a container started from c now would have, with the
// values that meta has now. A missing label or annotation is an empty value, as for the
// kubelet.
func ExpectedEnv(c *corev1.Container, meta metav1.Object) uint64 {
	var envs []EnvVar
	for _, e := range MetadataEnvs(c) {
		values := meta.GetLabels()
		if e.Kind == Annotations {
			values = meta.GetAnnotations()
		}
		envs = append(envs, EnvVar{Name: e.Name, Value: values[e.Key]})
	}
	return Env(envs)
}

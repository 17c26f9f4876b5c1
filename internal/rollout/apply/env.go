// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
)

// Variables of containers that mean something to this product.
const (
	// PriorityVariable orders the start of containers.
	PriorityVariable = "KRUISE_CONTAINER_PRIORITY"
	// BarrierVariable belongs to the webhook that makes the order happen.
	BarrierVariable = "KRUISE_CONTAINER_BARRIER"
)

// Env is a change of the variables of containers.
type Env struct {
	// Containers is a glob on their names; empty means all.
	Containers string
	// Set are variables to have, in order; Remove names those that go.
	Set    []corev1.EnvVar
	Remove []string
	// KeepExisting refuses to change the value of a variable that is there.
	KeepExisting bool
	// Reason is stored as the change cause.
	Reason string
}

// ParseEnv reads NAME=VALUE and NAME- words. The error is one sentence for the user.
func ParseEnv(words []string) (set []corev1.EnvVar, remove []string, err error) {
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		gone := ""
		if !ok {
			if gone, ok = strings.CutSuffix(w, "-"); ok {
				name = gone
			}
		}
		if !ok || len(validation.IsEnvVarName(name)) > 0 {
			return nil, nil, fmt.Errorf("%q is neither NAME=VALUE nor NAME-", w)
		}
		if name == BarrierVariable {
			return nil, nil, fmt.Errorf("%s belongs to the webhook that starts containers in order; set %s instead", BarrierVariable, PriorityVariable)
		}
		if gone != "" {
			remove = append(remove, name)
			continue
		}
		set = append(set, corev1.EnvVar{Name: name, Value: value})
	}
	return set, remove, nil
}

// Change computes the operations: one per container that changes, addressed by index and
// tested by name. Entries that stay are sent as they are.
func (e Env) Change(w adapter.Workload) ([]Op, error) {
	var ops []Op
	err := eachContainer(w, e.Containers, func(c map[string]any, name, pointer string) error {
		was, _, _ := unstructured.NestedSlice(c, "env")
		now, err := e.list(was, name)
		if err != nil || sameValue(now, was) || len(now) == 0 && len(was) == 0 {
			return err
		}
		ops = append(ops, Op{Op: "test", Path: pointer + "/name", Value: name})
		if len(now) == 0 {
			ops = append(ops, Op{Op: "remove", Path: pointer + "/env"})
		} else {
			ops = append(ops, Op{Op: "add", Path: pointer + "/env", Value: now})
		}
		return nil
	})
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	return append(ops, Remark(w, e.Reason)...), nil
}

func (e Env) list(was []any, container string) ([]any, error) {
	now := slices.DeleteFunc(slices.Clone(was), func(entry any) bool { return slices.Contains(e.Remove, nameOf(entry)) })
	for _, v := range e.Set {
		entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v)
		if err != nil {
			return nil, fmt.Errorf("encoding variable %s: %w", v.Name, err)
		}
		if v.ValueFrom == nil {
			entry["value"] = v.Value // also an empty one
		}
		i := slices.IndexFunc(now, func(old any) bool { return nameOf(old) == v.Name })
		switch {
		case i < 0:
			now = append(now, entry)
		case sameEntry(now[i], entry):
		case e.KeepExisting:
			return nil, fmt.Errorf("container %s has %s already, with another value (--overwrite=false)", container, v.Name)
		default:
			now[i] = entry
		}
	}
	return now, nil
}

// sameEntry: an empty value may be written or left out.
func sameEntry(a, b any) bool {
	var x, y corev1.EnvVar
	am, _ := a.(map[string]any)
	bm, _ := b.(map[string]any)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(am, &x) != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(bm, &y) != nil {
		return false
	}
	return sameValue(x, y)
}

func nameOf(entry any) string {
	m, _ := entry.(map[string]any)
	s, _ := m["name"].(string)
	return s
}

// eachContainer visits the containers of the template whose name matches glob, as they are
// in the object. None at all is an error that lists those there are.
func eachContainer(w adapter.Workload, glob string, visit func(c map[string]any, name, pointer string) error) error {
	found := false
	var all []string
	for _, field := range []string{"containers", "initContainers"} {
		v, _ := w.Value(join(w.At.Template, "spec", field))
		list, _ := v.([]any)
		for i, item := range list {
			c, ok := item.(map[string]any)
			if !ok {
				continue
			}
			name := nameOf(item)
			all = append(all, name)
			// Init containers have to be named: a glob over all of them means the others.
			if field == "initContainers" && (glob == "" || strings.ContainsAny(glob, "*?[")) {
				continue
			}
			if match, err := path.Match(orAll(glob), name); err != nil {
				return fmt.Errorf("-c %q is not a pattern: %w", glob, err)
			} else if !match {
				continue
			}
			found = true
			if err := visit(c, name, fmt.Sprintf("%s/spec/%s/%d", w.At.Template.Pointer(), field, i)); err != nil {
				return err
			}
		}
	}
	switch {
	case found:
		return nil
	case len(all) == 0:
		return errors.New("the template has no container")
	}
	return fmt.Errorf("no container matches %q; there are %s", orAll(glob), strings.Join(all, ", "))
}

func orAll(glob string) string {
	if glob == "" {
		return "*"
	}
	return glob
}

// ContainerEnv is one container and its variables.
type ContainerEnv struct {
	Container string
	Env       []corev1.EnvVar
}

// ListEnv returns the variables of the containers that match glob, in order.
func ListEnv(w adapter.Workload, glob string) ([]ContainerEnv, error) {
	var list []ContainerEnv
	err := eachContainer(w, glob, func(c map[string]any, name, _ string) error {
		typed := corev1.Container{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c, &typed); err != nil {
			return fmt.Errorf("reading container %s: %w", name, err)
		}
		list = append(list, ContainerEnv{Container: name, Env: typed.Env})
		return nil
	})
	return list, err
}

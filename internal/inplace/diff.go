// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// op is the kind of a change, as in a JSON patch.
type op string

const (
	opAdd     op = "add"
	opRemove  op = "remove"
	opReplace op = "replace"
)

// change is one operation of the patch from one document to another.
type change struct {
	op   op
	path []string // decoded: no escaping
	new  any      // nil for remove
}

// diff lists the changes from old to new in the order of the keys. Lists are compared by
// index; lists of different length are one change of the whole list, as an index would
// then mean different things on both sides.
func diff(old, new any) []change {
	var changes []change
	var walk func(path []string, a, b any)
	walk = func(path []string, a, b any) {
		switch a := a.(type) {
		case map[string]any:
			if b, ok := b.(map[string]any); ok {
				keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
				slices.Sort(keys)
				for _, k := range slices.Compact(keys) {
					child := append(slices.Clone(path), k)
					av, inA := a[k]
					bv, inB := b[k]
					switch {
					case !inB:
						changes = append(changes, change{op: opRemove, path: child})
					case !inA:
						changes = append(changes, change{op: opAdd, path: child, new: bv})
					default:
						walk(child, av, bv)
					}
				}
				return
			}
		case []any:
			if b, ok := b.([]any); ok && len(a) == len(b) {
				for i := range a {
					walk(append(slices.Clone(path), strconv.Itoa(i)), a[i], b[i])
				}
				return
			}
		default: // a string, a number, a boolean or null
			switch b.(type) {
			case map[string]any, []any:
			default:
				if a == b {
					return
				}
			}
		}
		changes = append(changes, change{op: opReplace, path: path, new: b})
	}
	walk(nil, old, new)
	return changes
}

// document is the data of a revision, as a tree and as its Pod template.
type document struct {
	tree     map[string]any
	template *corev1.PodTemplateSpec
}

func decode(r *appsv1.ControllerRevision) (document, error) {
	d := document{template: &corev1.PodTemplateSpec{}}
	dec := json.NewDecoder(bytes.NewReader(r.Data.Raw))
	dec.UseNumber()
	if err := dec.Decode(&d.tree); err != nil {
		return d, fmt.Errorf("decoding the data of revision %s: %w", r.Name, err)
	}
	var data struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	data.Spec.Template = d.template
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return d, fmt.Errorf("decoding the template of revision %s: %w", r.Name, err)
	}
	return d, nil
}

// fieldPath writes a path as users do: spec.template.spec.containers[app].env[0].value.
func (d document) fieldPath(path []string) string {
	var b strings.Builder
	for i, token := range path {
		switch {
		case i == 0:
			b.WriteString(token)
		case isIndex(token):
			if name := d.nameAt(path[:i+1]); name != "" {
				token = name
			}
			b.WriteString("[" + token + "]")
		case strings.ContainsAny(token, "./ "):
			b.WriteString("[" + token + "]")
		default:
			b.WriteString("." + token)
		}
	}
	return b.String()
}

func isIndex(token string) bool {
	_, err := strconv.ParseUint(token, 10, 31)
	return err == nil
}

// nameAt is the name of the container, init container or volume at the path; "" for
// entries of other lists.
func (d document) nameAt(path []string) string {
	list := path[len(path)-2]
	if len(path) != 5 || list != "containers" && list != "initContainers" && list != "volumes" {
		return ""
	}
	var at any = d.tree
	for _, token := range path {
		switch v := at.(type) {
		case map[string]any:
			at = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(v) {
				return ""
			}
			at = v[i]
		default:
			return ""
		}
	}
	entry, _ := at.(map[string]any)
	name, _ := entry["name"].(string)
	return name
}

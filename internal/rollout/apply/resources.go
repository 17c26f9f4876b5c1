// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
)

// Resources is a change of requests and limits.
type Resources struct {
	// Containers is a glob on their names; empty means all.
	Containers string
	// Limits and Requests are values to have, by resource; Remove names resources that go
	// from both.
	Limits, Requests map[string]string
	Remove           []string
	// Reason is stored as the change cause.
	Reason string
}

// ParseResources reads "cpu=100m,memory=1Gi". The error is one sentence for the user.
func ParseResources(flag, text string) (map[string]string, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nothing asked
	}
	values := map[string]string{}
	for _, w := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(w), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s %q is not RESOURCE=QUANTITY", flag, w)
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("%s names %s twice", flag, name)
		}
		q, err := resource.ParseQuantity(value)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%s %s=%s: %q is not a quantity such as 100m or 1Gi", flag, name, value, value)
		}
		values[name] = q.String()
	}
	return values, nil
}

// Change computes the operations: one per container that changes, addressed by index and
// tested by name.
func (r Resources) Change(w adapter.Workload) ([]Op, error) {
	var ops []Op
	err := eachContainer(w, r.Containers, func(c map[string]any, name, pointer string) error {
		was, _, _ := unstructured.NestedMap(c, "resources")
		now := map[string]any{}
		for k, v := range was {
			now[k] = v
		}
		changed := false
		for field, values := range map[string]map[string]string{"limits": r.Limits, "requests": r.Requests} {
			list, touched := r.merge(was, field, values)
			changed = changed || touched
			if len(list) > 0 {
				now[field] = list
			} else {
				delete(now, field)
			}
		}
		if !changed {
			return nil
		}
		ops = append(ops, Op{Op: "test", Path: pointer + "/name", Value: name}, Op{Op: "add", Path: pointer + "/resources", Value: now})
		return nil
	})
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	return append(ops, Remark(w, r.Reason)...), nil
}

// merge compares quantities by value: "1" and "1000m" are the same.
func (r Resources) merge(was map[string]any, field string, values map[string]string) (list map[string]any, changed bool) {
	old, _, _ := unstructured.NestedMap(was, field)
	list = map[string]any{}
	for k, v := range old {
		list[k] = v
	}
	for _, name := range r.Remove {
		if _, ok := list[name]; ok {
			delete(list, name)
			changed = true
		}
	}
	for name, value := range values {
		if sameQuantity(list[name], value) {
			continue
		}
		list[name], changed = value, true
	}
	return list, changed
}

func sameQuantity(was any, value string) bool {
	if was == nil {
		return false
	}
	a, err := resource.ParseQuantity(fmt.Sprint(was))
	b, err2 := resource.ParseQuantity(value)
	return err == nil && err2 == nil && a.Cmp(b) == 0
}

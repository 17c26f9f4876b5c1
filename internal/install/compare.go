// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// annotationTemplate is the manager's own copy of the webhooks of a configuration;
// rendering it empty makes the manager take over the list as it is (platform.md 3.3).
const annotationTemplate = "template"

// FieldDiff is one field that is not as rendered.
type FieldDiff struct {
	Path       string `json:"path"`
	Live, Want any    `json:"-"`
}

// String is one line, "spec.replicas: 5 → 2".
func (d FieldDiff) String() string {
	return fmt.Sprintf("%s: %s → %s", d.Path, short(d.Live), short(d.Want))
}

func short(v any) string {
	if v == nil {
		return "(absent)"
	}
	s := strings.ReplaceAll(fmt.Sprint(plain(v)), "\n", " ")
	if r := []rune(s); len(r) > 80 {
		s = string(r[:77]) + "…"
	}
	return s
}

// Drift lists the fields in which live differs from want, sorted by path. Fields that
// only live has are defaults or somebody else's and do not count, except members of lists,
// which are compared as a whole, and additional webhooks. What the manager fills in at run
// time (caBundle, the template annotation, Secret data) never counts.
func Drift(live, want *unstructured.Unstructured) []FieldDiff {
	var diffs []FieldDiff
	w := want.DeepCopy()
	for _, field := range []string{"apiVersion", "kind", "status"} {
		delete(w.Object, field)
	}
	if strings.HasSuffix(want.GetKind(), "WebhookConfiguration") {
		unstructured.RemoveNestedField(w.Object, "metadata", "annotations", annotationTemplate)
	}
	compare("", live.Object, w.Object, &diffs)
	slices.SortFunc(diffs, func(a, b FieldDiff) int { return strings.Compare(a.Path, b.Path) })
	return diffs
}

func compare(path string, live, want any, diffs *[]FieldDiff) {
	switch w := want.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok && len(w) > 0 {
			*diffs = append(*diffs, FieldDiff{path, live, want})
			return
		}
		for _, k := range sortedKeys(w) {
			compare(join(path, k), l[k], w[k], diffs)
		}
	case []any:
		l, _ := live.([]any)
		compareList(path, l, w, diffs)
	default:
		if !sameScalar(path, live, want) {
			*diffs = append(*diffs, FieldDiff{path, live, want})
		}
	}
}

func join(path, key string) string {
	if strings.ContainsAny(key, "./") {
		return path + "[" + key + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// compareList matches members by name where they have one, else by position.
func compareList(path string, live, want []any, diffs *[]FieldDiff) {
	byName := func(list []any, name string) any {
		for _, x := range list {
			if m, ok := x.(map[string]any); ok && m["name"] == name {
				return x
			}
		}
		return nil
	}
	wanted := map[string]bool{}
	for i, w := range want {
		m, isMap := w.(map[string]any)
		name, named := m["name"].(string)
		switch {
		case isMap && named:
			wanted[name] = true
			compare(path+"["+name+"]", byName(live, name), w, diffs)
		case i < len(live):
			compare(fmt.Sprintf("%s[%d]", path, i), live[i], w, diffs)
		default:
			*diffs = append(*diffs, FieldDiff{fmt.Sprintf("%s[%d]", path, i), nil, w})
		}
	}
	for i, l := range live {
		m, isMap := l.(map[string]any)
		name, named := m["name"].(string)
		switch {
		case isMap && named && len(wanted) > 0:
			if !wanted[name] {
				*diffs = append(*diffs, FieldDiff{path + "[" + name + "]", l, nil})
			}
		case i >= len(want):
			*diffs = append(*diffs, FieldDiff{fmt.Sprintf("%s[%d]", path, i), l, nil})
		}
	}
}

// sameScalar compares as JSON does; quantities may be written in another way.
func sameScalar(path string, live, want any) bool {
	if live == nil && (want == nil || want == "" || want == false) {
		return true // the server drops what is empty
	}
	if reflect.DeepEqual(plain(live), plain(want)) {
		return true
	}
	if strings.Contains(path, ".resources.") {
		return sameQuantity(fmt.Sprint(live), fmt.Sprint(want))
	}
	return false
}

// sameQuantity reports that two texts are the same amount, such as 1000m and 1.
func sameQuantity(a, b string) bool {
	x, errX := resource.ParseQuantity(a)
	y, errY := resource.ParseQuantity(b)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

// SPDX-License-Identifier: Apache-2.0

package recreatelabel

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

func TestNode(t *testing.T) {
	long := "ip-10-0-0-1." + strings.Repeat("a-region.", 8) + "example.com"
	for name, c := range map[string]struct{ node, want string }{
		"a short name is its own label":              {"node-1", "node-1"},
		"63 characters are short enough":             {strings.Repeat("n", 63), strings.Repeat("n", 63)},
		"a longer one ends with a hash of all of it": {long, "ip-10-0-0-1.a-region.a-region.a-region.a-region.a-re-28f4865572"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Node(c.node); got != c.want {
				t.Errorf("Node(%q) = %q, want %q", c.node, got, c.want)
			}
		})
	}
}

func TestIs(t *testing.T) {
	long, other := strings.Repeat("n", 64), strings.Repeat("n", 65)
	for name, c := range map[string]struct {
		label, annotation, node string
		want                    bool
	}{
		"the label alone decides for a short name":              {"a", "", "a", true},
		"another node is another one":                           {"a", "", "b", false},
		"no label is no node":                                   {"", "", "a", false},
		"a long name matches by its hash":                       {Node(long), long, long, true},
		"also when nobody wrote the annotation":                 {Node(long), "", long, true},
		"a long name that shares the label is told by the rest": {Node(long), other, long, false},
		"an annotation cannot move a request to another node":   {"a", "b", "b", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Is(c.label, c.annotation, c.node); got != c.want {
				t.Errorf("Is = %t, want %t", got, c.want)
			}
		})
	}
}

// Whatever a node is called, the API server takes its label, the node finds itself and no other
// one, and people read its full name.
func TestEveryNameOfANodeHasALabel(t *testing.T) {
	names := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?){0,5}`).Filter(func(s string) bool { return len(s) <= 253 })
	rapid.Check(t, func(t *rapid.T) {
		a, b := names.Draw(t, "node"), names.Draw(t, "another node")
		label := Node(a)
		if errs := validation.IsValidLabelValue(label); len(errs) > 0 {
			t.Fatalf("%q: %v", label, errs)
		}
		annotation := Annotation(a)
		if !Is(label, annotation, a) || Full(label, annotation) != a {
			t.Fatalf("%q is lost in %q and %q", a, label, annotation)
		}
		if a != b && Is(label, annotation, b) {
			t.Fatalf("%q takes the requests of %q", b, a)
		}
	})
}

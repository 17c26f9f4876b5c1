// SPDX-License-Identifier: Apache-2.0

package target

import (
	"errors"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	cases := map[string][]string{
		"clone":                             {"clonesets.apps.kruise.io"},
		"CloneSet":                          {"clonesets.apps.kruise.io"},
		"clonesets.apps.kruise.io":          {"clonesets.apps.kruise.io"},
		"clonesets.v1beta1.apps.kruise.io":  {"clonesets.apps.kruise.io"},
		"clonesets.v1beta9.apps.kruise.io":  nil,
		"sts":                               {"statefulsets.apps.kruise.io", "statefulsets.apps"},
		"asts":                              {"statefulsets.apps.kruise.io"},
		"statefulset.apps":                  {"statefulsets.apps"},
		"ds":                                {"daemonsets.apps.kruise.io", "daemonsets.apps"},
		"po":                                {"pods"},
		"pods.v1":                           {"pods"},
		"deploy":                            {"deployments.apps"},
		"nodeimage":                         {"nodeimages.apps.kruise.io"},
		"web":                               nil,
		"podunavailablebudgets.apps":        nil,
		"pub":                               {"podunavailablebudgets.policy.kruise.io"},
		"horizontalpodautoscaler":           {"horizontalpodautoscalers.autoscaling"},
		"statefulsets.v1alpha1.apps.kruise": nil,
	}
	for word, want := range cases {
		var got []string
		for _, k := range Lookup(word) {
			got = append(got, k.Spelling())
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("Lookup(%q) = %v, want %v", word, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	verb := Verb{Command: "rollout pause", Kinds: []*Kind{CloneSet}, Mutates: true}
	cases := map[string]struct {
		args  string
		names string
		err   string
		next  string
	}{
		"type and name":             {args: "clone web", names: "web"},
		"type and names":            {args: "clone a b", names: "a b"},
		"type slash name":           {args: "clone/web", names: "web"},
		"several":                   {args: "clone/a cloneset/b", names: "a b"},
		"nothing":                   {err: "name an object", next: "rollout pause cloneset/NAME"},
		"a bare word":               {args: "web", err: `"web" lacks a type`, next: "rollout pause cloneset/web\nrollout pause cloneset web"},
		"a type alone":              {args: "clone", err: "the name of the object is missing", next: "rollout pause clone/NAME"},
		"an unknown type":           {args: "thing/web", err: `"thing" is not a type`, next: "rollout pause cloneset/web"},
		"a kind without this verb":  {args: "bcj/x", err: `does not work on broadcastjobs.apps.kruise.io; it works on cloneset`},
		"no name":                   {args: "clone/", err: "is not TYPE/NAME"},
		"too many slashes":          {args: "clone/a/b", err: "is not TYPE/NAME"},
		"both forms mixed":          {args: "clone clone/b", err: "not both"},
		"a bare word between pairs": {args: "clone/a b", err: `"b" lacks a type`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			names, err := Parse(verb, strings.Fields(tc.args))
			if tc.err != "" {
				var input *InputError
				if !errors.As(err, &input) || !strings.Contains(err.Error(), tc.err) || tc.next != "" && input.Next != tc.next {
					t.Fatalf("Parse() = %v (next %q), want an error with %q and next %q", err, nextOf(input), tc.err, tc.next)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range names {
				got = append(got, n.Name)
			}
			if strings.Join(got, " ") != tc.names {
				t.Errorf("Parse() names %v, want %s", got, tc.names)
			}
		})
	}
}

func nextOf(e *InputError) string {
	if e == nil {
		return ""
	}
	return e.Next
}

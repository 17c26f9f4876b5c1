// SPDX-License-Identifier: Apache-2.0

// Package contract compares the CustomResourceDefinitions of this module with the wire contract
// of OpenKruise 1.x, which lies in testdata as one line a field and one line a version. Nothing
// of a kind that we serve may be missing or of another type; what we add is listed with a
// reason. It is imported by tests only.
package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Field is one line of the contract: a field of spec or status in one version of a resource.
type Field struct {
	Resource, Version string
	// Path is the JSON path, with [] for the items of a list and {} for the values of a map.
	Path     string
	Type     string // as in OpenAPI, int-or-string, or any
	Required bool
	Default  string // empty: none
	// Constraints are texts such as format=int32, in no particular order.
	Constraints []string
}

// intOrString is the constraint of a field that takes a number or a text.
const intOrString = "x-kubernetes-int-or-string=True"

// Key identifies a field.
func (f Field) Key() string { return f.Resource + "\t" + f.Version + "\t" + f.Path }

// ParseFields reads crd-fields.tsv. Lines that begin with # are skipped.
func ParseFields(text string) ([]Field, error) {
	var out []Field
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		c := strings.Split(line, "\t")
		if len(c) != 7 {
			return nil, fmt.Errorf("line %d has %d columns instead of 7", i+1, len(c))
		}
		f := Field{
			Resource: c[0], Version: c[1], Path: c[2], Type: c[3], Required: c[4] == "yes", Default: c[5],
			Constraints: splitConstraints(c[6]),
		}
		if f.Type == "any" && slices.Contains(f.Constraints, intOrString) {
			f.Type = "int-or-string" // as typeOf says it: the items of reserveOrdinals
		}
		out = append(out, f)
	}
	return out, nil
}

// splitConstraints cuts at spaces that come before "name=", for a value may hold spaces itself.
func splitConstraints(text string) []string {
	var out []string
	for word := range strings.FieldsSeq(text) {
		if len(out) > 0 && (!strings.Contains(word, "=") || strings.HasPrefix(word, "'")) {
			out[len(out)-1] += " " + word
			continue
		}
		out = append(out, word)
	}
	return out
}

// Fields lists spec and status of every version of crd, in the form of the contract. A CEL rule
// is the constraint rule=<message>.
func Fields(crd *apiextensionsv1.CustomResourceDefinition) []Field {
	var out []Field
	for _, v := range crd.Spec.Versions {
		w := walker{resource: crd.Spec.Names.Plural, version: v.Name}
		root := v.Schema.OpenAPIV3Schema
		for _, name := range []string{"spec", "status"} {
			if p, ok := root.Properties[name]; ok {
				w.field(name, p, slices.Contains(root.Required, name))
			}
		}
		out = append(out, w.out...)
	}
	return out
}

type walker struct {
	resource, version string
	out               []Field
}

func (w *walker) field(path string, p apiextensionsv1.JSONSchemaProps, required bool) {
	f := Field{Resource: w.resource, Version: w.version, Path: path, Type: typeOf(p), Required: required, Constraints: constraints(p)}
	if p.Default != nil {
		f.Default = python(p.Default.Raw)
	}
	w.out = append(w.out, f)
	w.children(path, p)
}

func (w *walker) children(path string, p apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		w.field(path+"."+name, p.Properties[name], slices.Contains(p.Required, name))
	}
	if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
		w.field(path+"{}", *p.AdditionalProperties.Schema, false)
	}
	if p.Items != nil && p.Items.Schema != nil {
		if item := *p.Items.Schema; typeOf(item) == "object" {
			w.children(path+"[]", item) // the contract has no line for it
		} else {
			w.field(path+"[]", item, false)
		}
	}
}

func typeOf(p apiextensionsv1.JSONSchemaProps) string {
	switch {
	case p.XIntOrString:
		return "int-or-string"
	case p.Type == "":
		return "any"
	}
	return p.Type
}

func constraints(p apiextensionsv1.JSONSchemaProps) []string {
	var out []string
	add := func(set bool, format string, args ...any) {
		if set {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(p.Format != "", "format=%s", p.Format)
	add(p.Pattern != "", "pattern=%s", p.Pattern)
	add(p.XIntOrString, intOrString)
	add(p.XPreserveUnknownFields != nil && *p.XPreserveUnknownFields, "x-kubernetes-preserve-unknown-fields=True")
	add(p.XEmbeddedResource, "x-kubernetes-embedded-resource=True")
	if p.XMapType != nil {
		add(true, "x-kubernetes-map-type=%s", *p.XMapType)
	}
	if p.XListType != nil {
		add(true, "x-kubernetes-list-type=%s", *p.XListType)
	}
	add(len(p.XListMapKeys) > 0, "x-kubernetes-list-map-keys=['%s']", strings.Join(p.XListMapKeys, "', '"))
	for _, n := range []struct {
		name  string
		value *float64
	}{{"minimum", p.Minimum}, {"maximum", p.Maximum}} {
		if n.value != nil {
			add(true, "%s=%s", n.name, strconv.FormatFloat(*n.value, 'f', -1, 64))
		}
	}
	for _, n := range []struct {
		name  string
		value *int64
	}{{"minLength", p.MinLength}, {"maxLength", p.MaxLength}, {"minItems", p.MinItems}, {"maxItems", p.MaxItems}, {"maxProperties", p.MaxProperties}} {
		if n.value != nil {
			add(true, "%s=%d", n.name, *n.value)
		}
	}
	if len(p.Enum) > 0 {
		values := make([]string, len(p.Enum))
		for i, e := range p.Enum {
			values[i] = "'" + python(e.Raw) + "'"
		}
		add(true, "enum=[%s]", strings.Join(values, ", "))
	}
	for _, rule := range p.XValidations {
		add(true, "rule=%s", rule.Message)
	}
	return out
}

// python is a JSON scalar in the notation of the contract.
func python(raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	switch v := v.(type) {
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case string:
		return v
	}
	return string(raw)
}

// Versions lists every version of crd as a line of crds.tsv.
func Versions(crd *apiextensionsv1.CustomResourceDefinition) []string {
	var out []string
	for _, v := range crd.Spec.Versions {
		var columns, subresources []string
		for _, c := range v.AdditionalPrinterColumns {
			columns = append(columns, fmt.Sprintf("%s:%s:%s:%d", c.Name, c.Type, c.JSONPath, c.Priority))
		}
		if v.Subresources != nil {
			if s := v.Subresources.Scale; s != nil {
				selector := ""
				if s.LabelSelectorPath != nil {
					selector = *s.LabelSelectorPath
				}
				subresources = append(subresources, fmt.Sprintf("scale(labelSelectorPath=%s,specReplicasPath=%s,statusReplicasPath=%s)",
					selector, s.SpecReplicasPath, s.StatusReplicasPath))
			}
			if v.Subresources.Status != nil {
				subresources = append(subresources, "status")
			}
		}
		title := map[bool]string{true: "True", false: "False"}
		out = append(out, strings.Join([]string{
			crd.Spec.Group, crd.Spec.Names.Plural, crd.Spec.Names.Kind, string(crd.Spec.Scope), strings.Join(crd.Spec.Names.ShortNames, ","),
			v.Name, title[v.Served], title[v.Storage], title[v.Deprecated], strings.Join(subresources, ","), strings.Join(columns, " "),
		}, "\t"))
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// withoutEffect are values that charts of other versions know and that change nothing
// here, with the reason. They are accepted, so that a file written for a chart works.
var withoutEffect = map[string]string{
	"installation.roleListGroups": "the manager needs no permission to list other groups",
	"helmHooks.image.repository":  "removal needs no hook image, see kruisectl uninstall",
	"helmHooks.image.tag":         "removal needs no hook image, see kruisectl uninstall",
}

// A ValueError is a key or a value that is wrong on any cluster.
type ValueError struct {
	Key string
	Err error
	// Suggestions are known keys similar to an unknown Key.
	Suggestions []string
}

// Error implements error in one sentence.
func (e *ValueError) Error() string {
	s := fmt.Sprintf("value %s: %v", e.Key, e.Err)
	if len(e.Suggestions) > 0 {
		s += ", did you mean " + strings.Join(e.Suggestions, " or ") + "?"
	}
	return s
}

// Unwrap returns Err.
func (e *ValueError) Unwrap() error { return e.Err }

// Keys lists every key of Values, sorted.
func Keys() []string {
	var keys []string
	var walk func(prefix string, t reflect.Type)
	walk = func(prefix string, t reflect.Type) {
		for f := range fields(t) {
			name := prefix + jsonName(f)
			if isSection(f.Type) {
				walk(name+".", f.Type)
			} else {
				keys = append(keys, name)
			}
		}
	}
	walk("", reflect.TypeFor[Values]())
	slices.Sort(keys)
	return keys
}

// ParseFile reads the YAML of a values file into a tree for Merge.
func ParseFile(data []byte) (map[string]any, error) {
	tree := map[string]any{}
	jsonData, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("parsing values: %w", err)
	}
	if bytes.Equal(bytes.TrimSpace(jsonData), []byte("null")) {
		return tree, nil
	}
	d := json.NewDecoder(bytes.NewReader(jsonData))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("parsing values: the file is not a map of keys: %w", err)
	}
	return tree, nil
}

// ParseSet reads one --set: key=value[,key=value]. A comma inside of a value is written
// "\,", a list "{a,b}".
func ParseSet(expr string) (map[string]any, error) {
	tree := map[string]any{}
	for _, part := range splitUnescaped(expr) {
		key, text, ok := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return nil, &ValueError{Key: strconv.Quote(part), Err: fmt.Errorf("is not key=value")}
		}
		node := tree
		path := strings.Split(key, ".")
		for _, p := range path[:len(path)-1] {
			next, ok := node[p].(map[string]any)
			if !ok {
				next = map[string]any{}
				node[p] = next
			}
			node = next
		}
		node[path[len(path)-1]] = text
	}
	return tree, nil
}

func splitUnescaped(s string) []string {
	var parts []string
	var b strings.Builder
	depth := 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == ',':
			b.WriteByte(',')
			i++
		case s[i] == ',' && depth == 0:
			parts = append(parts, b.String())
			b.Reset()
		default:
			switch s[i] {
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			b.WriteByte(s[i])
		}
	}
	return append(parts, b.String())
}

// Merge writes tree over v. Lists and free maps replace what was there. It returns
// warnings about keys that are accepted without effect; every wrong key or value is in
// the error, and then v is unchanged.
func (v *Values) Merge(tree map[string]any) (warnings []string, err error) {
	next := *v
	m := merger{}
	m.section("", reflect.ValueOf(&next).Elem(), tree)
	if len(m.errs) > 0 {
		return nil, joinErrors(m.errs)
	}
	*v = next
	return m.warnings, nil
}

type merger struct {
	warnings []string
	errs     []error
}

func (m *merger) section(prefix string, target reflect.Value, tree map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		key, value := prefix+name, tree[name]
		field, ok := fieldByName(target, name)
		switch {
		case !ok:
			m.unknown(key, value)
		case isSection(field.Type()):
			sub, isMap := value.(map[string]any)
			if value == nil {
				continue
			}
			if !isMap {
				m.errs = append(m.errs, &ValueError{Key: key, Err: fmt.Errorf("is a section, set one of its keys: %s", strings.Join(below(key), ", "))})
				continue
			}
			m.section(key+".", field, sub)
		default:
			if err := assign(field, value); err != nil {
				m.errs = append(m.errs, &ValueError{Key: key, Err: err})
			}
		}
	}
}

func (m *merger) unknown(key string, value any) {
	if reason, ok := withoutEffect[key]; ok {
		m.warnings = append(m.warnings, fmt.Sprintf("value %s has no effect: %s", key, reason))
		return
	}
	if sub, ok := value.(map[string]any); ok && hasPrefixKey(withoutEffect, key+".") {
		for _, name := range slices.Sorted(maps.Keys(sub)) {
			m.unknown(key+"."+name, sub[name])
		}
		return
	}
	m.errs = append(m.errs, &ValueError{Key: key, Err: fmt.Errorf("no such key"), Suggestions: nearest(key, Keys())})
}

func hasPrefixKey(m map[string]string, prefix string) bool {
	for k := range m {
		if strings.HasPrefix(k, prefix) {
			return true
		}
	}
	return false
}

func below(key string) []string {
	var keys []string
	for _, k := range Keys() {
		if strings.HasPrefix(k, key+".") {
			keys = append(keys, k)
		}
	}
	return keys
}

// assign converts value, a scalar of a file or the text of --set, to the field's type.
func assign(field reflect.Value, value any) error {
	text, isText := value.(string)
	switch field.Kind() {
	case reflect.String:
		switch value.(type) {
		case string, json.Number, bool:
			field.SetString(fmt.Sprint(value))
		case nil:
			field.SetString("")
		default:
			return fmt.Errorf("must be text")
		}
		return nil
	case reflect.Int32:
		n, err := strconv.ParseInt(fmt.Sprint(value), 10, 32)
		if err != nil {
			return fmt.Errorf("%v is not a whole number", value)
		}
		field.SetInt(n)
		return nil
	case reflect.Bool:
		b, err := strconv.ParseBool(fmt.Sprint(value))
		if err != nil {
			return fmt.Errorf("%v is not true or false", value)
		}
		field.SetBool(b)
		return nil
	}
	if isText {
		var err error
		if value, err = parseText(field.Kind(), text); err != nil {
			return err
		}
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	fresh := reflect.New(field.Type())
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(fresh.Interface()); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	field.Set(fresh.Elem())
	return nil
}

// parseText reads what --set gives for a list or a map: {a,b}, or YAML flow style.
func parseText(kind reflect.Kind, text string) (any, error) {
	if kind == reflect.Slice && strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") && !strings.Contains(text, ":") {
		list := []any{}
		for item := range strings.SplitSeq(text[1:len(text)-1], ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		return list, nil
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("%q is not YAML", text)
	}
	if s, ok := value.(string); ok && kind == reflect.Slice {
		return []any{s}, nil
	}
	return value, nil
}

// isSection reports that a field's own fields are keys. Types of Kubernetes are values.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[Values]().PkgPath()
}

func fields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func fieldByName(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if jsonName(v.Type().Field(i)) == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

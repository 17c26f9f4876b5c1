// SPDX-License-Identifier: Apache-2.0

package out

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// APIVersion is that of every document this tool defines itself.
const APIVersion = "cli.kruise.io/v1"

// Envelope starts a document of this tool. Keys are added by the caller; counts are
// always present, times RFC 3339 UTC, durations integer seconds (cli.md 1.6).
func Envelope(kind, context string) map[string]any {
	doc := map[string]any{"apiVersion": APIVersion, "kind": kind}
	if context != "" {
		doc["context"] = context
	}
	return doc
}

// Format is a parsed -o. The zero Format is the table or sentence for people.
type Format struct {
	// Name is "", wide, name, json, yaml, jsonl, jsonpath, go-template or custom-columns.
	Name string
	arg  string
}

// Output is the -o flag of one command.
type Output struct {
	raw     string
	allowed []string
	// NoHeaders leaves out the header line of tables.
	NoHeaders bool
}

// AddTo registers -o, accepting the given names; json, yaml and the templates of kubectl
// are always accepted.
func (o *Output) AddTo(fs *pflag.FlagSet, more ...string) {
	o.allowed = append([]string{"json", "yaml", "jsonpath", "jsonpath-file", "go-template", "go-template-file", "custom-columns", "custom-columns-file"}, more...)
	fs.StringVarP(&o.raw, "output", "o", "", "output format: "+strings.Join(append(append([]string{}, more...), "json", "yaml", "jsonpath=…", "go-template=…", "custom-columns=…"), ", "))
}

// Raw is the value of the flag as typed.
func (o *Output) Raw() string { return o.raw }

// Format parses the flag; a name this command does not have is a usage error.
func (o *Output) Format() (Format, error) { return ParseFormat(o.raw, o.allowed) }

// ParseFormat parses a value of -o against the accepted names.
func ParseFormat(raw string, allowed []string) (Format, error) {
	if raw == "" {
		return Format{}, nil
	}
	name, arg, hasArg := strings.Cut(raw, "=")
	ok := false
	for _, a := range allowed {
		ok = ok || a == name
	}
	if !ok {
		return Format{}, Usagef("-o %s is not a format of this command: use one of %s", name, strings.Join(allowed, ", "))
	}
	switch name {
	case "jsonpath", "go-template", "custom-columns":
		if !hasArg || arg == "" {
			return Format{}, Usagef("-o %s needs a template: -o %s=TEMPLATE", name, name)
		}
	case "jsonpath-file", "go-template-file", "custom-columns-file":
		data, err := os.ReadFile(arg)
		if err != nil {
			return Format{}, Usagef("-o %s: %w", name, err)
		}
		name, arg = strings.TrimSuffix(name, "-file"), strings.TrimSpace(string(data))
	default:
		if hasArg {
			return Format{}, Usagef("-o %s takes no value", name)
		}
	}
	f := Format{Name: name, arg: arg}
	return f, f.check()
}

func (f Format) check() error {
	switch f.Name {
	case "jsonpath":
		if err := jsonpath.New("o").Parse(relaxed(f.arg)); err != nil {
			return Usagef("-o jsonpath: %w", err)
		}
	case "go-template":
		if _, err := template.New("o").Parse(f.arg); err != nil {
			return Usagef("-o go-template: %w", err)
		}
	case "custom-columns":
		if _, _, err := columns(f.arg); err != nil {
			return Usage(err)
		}
	}
	return nil
}

// Machine reports that stdout must hold exactly one parseable document, or one per line.
func (f Format) Machine() bool { return f.Name == "json" || f.Name == "yaml" || f.Name == "jsonl" }

// People reports that the output is a table or a sentence.
func (f Format) People() bool { return f.Name == "" || f.Name == "wide" }

// Write prints v as f asks. v is encoded through JSON, so any type with JSON tags will do.
// Formats for people are the caller's business.
func (f Format) Write(w io.Writer, v any) error {
	data, err := encode(v)
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	switch f.Name {
	case "json":
		var b bytes.Buffer
		if err := json.Indent(&b, data, "", "    "); err != nil {
			return fmt.Errorf("encoding the result: %w", err)
		}
		_, err = w.Write(b.Bytes())
	case "jsonl":
		_, err = w.Write(data)
	case "yaml":
		var y []byte
		if y, err = yaml.JSONToYAML(data); err == nil {
			_, err = w.Write(y)
		}
	default:
		var plain any
		if err := json.Unmarshal(data, &plain); err != nil {
			return fmt.Errorf("encoding the result: %w", err)
		}
		return f.template(w, plain)
	}
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// encode is JSON on one line, with the characters < and > as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (f Format) template(w io.Writer, v any) error {
	switch f.Name {
	case "jsonpath":
		jp := jsonpath.New("o").AllowMissingKeys(true)
		if err := jp.Parse(relaxed(f.arg)); err != nil {
			return Usagef("-o jsonpath: %w", err)
		}
		return jp.Execute(w, v)
	case "go-template":
		t, err := template.New("o").Parse(f.arg)
		if err != nil {
			return Usagef("-o go-template: %w", err)
		}
		return t.Execute(w, v)
	case "custom-columns":
		names, paths, err := columns(f.arg)
		if err != nil {
			return Usage(err)
		}
		items := []any{v}
		if m, ok := v.(map[string]any); ok {
			if list, ok := m["items"].([]any); ok {
				items = list
			}
		}
		t := Table{Columns: heads(names)}
		for _, item := range items {
			row := make([]string, len(paths))
			for i, p := range paths {
				var b bytes.Buffer
				jp := jsonpath.New("o").AllowMissingKeys(true)
				if err := jp.Parse(p); err != nil {
					return Usage(err)
				}
				if err := jp.Execute(&b, item); err != nil {
					return fmt.Errorf("column %s: %w", names[i], err)
				}
				row[i] = b.String()
			}
			t.Rows = append(t.Rows, row)
		}
		return t.Print(w, Style{}, false)
	}
	return fmt.Errorf("-o %s is not a format for documents", f.Name)
}

func heads(names []string) []Column {
	cols := make([]Column, len(names))
	for i, n := range names {
		cols[i] = Column{Name: n}
	}
	return cols
}

// columns parses NAME:.path,NAME:.path.
func columns(spec string) (names, paths []string, err error) {
	for part := range strings.SplitSeq(spec, ",") {
		name, path, ok := strings.Cut(part, ":")
		if !ok || name == "" || path == "" {
			return nil, nil, fmt.Errorf("-o custom-columns: %q is not NAME:.path", part)
		}
		names = append(names, name)
		paths = append(paths, relaxed(path))
	}
	return names, paths, nil
}

// relaxed adds the braces and the leading dot that kubectl lets users leave out.
func relaxed(path string) string {
	if strings.Contains(path, "{") {
		return path
	}
	if !strings.HasPrefix(path, ".") {
		path = "." + path
	}
	return "{" + path + "}"
}

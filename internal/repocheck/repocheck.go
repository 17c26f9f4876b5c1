// SPDX-License-Identifier: Apache-2.0

// Package repocheck reads the source of the module and reports what breaks its written rules:
// the direction of imports, names and documentation of packages, file headers, and calls that
// have no place in a package. The rules are data, in rules.go; a new arrow between packages is
// a line there, for a reviewer to see. It is imported by tests only.
package repocheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path of the root.
const Module = "github.com/kruisectl/kruisectl"

// File is what the rules look at in one Go file.
type File struct {
	Path    string // from the root, with slashes
	Package string // folder of Path; "." is the root
	Test    bool
	Imports []Import
	Doc     bool     // has a package comment
	Header  bool     // begins with the SPDX line and an empty one, after a build constraint
	Inits   int      // func init
	Calls   []string // selectors such as time.Now, each once
	Source  string   // name in the package clause
}

// Import is one import of a file.
type Import struct {
	Path  string
	Blank bool // for effect only
}

// Read parses every Go file below the root of fsys, except other modules and hidden folders.
func Read(fsys fs.FS) ([]File, error) {
	var out []File
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || hasModule(fsys, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		f, err := parse(name, text)
		if err != nil {
			return err
		}
		out = append(out, f)
		return nil
	})
	return out, err
}

func hasModule(fsys fs.FS, dir string) bool {
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

func parse(name string, text []byte) (File, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return File{}, fmt.Errorf("parsing %s: %w", name, err)
	}
	f := File{
		Path: name, Package: path.Dir(name), Test: strings.HasSuffix(name, "_test.go"),
		Doc:    parsed.Doc != nil && !strings.HasPrefix(parsed.Doc.Text(), "SPDX"),
		Header: strings.HasPrefix(afterBuildLine(string(text)), "// SPDX-License-Identifier: Apache-2.0\n\n"),
		Source: parsed.Name.Name,
	}
	locals := map[string]string{} // name in the file → import path
	for _, spec := range parsed.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return File{}, fmt.Errorf("reading an import of %s: %w", name, err)
		}
		local := path.Base(p)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		locals[local] = p
		f.Imports = append(f.Imports, Import{Path: p, Blank: local == "_"})
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				f.Inits++
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && locals[x.Name] != "" {
				if call := locals[x.Name] + "." + n.Sel.Name; !slices.Contains(f.Calls, call) {
					f.Calls = append(f.Calls, call)
				}
			}
		}
		return true
	})
	return f, nil
}

// afterBuildLine skips a build constraint, which may come first.
func afterBuildLine(text string) string {
	if rest, ok := strings.CutPrefix(text, "//go:build "); ok {
		if _, after, found := strings.Cut(rest, "\n\n"); found {
			return after
		}
	}
	return text
}

// Check returns every violation of the rules as "file: what is wrong", sorted.
func Check(files []File) []string {
	var out []string
	for _, f := range files {
		report := func(format string, args ...any) {
			out = append(out, f.Path+": "+fmt.Sprintf(format, args...))
		}
		checkFile(f, report)
		if !f.Test {
			checkImports(f, report)
			checkCalls(f, report)
		}
	}
	out = append(out, undocumented(files)...)
	slices.Sort(out)
	return out
}

func checkFile(f File, report func(string, ...any)) {
	if !f.Header {
		report("must begin with the SPDX line and an empty line")
	}
	for part := range strings.SplitSeq(f.Package, "/") {
		if slices.Contains(VagueNames, part) {
			report("a package must not be named %q: name it after what it provides", part)
		}
	}
	generated := strings.HasPrefix(path.Base(f.Path), "zz_generated")
	if generated && !match("apis/**", f.Package) {
		report("generated code belongs into apis")
	}
	if f.Inits > 0 && !generated {
		report("func init: constructors take what they need and return a value")
	}
	if f.Test {
		return
	}
	for _, i := range f.Imports {
		if i.Blank && i.Path != "embed" && !match("cmd/**", f.Package) {
			report("imports %s for effect: only a main package may", i.Path)
		}
	}
}

// checkImports applies the first rule whose pattern matches the package.
func checkImports(f File, report func(string, ...any)) {
	rule, ok := ruleOf(f)
	if !ok {
		report("no rule speaks of package %s: add one to rules.go", f.Package)
		return
	}
	for _, i := range f.Imports {
		if own, ok := strings.CutPrefix(i.Path, Module); ok {
			own = strings.TrimPrefix(own, "/")
			if own == "" {
				own = "."
			}
			if !mayImport(rule, f.Package, own) {
				report("imports %s: %s", own, rule.Why)
			}
			continue
		}
		if anyPrefix(rule.Never, i.Path) && !slices.Contains(rule.But, i.Path) {
			report("imports %s: %s", i.Path, rule.Why)
		}
		if len(rule.Only) > 0 && !standard(i.Path) && !anyPrefix(rule.Only, i.Path) {
			report("imports %s: %s", i.Path, rule.Why)
		}
	}
	for _, r := range Reserved {
		if matchAny(r.For, f.Package) {
			continue
		}
		for _, i := range f.Imports {
			if anyPrefix([]string{r.Import}, i.Path) {
				report("imports %s: %s", i.Path, r.Why)
			}
		}
	}
}

func mayImport(rule Rule, pkg, own string) bool {
	if !strings.HasPrefix(pkg, "internal/") && pkg == own {
		return true
	}
	for _, pattern := range rule.Ours {
		if rest, ok := strings.CutPrefix(pattern, "./"); ok { // below its own folder
			pattern = path.Join(pkg, rest)
		}
		if match(pattern, own) {
			return !matchAny(rule.NotOurs, own)
		}
	}
	return false
}

func checkCalls(f File, report func(string, ...any)) {
	for _, r := range Calls {
		if !matchAny(r.In, f.Package) && !matchAny(r.In, f.Path) || matchAny(r.But, f.Package) || matchAny(r.But, f.Path) {
			continue
		}
		for _, call := range f.Calls {
			if slices.ContainsFunc(r.Calls, func(c string) bool {
				return c == call || strings.HasSuffix(c, "*") && strings.HasPrefix(call, strings.TrimSuffix(c, "*"))
			}) {
				report("uses %s: %s", call, r.Why)
			}
		}
	}
}

// undocumented lists packages of which no file has a package comment.
func undocumented(files []File) []string {
	documented := map[string]bool{}
	for _, f := range files {
		if !f.Test {
			documented[f.Package] = documented[f.Package] || f.Doc
		}
	}
	var out []string
	for pkg, ok := range documented {
		if !ok {
			out = append(out, pkg+": the package has no doc comment: say what it decides or does, and what not")
		}
	}
	return out
}

func ruleOf(f File) (Rule, bool) {
	for _, r := range Rules {
		if matchAny(r.Packages, f.Package) || matchAny(r.Packages, f.Path) {
			return r, true
		}
	}
	return Rule{}, false
}

// match compares a folder or file with a pattern: * stands for one path element, a final ** for
// the folder before it and everything below.
func match(pattern, name string) bool {
	if before, ok := strings.CutSuffix(pattern, "/**"); ok {
		depth := strings.Count(before, "/") + 1
		parts := strings.Split(name, "/")
		if len(parts) < depth {
			return false
		}
		name, pattern = strings.Join(parts[:depth], "/"), before
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

// anyPrefix tells whether importPath is one of the paths or below one.
func anyPrefix(paths []string, importPath string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return importPath == p || strings.HasPrefix(importPath, strings.TrimSuffix(p, "/")+"/")
	})
}

// standard tells whether the path is of the standard library: no dot in its first element.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

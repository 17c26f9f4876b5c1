// SPDX-License-Identifier: Apache-2.0

// Command sbom writes a software bill of materials of a Go binary, in CycloneDX 1.6 JSON. It
// lists the modules that the Go tool recorded in the binary, with versions and checksums; it
// asks nobody and gives the same bytes for the same binary.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	dir := flag.String("dir", ".", "folder that the other paths start from")
	binary := flag.String("binary", "", "the binary")
	out := flag.String("o", "", "the file to write")
	flag.Parse()
	if err := run(filepath.Join(*dir, *binary), filepath.Join(*dir, *out)); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binary, out string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading the modules of %s: %w", binary, err)
	}
	text, err := json.MarshalIndent(bom(info), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the bill of materials: %w", err)
	}
	if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the bill of materials: %w", err)
	}
	return nil
}

type document struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

func bom(info *buildinfo.BuildInfo) document {
	d := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{module("application", &info.Main)}, Components: []component{}}
	d.Components = append(d.Components, module("library", &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Components = append(d.Components, module("library", m))
	}
	return d
}

func module(kind string, m *debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Type: kind, Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	// h1: is the SHA-256 of the list of the SHA-256 of the module's files.
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == 32 {
		c.Hashes = []hash{{Algorithm: "SHA-256", Content: hex.EncodeToString(sum)}}
	}
	return c
}

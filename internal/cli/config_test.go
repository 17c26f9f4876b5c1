// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const configHead = "apiVersion: cli.kruise.io/v1\nkind: Config\n"

func withConfig(t *testing.T, w *world, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env["KRUISECTL_CONFIG"] = file
}

func TestConfig(t *testing.T) {
	cases := map[string]struct {
		text string
		line string
		code int
		want string
	}{
		"an unknown key is refused with its line": {configHead + "colour: always\n", "rollout status clone/web", 2, `config.yaml:3: unknown key "colour"`},
		"text that is no YAML":                    {"a: [", "rollout status clone/web", 2, "config.yaml"},
		"another kind":                            {"apiVersion: v1\nkind: Pod\n", "rollout status clone/web", 2, "must be cli.kruise.io/v1 and Config"},
		"a default of a flag":                     {configHead + "defaults: {full: \"true\"}\n", "rollout status clone/web", 5, "partition reached"},
		"the command line wins over a default":    {configHead + "defaults: {full: \"true\"}\n", "rollout status clone/web --full=false", 0, "partition reached"},
		"a bad default is named":                  {configHead + "defaults: {timeout: soon}\n", "rollout status clone/web", 2, "defaults.timeout"},
		"an alias":                                {configHead + "aliases: {st: [rollout, status]}\n", "st clone/web", 0, "partition reached"},
		"an alias that hides a command":           {configHead + "aliases: {why: [rollout]}\n", "rollout status clone/web", 2, `alias "why" hides`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newShop(3, partition("70%")).world(t)
			withConfig(t, w, tc.text)
			wants(tc.code, tc.want)(t, w.runBare(strings.Fields(tc.line)...))
		})
	}
	w := newShop(10).world(t)
	w.env["KRUISECTL_CONFIG"] = "/does/not/exist.yaml"
	wants(2, "reading the configuration")(t, w.run("rollout", "status", "clone/web"))
}

func TestProtectedContexts(t *testing.T) {
	w := newShop(10).world(t)
	withConfig(t, w, configHead+"protectedContexts: [\"prod-*\"]\n")
	r := w.run("--context", "prod-eu", "rollout", "undo", "clone/web", "-y", "--no-input")
	if r.code != 9 || len(r.writes) > 0 || !strings.Contains(r.err, "prod-eu") {
		t.Errorf("a protected context was changed:\n%s", r)
	}
	wants(0)(t, w.run("--context", "prod-eu", "rollout", "undo", "clone/web", "--dry-run=client"))
	wants(0)(t, w.run("--context", "prod-eu", "rollout", "history", "clone/web"))
	wants(0)(t, w.run("--context", "dev", "rollout", "undo", "clone/web"))
}

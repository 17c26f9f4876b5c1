// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/cli/out"
)

// config is the file of cli.md 1.3.
type config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Defaults are values of flags, by name, for every command that has the flag.
	Defaults map[string]string `json:"defaults"`
	// TUI is for the terminal UI; it is checked there.
	TUI map[string]any `json:"tui"`
	// ProtectedContexts are globs of contexts in which changes need the context typed.
	ProtectedContexts []string `json:"protectedContexts"`
	// Aliases are words that stand for argument lists.
	Aliases map[string][]string `json:"aliases"`

	file string
}

// loadConfig reads the file that applies; without one it returns an empty config. Every
// error is the user's and names file and line where it can.
func loadConfig(getenv func(string) string) (*config, error) {
	file := configFile(getenv)
	if file == "" {
		return &config{}, nil
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && getenv("KRUISECTL_CONFIG") == "" {
		return &config{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	c := &config{file: file}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("%s%s: %s", file, lineOf(data, err), plainYAML(err))
	}
	if c.APIVersion != out.APIVersion || c.Kind != "Config" {
		return nil, fmt.Errorf("%s: apiVersion and kind must be %s and Config, not %q and %q", file, out.APIVersion, c.APIVersion, c.Kind)
	}
	return c, nil
}

func configFile(getenv func(string) string) string {
	if f := getenv("KRUISECTL_CONFIG"); f != "" {
		return f
	}
	if dir := getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "kruisectl", "config.yaml")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".config", "kruisectl", "config.yaml")
	}
	return ""
}

// lineOf finds the line of the key that a strict decoder does not know.
func lineOf(data []byte, err error) string {
	_, key, ok := strings.Cut(err.Error(), `unknown field "`)
	if !ok {
		return ""
	}
	key, _, _ = strings.Cut(key, `"`)
	key = key[strings.LastIndexByte(key, '.')+1:]
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), key+":") {
			return fmt.Sprintf(":%d", n)
		}
	}
	return ""
}

// plainYAML drops what the decoder says about itself.
func plainYAML(err error) string {
	text := err.Error()
	for _, p := range []string{"error unmarshaling JSON: ", "while decoding JSON: ", "error converting YAML to JSON: ", "json: "} {
		text = strings.TrimPrefix(text, p)
	}
	return strings.ReplaceAll(text, "unknown field", "unknown key")
}

// expand replaces a first word that is an alias. An alias may not hide a command.
func (c *config) expand(root *cobra.Command, args []string) ([]string, error) {
	for _, name := range slices.Sorted(maps.Keys(c.Aliases)) {
		for _, cmd := range root.Commands() {
			if cmd.Name() == name || cmd.HasAlias(name) {
				return nil, fmt.Errorf("%s: alias %q hides the command of that name", c.file, name)
			}
		}
	}
	if len(args) > 0 {
		if words, ok := c.Aliases[args[0]]; ok {
			return slices.Concat(words, args[1:]), nil
		}
	}
	return args, nil
}

// apply sets each flag of cmd that neither command line nor environment gave.
func (c *config) apply(cmd *cobra.Command) error {
	for _, name := range slices.Sorted(maps.Keys(c.Defaults)) {
		fl := cmd.Flags().Lookup(name)
		if fl == nil || fl.Changed {
			continue
		}
		if err := cmd.Flags().Set(name, c.Defaults[name]); err != nil {
			return fmt.Errorf("%s: defaults.%s: %w", c.file, name, err)
		}
	}
	return nil
}

// protected reports that changes in the context need its name typed.
func (c *config) protected(context string) bool {
	return slices.ContainsFunc(c.ProtectedContexts, func(glob string) bool {
		ok, err := filepath.Match(glob, context)
		return err == nil && ok
	})
}

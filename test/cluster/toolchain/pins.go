// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// versions maps each pinned module to its version. Replacements of a dependency do not count for the module that depends
// on it, so the generated module must repeat them.
func (p Pins) versions(ctx context.Context) (map[string]string, error) {
	pinned := map[string]string{}
	if p == NoPins {
		return pinned, nil
	}
	goMod, err := moduleFileOf(ctx, kubernetesModule, KubernetesVersion)
	if err != nil {
		return nil, err
	}
	if p == KubernetesPins {
		pinned = requirements(goMod)
	}
	for _, m := range folderReplacements(goMod) {
		pinned[m] = StagingVersion
	}
	return pinned, nil
}

// moduleFileOf downloads a module and returns its go.mod.
func moduleFileOf(ctx context.Context, module, version string) (string, error) {
	out, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", module+"@"+version).Output()
	if err != nil {
		return "", fmt.Errorf("downloading %s@%s: %w", module, version, err)
	}
	var info struct{ GoMod, Error string }
	if err := json.Unmarshal(out, &info); err != nil {
		return "", fmt.Errorf("reading what go mod download says about %s: %w", module, err)
	}
	if info.Error != "" {
		return "", fmt.Errorf("downloading %s@%s: %s", module, version, info.Error)
	}
	data, err := os.ReadFile(info.GoMod)
	if err != nil {
		return "", fmt.Errorf("reading the module file of %s: %w", module, err)
	}
	return string(data), nil
}

// folderReplacements lists the modules that a go.mod replaces by folders of its own repository, in file order.
func folderReplacements(goMod string) []string {
	var modules []string
	for line := range strings.Lines(goMod) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "replace ")
		from, to, ok := strings.Cut(line, " => ")
		if ok && strings.HasPrefix(strings.TrimSpace(to), "./") {
			modules = append(modules, strings.Fields(from)[0])
		}
	}
	return modules
}

// requirements maps each module that a go.mod requires to its version.
func requirements(goMod string) map[string]string {
	versions := map[string]string{}
	for line := range strings.Lines(goMod) {
		line, _, _ = strings.Cut(line, "//")
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) == 2 && strings.Contains(fields[0], "/") && strings.HasPrefix(fields[1], "v") {
			versions[fields[0]] = fields[1]
		}
	}
	return versions
}

// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// stagingModules returns the modules that module replaces by folders of its own repository, each with the version
// under which it is published. Replacements of a dependency do not count for the module that depends on it, so the
// generated module must repeat them.
func stagingModules(ctx context.Context, module, version string) (map[string]string, error) {
	out, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", module+"@"+version).Output()
	if err != nil {
		return nil, fmt.Errorf("downloading %s@%s: %w", module, version, err)
	}
	var info struct{ GoMod, Error string }
	if err := json.Unmarshal(out, &info); err != nil {
		return nil, fmt.Errorf("reading what go mod download says about %s: %w", module, err)
	}
	if info.Error != "" {
		return nil, fmt.Errorf("downloading %s@%s: %s", module, version, info.Error)
	}
	data, err := os.ReadFile(info.GoMod)
	if err != nil {
		return nil, fmt.Errorf("reading the module file of %s: %w", module, err)
	}
	modules := map[string]string{}
	for _, m := range folderReplacements(string(data)) {
		modules[m] = StagingVersion
	}
	return modules, nil
}

// folderReplacements lists the modules that a go.mod replaces by folders, in file order.
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

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Gates are those of the acceptance environment: everything on but what needs
// certificates from outside, and what leaves templates without defaults.
const Gates = "AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false"

// InstallArgs are the arguments of kruisectl install for the image under test.
func InstallArgs() []string {
	repository, digest, _ := strings.Cut(os.Getenv("E2E_IMAGE"), "@")
	repository, _, _ = strings.Cut(repository, ":")
	return []string{
		"install", "--yes", "--image", repository, "--image-digest", digest, "--replicas", "2",
		"--feature-gates", Gates, "--set", "enableKubeCacheMutationDetector=true", "--timeout", "10m",
	}
}

// Install installs the product, once per cluster: a second call finds nothing to do.
func Install(ctx context.Context) error {
	r, err := Run(ctx, "", Binary(), InstallArgs()...)
	if err != nil {
		return fmt.Errorf("running %q: %w", Binary(), err)
	}
	if r.Code != 0 {
		return fmt.Errorf("kruisectl install exited with %d:\n%s", r.Code, r.Text())
	}
	fmt.Fprint(os.Stderr, r.Stderr)
	return nil
}

// Without drops flags from args, each with its value unless the flag takes none.
func Without(args []string, flags ...string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		if !slices.Contains(flags, args[i]) {
			kept = append(kept, args[i])
			continue
		}
		if i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
		}
	}
	return kept
}

// Kubectl is the kubectl of the cluster under test.
func Kubectl() string { return os.Getenv("KUBECTL") }

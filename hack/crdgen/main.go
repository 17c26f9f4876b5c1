// SPDX-License-Identifier: Apache-2.0

// Command crdgen writes what follows from the API types: deepcopy functions beside them, and
// CustomResourceDefinitions with their conversion stanza (install.md 1.2) into manifests/crds.
// It runs controller-gen, whose version is that of go.mod, and always writes the same bytes.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", ".", "root of the module")
	flag.Parse()
	if err := generate(context.Background(), *root); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

// conversion goes between "spec:" and "group:", where it is in the order of keys. Without
// caBundle: the manager writes it.
const conversion = `spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig:
        service:
          name: kruise-webhook-service
          namespace: kruise-system
          path: /convert
          port: 443
      conversionReviewVersions:
      - v1
      - v1beta1
`

func generate(ctx context.Context, root string) error {
	crds := filepath.Join(root, "manifests", "crds")
	if err := controllerGen(ctx, root, "object:headerFile=hack/boilerplate.go.txt", "paths=./apis/..."); err != nil {
		return err
	}
	return crdsInto(ctx, root, crds)
}

// crdsInto writes all CRDs into dir and removes those of kinds that are gone.
func crdsInto(ctx context.Context, root, dir string) error {
	fresh, err := os.MkdirTemp("", "crdgen-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := controllerGen(ctx, root, "crd:crdVersions=v1", "paths=./apis/...", "output:crd:dir="+fresh); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if _, err := os.Stat(filepath.Join(fresh, filepath.Base(file))); errors.Is(err, os.ErrNotExist) && filepath.Base(file) != "kustomization.yaml" {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(fresh, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text, err = withConversion(text)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withConversion adds the stanza to a CRD that serves more than one version.
func withConversion(crd []byte) ([]byte, error) {
	if bytes.Count(crd, []byte("\n    served: true\n")) < 2 {
		return crd, nil
	}
	if bytes.Count(crd, []byte("\nspec:\n")) != 1 {
		return nil, errors.New("expected one top-level spec")
	}
	return bytes.Replace(crd, []byte("\nspec:\n"), []byte("\n"+conversion), 1), nil
}

func controllerGen(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "controller-gen"}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("controller-gen %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

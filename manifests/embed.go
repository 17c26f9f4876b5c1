// SPDX-License-Identifier: Apache-2.0

// Package manifests embeds the kustomize tree that installs the product.
package manifests

import "embed"

// Files is the tree as it lies in this folder: bases, components, overlays and CRDs.
//
//go:embed base components crds overlays
var Files embed.FS

// SPDX-License-Identifier: Apache-2.0

// Package install renders, applies, compares and removes an installation of the
// product: manager, webhooks, node daemon and CRDs.
//
// The objects come from the kustomize tree of package manifests, built in memory;
// Values become patches over it, so that every rendering is something plain kustomize
// could have made, and the same values give the same bytes. What was applied is
// remembered in an inventory ConfigMap, from which pruning, upgrades and removal work.
// The rules are those of install.md and cli.md 4. The package prints nothing: progress
// goes to a callback, results are values.
package install

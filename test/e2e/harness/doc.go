//go:build e2e

// SPDX-License-Identifier: Apache-2.0

// Package harness is what the end-to-end suites share: a namespace per test, the
// kruisectl binary under test, polling with generous deadlines, an observer that checks
// a rollout's promises at every Pod event, and a dump of the namespace when a test fails.
//
// The cluster and the installation come from outside: KUBECONFIG names a cluster, KRUISECTL
// the binary, E2E_IMAGE the product's image. Nothing here installs by other means than
// kruisectl install.
package harness

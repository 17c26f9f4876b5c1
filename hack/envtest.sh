#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of all files named *_envtest_test.go, and only those, against a real API server.
set -euo pipefail
mapfile -t files < <(git ls-files '*_envtest_test.go')
[ ${#files[@]} -gt 0 ] || { echo "envtest: no test files" >&2; exit 1; }
mapfile -t packages < <(dirname "${files[@]}" | sort -u | sed 's|^|./|')
names=$(grep -hoE '^func Test[A-Za-z0-9_]+\(t ' "${files[@]}" | sed -E 's/^func (Test[A-Za-z0-9_]+).*/\1/' | sort -u | paste -sd '|')
KUBEBUILDER_ASSETS=$(cluster assets)
export KUBEBUILDER_ASSETS KUBE_CACHE_MUTATION_DETECTOR=true
CGO_ENABLED=1 go tool -modfile=hack/tools/go.mod gotestsum --format pkgname --jsonfile out/envtest.json -- \
  -race -count 1 -p 1 -tags envtest -run "^($names)\$" -timeout 20m "${packages[@]}"

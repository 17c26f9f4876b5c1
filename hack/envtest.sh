#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of all files named *_envtest_test.go, and only those, against a real API server:
# what runs in the cluster with the race detector, the command line, which is a client, without.
set -euo pipefail
KUBEBUILDER_ASSETS=$(cluster assets)
export KUBEBUILDER_ASSETS KUBE_CACHE_MUTATION_DETECTOR=true
mkdir -p out

# suite NAME CGO FLAGS -- FILES
suite() {
  local name=$1 cgo=$2 flags=()
  shift 2
  while [ "$1" != -- ]; do flags+=("$1") && shift; done
  shift
  local packages names
  mapfile -t packages < <(dirname "$@" | sort -u | sed 's|^|./|')
  names=$(grep -hoE '^func Test[A-Za-z0-9_]+\(t ' "$@" | sed -E 's/^func (Test[A-Za-z0-9_]+).*/\1/' | sort -u | paste -sd '|')
  CGO_ENABLED=$cgo go tool -modfile=hack/tools/go.mod gotestsum --format pkgname --jsonfile "out/$name.json" -- \
    "${flags[@]}" -count 1 -p 1 -tags envtest -run "^($names)\$" -timeout 25m "${packages[@]}"
}

mapfile -t clients < <(git ls-files 'internal/install/*_envtest_test.go' 'internal/cli/*_envtest_test.go')
mapfile -t servers < <(git ls-files '*_envtest_test.go' | grep -vxF "$(printf '%s\n' "${clients[@]}")")
suite envtest 1 -race -- "${servers[@]}"
suite envtest-cli 0 -- "${clients[@]}"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# e2e.sh core|full: runs the end-to-end suites on a fresh real cluster. KEEP_CLUSTER=1 leaves it running.
set -euo pipefail
suite=${1:?core or full}
tags=e2e
[ "$suite" = core ] || tags=e2e,full
mkdir -p out

cluster down
finish() { [ -n "${KEEP_CLUSTER:-}" ] || cluster down; }
trap finish EXIT
cluster up --nodes 3
image=$(cluster build-product --repo . --tag e2e | tail -n 1)

eval "$(cluster env)"
export E2E_IMAGE=$image KRUISECTL=$PWD/bin/kruisectl
CGO_ENABLED=0 go tool -modfile=hack/tools/go.mod gotestsum --format testname --jsonfile "out/e2e.json" -- \
  -tags "$tags" -count 1 -p 1 -parallel 4 -timeout 60m ./test/e2e/rollout/... ./test/e2e/statefulset/... ./test/e2e/daemonset/... \
  ./test/e2e/images/... ./test/e2e/containers/... ./test/e2e/probes/... ./test/e2e/uninstall/...

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The demo from nothing: cluster, installation, rollout. Leaves the cluster running.
set -euo pipefail
kind=()
if [ "$(id -u)" -ne 0 ]; then
  echo "demo: not root, so the nodes are simulated: no container runs, everything else is real" >&2
  kind=(--rootless-simulated)
fi
cluster up "${kind[@]}"
eval "$(cluster env)"
export KRUISECTL=$PWD/bin/kruisectl
image=$(cluster build-product --repo . --tag demo | tail -n 1)
kruisectl install --yes --image "${image%%:*}" --image-digest "${image##*@}" --replicas 2 --feature-gates PreDownloadImageForInPlaceUpdate=true
CGO_ENABLED=0 go run ./hack/demo

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The demo from nothing: cluster, installation, rollout. Leaves the cluster running.
# Without root, or with DEMO_SIMULATED=1, the nodes are simulated.
set -euo pipefail
gates=PreDownloadImageForInPlaceUpdate=true
export KRUISECTL=$PWD/bin/kruisectl
if [ "$(id -u)" -ne 0 ] || [ -n "${DEMO_SIMULATED:-}" ]; then
  echo "demo: the nodes are SIMULATED: no container runs. The Kubernetes control plane is real, and the manager runs as a process of this machine." >&2
  cluster up --rootless-simulated --simulated 3
  eval "$(cluster env)"
  if "$KUBECTL" -n kruise-system get deployment kruise-controller-manager >/dev/null 2>&1; then
    echo "demo: installed by an earlier run; for a fresh installation take the cluster down first (make cluster-down)" >&2
  else
    # No node can run the manager's Pods, so nobody waits for them: they stay Pending, and say why.
    kruisectl install --yes --wait=false --replicas 1 --feature-gates "$gates"
  fi
  # Simulated nodes need no time to settle before they get a NodeImage.
  cluster run-manager --program bin/kruise-manager -- --nodeimage-creation-delay=1s
else
  cluster up
  eval "$(cluster env)"
  image=$(cluster build-product --repo . --tag demo | tail -n 1)
  do=install
  "$KUBECTL" -n kruise-system get configmap kruisectl-inventory >/dev/null 2>&1 && do=upgrade # of an earlier run
  kruisectl "$do" --yes --image "${image%%:*}" --image-digest "${image##*@}" --replicas 2 --feature-gates "$gates"
fi
CGO_ENABLED=0 go run ./hack/demo

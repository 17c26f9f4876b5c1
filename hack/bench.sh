#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The benchmark from nothing: one real node for the manager, 200 simulated ones for Pods and images.
set -euo pipefail
mkdir -p out
cluster down
finish() { [ -n "${KEEP_CLUSTER:-}" ] || cluster down; }
trap finish EXIT
cluster up --nodes 1 --simulated "${BENCH_NODES:-200}" --audit
eval "$(cluster env)"
image=$(cluster build-product --repo . --tag bench | tail -n 1)
bin/kruisectl install --yes --image "${image%%:*}" --image-digest "${image##*@}" --replicas 1
for workload in ${BENCH_WORKLOADS:-cloneset statefulset daemonset imagepulljob}; do
  CGO_ENABLED=0 go run ./test/bench -workload "$workload" -pods "${BENCH_PODS:-1000}" -max-unavailable "${BENCH_MAX_UNAVAILABLE:-20%}" -o "out/bench-$workload.json"
done

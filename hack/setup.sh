#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what building and testing need from Debian: a C compiler for the race detector.
# The packages of the local cluster are installed by the cluster tool itself.
set -euo pipefail
command -v go >/dev/null || { echo "setup: go is not in PATH: install Go 1.26 or newer first (https://go.dev/dl)" >&2; exit 1; }
missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v git >/dev/null || missing+=(git)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "setup: please install: ${missing[*]}" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"

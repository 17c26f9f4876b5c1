#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails when generating again changes a file, and says which.
set -euo pipefail
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
cp -r apis manifests "$before/"
go generate ./apis/...
for dir in apis manifests; do
  if ! diff -r "$before/$dir" "$dir"; then
    echo "verify-generated: $dir was not up to date: commit what 'make generate' wrote" >&2
    exit 1
  fi
done

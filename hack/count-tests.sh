#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# count-tests.sh DIR: adds up the results in DIR/*.json (go test -json) and prints them,
# one line a suite and a closing line.
set -euo pipefail
shopt -s nullglob
count() { cat "${@:2}" | grep -c "\"Action\":\"$1\".*\"Test\":" || true; }
files=("$1"/*.json)
[ ${#files[@]} -gt 0 ] || { echo "count-tests: no results in $1" >&2; exit 1; }
for f in "${files[@]}"; do
  printf '%-10s %s passed, %s failed, %s skipped\n' "$(basename "$f" .json)" "$(count pass "$f")" "$(count fail "$f")" "$(count skip "$f")"
done
echo "$(count pass "${files[@]}") passed, $(count fail "${files[@]}") failed, $(count skip "${files[@]}") skipped"

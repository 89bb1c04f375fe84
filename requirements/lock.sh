#!/usr/bin/env bash
# Writes the hash-pinned locks from pyproject.toml. `make lock`.
set -euo pipefail
cd "$(dirname "$0")/.."
lock() { # lock NAME EXTRA...
  local name=$1; shift
  local extras=(); for e in "$@"; do extras+=(--extra "$e"); done
  .venv/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
    --no-annotate "${extras[@]}" --output-file "requirements/$name.txt" pyproject.toml
}
lock runtime
lock demo embedded egress demo
lock dev embedded egress demo dev

#!/usr/bin/env bash
# Writes the hash-pinned locks from pyproject.toml. `make lock`.
# torch stands in two locks of its own: docs/decisions/0015-two-locks-for-torch.md
set -euo pipefail
cd "$(dirname "$0")/.."
compile() { # compile OUTPUT ARGUMENT...
  local output=$1; shift
  .venv/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
    --no-annotate --output-file "requirements/$output.txt" "$@"
}
lock() { # lock NAME EXTRA...
  local name=$1; shift
  local extras=(); for e in "$@"; do extras+=(--extra "$e"); done
  compile "$name" "${extras[@]}" pyproject.toml
}
move_torch_out() { # move_torch_out NAME: the lines of torch, up to its last hash
  sed -i '/^torch==/,/[^\\]$/d' "requirements/$1.txt"
}
pin() { # pin OUTPUT NAME==VERSION...: these alone, whose own needs stand in other locks
  local output=$1; shift
  .venv/bin/pip download --quiet --no-deps --only-binary :all: --dest "$work/$output" "$@"
  for one in "$@"; do
    local name=${one%%==*}
    echo "$one \\"
    .venv/bin/pip hash "$work/$output/${name//-/_}"-*.whl | sed -n 's/^--hash/    &/p'
  done > "requirements/$output.txt"
}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
lock runtime planner
lock appliance planner embedded egress
lock demo planner embedded egress demo
lock dev planner embedded egress demo train lm dev
sed -n '/^torch==/,/[^\\]$/p' requirements/dev.txt > "$work/torch-cpu.txt"
version=$(sed -n 's/^torch==\([0-9.]*\)+cpu .*/\1/p' "$work/torch-cpu.txt")
[[ $version ]] || { echo "no index that pip knows has the CPU build of torch: add one" >&2; exit 1; }
mv "$work/torch-cpu.txt" requirements/torch-cpu.txt
move_torch_out dev
# What is installed beside or instead of the development set has its versions.
grep -oE '^[a-z0-9.-]+==[^ ]+' requirements/dev.txt > "$work/shared.txt"
compile train --constraint "$work/shared.txt" --extra planner --extra train pyproject.toml
move_torch_out train
compile lm --constraint "$work/shared.txt" --extra planner --extra embedded --extra train --extra lm pyproject.toml
move_torch_out lm
# `===` is the build without a local version, the one with CUDA; a second run writes `==`.
echo "torch===$version" > "$work/torch.in"
compile torch-cuda --constraint "$work/shared.txt" "$work/torch.in"
sed -i 's/^torch==\([0-9]\)/torch===\1/' requirements/torch-cuda.txt
# Triton is the one of the torch that GPU boxes have; xgrammar asks for torch and for Triton.
pin triton triton==3.6.0
pin xgrammar xgrammar==0.2.9 apache-tvm-ffi==0.1.15.post2

"""Part `others`: the same plan by others on the same card, where they are installed.

Each runs in a process of its own, which frees its memory when it ends and can be stopped when its
time is over. It prints a row as JSON for each thing that it timed; what it printed before it was
stopped counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from gpubench.parts import Bench, Cell, Row


@dataclass(frozen=True)
class Other:
    """Somebody else's way to write a plan."""

    name: str
    package: str
    """What has to be installed."""
    limit_s: float
    needs_gpu: bool = True


OTHERS = (
    Other("hf", "transformers", 75.0, needs_gpu=False),
    Other("hf_compiled", "transformers", 130.0),
    Other("vllm", "vllm", 150.0),
    Other("tensorrt_llm", "tensorrt_llm", 150.0),
)
"""Files beside this one, `other_NAME.py`."""


def rows(bench: Bench) -> Iterator[Row]:
    """Whatever each of them says, or why it says nothing."""
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()
    for one in OTHERS:
        if one.needs_gpu and bench.device.type != "cuda":
            yield _silent(one, "only on a GPU")
        elif find_spec(one.package) is None:
            yield _silent(one, f"{one.package} is not installed")
        else:
            yield from _of(one, bench)


def _of(one: Other, bench: Bench) -> Iterator[Row]:
    asked = {
        "tiny": bench.device.type != "cuda",
        "batches": list(bench.sizes.batches[:1] if bench.quick else bench.sizes.batches),
    }
    command = [sys.executable, "-m", f"gpubench.other_{one.name}", json.dumps(asked)]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    problem = ""
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=one.limit_s, env=environment
        )
        printed, told = done.stdout, done.stderr
        problem = "" if done.returncode == 0 else _last_line(told)
    except subprocess.TimeoutExpired as late:
        printed = _text(late.stdout)
        problem = f"stopped after {one.limit_s:.0f} s"
    found = list(_read(printed))
    for row in found:
        yield {"who": one.name, **row}
    if problem or not found:
        yield _silent(one, problem or "it said nothing")


def _read(printed: str) -> Iterator[dict[str, Cell]]:
    """Lines that are ours; packages print others."""
    for line in printed.splitlines():
        if line.startswith('{"what":'):
            yield json.loads(line)


def _silent(one: Other, why: str) -> Row:
    return {"who": one.name, "what": None, "problem": why}


def _text(printed: bytes | str | None) -> str:
    return printed.decode(errors="replace") if isinstance(printed, bytes) else printed or ""


def _last_line(told: str) -> str:
    lines = told.strip().splitlines() or ["it broke without a word"]
    return lines[-1][:200]

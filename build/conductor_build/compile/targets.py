"""What a bundle can be compiled for: a name, and the function that does it.

A target is a function `(bundle, out, options) -> Path` in a file of its own, imported when it is
asked for. It reads files of the opened bundle, writes `out`, which is a new folder, in one step or
not at all, and returns what it wrote. It raises errors of `conductor.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.errors import StartError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from conductor.planner.bundle import Bundle

DEFAULT_TARGET = "triton"
TARGETS: Mapping[str, str] = {
    DEFAULT_TARGET: "conductor_build.compile.triton_target:compile_triton",
    "tensorrt-llm": "conductor_build.compile.tensorrt_llm:compile_tensorrt_llm",
    "tensorrt-engine": "conductor_build.compile.tensorrt_engine:compile_tensorrt_engine",
}


def _silent(line: str) -> None:
    """Progress that nobody wants to see."""


@dataclass(frozen=True)
class Options:
    """What the command was told. A target leaves what does not concern it."""

    key: Ed25519PrivateKey | None = None
    """Signs what is a bundle again."""
    architectures: tuple[str, ...] = ()
    """Such as `sm_90`; empty: all that the target knows."""
    jobs: int = 1
    """Processes at once."""
    allow_faults: bool = False
    """Write kernels that a gate refuses too, and say so in the report."""
    say: Callable[[str], None] = field(default=_silent, compare=False)
    """Told each line of progress."""


Target = Callable[["Bundle", Path, Options], Path]


def find_target(name: str) -> Target:
    """Raises `StartError` for a name that is none."""
    place = TARGETS.get(name)
    if place is None:
        raise StartError(f"no target is called {name}: take one of {', '.join(TARGETS)}")
    module, _, function = place.partition(":")
    target: Target = getattr(import_module(module), function)
    return target

"""What is found of one feature, and on what it is looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


NO_GPU = "no GPU that torch can use"


class State(StrEnum):
    """Of a feature."""

    PASS = "pass"  # noqa: S105  no password
    FAIL = "fail"
    NOT_HERE = "not here"
    """What it needs is not on this box, and nothing follows for the rest."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    feature: str
    state: State
    said: str
    """What was seen, or what to do."""


@dataclass(frozen=True)
class Machine:
    """Where features are looked for."""

    device_name: str = "cuda"
    """`cpu` looks at the reference ops: whether the check itself works."""
    bundle: Path | None = None
    """A language model's; None: what needs one is not here."""
    seed: int = 0
    keys: tuple[Path, ...] = ()
    """Public keys of who may have signed it: its machine code is run."""

    @cached_property
    def has_torch(self) -> bool:
        from importlib.util import find_spec

        return find_spec("torch") is not None

    @cached_property
    def device(self) -> torch.device | None:
        """None: it is not there."""
        if not self.has_torch:
            return None
        import torch

        if self.device_name == "cuda" and not torch.cuda.is_available():
            return None
        return torch.device(self.device_name)

    @property
    def lacks_compiler(self) -> bool:
        """A GPU without Triton: no kernel can be compiled."""
        from importlib.util import find_spec

        on_gpu = self.device is not None and self.device.type == "cuda"
        return on_gpu and find_spec("triton") is None

    @property
    def capability(self) -> tuple[int, int] | None:
        """The GPU's compute capability, such as (9, 0)."""
        if self.device is None or self.device.type != "cuda":
            return None
        import torch

        return torch.cuda.get_device_capability(self.device)


Feature = Callable[[Machine], Iterator[Finding]]
"""Looks at one thing, or at several of a kind. May raise: that is a failure."""


def passed(feature: str, said: str) -> Finding:
    """It works."""
    return Finding(feature, State.PASS, said)


def failed(feature: str, said: str) -> Finding:
    """It should, and does not."""
    return Finding(feature, State.FAIL, said)


def absent(feature: str, said: str) -> Finding:
    """It cannot be looked at here."""
    return Finding(feature, State.NOT_HERE, said)

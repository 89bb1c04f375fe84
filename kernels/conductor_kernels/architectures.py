"""The GPUs that kernels are compiled for, and which machine code runs on which of them.

NVIDIA's rule (CUDA C++ Programming Guide, binary compatibility): code for X.Y runs on X.Z where Z
is at least Y. Code for an architecture with an `a` behind its number, which Triton makes from 9.0
on, runs on that one alone. Shared memory is what one block may have (the guide's table of compute
capabilities).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

_KB = 1024
_FIRST_EXACT = 9
"""Major version from which on code runs on its own architecture alone."""


def name_of(capability: tuple[int, int]) -> str:
    """Of any GPU: `sm_103` for (10, 3)."""
    return f"sm_{capability[0]}{capability[1]}"


@dataclass(frozen=True, order=True)
class Architecture:
    """One GPU architecture."""

    major: int
    minor: int
    shared_bytes: int
    """Most dynamic shared memory of a block."""

    @property
    def name(self) -> str:
        """As folders and options spell it: `sm_90`."""
        return name_of((self.major, self.minor))

    @property
    def number(self) -> int:
        """As Triton spells it: 90."""
        return self.major * 10 + self.minor

    @property
    def code(self) -> str:
        """What the machine code itself is marked with: `sm_90a`."""
        return f"{self.name}a" if self.major >= _FIRST_EXACT else self.name

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether its machine code runs on a GPU of that compute capability."""
        major, minor = capability
        if self.major >= _FIRST_EXACT:
            return capability == (self.major, self.minor)
        return major == self.major and minor >= self.minor


ARCHITECTURES = {
    one.name: one
    for one in (
        Architecture(8, 0, 163 * _KB),  # A100
        Architecture(8, 6, 99 * _KB),  # A10, A40, RTX 30
        Architecture(8, 9, 99 * _KB),  # L4, L40S, RTX 40
        Architecture(9, 0, 227 * _KB),  # H100, H200
        Architecture(10, 0, 227 * _KB),  # B200
        Architecture(12, 0, 99 * _KB),  # RTX 50, RTX PRO Blackwell
    )
}


def best_for(capability: tuple[int, int], names: Collection[str]) -> Architecture | None:
    """Of these architectures the nearest whose code runs on that GPU; None: none does."""
    fitting = [ARCHITECTURES[name] for name in names if name in ARCHITECTURES]
    return max((one for one in fitting if one.runs_on(capability)), default=None)

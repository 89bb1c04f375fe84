"""What an ahead-of-time build leaves for one architecture, and its spelling as JSON.

triton/sm_90/kernels.json   this record
triton/sm_90/NAME.cubin     machine code of one kernel
triton/sm_90/NAME.ptx       the same before the assembler, to be read

format        version of this form
architecture  such as sm_90
code          what the machine code is marked with: sm_90a runs on 9.0 alone
triton        version of the compiler
source        hash of the ops' files (`catalogue.py`): arguments are in the order of those
kernels       name -> entry, warps, stages, shared_bytes, arguments (name and type, in order),
              divisible, constants, and sha256 of the machine code
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from conductor.errors import StartError

FORMAT = 1
FOLDER = "triton"
RECORD = "kernels.json"
_AGAIN = "compile the bundle again with `conductor-build compile`"


@dataclass(frozen=True)
class Built:
    """One kernel's machine code, described."""

    entry: str
    """Its function's name in the machine code."""
    warps: int
    stages: int
    shared_bytes: int
    """Dynamic shared memory of a block."""
    arguments: tuple[tuple[str, str], ...]
    """Name and Triton's type of each, in order."""
    divisible: tuple[str, ...]
    """Arguments that have to be a multiple of 16."""
    constants: Mapping[str, int | float | bool | str]
    sha256: str


@dataclass(frozen=True)
class BuiltKernels:
    """All of one architecture."""

    architecture: str
    code: str
    triton: str
    source: str
    kernels: Mapping[str, Built]


def encode(record: BuiltKernels) -> bytes:
    """As JSON, the same bytes for the same record."""
    said = {"format": FORMAT, **asdict(record)}
    return json.dumps(said, indent=1, sort_keys=True).encode() + b"\n"


def decode(data: bytes) -> BuiltKernels:
    """Raises `StartError` for anything that `encode` of this release does not write."""
    try:
        said = json.loads(data)
        version = said.pop("format")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise _unusable("it is no such record") from None
    if type(version) is not int or version != FORMAT:
        raise _unusable(f"its format is another than {FORMAT}, which this release reads")
    try:
        kernels = {name: _built(**fields) for name, fields in said.pop("kernels").items()}
        record = BuiltKernels(kernels=kernels, **said)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _unusable("a field is missing or of another form") from None
    return record


def _built(**fields: Any) -> Built:
    arguments = tuple((str(name), str(kind)) for name, kind in fields.pop("arguments"))
    divisible = tuple(map(str, fields.pop("divisible")))
    built = Built(arguments=arguments, divisible=divisible, **fields)
    for count in (built.warps, built.stages, built.shared_bytes):
        if type(count) is not int or count < 0:
            raise ValueError("a count")
    return built


def _unusable(problem: str) -> StartError:
    return StartError(f"{RECORD} of the compiled kernels cannot be used ({problem}): {_AGAIN}")

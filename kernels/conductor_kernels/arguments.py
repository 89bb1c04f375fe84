"""A kernel's arguments as the bytes that machine code takes, checked against what it was built for.

The compiler is not asked any more, so nothing else would notice a tensor of another type, or one
that is less aligned than the loads that were made for it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conductor.errors import StartError
from conductor_kernels.kernelfile import Built

ALIGNED = 16
"""Bytes, or the factor of a number, that `divisible` promises: Triton's own unit."""
_SLOT = 8
"""Bytes that hold any argument."""
_SCRATCH = 2
"""Pointers that Triton puts behind the arguments, to memory that our kernels do not ask for."""

TYPES = {
    "i1": ("?", "torch.bool"),
    "i8": ("b", "torch.int8"),
    "i16": ("h", "torch.int16"),
    "i32": ("i", "torch.int32"),
    "i64": ("q", "torch.int64"),
    "u8": ("B", "torch.uint8"),
    "u16": ("H", "torch.uint16"),
    "u32": ("I", "torch.uint32"),
    "u64": ("Q", "torch.uint64"),
    "fp16": ("e", "torch.float16"),
    "bf16": ("", "torch.bfloat16"),
    "fp32": ("f", "torch.float32"),
    "fp64": ("d", "torch.float64"),
    "fp8e4nv": ("", "torch.float8_e4m3fn"),
    "fp8e5": ("", "torch.float8_e5m2"),
}
"""By Triton's name: the form of a number for `struct`, and the type of a tensor that is pointed to.
No form: only pointed to."""


def known(kind: str) -> bool:
    """Whether an argument of that type can be handed over."""
    pointer = kind.startswith("*")
    form, tensor = TYPES.get(kind[1:] if pointer else kind, ("", ""))
    return bool(tensor if pointer else form)


@dataclass(frozen=True, eq=False)
class Packed:
    """Values in memory, and their addresses in order. Both must live until the launch returns."""

    slots: ctypes.Array[ctypes.c_uint64]
    addresses: ctypes.Array[ctypes.c_void_p]


def pack(name: str, built: Built, values: Sequence[Any]) -> Packed:
    """Raises `StartError` when a value is not of the type or alignment that it was built for."""
    if len(values) != len(built.arguments):
        raise _refused(name, f"it takes {len(built.arguments)} arguments, {len(values)} are given")
    count = len(values) + _SCRATCH
    slots = (ctypes.c_uint64 * count)()
    for at, ((argument, kind), value) in enumerate(zip(built.arguments, values, strict=True)):
        try:
            form, number = _number(kind, value)
            struct.pack_into(form, slots, at * _SLOT, number)
        except (struct.error, TypeError, ValueError, AttributeError, OverflowError):
            raise _refused(name, f"{argument} is no {kind}") from None
        if argument in built.divisible and number % ALIGNED:
            raise _refused(name, f"{argument} is no multiple of {ALIGNED}")
    first = ctypes.addressof(slots)
    return Packed(slots, (ctypes.c_void_p * count)(*(first + at * _SLOT for at in range(count))))


def _number(kind: str, value: Any) -> tuple[str, Any]:
    """Form and number of a value; raises one of many errors when it is not of its type."""
    if not kind.startswith("*"):
        return "<" + (TYPES[kind][0] or "x"), value
    if value is None:
        return "<Q", 0
    if str(value.dtype) != TYPES[kind[1:]][1]:
        raise TypeError(kind)
    return "<Q", value.data_ptr()


def _refused(name: str, problem: str) -> StartError:
    return StartError(f"the compiled kernel {name} cannot be started: {problem}")
